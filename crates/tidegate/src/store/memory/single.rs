//! One check at a time, which is what nearly every call is, and batches of them.
//!
//! A charge to a narrow bucket goes to the [planner](super::plan) first. Every other check, and one
//! that is not simple, is decided here if its key has a slot, or is certainly new and has a
//! free one in its home line. The [round](super::round) decides the rest, and would decide the same:
//! but it knows neither the kernel nor the number of checks when it is compiled, and locks both
//! lines of a key, so it takes several times as many instructions.

use super::MemoryStore;
use super::heap::Heap;
use super::line_lock::LockedLine;
use super::pack::Pack;
use super::plan::simple_bucket;
use super::table::{Approach, Found, Table};
use crate::kernel::{self, Act, Bucket, BucketState, Kernel, Verdict};
use crate::store::{Check, HeapKernel, MeterKernel, seen_from};
use crate::time::Micros;

/// Checks whose lines are asked for together.
const BATCH: usize = 32;

/// What a caller is told of a check: the verdict, or only whether it is admitted.
pub(super) trait Told: Default {
    /// Of a bucket after a charge; `filled` is its level if it was admitted.
    fn of_bucket(bucket: &Bucket, state: &BucketState, now: Micros, cost: u64, filled: Option<u64>) -> Self;
    fn of(verdict: Verdict) -> Self;
}

impl Told for Verdict {
    #[inline(always)]
    fn of_bucket(bucket: &Bucket, state: &BucketState, now: Micros, cost: u64, filled: Option<u64>) -> Verdict {
        let (admission, reading) = bucket.tell(state, now, cost, filled);
        Verdict::new(admission, reading)
    }

    #[inline(always)]
    fn of(verdict: Verdict) -> Verdict {
        verdict
    }
}

impl Told for bool {
    #[inline(always)]
    fn of_bucket(_: &Bucket, _: &BucketState, _: Micros, _: u64, filled: Option<u64>) -> bool {
        filled.is_some()
    }

    #[inline(always)]
    fn of(verdict: Verdict) -> bool {
        verdict.allowed
    }
}

impl MemoryStore {
    /// Decides one check, and says when.
    #[inline(always)]
    pub(super) fn decide_one<T: Told>(&self, check: Check<'_>, told: &mut T) -> Micros {
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = simple_bucket(&check) {
            // The clock takes as long to read as the line to arrive, and
            // would hold it up if it were read first.
            let approach = self.narrow.approach(fingerprint);
            let now = self.clock.now();
            self.charge_narrow(bucket, check, fingerprint, approach, now, told);
            return now;
        }
        self.prefetch(check, fingerprint);
        let now = self.clock.now();
        // It has no id anyway. But passed on as it is, the check would be in
        // memory also where the planner decides.
        *told = T::of(self.decide_at(check.without_id(), fingerprint, now).field_by_field());
        now
    }

    /// Whether one check of a limit without keys is admitted: its line is near, and mostly its
    /// state is the first there.
    #[inline(always)]
    pub(super) fn admits_without_key(&self, check: Check<'_>) -> bool {
        let Some(bucket) = simple_bucket(&check) else {
            let mut admitted = false;
            self.decide_one(check, &mut admitted);
            return admitted;
        };
        let fingerprint = self.fingerprint(check);
        let approach = self.narrow.reach(fingerprint);
        let now = self.clock.now();
        match self.charge_one::<true>(bucket, check.cost(), approach, now) {
            Ok((_, filled)) => filled.is_some(),
            Err(absent_from) => self.charge_elsewhere(absent_from, check.without_id(), fingerprint, now),
        }
    }

    /// Decides each of many for itself, all at one time.
    pub(super) fn decide_each<T: Told>(&self, checks: &[Check<'_>], told: &mut [T]) -> Micros {
        let mut now = None;
        for (checks, told) in checks.chunks(BATCH).zip(told.chunks_mut(BATCH)) {
            let mut fingerprints = [0; BATCH];
            for (check, fingerprint) in checks.iter().zip(&mut fingerprints) {
                *fingerprint = self.fingerprint(*check);
                self.prefetch(*check, *fingerprint);
            }
            let now = *now.get_or_insert_with(|| self.clock.now());
            for ((check, fingerprint), told) in checks.iter().zip(&fingerprints).zip(told) {
                match simple_bucket(check) {
                    Some(bucket) => {
                        let approach = self.narrow.reach(*fingerprint);
                        self.charge_narrow(bucket, *check, *fingerprint, approach, now, told);
                    }
                    None => *told = T::of(self.decide_at(*check, *fingerprint, now)),
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
    fn charge_narrow<T: Told>(
        &self,
        bucket: &Bucket,
        check: Check<'_>,
        fingerprint: u64,
        approach: Approach<'_>,
        now: Micros,
        told: &mut T,
    ) {
        // Each writes by itself: what a call returns in memory would keep the other out of registers.
        match self.charge_one::<false>(bucket, check.cost(), approach, now) {
            Ok((state, filled)) => *told = T::of_bucket(bucket, &state, now, check.cost(), filled),
            Err(absent_from) => *told = self.charge_elsewhere(absent_from, check.without_id(), fingerprint, now),
        }
    }

    /// Decides a charge that the planner has left.
    #[inline(never)]
    fn charge_elsewhere<T: Told>(
        &self,
        absent_from: Option<LockedLine<'_>>,
        check: Check<'_>,
        fingerprint: u64,
        now: Micros,
    ) -> T {
        let MeterKernel::Bucket(bucket) = check.meter().kernel() else {
            unreachable!("the planner charges one bucket");
        };
        let single = Single { store: self, check, fingerprint, now, is_charge: true };
        let found = single.decide_in(&self.narrow, bucket, absent_from).map(T::of);
        found.unwrap_or_else(|| T::of(single.decide_in_round()))
    }

    #[inline(never)]
    fn decide_at(&self, check: Check<'_>, fingerprint: u64, now: Micros) -> Verdict {
        let single = Single { store: self, check, fingerprint, now, is_charge: check.is_charge() };
        let is_alone = check.former().is_empty() && check.meter().thresholds().is_empty();
        is_alone.then(|| single.decide()).flatten().unwrap_or_else(|| single.decide_in_round())
    }
}

/// One check, at its time.
struct Single<'a> {
    store: &'a MemoryStore,
    check: Check<'a>,
    fingerprint: u64,
    now: Micros,
    /// Whether it takes anything if it passes: often known when this is compiled.
    is_charge: bool,
}

impl Single<'_> {
    /// Decides on the state of the key, without former limits and thresholds; nothing if that is not simple.
    #[inline(always)]
    fn decide(&self) -> Option<Verdict> {
        let store = self.store;
        match self.check.meter().kernel() {
            MeterKernel::Bucket(kernel) if kernel.is_narrow() => self.decide_in(&store.narrow, kernel, None),
            MeterKernel::Window(kernel) if kernel.is_narrow() => self.decide_in(&store.narrow, kernel, None),
            MeterKernel::Bucket(kernel) => self.decide_in(store.wide(), kernel, None),
            MeterKernel::Window(kernel) => self.decide_in(store.wide(), kernel, None),
            MeterKernel::Heap(kernel) => self.decide_on_heap(store.heap(), kernel),
        }
    }

    /// Decides on a state in a table, or on that of a new key. `absent_from` is the key's home line,
    /// locked, if the key is known not to be there.
    #[inline(always)]
    fn decide_in<'t, const STATE: usize, K: Pack<STATE>>(
        &self,
        table: &'t Table<STATE>,
        kernel: &K,
        absent_from: Option<LockedLine<'t>>,
    ) -> Option<Verdict> {
        let (home, now) = (table.home(self.fingerprint), self.now);
        let found = match absent_from {
            Some(home_line) => table.look_further(home_line, home, now),
            None => table.look_up(home, now),
        };
        match found {
            Found::Slot(line, slot) => {
                let mut state = kernel.unpack(Table::read(&line, slot));
                let (verdict, changed) = self.step(kernel, &mut state);
                if changed {
                    Table::write(&line, slot, kernel.pack(&state));
                }
                Some(verdict)
            }
            Found::Free(line, slot) => {
                let is_shared = self.store.shared.get().is_some_and(|shared| shared.matters(now));
                if is_shared || table.recall(home, now) != now {
                    return None;
                }
                let mut state = K::State::default();
                let (verdict, changed) = kernel::decide_healed(kernel, &mut state, now, self.act());
                // A key that has used nothing has nothing to give back or to forget.
                if changed && self.act().adds() {
                    let label = self.store.label(self.check);
                    table.fill_slot(&line, home, slot, label, now, kernel.pack(&state));
                }
                Some(verdict)
            }
            Found::Absent => None,
        }
    }

    fn decide_on_heap(&self, heap: &Heap, kernel: &HeapKernel) -> Option<Verdict> {
        let mut bucket = heap.lock(heap.bucket(self.fingerprint));
        let entry = Heap::find(&mut bucket, self.fingerprint)?;
        let (verdict, changed) = self.step(&**kernel, entry.decoded(kernel));
        if changed {
            entry.renew(kernel);
        }
        Some(verdict)
    }

    #[cold]
    fn decide_in_round(&self) -> Verdict {
        let mut verdict = Verdict::default();
        // Only checks of one state or an id can fail.
        let _ = self.store.decide_together(&[self.check], std::slice::from_mut(&mut verdict), Some(self.now));
        verdict
    }

    #[inline(always)]
    fn act(&self) -> Act {
        if self.is_charge { Act::Take { cost: self.check.cost() } } else { self.check.act() }
    }

    /// Decides on a state, and says whether it has changed.
    #[inline(always)]
    fn step<K: Kernel + ?Sized>(&self, kernel: &K, state: &mut K::State) -> (Verdict, bool) {
        match self.store.heal(kernel, state, self.now, self.check) {
            None => kernel::decide_healed(kernel, state, self.now, self.act()),
            Some(mut healed) => {
                let state = healed.seen.as_mut().unwrap_or(state);
                let (verdict, changed) = kernel::decide_healed(kernel, state, healed.at, self.act());
                (seen_from(self.now, healed.at, verdict), changed | healed.changed)
            }
        }
    }
}

// Stores are filled there, again and again: Miri would take minutes for each.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
