//! Checks of any number and kind, decided together: all are charged, or none is.
//!
//! Every line and bucket that the checks could need is locked first, in one
//! order for all threads: by shelf, then by number, and the shared states
//! last. Then the states are loaded and the kernels asked, and only if all
//! admit is anything charged. The [planner](super::plan) and a
//! [single check](super::single) are shortcuts for what is simpler.

use smallvec::SmallVec;

use super::MemoryStore;
use super::overflow::LockedShards;
use super::shelf::Held;
use super::step::{Placement, Step};
use crate::kernel::{Kernel, Verb, Verdict};
use crate::store::{Check, Part, Slice, StoreError};
use crate::time::Micros;

/// Few of them take no allocation.
type Steps<'a> = SmallVec<[Step<'a>; 4]>;

impl MemoryStore {
    /// Decides all of `checks`, or charges none of them, and says when: at the time
    /// `at`, if the clock was read already.
    pub(super) fn decide_together(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        at: Option<Micros>,
    ) -> Result<Micros, StoreError> {
        let mut now = at.unwrap_or_else(|| self.clock.now());
        let slice = Slice::new(checks, now)?;
        let steps = self.steps(&slice)?;
        let mut round = Round { store: self, shared: None, held: self.hold(&steps), steps, slice };
        // A bucket counts what has drained since a charge. By a reading from before another charge, which
        // was faster, it would be too little.
        if at.is_none() && checks.iter().any(|check| matches!(check.verb(), Verb::Settle(_))) {
            now = self.clock.now();
        }
        let Round { shared, held, steps, slice, .. } = &mut round;
        self.place_all(held, steps, now);
        *shared = self.lock_shared(steps, now);
        for (step, part) in steps.iter_mut().zip(&mut slice.parts) {
            self.load(held, shared.as_mut(), step, part, now);
        }
        for (step, cell) in steps.iter().zip(&mut slice.cells) {
            if let Placement::Missing(full) = step.placement {
                cell.given = Some(self.without_room(step.check, full, now));
            }
        }
        slice.decide(now);
        for (index, (step, verdict)) in steps.iter().zip(&mut *verdicts).enumerate() {
            *verdict = slice.cells[index].verdict;
            if slice.is_applied(index) {
                verdict.crossed = self.crossed(step, slice.used(index)[1], verdict.crossed, now);
            }
        }
        for (step, part) in steps.iter_mut().zip(&mut slice.parts) {
            self.save(held, shared.as_mut(), step, part);
        }
        Ok(now)
    }

    /// A step for each state of the slice.
    fn steps<'a>(&self, slice: &Slice<'a>) -> Result<Steps<'a>, StoreError> {
        let mut steps = Steps::new();
        for check in slice.checks() {
            let step = self.step(check);
            if steps.iter().any(|other| other.has_same_state(&step)) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// Locks all that the steps could need.
    fn hold<'s>(&'s self, steps: &[Step<'_>]) -> Held<'s> {
        let numbers = |step: &Step<'_>| {
            let shelf = step.shelf;
            self.shelf(shelf).numbers(step.fingerprint).map(|number| (shelf, number))
        };
        let mut places: SmallVec<[(usize, usize); 8]> = steps.iter().flat_map(numbers).collect();
        places.sort_unstable();
        places.dedup();
        let lock = |(shelf, number)| (shelf, number, self.shelf(shelf).lock(number));
        Held { locks: places.into_iter().map(lock).collect() }
    }

    /// Finds a placement for each step. A slot whose time has come is free, also
    /// for the other steps: a step that has lost its own to them looks again.
    fn place_all(&self, held: &mut Held<'_>, steps: &mut [Step<'_>], now: Micros) {
        for step in &mut *steps {
            step.placement = self.place(held, step, now);
        }
        let has_lost = |held: &mut Held<'_>, step: &Step<'_>| {
            matches!(step.placement, Placement::Own) && !self.shelf(step.shelf).has(held, step)
        };
        while let Some(step) = steps.iter_mut().find(|step| has_lost(held, step)) {
            step.placement = self.place(held, step, now);
        }
    }

    /// Finds the state of a key, or takes a slot for it.
    fn place(&self, held: &mut Held<'_>, step: &Step<'_>, now: Micros) -> Placement {
        let shelf = self.shelf(step.shelf);
        if shelf.has(held, step) {
            return Placement::Own;
        }
        if !step.check.act().writes() {
            return Placement::Unneeded;
        }
        if !self.takes_room(step.check, step.fingerprint, now) {
            return Placement::Unneeded;
        }
        match shelf.claim(held, step, now) {
            Ok(()) => Placement::Claimed,
            Err(full) => Placement::Missing(full),
        }
    }

    /// Locks the shared states if any step needs them, and has the overflow
    /// rule decide for those that found no room.
    fn lock_shared<'s>(&'s self, steps: &mut [Step<'_>], now: Micros) -> Option<LockedShards<'s>> {
        let is_missing = |step: &Step<'_>| matches!(step.placement, Placement::Missing(_));
        let shared = if steps.iter().any(is_missing) { self.shared() } else { self.shared.get() };
        let shared = shared.filter(|shared| shared.matters(now) || steps.iter().any(is_missing));
        let newcomers = || steps.iter().filter(|step| !matches!(step.placement, Placement::Own));
        let mut all = shared.map(|shared| shared.lock(newcomers().map(|step| step.fingerprint)));
        for step in steps {
            if let Placement::Missing(full) = step.placement {
                let shared = all.as_mut().and_then(|all| all.state(step.check.meter(), step.fingerprint));
                step.placement = match self.share(shared, step.check, full, now) {
                    Ok(_) => Placement::Shared,
                    Err(full) => Placement::Missing(full),
                };
            }
        }
        all
    }

    /// Loads the state of a key, and finds out the time to go by for it.
    fn load(
        &self,
        held: &mut Held<'_>,
        shared: Option<&mut LockedShards<'_>>,
        step: &mut Step<'_>,
        part: &mut Part<'_>,
        now: Micros,
    ) {
        let kernel = step.check.meter().kernel();
        let shelf = self.shelf(step.shelf);
        let shared = shared.and_then(|shared| shared.state(step.check.meter(), step.fingerprint));
        (part.state, part.at) = match step.placement {
            Placement::Own => (shelf.load(held, step), now),
            Placement::Missing(_) => return,
            Placement::Shared | Placement::Claimed | Placement::Unneeded => {
                let is_shared = matches!(step.placement, Placement::Shared);
                let state =
                    shared.map(|state| if is_shared { state.copy(kernel, now) } else { state.inherited(kernel, now) });
                part.is_own = !matches!(step.placement, Placement::Unneeded);
                (state.unwrap_or_default(), shelf.recall(step.fingerprint, now))
            }
        };
        step.is_loaded = true;
        if kernel.heal(&part.state, part.at).is_some() {
            part.at = self.clock.now().max(part.at);
        }
    }

    /// Writes the state back, or gives up the slot that was taken for it.
    fn save(
        &self,
        held: &mut Held<'_>,
        shared: Option<&mut LockedShards<'_>>,
        step: &mut Step<'_>,
        part: &mut Part<'_>,
    ) {
        let shared = shared.and_then(|shared| shared.state(step.check.meter(), step.fingerprint));
        match (step.placement, shared) {
            (Placement::Own, _) => self.shelf(step.shelf).save(held, step, part),
            (Placement::Claimed, _) if part.changed => self.shelf(step.shelf).save(held, step, part),
            // The key must not find an empty state there: it may have a share elsewhere.
            (Placement::Claimed, _) => self.shelf(step.shelf).give_up(held, step),
            (Placement::Shared, Some(mut shared)) if part.changed => {
                shared.set(step.check.meter().kernel(), std::mem::take(&mut part.state), part.at);
            }
            (Placement::Unneeded | Placement::Shared | Placement::Missing(_), _) => {}
        }
        step.placement = Placement::Unneeded;
    }
}

/// The states of a slice, and what is locked for them. However it ends, no
/// state is left out and no slot is left marked.
struct Round<'s, 'a> {
    store: &'s MemoryStore,
    shared: Option<LockedShards<'s>>,
    held: Held<'s>,
    steps: Steps<'a>,
    slice: Slice<'a>,
}

impl Drop for Round<'_, '_> {
    fn drop(&mut self) {
        let Round { store, shared, held, steps, slice } = self;
        for (step, part) in steps.iter_mut().zip(&mut slice.parts) {
            // A custom kernel that has panicked is not asked again.
            part.changed &= !part.meter.is_custom();
            if step.is_loaded || !matches!(step.placement, Placement::Own) {
                store.save(held, shared.as_mut(), step, part);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
