//! One check at a time, which is what nearly every call is.
//!
//! The commonest of all, a charge to a bucket that sits in its home line, has
//! a way of its own, and where charges are being refused one without a lock;
//! everything else visits its state wherever it is kept.

use super::labels::Label;
use super::line_lock::LockedLine;
use super::overflow::{Full, Overflow, Visit};
use super::pack::Pack;
use super::table::{Approach, Seat, Table};
use super::{MemoryStore, seen_from};
use crate::kernel::{self, Bucket, BucketState, Kernel, Verb, Verdict};
use crate::store::{AnyState, Check, HeapKernel, MeterKernel, MeterState};
use crate::sync::Ordering;
use crate::time::Micros;

/// Checks whose lines are asked for together.
const BATCH: usize = 32;

impl MemoryStore {
    /// Decides one check, and says when.
    #[inline(always)]
    pub(super) fn decide_one(&self, check: Check<'_>, verdict: &mut Verdict) -> Micros {
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = narrow_charge(&check) {
            // The clock takes as long to read as the line to arrive, and
            // would hold it up if it were read first.
            let approach = self.narrow.approach(fingerprint);
            let now = self.clock.now();
            self.charge_narrow(bucket, check, fingerprint, approach, now, verdict);
            return now;
        }
        let (decided, now) = self.decide_otherwise(check, fingerprint);
        *verdict = decided.field_by_field();
        now
    }

    /// Whether one check passes, for those who ask no more.
    #[inline(always)]
    pub(super) fn admits(&self, check: Check<'_>) -> bool {
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = narrow_charge(&check) {
            let approach = self.narrow.approach(fingerprint);
            let now = self.clock.now();
            return match self.charge_at_home(bucket, check.cost(), approach, now) {
                Ok((_, filled)) => filled.is_some(),
                Err(line) => self.charge_narrow_elsewhere(line, approach.home, check, fingerprint, now).allowed,
            };
        }
        self.decide_otherwise(check, fingerprint).0.allowed
    }

    /// Decides each of many for itself, all at one time.
    pub(super) fn decide_each(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Micros {
        let mut now = None;
        for (checks, verdicts) in checks.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            let mut fingerprints = [0; BATCH];
            for (check, fingerprint) in checks.iter().zip(&mut fingerprints) {
                *fingerprint = self.fingerprint(*check);
                match narrow_charge(check) {
                    Some(_) => {
                        self.narrow.approach(*fingerprint);
                    }
                    None => self.prefetch(*check, *fingerprint),
                }
            }
            let now = *now.get_or_insert_with(|| self.clock.now());
            for ((check, fingerprint), verdict) in checks.iter().zip(&fingerprints).zip(verdicts) {
                match narrow_charge(check) {
                    Some(bucket) => {
                        let approach = self.narrow.reach(*fingerprint);
                        self.charge_narrow(bucket, *check, *fingerprint, approach, now, verdict);
                    }
                    None => *verdict = self.decide_at(*check, *fingerprint, now),
                }
            }
        }
        now.unwrap_or_else(|| self.clock.now())
    }

    /// Asks for the lines of a key before anything else is done.
    pub(super) fn prefetch(&self, check: Check<'_>, fingerprint: u64) {
        match check.meter().kernel() {
            kernel if kernel.is_narrow() => {
                self.narrow.approach(fingerprint);
            }
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => {
                self.wide().approach(fingerprint);
            }
            MeterKernel::Heap(_) => {}
        }
    }

    #[inline(always)]
    fn charge_narrow(
        &self,
        bucket: &Bucket,
        check: Check<'_>,
        fingerprint: u64,
        approach: Approach<'_>,
        now: Micros,
        verdict: &mut Verdict,
    ) {
        match self.charge_at_home(bucket, check.cost(), approach, now) {
            Ok((state, filled)) => {
                let (admission, reading) = bucket.tell(&state, now, check.cost(), filled);
                *verdict = Verdict::new(admission, reading);
            }
            Err(line) => *verdict = self.charge_narrow_elsewhere(line, approach.home, check, fingerprint, now),
        }
    }

    /// What nearly every check comes to: a charge to a bucket that sits in its
    /// home line. The state afterwards, and the level if it passed. If it is not
    /// that simple, the line, locked, if the bucket is not there.
    #[inline(always)]
    fn charge_at_home<'t>(
        &'t self,
        bucket: &Bucket,
        cost: u64,
        approach: Approach<'t>,
        now: Micros,
    ) -> Result<(BucketState, Option<u64>), Option<LockedLine<'t>>> {
        // A refusal changes nothing, so it needs no lock.
        if Table::has_refused(approach.line) {
            if let Some(words) = self.narrow.glance(approach) {
                let mut state = bucket.unpack(words);
                if bucket.fill_if_room(&mut state, now, cost).is_none() && bucket.heal(&state, now).is_none() {
                    return Ok((state, None));
                }
            }
        }
        let line = LockedLine::lock(approach.line);
        let Some(slot) = Table::<1>::find(&line, approach.home.tag) else { return Err(Some(line)) };
        let mut state = bucket.unpack(Table::<1>::read(&line, slot));
        let filled = bucket.fill_if_room(&mut state, now, cost);
        if filled.is_some() {
            Table::<1>::write(&line, slot, bucket.pack(&state));
        } else if bucket.heal(&state, now).is_some() {
            return Err(None);
        }
        Table::note_refused(&line, filled.is_none());
        Ok((state, filled))
    }

    #[inline(never)]
    fn charge_narrow_elsewhere(
        &self,
        absent_from: Option<LockedLine<'_>>,
        home: Seat,
        check: Check<'_>,
        fingerprint: u64,
        now: Micros,
    ) -> Verdict {
        match (check.meter().kernel(), absent_from) {
            (MeterKernel::Bucket(kernel), Some(line)) => {
                self.narrow.visit_absent(line, home, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            (MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_), line) => {
                drop(line);
                self.decide_anywhere(check, fingerprint, now)
            }
        }
    }

    #[inline(never)]
    fn decide_otherwise(&self, check: Check<'_>, fingerprint: u64) -> (Verdict, Micros) {
        self.prefetch(check, fingerprint);
        let now = self.clock.now();
        (self.decide_at(check, fingerprint, now), now)
    }

    fn decide_at(&self, check: Check<'_>, fingerprint: u64, now: Micros) -> Verdict {
        let mut verdict = Verdict::default();
        if !check.former().is_empty() {
            // One check is never about one state twice.
            let _ = self.decide_several(&[check], std::slice::from_mut(&mut verdict));
            return verdict;
        }
        self.decide_anywhere(check, fingerprint, now)
    }

    /// Whether a key without a state needs one for this check, if it changes
    /// anything. Whoever has used nothing has nothing to give back or to
    /// forget: nobody makes room for that.
    #[inline]
    pub(super) fn takes_room(&self, check: Check<'_>, fingerprint: u64, at: Micros) -> bool {
        let is_shared = || self.shared.get().is_some_and(|shared| shared.is_used_by(check.meter(), fingerprint, at));
        check.verb() == Verb::Charge || is_shared()
    }

    #[inline(never)]
    fn decide_anywhere(&self, check: Check<'_>, fingerprint: u64, now: Micros) -> Verdict {
        match check.meter().kernel() {
            MeterKernel::Bucket(kernel) if kernel.is_narrow() => {
                self.narrow.visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Window(kernel) if kernel.is_narrow() => {
                self.narrow.visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Bucket(kernel) => {
                self.wide().visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Window(kernel) => {
                self.wide().visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Heap(kernel) => {
                let visit = OneCheck { store: self, kernel, check, fingerprint, now };
                self.heap().visit(fingerprint, kernel, now, visit)
            }
        }
    }
}

/// The bucket of a check that is a charge to one of a single word.
#[inline(always)]
fn narrow_charge<'a>(check: &Check<'a>) -> Option<&'a Bucket> {
    match check.meter().kernel() {
        MeterKernel::Bucket(bucket) if check.is_simple() && check.is_charge() => Some(bucket),
        MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_) => None,
    }
}

/// One check, on whatever its state is kept in.
struct OneCheck<'a, K> {
    store: &'a MemoryStore,
    kernel: &'a K,
    check: Check<'a>,
    fingerprint: u64,
    now: Micros,
}

impl<K> OneCheck<'_, K> {
    #[inline(always)]
    fn decide<S: Kernel + ?Sized>(&self, kernel: &S, state: &mut S::State, at: Micros) -> (Verdict, bool) {
        let (verb, cost) = (self.check.verb(), self.check.cost());
        if kernel.heal(state, at).is_some() {
            return self.decide_again(kernel, state, at);
        }
        let (verdict, changed) = kernel::decide_healed(kernel, state, at, verb, cost);
        (seen_from(self.now, at, verdict), changed)
    }

    /// Decides on a state that seems to come from the future. It may only mean
    /// that this thread slept since it read the clock: ask again, now that the
    /// state is locked. But not for a time before the one that the key goes by.
    #[cold]
    fn decide_again<S: Kernel + ?Sized>(&self, kernel: &S, state: &mut S::State, at: Micros) -> (Verdict, bool) {
        let at = self.store.clock.now().max(at);
        let (verdict, changed) = kernel::decide(kernel, state, at, self.check.verb(), self.check.cost());
        (seen_from(self.now, at, verdict), changed)
    }

    /// What a new key starts with, if not with nothing: what it may have used
    /// while there was no room for it, and with it what its companions did.
    #[inline]
    fn inherited(&self, at: Micros) -> Option<MeterState> {
        let shared = self.store.shared.get().filter(|shared| shared.matters(at))?;
        Some(shared.lock(self.check.meter(), self.fingerprint).inherited(self.check.meter().kernel(), at))
    }

    /// Decides for a key that finds no room. Its lines are locked meanwhile,
    /// so that it cannot find room of its own before it is charged here.
    #[cold]
    fn spill(&self, full: Full, at: Micros) -> Verdict {
        if self.store.overflow != Overflow::Share {
            return self.store.without_room(self.check, full, self.now);
        }
        let mut shared = self.store.shared().lock(self.check.meter(), self.fingerprint);
        let may_change = self.check.verb() == Verb::Charge || shared.is_surely_used();
        if let Err(full) = shared.make_room(at).and(if may_change { Ok(()) } else { Err(full) }) {
            return self.store.without_room(self.check, full, self.now);
        }
        self.store.overflowed.fetch_add(1, Ordering::Relaxed);
        let kernel = self.check.meter().kernel();
        let mut state = shared.copy(kernel, at);
        let (verdict, changed) = self.decide(kernel, &mut state, at);
        if changed {
            shared.set(kernel, state, at);
        }
        verdict
    }
}

impl<const STATE: usize, K: Pack<STATE>> Visit<[u64; STATE]> for OneCheck<'_, K>
where
    MeterKernel: Pack<STATE>,
{
    type Answer = Verdict;

    fn step(&mut self, words: &mut [u64; STATE], at: Micros) -> (Verdict, bool) {
        let mut state = self.kernel.unpack(*words);
        let (verdict, changed) = self.decide(self.kernel, &mut state, at);
        if changed {
            *words = self.kernel.pack(&state);
        }
        (verdict, changed)
    }

    fn fresh(&mut self, at: Micros) -> [u64; STATE] {
        // What was never used is nothing but zeros.
        self.inherited(at).map_or([0; STATE], |state| self.check.meter().kernel().pack(&state))
    }

    fn takes_room(&self, at: Micros) -> bool {
        self.store.takes_room(self.check, self.fingerprint, at)
    }

    fn label(&self) -> Option<Label<'_>> {
        self.store.label(self.check)
    }

    fn without_room(&mut self, full: Full, at: Micros) -> Verdict {
        self.spill(full, at)
    }
}

impl Visit<AnyState> for OneCheck<'_, HeapKernel> {
    type Answer = Verdict;

    fn step(&mut self, state: &mut AnyState, at: Micros) -> (Verdict, bool) {
        self.decide(&**self.kernel, state, at)
    }

    fn fresh(&mut self, at: Micros) -> AnyState {
        self.inherited(at).map(|mut state| std::mem::take(state.heap_mut())).unwrap_or_default()
    }

    fn takes_room(&self, at: Micros) -> bool {
        self.store.takes_room(self.check, self.fingerprint, at)
    }

    fn label(&self) -> Option<Label<'_>> {
        self.store.label(self.check)
    }

    fn without_room(&mut self, full: Full, at: Micros) -> Verdict {
        self.spill(full, at)
    }
}

// Stores are filled there, again and again: Miri would take minutes for each.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
