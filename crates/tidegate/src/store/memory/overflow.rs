//! What happens to a new key when there is no room for it.

use std::collections::HashMap;

use super::labels::Label;
use crate::kernel::Kernel;
use crate::store::{Meter, MeterKernel, MeterState};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::time::Micros;

/// What the memory store does with a new key when all slots that it could
/// take hold states that still matter.
///
/// While the store holds no more live keys than it was sized for, that
/// happens to one new key in several thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// New keys share slots set aside for them, chosen by a keyed hash, until
    /// there is room. Memory stays bounded, no key that is being limited is
    /// ever reset, and nobody gets more than their limit; newcomers get less,
    /// for as long as the store is full. The default.
    #[default]
    Share,
    /// The key that would be forgotten soonest makes room: it starts anew, so
    /// whoever can invent keys can reset others.
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

/// What is done with the state of a key while it is locked.
pub(super) trait Visit<S> {
    type Answer;

    /// Decides, at the time `at`, and says whether the state has changed. For
    /// a key that turns out to find no room it is asked in vain.
    fn step(&mut self, state: &mut S, at: Micros) -> (Self::Answer, bool);

    /// The state of a key that has none.
    fn fresh(&mut self, at: Micros) -> S;

    /// What to call the key where keys are listed.
    fn label(&self) -> Option<Label<'_>>;

    /// Decides for a key that has no state and finds no room for one.
    fn without_room(&mut self, full: Full, at: Micros) -> Self::Answer;
}

/// States that new keys share while there is no room for their own.
///
/// A key that used one and finds room later begins with it, whoever else used
/// it: nobody gains by having been there. One that did not begins as it would
/// have. Where too many did to remember, everyone counts as one of them.
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
            Users::Known(fingerprints) if fingerprints.len() < MOST_USERS => fingerprints.push(fingerprint),
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
const MOST: usize = 256;
/// Users of a shared state that are remembered.
const MOST_USERS: usize = 32;

impl Shared {
    pub(super) fn new() -> Shared {
        Shared { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(), until: AtomicU64::new(0) }
    }

    /// Whether any shared state matters at `now`.
    pub(super) fn matters(&self, now: Micros) -> bool {
        self.until.load(Ordering::Relaxed) > now.get()
    }

    pub(super) fn lock(&self, meter: &Meter, fingerprint: u64) -> SharedState<'_> {
        let (shard, place) = place(meter, fingerprint);
        SharedState { until: &self.until, shard: Guard::Own(lock(&self.shards[shard])), place, fingerprint }
    }

    /// Locks all of it, for several keys at once.
    pub(super) fn lock_all(&self) -> AllShared<'_> {
        AllShared { until: &self.until, shards: self.shards.iter().map(lock).collect() }
    }
}

/// The shard and the place of a key. The fingerprint is keyed, so nobody can
/// choose whom to share with.
fn place(meter: &Meter, fingerprint: u64) -> (usize, (u64, u64)) {
    let group = fingerprint % GROUPS;
    ((group % SHARDS as u64) as usize, (meter.identity(), group))
}

/// All shared states, locked.
pub(super) struct AllShared<'s> {
    until: &'s AtomicU64,
    shards: Vec<MutexGuard<'s, Shard>>,
}

impl<'s> AllShared<'s> {
    pub(super) fn state<'g>(&'g mut self, meter: &Meter, fingerprint: u64) -> SharedState<'g>
    where
        's: 'g,
    {
        let (shard, place) = place(meter, fingerprint);
        SharedState { until: self.until, shard: Guard::Lent(&mut self.shards[shard]), place, fingerprint }
    }
}

/// One shared state, locked.
pub(super) struct SharedState<'s> {
    until: &'s AtomicU64,
    shard: Guard<'s>,
    place: (u64, u64),
    /// Who asks for it.
    fingerprint: u64,
}

enum Guard<'s> {
    Own(MutexGuard<'s, Shard>),
    Lent(&'s mut Shard),
}

impl SharedState<'_> {
    fn shard(&mut self) -> &mut Shard {
        match &mut self.shard {
            Guard::Own(shard) => shard,
            Guard::Lent(shard) => shard,
        }
    }

    /// A copy of the state.
    pub(super) fn copy(&mut self, kernel: &MeterKernel) -> MeterState {
        let place = self.place;
        self.shard().get(&place).map(|entry| kernel.copy(&entry.state)).unwrap_or_default()
    }

    /// What the key starts with that finds room: the state, if it has used it.
    pub(super) fn inherited(&mut self, kernel: &MeterKernel) -> MeterState {
        let (place, fingerprint) = (self.place, self.fingerprint);
        let used = self.shard().get(&place).filter(|entry| entry.users.includes(fingerprint));
        used.map(|entry| kernel.copy(&entry.state)).unwrap_or_default()
    }

    /// Makes sure that the state can be replaced.
    pub(super) fn make_room(&mut self, now: Micros) -> Result<(), Full> {
        let place = self.place;
        let shard = self.shard();
        if shard.len() >= MOST && !shard.contains_key(&place) {
            shard.retain(|_, entry| entry.until > now);
            if shard.len() >= MOST {
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
        let entry = self.shard().entry(place).or_default();
        if entry.until <= now {
            // What the former users did matters no more.
            entry.users = Users::default();
        }
        entry.users.add(fingerprint);
        entry.until = until;
        entry.state = state;
    }
}
