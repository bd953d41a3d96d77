//! Several checks at once: all are charged, or none is.
//!
//! Every line and bucket that the checks could need is locked first, in one
//! order for all threads: by shelf, then by number, and the shared states
//! last. Then the states are loaded and the kernels asked, and only if all
//! agree is anything charged.

use super::MemoryStore;
use super::heap::{Bucket, Entry, Heap};
use super::labels::Label;
use super::line_lock::LockedLine;
use super::overflow::{AllShared, Full, Overflow, SharedState};
use super::pack::Pack;
use super::succession;
use super::table::{Pair, Table};
use crate::kernel::{self, Admission, Kernel, Verb, Verdict};
use crate::store::{AnyState, Check, MeterKernel, MeterState, StoreError};
use crate::sync::{MutexGuard, Ordering};
use crate::time::Micros;

/// One check on its way through.
pub(super) struct Turn<'a> {
    pub(super) check: Check<'a>,
    fingerprint: u64,
    label: Option<Label<'a>>,
    shelf: usize,
    pub(super) seat: Seat,
    pub(super) state: MeterState,
    /// The time to go by for this state.
    pub(super) at: Micros,
    admission: Admission,
    /// What a check that writes nothing sees in place of a state that it
    /// would heal.
    pub(super) seen: Option<MeterState>,
    pub(super) changed: bool,
    /// Whether the state is here, and has to be saved again.
    is_loaded: bool,
    /// Whether the key has a state already, of its own or a shared one.
    pub(super) has_used: bool,
    /// The turn whose limit succeeds this one's, which is asked nothing itself.
    pub(super) heir: Option<usize>,
}

/// Where the state of a key is.
#[derive(Clone, Copy)]
pub(super) enum Seat {
    /// In a slot of its own.
    Own,
    /// Nowhere yet: a slot has been marked for it.
    Claimed,
    /// Nowhere, and none is needed: the check will write nothing.
    Unneeded,
    /// In a shared state, for lack of room.
    Shared,
    /// Nowhere, and there is no room at all.
    Missing(Full),
}

impl Turn<'_> {
    pub(super) fn has_same_state(&self, other: &Turn<'_>) -> bool {
        self.shelf == other.shelf && self.fingerprint == other.fingerprint
    }

    /// Whether its kernel is the user's own, which may panic.
    fn is_custom(&self) -> bool {
        self.check.meter().nominal_limit().is_none()
    }
}

impl MemoryStore {
    pub(super) fn decide_several(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut turns = self.turns(checks)?;
        let now = self.clock.now();
        self.add_predecessors(checks, &mut turns, now);
        let mut round = Round { store: self, shared: None, held: self.hold(&turns), turns };
        let Round { shared, held, turns, .. } = &mut round;
        self.seat_all(held, turns, now);
        *shared = self.lock_shared(turns, now);
        for turn in &mut *turns {
            self.load(held, shared.as_mut(), turn, now);
        }
        let (turns, predecessors) = turns.split_at_mut(checks.len());
        for predecessor in &mut *predecessors {
            succession::take_over(turns, predecessor);
        }
        turns.iter_mut().for_each(|turn| self.ask(turn));
        let refuses = |turn: &Turn<'_>| match turn.admission {
            Admission::Pass { .. } => false,
            Admission::Wait { .. } => turn.check.verb() == Verb::Charge,
        };
        let all_pass = !turns.iter().any(refuses);
        for predecessor in predecessors {
            if all_pass {
                succession::give_back(turns, predecessor);
            }
            self.save(held, shared.as_mut(), predecessor);
        }
        // Whoever may panic goes first: then nothing is charged to the others.
        for is_custom in [true, false] {
            let turns = turns.iter_mut().zip(&mut *verdicts).filter(|(turn, _)| turn.is_custom() == is_custom);
            for (turn, verdict) in turns {
                *verdict = self.carry_out(turn, all_pass, now);
                self.save(held, shared.as_mut(), turn);
            }
        }
        Ok(now)
    }

    /// Carries a check out, if all of them pass, and answers it.
    fn carry_out(&self, turn: &mut Turn<'_>, all_pass: bool, now: Micros) -> Verdict {
        let kernel = turn.check.meter().kernel();
        let (verb, cost) = (turn.check.verb(), turn.check.cost());
        turn.changed |= all_pass && kernel::apply(kernel, &mut turn.state, turn.at, verb, cost);
        match turn.seat {
            Seat::Missing(full) => self.without_room(turn.check, full, now),
            Seat::Own | Seat::Claimed | Seat::Unneeded | Seat::Shared => {
                let reading = kernel.read(turn.seen.as_ref().unwrap_or(&turn.state), turn.at);
                super::seen_from(now, turn.at, Verdict::new(turn.admission, reading))
            }
        }
    }

    fn turns<'a>(&self, checks: &[Check<'a>]) -> Result<Vec<Turn<'a>>, StoreError> {
        let mut turns: Vec<Turn<'a>> = Vec::with_capacity(checks.len());
        for check in checks {
            let turn = self.turn(*check);
            if turns.iter().any(|other| other.has_same_state(&turn)) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name() });
            }
            turns.push(turn);
        }
        Ok(turns)
    }

    pub(super) fn turn<'a>(&self, check: Check<'a>) -> Turn<'a> {
        let fingerprint = self.fingerprint(check);
        self.prefetch(check, fingerprint);
        Turn {
            check,
            fingerprint,
            label: self.label(check),
            shelf: self.shelf_of(check),
            seat: Seat::Unneeded,
            state: MeterState::Fresh,
            at: Micros::ZERO,
            admission: Admission::PASS,
            seen: None,
            changed: false,
            is_loaded: false,
            has_used: false,
            heir: None,
        }
    }

    /// Locks all that the turns could need.
    fn hold<'s>(&'s self, turns: &[Turn<'_>]) -> Held<'s> {
        let numbers = |turn: &Turn<'_>| {
            let shelf = turn.shelf;
            self.shelf(shelf).numbers(turn.fingerprint).map(|number| (shelf, number))
        };
        let mut places: Vec<(usize, usize)> = turns.iter().flat_map(numbers).collect();
        places.sort_unstable();
        places.dedup();
        Held {
            locks: places.into_iter().map(|(shelf, number)| (shelf, number, self.shelf(shelf).lock(number))).collect(),
        }
    }

    /// Finds a seat for everyone. A slot whose time has come is free, also
    /// for the other turns: whoever has lost it to them looks again.
    fn seat_all(&self, held: &mut Held<'_>, turns: &mut [Turn<'_>], now: Micros) {
        for turn in &mut *turns {
            turn.seat = self.seat(held, turn, now);
        }
        let has_lost = |held: &mut Held<'_>, turn: &Turn<'_>| {
            matches!(turn.seat, Seat::Own) && !self.shelf(turn.shelf).has(held, turn)
        };
        while let Some(turn) = turns.iter_mut().find(|turn| has_lost(held, turn)) {
            turn.seat = self.seat(held, turn, now);
        }
    }

    /// Finds the state of a key, or takes a slot for it.
    fn seat(&self, held: &mut Held<'_>, turn: &Turn<'_>, now: Micros) -> Seat {
        let shelf = self.shelf(turn.shelf);
        if shelf.has(held, turn) {
            return Seat::Own;
        }
        if !kernel::may_write(turn.check.verb(), turn.check.cost()) {
            return Seat::Unneeded;
        }
        // What was used of a predecessor comes here first.
        let is_heir = !turn.check.former().is_empty();
        if !is_heir && !self.takes_room(turn.check, turn.fingerprint, now) {
            return Seat::Unneeded;
        }
        match shelf.claim(held, turn, now) {
            Ok(()) => Seat::Claimed,
            Err(full) => Seat::Missing(full),
        }
    }

    /// Locks the shared states if any turn needs them, and seats there whom
    /// nothing else could be found for.
    fn lock_shared<'s>(&'s self, turns: &mut [Turn<'_>], now: Micros) -> Option<AllShared<'s>> {
        let missing = turns.iter().any(|turn| matches!(turn.seat, Seat::Missing(_)));
        let newcomers = turns.iter().any(|turn| !matches!(turn.seat, Seat::Own));
        let shared = self.shared.get().filter(|shared| newcomers && shared.matters(now));
        let shared = match shared {
            None if missing && self.overflow == Overflow::Share => Some(self.shared()),
            shared => shared,
        };
        let mut shared = shared?.lock_all();
        for turn in turns {
            if let (Seat::Missing(full), Overflow::Share) = (turn.seat, self.overflow) {
                let mut state = shared.state(turn.check.meter(), turn.fingerprint);
                let may_change = turn.check.verb() == Verb::Charge || state.is_surely_used();
                turn.seat = match state.make_room(now) {
                    Ok(()) if !may_change => Seat::Missing(full),
                    Ok(()) => {
                        self.overflowed.fetch_add(1, Ordering::Relaxed);
                        Seat::Shared
                    }
                    Err(full) => Seat::Missing(full),
                };
            }
        }
        Some(shared)
    }

    /// Loads the state of a key and heals it.
    fn load(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, turn: &mut Turn<'_>, now: Micros) {
        let kernel = turn.check.meter().kernel();
        let shelf = self.shelf(turn.shelf);
        let mut shared = shared.map(|shared| shared.state(turn.check.meter(), turn.fingerprint));
        turn.has_used = matches!(turn.seat, Seat::Own) || shared.as_mut().is_some_and(SharedState::is_used);
        (turn.state, turn.at) = match turn.seat {
            Seat::Own => (shelf.load(held, turn), now),
            Seat::Missing(_) => {
                return;
            }
            Seat::Claimed | Seat::Unneeded => {
                let state = shared.map(|mut state| state.inherited(kernel, now));
                (state.unwrap_or_default(), shelf.recall(turn.fingerprint, now))
            }
            Seat::Shared => {
                let state = shared.map(|mut state| state.copy(kernel, now));
                (state.unwrap_or_default(), shelf.recall(turn.fingerprint, now))
            }
        };
        turn.is_loaded = true;
        if kernel.heal(&turn.state, turn.at).is_some() {
            // As for a single check: this thread may only have slept.
            turn.at = self.clock.now().max(turn.at);
        }
        let healed = kernel.heal(&turn.state, turn.at);
        match healed {
            Some(full) if kernel::may_write(turn.check.verb(), turn.check.cost()) => {
                turn.state = full;
                turn.changed = true;
            }
            healed => turn.seen = healed,
        }
    }

    /// Asks the kernel of a turn whose state is loaded.
    fn ask(&self, turn: &mut Turn<'_>) {
        if let Seat::Missing(_) = turn.seat {
            if self.overflow != Overflow::Allow {
                turn.admission = Admission::Wait { retry_after: Micros::ZERO };
            }
        } else if matches!(turn.check.verb(), Verb::Charge | Verb::Peek) {
            let state = turn.seen.as_ref().unwrap_or(&turn.state);
            turn.admission = turn.check.meter().kernel().admit(state, turn.at, turn.check.cost());
        }
    }

    /// Writes the state back, or gives up the slot that was taken for it.
    fn save(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, turn: &mut Turn<'_>) {
        match (turn.seat, shared) {
            (Seat::Own, _) => self.shelf(turn.shelf).save(held, turn),
            (Seat::Claimed, _) if turn.changed => self.shelf(turn.shelf).save(held, turn),
            // Nobody may find an empty state there, who has a share elsewhere.
            (Seat::Claimed, _) => self.shelf(turn.shelf).give_up(held, turn),
            (Seat::Shared, Some(shared)) if turn.changed => {
                let state = std::mem::take(&mut turn.state);
                shared.state(turn.check.meter(), turn.fingerprint).set(turn.check.meter().kernel(), state, turn.at);
            }
            (Seat::Unneeded | Seat::Shared | Seat::Missing(_), _) => {}
        }
        turn.seat = Seat::Unneeded;
    }

    /// Puts back what was taken for a turn that was not [saved](Self::save):
    /// a kernel of the user's own has panicked, and is not asked again.
    fn settle(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, turn: &mut Turn<'_>) {
        let shelf = self.shelf(turn.shelf);
        match turn.seat {
            Seat::Own if !turn.is_loaded => {}
            Seat::Own if turn.is_custom() => shelf.put_back(held, turn),
            Seat::Claimed if turn.is_custom() => shelf.give_up(held, turn),
            Seat::Shared if turn.is_custom() => {}
            Seat::Own | Seat::Claimed | Seat::Shared | Seat::Unneeded | Seat::Missing(_) => {
                self.save(held, shared, turn);
            }
        }
    }

    fn shelf_of(&self, check: Check<'_>) -> usize {
        match check.meter().kernel() {
            MeterKernel::Bucket(bucket) if bucket.is_narrow() => 0,
            MeterKernel::Window(window) if window.is_narrow() => 0,
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => 1,
            MeterKernel::Heap(_) => 2,
        }
    }

    fn shelf(&self, number: usize) -> &dyn Shelf {
        match number {
            0 => &self.narrow,
            1 => self.wide(),
            _ => self.heap(),
        }
    }
}

/// The turns of a slice and what is locked for them. Whatever way it ends, no
/// state is left out and no slot is left marked.
struct Round<'s, 'a> {
    store: &'s MemoryStore,
    shared: Option<AllShared<'s>>,
    held: Held<'s>,
    turns: Vec<Turn<'a>>,
}

impl Drop for Round<'_, '_> {
    fn drop(&mut self) {
        let Round { store, shared, held, turns } = self;
        turns.iter_mut().for_each(|turn| store.settle(held, shared.as_mut(), turn));
    }
}

/// The lines and buckets that are locked, sorted by shelf and number.
struct Held<'s> {
    locks: Vec<(usize, usize, Lock<'s>)>,
}

enum Lock<'s> {
    Line(LockedLine<'s>),
    Bucket(MutexGuard<'s, Bucket>),
}

impl<'s> Held<'s> {
    fn position(&self, shelf: usize, number: usize) -> usize {
        let found = self.locks.binary_search_by_key(&(shelf, number), |(shelf, number, _)| (*shelf, *number));
        found.expect("all that a turn could need is locked before any of it is used")
    }

    fn line(&self, shelf: usize, number: usize) -> &LockedLine<'s> {
        match &self.locks[self.position(shelf, number)].2 {
            Lock::Line(line) => line,
            Lock::Bucket(_) => unreachable!("tables have lines"),
        }
    }

    fn bucket(&mut self, shelf: usize, number: usize) -> &mut Bucket {
        let position = self.position(shelf, number);
        match &mut self.locks[position].2 {
            Lock::Bucket(bucket) => bucket,
            Lock::Line(_) => unreachable!("the heap has buckets"),
        }
    }
}

/// A place for states, as several checks at once use it.
trait Shelf {
    /// What must be locked for a key; the same twice if it is only one.
    fn numbers(&self, fingerprint: u64) -> [usize; 2];
    fn lock(&self, number: usize) -> Lock<'_>;
    /// Whether the key has a slot.
    fn has(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> bool;
    /// Takes a slot for a key that has none.
    fn claim(&self, held: &mut Held<'_>, turn: &Turn<'_>, now: Micros) -> Result<(), Full>;
    /// The state in the key's slot, which is to be saved again.
    fn load(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> MeterState;
    /// Puts the state into the key's slot.
    fn save(&self, held: &mut Held<'_>, turn: &mut Turn<'_>);
    /// Gives back the state that was loaded, as it is.
    fn put_back(&self, held: &mut Held<'_>, turn: &mut Turn<'_>);
    /// Leaves the slot that was taken for a key, as if it had never been.
    fn give_up(&self, held: &mut Held<'_>, turn: &Turn<'_>);
    /// The time for a key that has no slot.
    fn recall(&self, fingerprint: u64, now: Micros) -> Micros;
}

impl<const STATE: usize> Table<STATE> {
    /// The slot of a turn's key.
    fn slot<'g, 's>(&self, held: &'g Held<'s>, turn: &Turn<'_>) -> Option<(&'g LockedLine<'s>, usize)> {
        self.locate(self.pair(held, turn), self.home(turn.fingerprint))
    }

    fn pair<'g, 's>(&self, held: &'g Held<'s>, turn: &Turn<'_>) -> Pair<'g, 's> {
        let home = self.home(turn.fingerprint);
        let away = self.other(home);
        Pair { home: held.line(turn.shelf, home.line), away: Some(held.line(turn.shelf, away.line)) }
    }
}

impl<const STATE: usize> Shelf for Table<STATE>
where
    MeterKernel: Pack<STATE>,
{
    fn numbers(&self, fingerprint: u64) -> [usize; 2] {
        let home = self.home(fingerprint);
        [home.line, self.other(home).line]
    }

    fn lock(&self, number: usize) -> Lock<'_> {
        Lock::Line(Table::lock(self, number))
    }

    fn has(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> bool {
        self.slot(held, turn).is_some()
    }

    fn claim(&self, held: &mut Held<'_>, turn: &Turn<'_>, now: Micros) -> Result<(), Full> {
        let home = self.home(turn.fingerprint);
        let (line, slot) = Table::claim(self, self.pair(held, turn), home, now, turn.label)?;
        // Until it is decided what to write here, the next turn must not take
        // the slot too.
        Self::write(line, slot, [u64::MAX; STATE]);
        Ok(())
    }

    fn load(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> MeterState {
        let slot = self.slot(held, turn);
        slot.map_or(MeterState::Fresh, |(line, slot)| turn.check.meter().kernel().unpack(Self::read(line, slot)))
    }

    fn save(&self, held: &mut Held<'_>, turn: &mut Turn<'_>) {
        if let (true, Some((line, slot))) = (turn.changed, self.slot(held, turn)) {
            Self::write(line, slot, turn.check.meter().kernel().pack(&turn.state));
        }
    }

    /// What is loaded from a table is a copy.
    fn put_back(&self, _: &mut Held<'_>, _: &mut Turn<'_>) {}

    fn give_up(&self, held: &mut Held<'_>, turn: &Turn<'_>) {
        if let Some((line, slot)) = self.slot(held, turn) {
            Self::vacate(line, slot);
        }
    }

    fn recall(&self, fingerprint: u64, now: Micros) -> Micros {
        Table::recall(self, self.home(fingerprint), now)
    }
}

impl Shelf for Heap {
    fn numbers(&self, fingerprint: u64) -> [usize; 2] {
        [self.bucket(fingerprint); 2]
    }

    fn lock(&self, number: usize) -> Lock<'_> {
        Lock::Bucket(Heap::lock(self, number))
    }

    fn has(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> bool {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        Heap::find(bucket, turn.fingerprint).is_some()
    }

    fn claim(&self, held: &mut Held<'_>, turn: &Turn<'_>, now: Micros) -> Result<(), Full> {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        self.make_room(bucket, now)?;
        if let MeterKernel::Heap(kernel) = turn.check.meter().kernel() {
            let mut entry = Entry::new(turn.fingerprint, kernel, AnyState::Fresh, turn.label);
            entry.set(kernel, AnyState::Fresh, Micros::MAX);
            bucket.push(entry);
        }
        self.sweep(now);
        Ok(())
    }

    fn load(&self, held: &mut Held<'_>, turn: &Turn<'_>) -> MeterState {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        match (Heap::find(bucket, turn.fingerprint), turn.check.meter().kernel()) {
            (Some(entry), MeterKernel::Heap(kernel)) => MeterState::Heap(entry.take(kernel)),
            (_, _) => MeterState::Fresh,
        }
    }

    fn save(&self, held: &mut Held<'_>, turn: &mut Turn<'_>) {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        let until = turn.check.meter().kernel().forget_at(&turn.state);
        let entry = Heap::find(bucket, turn.fingerprint);
        if let (Some(entry), MeterKernel::Heap(kernel)) = (entry, turn.check.meter().kernel()) {
            entry.set(kernel, std::mem::take(turn.state.heap_mut()), until);
        }
    }

    fn put_back(&self, held: &mut Held<'_>, turn: &mut Turn<'_>) {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        if let Some(entry) = Heap::find(bucket, turn.fingerprint) {
            entry.put_back(std::mem::take(turn.state.heap_mut()));
        }
    }

    fn give_up(&self, held: &mut Held<'_>, turn: &Turn<'_>) {
        let bucket = held.bucket(turn.shelf, self.bucket(turn.fingerprint));
        bucket.retain(|entry| entry.fingerprint() != turn.fingerprint);
    }

    fn recall(&self, _: u64, now: Micros) -> Micros {
        Heap::recall(self, now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
