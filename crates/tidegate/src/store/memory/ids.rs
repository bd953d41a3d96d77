//! Requests that are charged once, however often they are sent.
//!
//! The id of a request is locked while the request is decided, so of several
//! at once one is charged and the others wait for its record. What is kept is
//! the record, and only if the request was carried out.
//!
//! Ids have an owner, the key that is charged. Where a shard is full, the owner
//! that has most ids there loses its oldest one, so no owner can take the room
//! of others that have fewer. The ids of one owner are spread over all shards.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::MemoryStore;
use crate::kernel::Verdict;
use crate::store::{Check, ImmediateStore, Record, StoreError, owner_of};
use crate::sync::{Mutex, lock};
use crate::time::Micros;

/// For how long ids are remembered unless told otherwise.
pub(super) const DEFAULT_IDS_FOR: Duration = Duration::from_secs(300);

const SHARDS: usize = 64;
/// Ids that a shard remembers.
const MAX_IDS: usize = 2_048;

/// Sets the hashes of owners apart from those of ids.
const OWNERS: u64 = u64::MAX;

pub(super) struct Ids {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    records: HashMap<u64, Remembered>,
    /// The ids from the oldest to the newest, by the number that each was given.
    order: BTreeMap<u64, u64>,
    /// The numbers of each owner's ids, from the oldest to the newest.
    owners: HashMap<u64, VecDeque<u64>>,
    /// How many ids each owner has.
    weights: BTreeSet<(usize, u64)>,
    next: u64,
}

struct Remembered {
    owner: u64,
    /// Its place in the order of ids.
    number: u64,
    record: Record,
}

impl Ids {
    pub(super) fn new() -> Ids {
        Ids { shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect() }
    }
}

impl Shard {
    fn add(&mut self, id: u64, owner: u64, record: Record) {
        self.forget_expired(record.at());
        self.records.insert(id, Remembered { owner, number: self.next, record });
        self.order.insert(self.next, id);
        self.change(owner, VecDeque::push_back);
        self.next += 1;
        if self.records.len() > MAX_IDS {
            self.make_room();
        }
    }

    /// Forgets an id of the owner that has most; where none has two, the oldest.
    fn make_room(&mut self) {
        let heaviest = self.weights.last().filter(|(ids, _)| *ids > 1);
        let number = heaviest.and_then(|(_, owner)| self.owners.get(owner)?.front().copied());
        if let Some(number) = number.or_else(|| self.order.keys().next().copied()) {
            self.forget(number);
        }
    }

    fn forget_expired(&mut self, now: Micros) {
        while let Some((number, id)) = self.order.first_key_value() {
            if self.records.get(id).is_some_and(|known| known.record.until() > now) {
                return;
            }
            let number = *number;
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let record = self.order.remove(&number).and_then(|id| self.records.remove(&id));
        if let Some(record) = record {
            self.change(record.owner, |numbers, _| {
                if let Ok(place) = numbers.binary_search(&number) {
                    numbers.remove(place);
                }
            });
        }
    }

    /// What is known of an id. One that has expired is there until another is added, and one
    /// that lasted less long than those before it for longer.
    fn known(&mut self, id: u64, now: Micros) -> Option<&mut Record> {
        let is_over = |known: &&Remembered| known.record.until() <= now;
        let expired = self.records.get(&id).filter(is_over).map(|known| known.number);
        if let Some(number) = expired {
            self.forget(number);
        }
        self.records.get_mut(&id).map(|known| &mut known.record)
    }

    fn change(&mut self, owner: u64, change: impl FnOnce(&mut VecDeque<u64>, u64)) {
        let numbers = self.owners.entry(owner).or_default();
        self.weights.remove(&(numbers.len(), owner));
        change(numbers, self.next);
        match numbers.len() {
            0 => {
                self.owners.remove(&owner);
            }
            ids => {
                self.weights.insert((ids, owner));
            }
        }
    }
}

impl MemoryStore {
    /// Decides checks that have an id, unless that was done before.
    #[cold]
    pub(super) fn decide_once(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let fingerprint = self.fingerprint_of_record(checks);
        let ids = self.ids.get_or_init(|| Box::new(Ids::new()));
        let mut shard = lock(&ids.shards[(fingerprint % SHARDS as u64) as usize]);
        let known = shard.known(fingerprint, self.clock.now());
        let is_correction = checks.iter().any(Check::is_correction);
        // A correction reads the clock under the locks of the states.
        let decide = |checks: &[Check<'_>], verdicts: &mut [Verdict]| match is_correction {
            true => self.decide_together(checks, verdicts, None),
            false => self.decide_now(checks, verdicts),
        };
        let (at, next) = Record::decide(known.as_deref(), checks, verdicts, self.ids_for, decide)?;
        match (known, next) {
            (_, None) => {}
            (Some(known), Some(next)) => *known = next,
            (None, Some(next)) => {
                let owner = checks.iter().find(|check| check.id().is_some()).map(owner_of).unwrap_or_default();
                shard.add(fingerprint, self.seeds.fingerprint(OWNERS, owner), next);
            }
        }
        Ok(at)
    }

    fn fingerprint_of_record(&self, checks: &[Check<'_>]) -> u64 {
        self.seeds.fingerprint(0, &Record::name(checks).unwrap_or_default())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::Verb;
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::{Key, RequestId};
    use crate::store::Meter;
    use crate::time::ManualClock;

    fn store() -> MemoryStore {
        let clock = ManualClock::at(Micros::new(1_000_000));
        MemoryStore::builder().max_keys(10).clock(clock).build().expect("valid settings")
    }

    fn record(at: u64, until: u64) -> Record {
        Record::new(&[], &[], Micros::new(at), Micros::new(until - at))
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of entries, and no unsafe code in sight")]
    fn a_shard_remembers_so_many_and_not_one_more() {
        let store = store();
        let (meter, key) = (Meter::new(Name::literal("limit"), Limit::per_hour(10)), Key::from("alice"));
        let id = &RequestId::once("a", 1);
        let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a small cost").with_id(id);
        let fingerprint = store.fingerprint_of_record(&[check]);
        let ids = store.ids.get_or_init(|| Box::new(Ids::new()));
        let shard = || lock(&ids.shards[(fingerprint % SHARDS as u64) as usize]);
        for number in 0..MAX_IDS as u64 {
            shard().add(fingerprint ^ (number + 1), number, record(0, u64::MAX));
        }
        assert_eq!(shard().records.len(), MAX_IDS, "as many as that are remembered");
        let mut verdict = Verdict::default();
        assert!(store.decide_one_now(check, &mut verdict).is_ok() && verdict.allowed);
        let shard = shard();
        assert_eq!((shard.order.len(), shard.records.len(), shard.owners.len()), (MAX_IDS, MAX_IDS, MAX_IDS));
        assert!(!shard.records.contains_key(&(fingerprint ^ 1)), "the oldest has made room");
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of entries, and no unsafe code in sight")]
    fn an_owner_with_many_ids_loses_its_own_before_others_lose_theirs() {
        const FLOOD: u64 = 3 * MAX_IDS as u64;
        let mut shard = Shard::default();
        let (honest, rude) = (1, 2);
        shard.add(1, honest, record(0, u64::MAX));
        (100..100 + FLOOD).for_each(|id| shard.add(id, rude, record(0, u64::MAX)));
        assert!(shard.records.contains_key(&1), "though it is the oldest of all");
        let newest = 100 + FLOOD - 1;
        assert!(shard.records.contains_key(&newest) && !shard.records.contains_key(&100));
        // Others come as long as they have fewer.
        (2..900).for_each(|id| shard.add(id, honest, record(0, u64::MAX)));
        assert!((1..900).all(|id| shard.records.contains_key(&id)));
        assert_eq!((shard.records.len(), shard.order.len(), shard.weights.len()), (MAX_IDS, MAX_IDS, 2));
        assert_eq!(shard.owners[&honest].len() + shard.owners[&rude].len(), MAX_IDS);
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of entries, and no unsafe code in sight")]
    fn an_owner_with_two_ids_loses_its_older_one_before_others_lose_their_only_one() {
        let mut shard = Shard::default();
        let pair = 0;
        shard.add(1, 1, record(0, u64::MAX));
        shard.add(2, pair, record(0, u64::MAX));
        shard.add(3, pair, record(0, u64::MAX));
        (4..=MAX_IDS as u64 + 1).for_each(|id| shard.add(id, id, record(0, u64::MAX)));
        assert_eq!([1, 2, 3, 4].map(|id| shard.records.contains_key(&id)), [true, false, true, true]);
        assert_eq!(shard.records.len(), MAX_IDS);
    }

    #[test]
    fn an_id_that_is_added_later_finds_the_expired_ones_gone() {
        let mut shard = Shard::default();
        (1..=3).for_each(|id| shard.add(id, id, record(0, 10 * id)));
        shard.add(4, 4, record(20, 40));
        assert_eq!([1, 2, 3, 4].map(|id| shard.records.contains_key(&id)), [false, false, true, true]);
    }

    #[test]
    fn expired_ids_leave_nothing_behind() {
        let mut shard = Shard::default();
        for id in 1..=10 {
            shard.add(id, id % 3, record(0, id));
        }
        shard.forget_expired(Micros::new(9));
        assert_eq!((shard.records.len(), shard.order.len(), shard.owners.len(), shard.weights.len()), (1, 1, 1, 1));
        shard.forget_expired(Micros::new(10));
        assert_eq!((shard.records.len(), shard.order.len(), shard.owners.len(), shard.weights.len()), (0, 0, 0, 0));
    }
}
