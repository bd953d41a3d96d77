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
use super::step::{Placement, Step};
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
        let mut steps = self.steps(checks)?;
        let mut now = at.unwrap_or_else(|| self.clock.now());
        self.add_former(checks, &mut steps, now);
        let mut round = Round { store: self, shared: None, held: self.hold(&steps), steps };
        // A bucket counts what has drained since a charge. By a reading from before another charge, which
        // was faster, it would be too little.
        if at.is_none() && checks.iter().any(|check| matches!(check.verb(), Verb::Settle(_))) {
            now = self.clock.now();
        }
        let Round { shared, held, steps, .. } = &mut round;
        self.place_all(held, steps, now);
        *shared = self.lock_shared(steps, now);
        for step in &mut *steps {
            self.load(held, shared.as_mut(), step, now);
        }
        let (steps, former) = steps.split_at_mut(checks.len());
        for from in &mut *former {
            let settles = from.target.is_some_and(|target| checks[target].settles_first());
            if settles {
                migration::give_back(checks, steps, from);
            }
            migration::take_over(checks, steps, from);
        }
        steps.iter_mut().for_each(|step| self.ask(step, now));
        let refuses = |step: &Step<'_>| match step.admission {
            Admission::Pass { .. } => false,
            Admission::Wait { .. } => step.check.verb().can_refuse(),
        };
        let all_pass = !steps.iter().any(refuses);
        for from in former.iter_mut().filter(|_| all_pass) {
            if !from.target.is_some_and(|target| checks[target].settles_first()) {
                migration::give_back(checks, steps, from);
            }
        }
        for (check, step) in checks.iter().zip(&mut *steps) {
            step.check.verb = check.left_to_settle(step.at, step.check.verb);
        }
        // A kernel that may panic goes first: then nothing is charged to the others.
        for is_custom in [true, false] {
            let steps = steps.iter_mut().zip(&mut *verdicts).filter(|(step, _)| step.is_custom() == is_custom);
            for (step, verdict) in steps {
                *verdict = self.carry_out(step, all_pass, now);
                self.save(held, shared.as_mut(), step);
            }
        }
        for from in former {
            self.save(held, shared.as_mut(), from);
        }
        Ok(now)
    }

    /// Carries a check out, if all of them pass, and answers it.
    fn carry_out(&self, step: &mut Step<'_>, all_pass: bool, now: Micros) -> Verdict {
        if let Placement::Missing(full) = step.placement {
            return self.without_room(step.check, full, now);
        }
        let kernel = step.check.meter().kernel();
        let (verb, cost) = (step.check.verb(), step.check.cost());
        let used = self.used_before(step);
        let applied = if all_pass { kernel::apply(kernel, &mut step.state, step.at, verb, cost) } else { None };
        let crossed = used.filter(|_| applied.is_some()).map_or(0, |before| self.crossed(step, before, now));
        step.changed |= applied.is_some();
        let reading = kernel.read(step.seen.as_ref().unwrap_or(&step.state), step.at);
        let charges = applied.is_some() && verb.can_refuse();
        let ahead = if charges { kernel.ahead(&step.state, step.at) } else { Micros::ZERO };
        let unrecorded = applied.unwrap_or(0);
        let verdict = Verdict { unrecorded, ahead, crossed, ..Verdict::new(step.admission, reading) };
        super::seen_from(now, step.at, verdict)
    }

    fn steps<'a>(&self, checks: &[Check<'a>]) -> Result<Vec<Step<'a>>, StoreError> {
        let mut steps: Vec<Step<'a>> = Vec::with_capacity(checks.len());
        for check in checks {
            let step = self.step(*check);
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
        let mut places: Vec<(usize, usize)> = steps.iter().flat_map(numbers).collect();
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
        if !kernel::may_write(step.check.verb(), step.check.cost()) {
            return Placement::Unneeded;
        }
        // What was used of a former limit comes here first.
        if !has_former(&step.check) && !self.takes_room(step.check, step.fingerprint, now) {
            return Placement::Unneeded;
        }
        match shelf.claim(held, step, now) {
            Ok(()) => Placement::Claimed,
            Err(full) => Placement::Missing(full),
        }
    }

    /// Locks the shared states if any step needs them, and has the overflow
    /// rule decide for those that found no room.
    fn lock_shared<'s>(&'s self, steps: &mut [Step<'_>], now: Micros) -> Option<AllShared<'s>> {
        let missing = steps.iter().any(|step| matches!(step.placement, Placement::Missing(_)));
        let newcomers = steps.iter().any(|step| !matches!(step.placement, Placement::Own));
        let matters = || self.shared.get().filter(|shared| newcomers && shared.matters(now));
        let mut all = if missing { self.shared() } else { matters() }.map(Shared::lock_all);
        for step in steps {
            if let Placement::Missing(full) = step.placement {
                let shared = all.as_mut().map(|all| all.state(step.check.meter(), step.fingerprint));
                step.placement = match self.share(shared, step.check, full, now) {
                    Ok(_) => Placement::Shared,
                    Err(full) => Placement::Missing(full),
                };
            }
        }
        all
    }

    /// Loads the state of a key and heals it.
    fn load(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, step: &mut Step<'_>, now: Micros) {
        let kernel = step.check.meter().kernel();
        let shelf = self.shelf(step.shelf);
        let shared = shared.map(|shared| shared.state(step.check.meter(), step.fingerprint));
        step.has_used = matches!(step.placement, Placement::Own) || shared.as_ref().is_some_and(SharedState::is_used);
        (step.state, step.at) = match step.placement {
            Placement::Own => (shelf.load(held, step), now),
            Placement::Missing(_) => return,
            Placement::Shared | Placement::Claimed | Placement::Unneeded => {
                let is_shared = matches!(step.placement, Placement::Shared);
                let state =
                    shared.map(|state| if is_shared { state.copy(kernel, now) } else { state.inherited(kernel, now) });
                (state.unwrap_or_default(), shelf.recall(step.fingerprint, now))
            }
        };
        step.is_loaded = true;
        if let Some(Healed { at, seen, changed }) = self.heal(kernel, &mut step.state, step.at, step.check) {
            (step.at, step.seen, step.changed) = (at, seen, changed);
        }
    }

    /// Asks the kernel of a step whose state is loaded.
    fn ask(&self, step: &mut Step<'_>, now: Micros) {
        if let Placement::Missing(full) = step.placement {
            let Verdict { allowed, retry_after, .. } = self.without_room(step.check, full, now);
            step.admission = if allowed { Admission::PASS } else { Admission::Wait { retry_after } };
        } else {
            let (kernel, state) = (step.check.meter().kernel(), step.seen.as_ref().unwrap_or(&step.state));
            step.admission = kernel::admit(kernel, state, step.at, step.check.verb(), step.check.cost());
        }
    }

    /// Writes the state back, or gives up the slot that was taken for it.
    fn save(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, step: &mut Step<'_>) {
        match (step.placement, shared) {
            (Placement::Own, _) => self.shelf(step.shelf).save(held, step),
            (Placement::Claimed, _) if step.changed => self.shelf(step.shelf).save(held, step),
            // The key must not find an empty state there: it may have a share elsewhere.
            (Placement::Claimed, _) => self.shelf(step.shelf).give_up(held, step),
            (Placement::Shared, Some(shared)) if step.changed => {
                let state = std::mem::take(&mut step.state);
                shared.state(step.check.meter(), step.fingerprint).set(step.check.meter().kernel(), state, step.at);
            }
            (Placement::Unneeded | Placement::Shared | Placement::Missing(_), _) => {}
        }
        step.placement = Placement::Unneeded;
    }

    /// Puts back what was taken for a step that was not [saved](Self::save):
    /// a kernel of the user's own has panicked, and is not asked again.
    fn settle(&self, held: &mut Held<'_>, shared: Option<&mut AllShared<'_>>, step: &mut Step<'_>) {
        step.changed &= !step.is_custom();
        if step.is_loaded || !matches!(step.placement, Placement::Own) {
            self.save(held, shared, step);
        }
    }
}

/// The steps of a slice and what is locked for them. However it ends, no
/// state is left out and no slot is left marked.
struct Round<'s, 'a> {
    store: &'s MemoryStore,
    shared: Option<AllShared<'s>>,
    held: Held<'s>,
    steps: Vec<Step<'a>>,
}

impl Drop for Round<'_, '_> {
    fn drop(&mut self) {
        let Round { store, shared, held, steps } = self;
        // What moved to a state that is not kept stays where it was, if nothing else has it.
        let number = steps.iter().take_while(|step| step.target.is_none()).count();
        let (asked, former) = steps.split_at_mut(number);
        for from in former {
            from.changed &= from.target.is_some_and(|target| !asked[target].is_custom());
        }
        steps.iter_mut().for_each(|step| store.settle(held, shared.as_mut(), step));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
