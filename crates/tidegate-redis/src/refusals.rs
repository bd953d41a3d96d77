//! Refusals remembered: whoever cannot pass yet is told so without asking.
//!
//! A refused question is answered again from here until the earliest instant
//! at which any part of the answer could change, as far as this process knows.
//! A refund or a reset by this process makes it forget; of one by another
//! process it learns when [`longest`](RefusalCache::longest) has passed. A
//! changed limit has states of its own, so it never meets an old answer.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::{Check, Micros};

/// How many refusals a [`RedisStore`](crate::RedisStore) remembers, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCache {
    /// Questions that are remembered; at least one.
    pub most: usize,
    /// For how long at most, so that resets elsewhere are noticed.
    pub longest: Duration,
}

impl Default for RefusalCache {
    /// 100,000 questions, each for up to a second.
    fn default() -> Self {
        RefusalCache { most: 100_000, longest: Duration::from_secs(1) }
    }
}

/// Refusals by what was asked.
type Shard = HashMap<Box<[u8]>, Refusal>;

/// Decides which states share a counter.
#[derive(Clone, Debug)]
pub(crate) enum Hashing {
    /// No caller can choose keys that share one.
    Random(RandomState),
    /// The same every time: in the simulation all chance comes from the seed.
    #[cfg(feature = "internals")]
    Fixed,
}

impl Hashing {
    fn hash(&self, bytes: &[u8]) -> u64 {
        match self {
            Hashing::Random(state) => state.hash_one(bytes),
            #[cfg(feature = "internals")]
            Hashing::Fixed => std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(bytes),
        }
    }
}

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing::Random(RandomState::new())
    }
}

pub(crate) struct Refusals {
    settings: RefusalCache,
    hashing: Hashing,
    shards: Box<[Mutex<Shard>]>,
    /// Counts what was given back, so that older refusals are known as such;
    /// states share a counter by their hash.
    given_back: Box<[AtomicU64]>,
}

struct Refusal {
    asked: Micros,
    /// When the answer was there: at some time in between it was made.
    answered: Micros,
    until: Micros,
    given_back: u64,
    at: Micros,
    verdicts: Box<[Verdict]>,
}

/// What is needed to remember the answer to a question that is being asked.
#[derive(Debug)]
pub(crate) struct Question {
    name: Box<[u8]>,
    asked: Micros,
    given_back: u64,
}

/// States that are being given something back: refusals from before are
/// forgotten when this goes, also if nobody waits for the answer any more.
pub(crate) struct GivenBack<'r> {
    refusals: &'r Refusals,
    keys: Vec<Vec<u8>>,
}

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        self.refusals.forget(&self.keys);
    }
}

const SHARDS: usize = 64;
const COUNTERS: usize = 1_024;

impl Refusals {
    pub(crate) fn new(settings: RefusalCache, hashing: Hashing) -> Refusals {
        Refusals {
            settings,
            hashing,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            given_back: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hashing.hash(name) as usize % SHARDS]
    }

    fn counter(&self, key: &[u8]) -> &AtomicU64 {
        &self.given_back[self.hashing.hash(key) as usize % COUNTERS]
    }

    /// What has to be forgotten of these checks when they are carried out.
    pub(crate) fn given_back_by(&self, checks: &[Check<'_>], keys: &[Vec<u8>]) -> Option<GivenBack<'_>> {
        let gives_back = |check: &Check<'_>| matches!(check.verb(), Verb::Refund | Verb::Reset);
        checks.iter().any(gives_back).then(|| GivenBack { refusals: self, keys: keys.to_vec() })
    }

    /// Notes that these states were given something back.
    pub(crate) fn forget(&self, keys: &[Vec<u8>]) {
        for key in keys {
            self.counter(key).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The question as it is remembered, if its refusals can be.
    pub(crate) fn question(&self, checks: &[Check<'_>], keys: &[Vec<u8>], now: Micros) -> Option<Question> {
        let mut name = Vec::new();
        for (check, key) in checks.iter().zip(keys) {
            if check.verb() != Verb::Charge || check.cost() == 0 {
                return None;
            }
            name.extend((key.len() as u64).to_le_bytes());
            name.extend(key);
            name.extend(check.cost().to_le_bytes());
            // Windows of several counts may have one state.
            name.extend(check.meter().capacity().to_le_bytes());
        }
        let given_back = keys.iter().map(|key| self.counter(key).load(Ordering::SeqCst));
        let given_back = given_back.fold(0, u64::wrapping_add);
        Some(Question { name: name.into(), asked: now, given_back })
    }

    /// The refusal that still holds, and when it was made.
    pub(crate) fn answer(&self, question: &Question, verdicts: &mut [Verdict]) -> Option<Micros> {
        let mut shard = self.shard(&question.name).lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = shard.get(&question.name)?;
        let elapsed = question.asked.saturating_since(refusal.answered);
        let went_back = question.asked < refusal.asked;
        if went_back || question.asked >= refusal.until || refusal.given_back != question.given_back {
            shard.remove(&question.name);
            return None;
        }
        for (verdict, remembered) in verdicts.iter_mut().zip(&refusal.verdicts) {
            *verdict = Verdict {
                retry_after: remembered.retry_after.saturating_since(elapsed),
                reset_after: remembered.reset_after.saturating_since(elapsed),
                ..*remembered
            };
        }
        Some(refusal.at.saturating_add(elapsed))
    }

    /// Remembers an answer that is there now, if it is a refusal.
    pub(crate) fn remember(&self, question: Question, verdicts: &[Verdict], at: Micros, now: Micros) {
        let refused = verdicts.iter().filter(|verdict| !verdict.allowed);
        let Some(wait) = refused.map(|verdict| verdict.retry_after).min() else { return };
        let wait = wait.min(Micros::from_duration(self.settings.longest));
        let Question { name, asked, given_back } = question;
        let until = asked.saturating_add(wait);
        let mut shard = self.shard(&name).lock().unwrap_or_else(PoisonError::into_inner);
        let room = (self.settings.most / SHARDS).max(1);
        if shard.len() >= room {
            shard.retain(|_, refusal| refusal.until > asked);
        }
        while shard.len() >= room {
            // Any will do: it is asked about again.
            let Some(name) = shard.keys().next().cloned() else { break };
            shard.remove(&name);
        }
        shard.insert(name, Refusal { asked, answered: now, until, given_back, at, verdicts: verdicts.into() });
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Key, Limit, Meter, Name};

    use super::*;

    fn refusals(settings: RefusalCache) -> Refusals {
        Refusals::new(settings, Hashing::default())
    }

    fn refused(retry_after: u64) -> Verdict {
        let retry_after = Micros::new(retry_after);
        Verdict { retry_after, reset_after: Micros::new(5_000_000), ..Verdict::default() }
    }

    /// Asks at `now`: whether a refusal is remembered, and with which wait.
    fn ask(refusals: &Refusals, key: &str, now: u64) -> Result<u64, Question> {
        let (meter, key) = (Meter::new(Name::literal("rule"), Limit::per_second(1)), Key::from(key));
        let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a cost of one");
        let keys = [key.as_bytes().to_vec()];
        let question = refusals.question(&[check], &keys, Micros::new(now)).expect("a charge");
        let mut verdicts = [Verdict::default()];
        match refusals.answer(&question, &mut verdicts) {
            Some(_) => Ok(verdicts[0].retry_after.get()),
            None => Err(question),
        }
    }

    fn remember(refusals: &Refusals, key: &str, now: u64, verdict: Verdict) {
        let question = ask(refusals, key, now).expect_err("not remembered yet");
        refusals.remember(question, &[verdict], Micros::new(now), Micros::new(now));
    }

    #[test]
    fn a_refusal_holds_until_its_instant_and_counts_down() {
        let refusals = refusals(RefusalCache::default());
        remember(&refusals, "alice", 1_000, refused(500));
        assert_eq!(ask(&refusals, "alice", 1_000).ok(), Some(500));
        assert_eq!(ask(&refusals, "alice", 1_499).ok(), Some(1));
        assert!(ask(&refusals, "bob", 1_000).is_err());
        assert!(ask(&refusals, "alice", 1_500).is_err(), "now it may pass");
    }

    /// The servers decided at some time before the answer was there: whoever
    /// returns when told must not come too soon.
    #[test]
    fn the_wait_counts_from_when_the_answer_was_there() {
        let refusals = refusals(RefusalCache::default());
        let question = ask(&refusals, "alice", 1_000).expect_err("not remembered yet");
        refusals.remember(question, &[refused(500)], Micros::new(7_000), Micros::new(1_010));
        let told = [1_005, 1_010, 1_210, 1_499].map(|now| ask(&refusals, "alice", now).ok());
        assert_eq!(told, [Some(500), Some(500), Some(300), Some(11)]);
        assert!(ask(&refusals, "alice", 1_500).is_err(), "perhaps it can pass by now");
    }

    #[test]
    fn an_admission_is_not_remembered() {
        let refusals = refusals(RefusalCache::default());
        remember(&refusals, "alice", 1_000, Verdict { allowed: true, ..Verdict::default() });
        assert!(ask(&refusals, "alice", 1_000).is_err());
    }

    #[test]
    fn a_refusal_by_one_count_is_none_by_another_of_the_same_state() {
        let (refusals, alice) = (refusals(RefusalCache::default()), Key::from("alice"));
        let question = |count| {
            let limit = Limit::fixed_window(count, Duration::from_secs(1));
            let meter = Meter::new(Name::literal("rule"), limit).by_period();
            let check = Check::new(&meter, &alice, Verb::Charge, 1).expect("a cost of one");
            refusals.question(&[check], &[crate::key::state_key("tg", &check)], Micros::new(1_000)).expect("a charge")
        };
        refusals.remember(question(6), &[refused(500)], Micros::new(1_000), Micros::new(1_000));
        let answers = [6, 10].map(|count| refusals.answer(&question(count), &mut [Verdict::default()]).is_some());
        assert_eq!(answers, [true, false]);
    }

    #[test]
    fn what_is_given_back_makes_it_forget() {
        let refusals = refusals(RefusalCache::default());
        remember(&refusals, "alice", 1_000, refused(500));
        refusals.forget(&[b"alice".to_vec()]);
        assert!(ask(&refusals, "alice", 1_001).is_err());
        // Also when it is given back while the question is under way.
        let question = ask(&refusals, "alice", 2_000).expect_err("forgotten");
        refusals.forget(&[b"alice".to_vec()]);
        refusals.remember(question, &[refused(500)], Micros::new(2_000), Micros::new(2_000));
        assert!(ask(&refusals, "alice", 2_001).is_err());
    }

    #[test]
    fn nothing_is_remembered_longer_than_allowed() {
        let refusals = refusals(RefusalCache { longest: Duration::from_micros(100), ..RefusalCache::default() });
        remember(&refusals, "alice", 1_000, refused(5_000));
        assert_eq!(ask(&refusals, "alice", 1_099).ok(), Some(4_901));
        assert!(ask(&refusals, "alice", 1_100).is_err());
    }

    #[test]
    fn a_clock_that_went_back_is_not_told_an_old_answer() {
        let refusals = refusals(RefusalCache::default());
        remember(&refusals, "alice", 1_000, refused(500));
        assert!(ask(&refusals, "alice", 999).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let refusals = refusals(RefusalCache { most: 640, ..RefusalCache::default() });
        for number in 0..10_000 {
            remember(&refusals, &number.to_string(), 1_000, refused(500));
        }
        let held: usize = refusals.shards.iter().map(|shard| shard.lock().map_or(0, |shard| shard.len())).sum();
        assert!(held <= 640, "{held}");
    }
}
