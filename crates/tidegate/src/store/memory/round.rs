//! Checks of any number and kind, decided together: all are charged, or none is.
//!
//! Every line and bucket that the checks could need is locked first, in one
//! order for all threads: by shelf, then by number, and the shared states
//! last. Then the states are loaded and the kernels asked, and only if all
//! admit is anything charged. The [planner](super::plan) and a
//! [single check](super::single) are shortcuts for what is simpler.

use super::MemoryStore;
use super::healing::Healed;
use super::migration::{self, has_former};
use super::overflow::{AllShared, Shared, SharedState};
use super::shelf::Held;
use super::turn::{Seat, Turn};
use crate::kernel::{self, Admission, Kernel, Verb, Verdict};
use crate::store::{Check, StoreError};
use crate::time::Micros;

impl MemoryStore {
    /// Decides all of `checks`, or charges none of them, and says when: at the time
    /// `at`, if the clock was read already.
    pub(super) fn decide_together(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        at: Option<Micros>,
    ) -> Result<Micros, StoreError> {
        let mut turns = self.turns(checks)?;
        let mut now = at.unwrap_or_else(|| self.clock.now());
        self.add_former(checks, &mut turns, now);
        let mut round = Round { store: self, shared: None, held: self.hold(&turns), turns };
        // A bucket counts what has drained since a charge. By a reading from before another charge, which
        // was faster, it would be too little.
        if at.is_none() && checks.iter().any(|check| matches!(check.verb(), Verb::Settle(_))) {
            now = self.clock.now();
        }
        let Round { shared, held, turns, .. } = &mut round;
        self.seat_all(held, turns, now);
        *shared = self.lock_shared(turns, now);
        for turn in &mut *turns {
            self.load(held, shared.as_mut(), turn, now);
        }
        let (turns, former) = turns.split_at_mut(checks.len());
        for from in &mut *former {
            migration::take_over(turns, from);
        }
        turns.iter_mut().for_each(|turn| self.ask(turn, now));
        let refuses = |turn: &Turn<'_>| match turn.admission {
            Admission::Pass { .. } => false,
            Admission::Wait { .. } => turn.check.verb().can_refuse(),
        };
        let all_pass = !turns.iter().any(refuses);
        for from in former {
            if all_pass {
                migration::give_back(turns, from);
            }
            self.save(held, shared.as_mut(), from);
        }
        // A kernel that may panic goes first: then nothing is charged to the others.
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
        if let Seat::Missing(full) = turn.seat {
            return self.without_room(turn.check, full, now);
        }
        let kernel = turn.check.meter().kernel();
        let (verb, cost) = (turn.check.verb(), turn.check.cost());
        let used = self.used_before(turn);
        let applied = if all_pass { kernel::apply(kernel, &mut turn.state, turn.at, verb, cost) } else { None };
        let crossed = used.filter(|_| applied.is_some()).map_or(0, |before| self.crossed(turn, before, now));
        turn.changed |= applied.is_some();
        let reading = kernel.read(turn.seen.as_ref().unwrap_or(&turn.state), turn.at);
        let charges = applied.is_some() && verb.can_refuse();
        let ahead = if charges { kernel.ahead(&turn.state, turn.at) } else { Micros::ZERO };
        let unrecorded = applied.unwrap_or(0);
        let verdict = Verdict { unrecorded, ahead, crossed, ..Verdict::new(turn.admission, reading) };
        super::seen_from(now, turn.at, verdict)
    }

    fn turns<'a>(&self, checks: &[Check<'a>]) -> Result<Vec<Turn<'a>>, StoreError> {
        let mut turns: Vec<Turn<'a>> = Vec::with_capacity(checks.len());
        for check in checks {
            let turn = self.turn(*check);
            if turns.iter().any(|other| other.has_same_state(&turn)) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            turns.push(turn);
        }
        Ok(turns)
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
        let lock = |(shelf, number)| (shelf, number, self.shelf(shelf).lock(number));
        Held { locks: places.into_iter().map(lock).collect() }
    }

    /// Finds a seat for each turn. A slot whose time has come is free, also
    /// for the other turns: a turn that has lost its own to them looks again.
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
        // What was used of a former limit comes here first.
        if !has_former(&turn.check) && !self.takes_room(turn.check, turn.fingerprint, now) {
            return Seat::Unneeded;
        }
        match shelf.claim(held, turn, now) {
            Ok(()) => Seat::Claimed,
            Err(full) => Seat::Missing(full),
        }
    }

    /// Locks the shared states if any turn needs them, and has the overflow
    /// rule decide for those that found no room.
    fn lock_shared<'s>(&'s self, turns: &mut [Turn<'_>], now: Micros) -> Option<AllShared<'s>> {
        let missing = turns.iter().any(|turn| matches!(turn.seat, Seat::Missing(_)));
        let newcomers = turns.iter().any(|turn| !matches!(turn.seat, Seat::Own));
        let matters = || self.shared.get().filter(|shared| newcomers && shared.matters(now));
        let mut all = if missing { self.shared() } else { matters() }.map(Shared::lock_all);
        for turn in turns {
            if let Seat::Missing(full) = turn.seat {
                let shared = all.as_mut().map(|all| all.state(turn.check.meter(), turn.fingerprint));
                turn.seat = match self.share(shared, turn.check, full, now) {
                    Ok(_) => Seat::Shared,
                    Err(full) => Seat::Missing(full),
                };
            }
        }
        all
    }

    /// Loads the state of a key and heals it.
    fn load(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, turn: &mut Turn<'_>, now: Micros) {
        let kernel = turn.check.meter().kernel();
        let shelf = self.shelf(turn.shelf);
        let shared = shared.map(|shared| shared.state(turn.check.meter(), turn.fingerprint));
        turn.has_used = matches!(turn.seat, Seat::Own) || shared.as_ref().is_some_and(SharedState::is_used);
        (turn.state, turn.at) = match turn.seat {
            Seat::Own => (shelf.load(held, turn), now),
            Seat::Missing(_) => return,
            Seat::Shared | Seat::Claimed | Seat::Unneeded => {
                let is_shared = matches!(turn.seat, Seat::Shared);
                let state =
                    shared.map(|state| if is_shared { state.copy(kernel, now) } else { state.inherited(kernel, now) });
                (state.unwrap_or_default(), shelf.recall(turn.fingerprint, now))
            }
        };
        turn.is_loaded = true;
        if let Some(Healed { at, seen, changed }) = self.heal(kernel, &mut turn.state, turn.at, turn.check) {
            (turn.at, turn.seen, turn.changed) = (at, seen, changed);
        }
    }

    /// Asks the kernel of a turn whose state is loaded.
    fn ask(&self, turn: &mut Turn<'_>, now: Micros) {
        if let Seat::Missing(full) = turn.seat {
            let Verdict { allowed, retry_after, .. } = self.without_room(turn.check, full, now);
            turn.admission = if allowed { Admission::PASS } else { Admission::Wait { retry_after } };
        } else {
            let (kernel, state) = (turn.check.meter().kernel(), turn.seen.as_ref().unwrap_or(&turn.state));
            turn.admission = kernel::admit(kernel, state, turn.at, turn.check.verb(), turn.check.cost());
        }
    }

    /// Writes the state back, or gives up the slot that was taken for it.
    fn save(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, turn: &mut Turn<'_>) {
        match (turn.seat, shared) {
            (Seat::Own, _) => self.shelf(turn.shelf).save(held, turn),
            (Seat::Claimed, _) if turn.changed => self.shelf(turn.shelf).save(held, turn),
            // The key must not find an empty state there: it may have a share elsewhere.
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
        turn.changed &= !turn.is_custom();
        if turn.is_loaded || !matches!(turn.seat, Seat::Own) {
            self.save(held, shared, turn);
        }
    }
}

/// The turns of a slice and what is locked for them. However it ends, no
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

#[cfg(all(test, not(loom)))]
mod tests;
