//! What happens to a new key when there is no room for it.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::MemoryStore;
use crate::kernel::{Act, Kernel, Verdict};
use crate::store::{Check, Meter, MeterKernel, MeterState};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::time::Micros;

/// What the memory store does with a new key when all slots that it could
/// take hold states that still matter.
///
/// While the store holds no more live keys than it was sized for, that
/// happens to less than one new key in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// New keys share slots set aside for them, chosen by a keyed hash, until
    /// there is room. Memory stays bounded, no key that is being limited is
    /// ever reset, and no key gets more than its limit; new keys get less,
    /// for as long as the store is full. The default.
    #[default]
    Share,
    /// The key that would be forgotten soonest makes room: it starts anew, so
    /// a caller that can invent keys can reset others.
    EvictOldest,
    /// New keys are refused until there is room.
    Refuse,
    /// New keys pass, unlimited, until there is room.
    Allow,
}

/// No slot is free; the first of those looked at will be at `until`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) until: Micros,
}

impl MemoryStore {
    /// The overflow rule, for a check of a key that has no slot and finds none:
    /// the shared state decides if there is one for it, or else
    /// [`without_room`](Self::without_room).
    pub(super) fn share<'s>(
        &self,
        shared: Option<SharedState<'s>>,
        check: Check<'_>,
        full: Full,
        at: Micros,
    ) -> Result<SharedState<'s>, Full> {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let mut shared = shared.ok_or(full)?;
        let may_change = check.act().adds() || shared.is_surely_used();
        shared.make_room(at)?;
        if may_change { Ok(shared) } else { Err(full) }
    }

    /// The answer to a check that neither a slot nor a shared state decides. Nothing
    /// of a report is recorded, and it is not refused.
    #[cold]
    pub(super) fn without_room(&self, check: Check<'_>, full: Full, now: Micros) -> Verdict {
        let unrecorded = match check.act() {
            Act::Force { cost } => Some(cost),
            Act::Correct { .. } | Act::Nothing => Some(0),
            Act::Look { .. } | Act::Take { .. } | Act::GiveBack { .. } | Act::Prolong { .. } | Act::Clear => None,
        };
        let allowed = unrecorded.is_some() || self.overflow == Overflow::Allow;
        let left = check.meter().capacity().saturating_sub(check.meter().floor());
        let wait = full.until.saturating_since(now).max(Micros::new(1));
        Verdict {
            allowed,
            remaining: if allowed { left.saturating_sub(check.cost()) } else { 0 },
            retry_after: if allowed { Micros::ZERO } else { wait },
            reset_after: if allowed { Micros::ZERO } else { wait },
            delay: Micros::ZERO,
            degraded: true,
            repeated: false,
            unrecorded: unrecorded.unwrap_or(0),
            ahead: Micros::ZERO,
            crossed: 0,
        }
    }

    /// The states that keys without room share, if the policy is to share.
    pub(super) fn shared(&self) -> Option<&Shared> {
        (self.overflow == Overflow::Share).then(|| self.shared.get_or_init(Shared::new))
    }

    /// Whether a key without a slot needs one for this check, if the check
    /// changes its state. A key that has used nothing has nothing to give back
    /// or to forget.
    #[inline]
    pub(super) fn takes_room(&self, check: Check<'_>, fingerprint: u64, at: Micros) -> bool {
        let is_shared = || self.shared.get().is_some_and(|shared| shared.is_used_by(check.meter(), fingerprint, at));
        check.act().adds() || is_shared()
    }
}

/// States that new keys share while there is no room for their own.
///
/// A key that used one and finds room later begins with it, whichever keys
/// used it: no key gains by sharing. A key that did not use it begins as it would
/// have. If too many keys used it to remember, every key counts as one of them.
pub(super) struct Shared {
    shards: Box<[Mutex<Shard>]>,
    /// Until when any shared state matters.
    until: AtomicU64,
}

/// Each state by its limit and group.
type Shard = HashMap<(u64, u64), Entry>;

#[derive(Default)]
struct Entry {
    until: Micros,
    state: MeterState,
    users: Users,
}

/// Who has used a shared state.
enum Users {
    Known(Vec<u64>),
    TooMany,
}

impl Default for Users {
    fn default() -> Self {
        Users::Known(Vec::new())
    }
}

impl Users {
    fn add(&mut self, fingerprint: u64) {
        if self.includes(fingerprint) {
            return;
        }
        match self {
            Users::Known(fingerprints) if fingerprints.len() < MAX_USERS => fingerprints.push(fingerprint),
            Users::Known(_) | Users::TooMany => *self = Users::TooMany,
        }
    }

    fn includes(&self, fingerprint: u64) -> bool {
        match self {
            Users::Known(fingerprints) => fingerprints.contains(&fingerprint),
            Users::TooMany => true,
        }
    }
}

const SHARDS: usize = 64;
/// New keys of one limit share this many states.
const GROUPS: u64 = 1_024;
/// Shared states in a shard at most: enough for sixteen limits that overflow
/// at once. Beyond that new keys are refused.
const MAX_SHARED: usize = 256;
/// Users of a shared state that are remembered.
const MAX_USERS: usize = 32;

impl Shared {
    pub(super) fn new() -> Shared {
        Shared { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(), until: AtomicU64::new(0) }
    }

    /// Whether any shared state matters at `now`.
    pub(super) fn matters(&self, now: Micros) -> bool {
        self.until.load(Ordering::Relaxed) > now.get()
    }

    /// Whether the key has used a shared state that may matter at `now`.
    pub(super) fn is_used_by(&self, meter: &Meter, fingerprint: u64, now: Micros) -> bool {
        self.matters(now) && self.lock([fingerprint]).state(meter, fingerprint).is_some_and(|state| state.is_used())
    }

    /// Locks the states that these keys could share, in one order for all threads.
    pub(super) fn lock(&self, fingerprints: impl IntoIterator<Item = u64>) -> LockedShards<'_> {
        let mut numbers: SmallVec<[usize; 4]> = fingerprints.into_iter().map(shard_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter().map(|number| (number, lock(&self.shards[number]))).collect();
        LockedShards { until: &self.until, shards }
    }
}

/// A group of keys. The fingerprint is keyed, so a caller cannot choose the keys that it shares with.
fn group_of(fingerprint: u64) -> u64 {
    fingerprint % GROUPS
}

fn shard_of(fingerprint: u64) -> usize {
    (group_of(fingerprint) % SHARDS as u64) as usize
}

/// The shared states of some keys, locked.
pub(super) struct LockedShards<'s> {
    until: &'s AtomicU64,
    shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>,
}

impl LockedShards<'_> {
    /// The state that a key shares, if that is locked.
    pub(super) fn state(&mut self, meter: &Meter, fingerprint: u64) -> Option<SharedState<'_>> {
        let number = shard_of(fingerprint);
        let (_, shard) = self.shards.iter_mut().find(|(locked, _)| *locked == number)?;
        let place = (meter.identity(), group_of(fingerprint));
        Some(SharedState { until: self.until, shard, place, fingerprint })
    }
}

/// One shared state, locked.
pub(super) struct SharedState<'s> {
    until: &'s AtomicU64,
    shard: &'s mut Shard,
    place: (u64, u64),
    /// Who asks for it.
    fingerprint: u64,
}

impl SharedState<'_> {
    fn entry(&self) -> Option<&Entry> {
        self.shard.get(&self.place)
    }

    /// A [copy](Kernel::copy) of the state: a long log stays short here, and
    /// no check waits for all of it to be copied.
    pub(super) fn copy(&self, kernel: &MeterKernel, now: Micros) -> MeterState {
        self.entry().map(|entry| kernel.copy(&entry.state, now)).unwrap_or_default()
    }

    /// Whether the key has used it.
    pub(super) fn is_used(&self) -> bool {
        self.entry().is_some_and(|entry| entry.users.includes(self.fingerprint))
    }

    /// Whether the key may give back what it used, or forget it: not if it may
    /// have been other keys that did.
    fn is_surely_used(&self) -> bool {
        self.is_used() && self.entry().is_some_and(|entry| matches!(entry.users, Users::Known(_)))
    }

    /// What the key starts with that finds room: the state, if it has used it.
    pub(super) fn inherited(&self, kernel: &MeterKernel, now: Micros) -> MeterState {
        let used = self.entry().filter(|entry| entry.users.includes(self.fingerprint));
        used.map(|entry| kernel.copy(&entry.state, now)).unwrap_or_default()
    }

    /// Makes sure that the state can be replaced.
    fn make_room(&mut self, now: Micros) -> Result<(), Full> {
        let (place, shard) = (self.place, &mut *self.shard);
        if shard.len() >= MAX_SHARED && !shard.contains_key(&place) {
            shard.retain(|_, entry| entry.until > now);
            if shard.len() >= MAX_SHARED {
                let soonest = shard.values().map(|entry| entry.until).min();
                return Err(Full { until: soonest.unwrap_or(now) });
            }
        }
        Ok(())
    }

    /// Replaces the state, for which there is room.
    pub(super) fn set(&mut self, kernel: &MeterKernel, state: MeterState, now: Micros) {
        let (place, fingerprint) = (self.place, self.fingerprint);
        let until = kernel.forget_at(&state);
        self.until.fetch_max(until.get(), Ordering::Relaxed);
        let entry = self.shard.entry(place).or_default();
        if entry.until <= now {
            // What the former users did matters no more.
            entry.users = Users::default();
        }
        entry.users.add(fingerprint);
        entry.until = until;
        entry.state = state;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::{BucketState, Charged, Verb};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Key;
    use crate::time::ManualClock;

    fn meter() -> Meter {
        Meter::new(Name::literal("limit"), Limit::per_second(1))
    }

    /// A state that is forgotten at `micros`.
    fn until(micros: u64) -> MeterState {
        MeterState::Bucket(BucketState { at: micros, fraction: 0 })
    }

    impl Shared {
        fn set(&self, now: u64, fingerprint: u64, micros: u64) -> Result<(), Micros> {
            self.with(&meter(), fingerprint, |mut state| {
                state.make_room(Micros::new(now)).map_err(|full| full.until)?;
                state.set(meter().kernel(), until(micros), Micros::new(now));
                Ok(())
            })
        }

        /// Of a state alone.
        fn with<T>(&self, meter: &Meter, fingerprint: u64, ask: impl FnOnce(SharedState<'_>) -> T) -> T {
            ask(self.lock([fingerprint]).state(meter, fingerprint).expect("it is locked"))
        }

        fn inherited(&self, fingerprint: u64) -> u64 {
            self.with(&meter(), fingerprint, |state| state.inherited(meter().kernel(), Micros::ZERO).bucket().at)
        }

        fn copied(&self, fingerprint: u64) -> u64 {
            self.with(&meter(), fingerprint, |state| state.copy(meter().kernel(), Micros::ZERO).bucket().at)
        }
    }

    #[test]
    fn without_room_nothing_is_recorded_and_no_report_is_refused() {
        let builder = MemoryStore::builder().clock(ManualClock::default()).max_keys(1).overflow(Overflow::Refuse);
        let store = builder.build().expect("valid settings");
        let (limit, key) = (Meter::new(Name::literal("limit"), Limit::per_second(10)), Key::from("alice"));
        let settle = Verb::Settle(Charged { at: Micros::ZERO, cost: 5 });
        let cases = [
            (Verb::Report, 4, 4, 6),
            (Verb::Report, 25, 25, 0),
            (settle, 3, 0, 7),
            (settle, 5, 0, 5),
            (settle, 8, 3, 2),
            (settle, 25, 20, 0),
        ];
        for (verb, cost, unrecorded, remaining) in cases {
            let check = Check::new(&limit, &key, verb, cost).expect("a check");
            let said = store.without_room(check, Full { until: Micros::new(9) }, Micros::new(1));
            assert_eq!(
                (said.allowed, said.unrecorded, said.remaining),
                (true, unrecorded, remaining),
                "{verb:?} {cost}"
            );
        }
        let charge = Check::new(&limit, &key, Verb::Charge, 1).expect("a check");
        let said = store.without_room(charge, Full { until: Micros::new(9) }, Micros::new(1));
        assert_eq!((said.allowed, said.unrecorded, said.retry_after), (false, 0, Micros::new(8)));
    }

    #[test]
    fn keys_of_one_group_share_a_state_and_only_its_users_inherit_it() {
        let shared = Shared::new();
        let (first, companion, stranger) = (5, 5 + GROUPS, 6);
        assert_eq!(shared.set(10, first, 100), Ok(()));
        assert_eq!([first, companion, stranger].map(|key| shared.copied(key)), [100, 100, 0]);
        assert_eq!([first, companion, stranger].map(|key| shared.inherited(key)), [100, 0, 0]);
        assert_eq!(shared.set(20, companion, 200), Ok(()));
        assert_eq!([first, companion, stranger].map(|key| shared.inherited(key)), [200, 200, 0]);
        // Another limit's states are others.
        let other = Meter::new(Name::literal("other"), Limit::per_second(1));
        assert_eq!(shared.with(&other, first, |state| state.copy(other.kernel(), Micros::ZERO).bucket().at), 0);
    }

    #[test]
    fn those_locked_at_once_are_the_same_states() {
        let (shared, keys) = (Shared::new(), [0, 63, 64, 1_023, 70_000]);
        for key in keys {
            assert_eq!(shared.set(10, key, 100 + key), Ok(()));
            let mut all = shared.lock(keys);
            let mut state = |key| all.state(&meter(), key).map(|state| state.copy(meter().kernel(), Micros::ZERO));
            assert_eq!(state(key).map(|state| state.bucket().at), Some(100 + key));
            assert!(state(1).is_none(), "what was not asked for is not locked");
            let state = all.state(&meter(), key);
            state.expect("it is locked").set(meter().kernel(), until(200 + key), Micros::new(10));
            drop(all);
            assert_eq!(shared.inherited(key), 200 + key);
        }
    }

    #[test]
    fn shared_states_matter_until_the_last_is_forgotten() {
        let shared = Shared::new();
        assert!(!shared.matters(Micros::ZERO));
        assert_eq!(shared.set(10, 1, 100), Ok(()));
        assert_eq!(shared.set(10, 2, 50), Ok(()));
        assert_eq!([10, 99, 100].map(|now| shared.matters(Micros::new(now))), [true, true, false]);
    }

    #[test]
    fn users_are_forgotten_with_what_they_used() {
        let shared = Shared::new();
        let (first, companion) = (5, 5 + GROUPS);
        assert_eq!(shared.set(10, first, 100), Ok(()));
        assert_eq!(shared.set(99, companion, 150), Ok(()));
        assert_eq!([first, companion].map(|key| shared.inherited(key)), [150, 150]);
        assert_eq!(shared.set(150, companion, 300), Ok(()));
        assert_eq!([first, companion].map(|key| shared.inherited(key)), [0, 300]);
    }

    #[test]
    fn a_shared_state_with_too_many_users_counts_for_every_key() {
        let mut users = Users::default();
        for _ in 0..2 {
            (0..MAX_USERS as u64).for_each(|user| users.add(user));
        }
        assert_eq!([0, MAX_USERS as u64 - 1, 99].map(|user| users.includes(user)), [true, true, false]);
        users.add(77);
        assert!(users.includes(77) && users.includes(99));
        users.add(78);
        assert!(users.includes(99), "and that stays so");
    }

    #[test]
    fn a_full_shard_has_room_for_those_it_knows_and_for_others_when_one_is_forgotten() {
        let shared = Shared::new();
        let limits: Vec<Meter> = (0..=MAX_SHARED as u64)
            .map(|number| {
                Meter::new(Name::literal("limit"), Limit::fixed_window(1 + number, std::time::Duration::from_secs(1)))
            })
            .collect();
        let set = |limit: &Meter, now: u64, window: u64| -> Result<(), u64> {
            let window = MeterState::Window(match limit.kernel() {
                MeterKernel::Window(kernel) => kernel.state(window * 1_000_000, 1, 0).expect("a state"),
                MeterKernel::Bucket(_) | MeterKernel::Heap(_) => unreachable!("all are windows"),
            });
            shared.with(limit, 7, |mut state| {
                state.make_room(Micros::new(now)).map_err(|full| full.until.get())?;
                state.set(limit.kernel(), window, Micros::new(now));
                Ok(())
            })
        };
        let (last, known) = limits.split_last().expect("there are some");
        for (number, limit) in known.iter().enumerate() {
            assert_eq!(set(limit, 10, if number == 3 { 4 } else { 5 }), Ok(()));
        }
        assert_eq!(set(last, 10, 6), Err(5_000_000), "one is forgotten after its window");
        assert_eq!(set(&known[0], 10, 5), Ok(()), "who has a state needs no room");
        assert_eq!(set(last, 4_999_999, 6), Err(5_000_000));
        assert_eq!(set(last, 5_000_000, 6), Ok(()));
        assert_eq!(shared.with(last, 7, |state| state.shard.len()), MAX_SHARED);
        assert_eq!(set(&known[3], 5_000_000, 6), Err(6_000_000), "the others are still there");
        // A shard is one of many.
        assert_eq!(shared.set(10, 8, 100), Ok(()));
    }
}
