//! Requests that are charged once, however often they are sent.
//!
//! The id of a request is locked while the request is decided, so of several
//! at once one is charged and the others wait for its answer. What is kept is
//! the answer, and only if the request was carried out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::MemoryStore;
use crate::kernel::{Verb, Verdict};
use crate::store::{Check, ImmediateStore, RequestId, StoreError};
use crate::sync::{Mutex, lock};
use crate::time::Micros;

/// For how long ids are remembered unless told otherwise.
pub(super) const DEFAULT_IDS_FOR: Duration = Duration::from_secs(300);

const SHARDS: usize = 64;
/// Ids that a shard remembers; the oldest make room.
const MOST: usize = 2_048;

pub(super) struct Ids {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    answers: HashMap<u64, Answer>,
    /// The ids from the oldest to the newest.
    order: VecDeque<u64>,
}

struct Answer {
    payload: u64,
    /// By which limits it was decided.
    limits: Box<[u64]>,
    at: Micros,
    until: Micros,
    verdicts: Box<[Verdict]>,
}

impl Ids {
    pub(super) fn new() -> Ids {
        Ids { shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect() }
    }
}

impl Answer {
    fn repeat(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) {
        let same_limits = self.limits.iter().copied().eq(checks.iter().map(|check| check.meter().identity()));
        for (index, verdict) in verdicts.iter_mut().enumerate() {
            // Of limits that were changed since, only that it passed is known.
            let given = self.verdicts.get(index).filter(|_| same_limits);
            let given = given.copied().unwrap_or(Verdict { allowed: true, ..Verdict::default() });
            *verdict = Verdict { repeated: true, ..given };
        }
    }
}

impl Shard {
    fn forget(&mut self, now: Micros) {
        while let Some(oldest) = self.order.front() {
            let matters = self.answers.get(oldest).is_some_and(|answer| answer.until > now);
            if matters && self.order.len() <= MOST {
                return;
            }
            self.answers.remove(oldest);
            self.order.pop_front();
        }
    }
}

impl MemoryStore {
    /// Decides checks that have an id, unless that was done before.
    #[cold]
    pub(super) fn decide_once(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let anonymous: Vec<Check<'_>> = checks.iter().map(Check::without_id).collect();
        let Some((check, id)) = checks.first().and_then(|check| Some((check, check.id()?))) else {
            return self.decide_now(&anonymous, verdicts);
        };
        let fingerprint = self.fingerprint_of_id(check, id);
        let ids = self.ids.get_or_init(|| Box::new(Ids::new()));
        let mut shard = lock(&ids.shards[(fingerprint % SHARDS as u64) as usize]);
        shard.forget(self.clock.now());
        if let Some(answer) = shard.answers.get(&fingerprint) {
            if answer.payload != id.payload {
                return Err(StoreError::IdReused { id: id.text.to_owned() });
            }
            answer.repeat(checks, verdicts);
            return Ok(answer.at);
        }
        let at = self.decide_now(&anonymous, verdicts)?;
        let refuses = |(check, verdict): (&Check<'_>, &Verdict)| check.verb() == Verb::Charge && !verdict.allowed;
        if !checks.iter().zip(&*verdicts).any(refuses) {
            let until = at.saturating_add(Micros::from_duration(self.ids_for));
            let verdicts = (&*verdicts).into();
            let limits = checks.iter().map(|check| check.meter().identity()).collect();
            shard.answers.insert(fingerprint, Answer { payload: id.payload, limits, at, until, verdicts });
            shard.order.push_back(fingerprint);
            shard.forget(at);
        }
        Ok(at)
    }

    fn fingerprint_of_id(&self, check: &Check<'_>, id: RequestId<'_>) -> u64 {
        let owner = check.key().parts().next().unwrap_or_default();
        let bytes = [&(owner.len() as u64).to_le_bytes(), owner, id.text.as_bytes()].concat();
        self.seeds.fingerprint(check.verb() as u64, &bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Key;
    use crate::store::Meter;
    use crate::time::ManualClock;

    #[test]
    #[cfg_attr(miri, ignore = "thousands of entries, and no unsafe code in sight")]
    fn a_shard_remembers_so_many_and_not_one_more() {
        let clock = ManualClock::at(Micros::new(1_000_000));
        let store = MemoryStore::builder().max_keys(10).clock(clock).build().expect("valid settings");
        let (meter, key) = (Meter::new(Name::literal("limit"), Limit::per_hour(10)), Key::from("alice"));
        let id = RequestId { text: "a", payload: 1 };
        let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a small cost").with_id(id);
        let fingerprint = store.fingerprint_of_id(&check, id);
        let ids = store.ids.get_or_init(|| Box::new(Ids::new()));
        let shard = || lock(&ids.shards[(fingerprint % SHARDS as u64) as usize]);
        for number in 0..MOST as u64 {
            let (limits, verdicts) = (Box::default(), Box::default());
            let answer = Answer { payload: 1, limits, at: Micros::ZERO, until: Micros::MAX, verdicts };
            shard().answers.insert(fingerprint ^ (number + 1), answer);
            shard().order.push_back(fingerprint ^ (number + 1));
        }
        shard().forget(Micros::ZERO);
        assert_eq!(shard().order.len(), MOST, "as many as that are remembered");
        let mut verdict = Verdict::default();
        assert!(store.decide_one_now(check, &mut verdict).is_ok() && verdict.allowed);
        let shard = shard();
        assert_eq!((shard.order.len(), shard.answers.len()), (MOST, MOST));
        assert!(!shard.answers.contains_key(&(fingerprint ^ 1)), "the oldest has made room");
    }
}
