//! One check at a time, which is what nearly every call is, and batches of them.
//!
//! A charge to a narrow bucket goes to the [planner](super::plan) first. All
//! other checks, and those that are not simple, are a [`Single`]. A
//! [round](super::round) would decide the same, but knows neither the kernel nor
//! the number of checks when it is compiled, and locks both lines of a key: it
//! takes several times as many instructions. So a single check finds its state
//! and makes room for it in its own way. Healing, the overflow rule and charging
//! are the functions that the round uses.

use super::MemoryStore;
use super::heap::{Entry, Heap};
use super::line_lock::LockedLine;
use super::overflow::Full;
use super::pack::Pack;
use super::plan::simple_bucket;
use super::table::{Approach, Found, Table};
use crate::kernel::{self, Bucket, BucketState, Kernel, Verdict};
use crate::store::{Check, HeapKernel, MeterKernel, MeterState, seen_from};
use crate::time::Micros;

/// Checks whose lines are asked for together.
const BATCH: usize = 32;

impl MemoryStore {
    /// Decides one check, and says when.
    #[inline(always)]
    pub(super) fn decide_one(&self, check: Check<'_>, verdict: &mut Verdict) -> Micros {
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = simple_bucket(&check) {
            // The clock takes as long to read as the line to arrive, and
            // would hold it up if it were read first.
            let approach = self.narrow.approach(fingerprint);
            let now = self.clock.now();
            self.charge_narrow(bucket, check, fingerprint, approach, now, verdict);
            return now;
        }
        // It has no id anyway. But passed on as it is, the check would be in
        // memory also where the planner decides.
        let (decided, now) = self.decide_otherwise(check.without_id(), fingerprint);
        *verdict = decided.field_by_field();
        now
    }

    /// Whether one check is admitted, for callers that need no more.
    #[inline(always)]
    pub(super) fn admits(&self, check: Check<'_>) -> bool {
        if check.key().is_empty() {
            return self.admits_without_key(check);
        }
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = simple_bucket(&check) {
            let approach = self.narrow.approach(fingerprint);
            let now = self.clock.now();
            return match self.charge_one::<false>(bucket, check.cost(), approach, now) {
                Ok((_, filled)) => filled.is_some(),
                Err(line) => self.admits_elsewhere(line, check.without_id(), fingerprint, now),
            };
        }
        self.decide_otherwise(check.without_id(), fingerprint).0.allowed
    }

    /// [`admits`](MemoryStore::admits) for a limit without keys: its line is near, and mostly
    /// its state is the first there.
    #[inline(always)]
    fn admits_without_key(&self, check: Check<'_>) -> bool {
        let fingerprint = self.fingerprint(check);
        if let Some(bucket) = simple_bucket(&check) {
            let approach = self.narrow.reach(fingerprint);
            let now = self.clock.now();
            return match self.charge_one::<true>(bucket, check.cost(), approach, now) {
                Ok((_, filled)) => filled.is_some(),
                Err(line) => self.admits_elsewhere(line, check.without_id(), fingerprint, now),
            };
        }
        self.decide_otherwise(check.without_id(), fingerprint).0.allowed
    }

    /// Decides each of many for itself, all at one time.
    pub(super) fn decide_each(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Micros {
        let mut now = None;
        for (checks, verdicts) in checks.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            let mut fingerprints = [0; BATCH];
            for (check, fingerprint) in checks.iter().zip(&mut fingerprints) {
                *fingerprint = self.fingerprint(*check);
                match simple_bucket(check) {
                    Some(_) => {
                        self.narrow.approach(*fingerprint);
                    }
                    None => self.prefetch(*check, *fingerprint),
                }
            }
            let now = *now.get_or_insert_with(|| self.clock.now());
            for ((check, fingerprint), verdict) in checks.iter().zip(&fingerprints).zip(verdicts) {
                match simple_bucket(check) {
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

    /// Whether each of many is admitted, each for itself and all at one time.
    pub(super) fn admit_each(&self, checks: &[Check<'_>], admitted: &mut [bool]) {
        for (checks, admitted) in checks.chunks(BATCH).zip(admitted.chunks_mut(BATCH)) {
            let mut fingerprints = [0; BATCH];
            for (check, fingerprint) in checks.iter().zip(&mut fingerprints) {
                *fingerprint = self.fingerprint(*check);
                self.prefetch(*check, *fingerprint);
            }
            let now = self.clock.now();
            for ((check, fingerprint), admitted) in checks.iter().zip(&fingerprints).zip(admitted) {
                *admitted = match simple_bucket(check) {
                    Some(bucket) => {
                        let approach = self.narrow.reach(*fingerprint);
                        match self.charge_one::<false>(bucket, check.cost(), approach, now) {
                            Ok((_, filled)) => filled.is_some(),
                            Err(line) => self.admits_elsewhere(line, *check, *fingerprint, now),
                        }
                    }
                    None => self.decide_at(*check, *fingerprint, now).allowed,
                };
            }
        }
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
        match self.charge_one::<false>(bucket, check.cost(), approach, now) {
            Ok((state, filled)) => {
                let (admission, reading) = bucket.tell(&state, now, check.cost(), filled);
                *verdict = Verdict::new(admission, reading);
            }
            Err(line) => *verdict = self.charge_elsewhere(line, check.without_id(), fingerprint, now),
        }
    }

    /// Decides a charge that the planner has left.
    #[inline(never)]
    fn charge_elsewhere(
        &self,
        absent_from: Option<LockedLine<'_>>,
        check: Check<'_>,
        fingerprint: u64,
        now: Micros,
    ) -> Verdict {
        let MeterKernel::Bucket(bucket) = check.meter().kernel() else {
            unreachable!("the planner charges one bucket");
        };
        let absent_from = match absent_from.map(|line| self.charge_new(bucket, check, fingerprint, line, now)) {
            Some(Ok((state, level))) => {
                let (admission, reading) = bucket.tell(&state, now, check.cost(), Some(level));
                return Verdict::new(admission, reading);
            }
            Some(Err(line)) => Some(line),
            None => None,
        };
        Single { store: self, check, fingerprint, now }.decide_in(&self.narrow, bucket, absent_from)
    }

    /// Whether a charge that the planner has left is admitted.
    #[inline(never)]
    fn admits_elsewhere(
        &self,
        absent_from: Option<LockedLine<'_>>,
        check: Check<'_>,
        fingerprint: u64,
        now: Micros,
    ) -> bool {
        let absent_from = match (absent_from, check.meter().kernel()) {
            (Some(line), MeterKernel::Bucket(bucket)) => match self.charge_new(bucket, check, fingerprint, line, now) {
                Ok(_) => return true,
                Err(line) => Some(line),
            },
            (line, _) => line,
        };
        self.charge_elsewhere(absent_from, check, fingerprint, now).allowed
    }

    /// Charges a key that is not in its home line, if it can only be new, finds room
    /// there, and no other state matters: the state and its level. If not, the line.
    #[inline(always)]
    fn charge_new<'t>(
        &self,
        bucket: &Bucket,
        check: Check<'_>,
        fingerprint: u64,
        line: LockedLine<'t>,
        now: Micros,
    ) -> Result<(BucketState, u64), LockedLine<'t>> {
        let home = self.narrow.home(fingerprint);
        let Some(slot) = Table::<1>::free_slot(&line, now) else { return Err(line) };
        let is_shared = self.shared.get().is_some_and(|shared| shared.matters(now));
        if is_shared || self.narrow.recall(home, now) != now {
            return Err(line);
        }
        let mut state = BucketState::default();
        let Some(level) = bucket.fill_if_room(&mut state, now, check.cost()) else { return Err(line) };
        self.narrow.fill_slot(&line, home, slot, self.label(check), now, bucket.pack(&state));
        Ok((state, level))
    }

    #[inline(never)]
    fn decide_otherwise(&self, check: Check<'_>, fingerprint: u64) -> (Verdict, Micros) {
        self.prefetch(check, fingerprint);
        let now = self.clock.now();
        (self.decide_at(check, fingerprint, now), now)
    }

    fn decide_at(&self, check: Check<'_>, fingerprint: u64, now: Micros) -> Verdict {
        if !check.former().is_empty() || !check.meter().thresholds().is_empty() {
            // In a batch, whose time it is.
            let mut verdict = Verdict::default();
            let _ = self.decide_together(&[check], std::slice::from_mut(&mut verdict), Some(now));
            return verdict;
        }
        Single { store: self, check, fingerprint, now }.decide()
    }
}

/// One check without former limits.
pub(super) struct Single<'a> {
    pub(super) store: &'a MemoryStore,
    pub(super) check: Check<'a>,
    pub(super) fingerprint: u64,
    pub(super) now: Micros,
}

impl Single<'_> {
    #[inline(never)]
    fn decide(&self) -> Verdict {
        let store = self.store;
        match self.check.meter().kernel() {
            MeterKernel::Bucket(kernel) if kernel.is_narrow() => self.decide_in(&store.narrow, kernel, None),
            MeterKernel::Window(kernel) if kernel.is_narrow() => self.decide_in(&store.narrow, kernel, None),
            MeterKernel::Bucket(kernel) => self.decide_in(store.wide(), kernel, None),
            MeterKernel::Window(kernel) => self.decide_in(store.wide(), kernel, None),
            MeterKernel::Heap(kernel) => self.decide_on_heap(store.heap(), kernel),
        }
    }

    /// Decides on a state in a table. `absent_from` is the key's home line,
    /// locked, if the key is known not to be there.
    #[inline(always)]
    fn decide_in<'t, const STATE: usize, K: Pack<STATE>>(
        &self,
        table: &'t Table<STATE>,
        kernel: &K,
        absent_from: Option<LockedLine<'t>>,
    ) -> Verdict
    where
        MeterKernel: Pack<STATE>,
    {
        let (home, now) = (table.home(self.fingerprint), self.now);
        let found = match absent_from {
            Some(home_line) => table.look_further(home_line, home, now),
            None => table.look_up(home, now),
        };
        if let Found::Slot(line, slot) = &found {
            let mut state = kernel.unpack(Table::read(line, *slot));
            let (verdict, changed) = self.step(kernel, &mut state, now);
            if changed {
                Table::write(line, *slot, kernel.pack(&state));
            }
            return verdict;
        }
        let of_kernel = |state: MeterState| kernel.unpack(self.check.meter().kernel().pack(&state));
        self.decide_absent(kernel, table.recall(home, now), of_kernel, |state| {
            table.enter(&found, home, now, self.store.label(self.check), kernel.pack(&state))
        })
    }

    pub(super) fn decide_on_heap(&self, heap: &Heap, kernel: &HeapKernel) -> Verdict {
        let mut bucket = heap.lock(heap.bucket(self.fingerprint));
        if let Some(entry) = Heap::find(&mut bucket, self.fingerprint) {
            let (verdict, changed) = self.step(&**kernel, entry.decoded(kernel), self.now);
            if changed {
                entry.renew(kernel);
            }
            return verdict;
        }
        let mut is_new = false;
        let of_kernel = |mut state: MeterState| std::mem::take(state.heap_mut());
        let verdict = self.decide_absent(&**kernel, heap.recall(self.now), of_kernel, |state| {
            // Whether other keys still matter is for the clock to say.
            heap.make_room(&mut bucket, self.now)?;
            bucket.push(Entry::new(self.fingerprint, kernel, state, self.store.label(self.check)));
            is_new = true;
            Ok(())
        });
        drop(bucket);
        if is_new {
            heap.sweep(self.now);
        }
        verdict
    }

    /// Decides for a key that has no slot, at the time `at`. What is locked for
    /// it stays so, also while a shared state is charged: the key cannot get a
    /// slot in between.
    #[inline(always)]
    fn decide_absent<K: Kernel + ?Sized>(
        &self,
        kernel: &K,
        at: Micros,
        of_kernel: impl FnOnce(MeterState) -> K::State,
        enter: impl FnOnce(K::State) -> Result<(), Full>,
    ) -> Verdict {
        // What a new key may have used while there was no room for it.
        let mut state = K::State::default();
        if let Some(shared) = self.store.shared.get().filter(|shared| shared.matters(at)) {
            let meter = self.check.meter();
            state = of_kernel(shared.lock(meter, self.fingerprint).inherited(meter.kernel(), at));
        }
        let (verdict, changed) = self.step(kernel, &mut state, at);
        if !changed || !self.store.takes_room(self.check, self.fingerprint, at) {
            return verdict;
        }
        match enter(state) {
            Ok(()) => verdict,
            Err(full) => self.overflow(full, at),
        }
    }

    /// Decides for a key that finds no room.
    #[cold]
    fn overflow(&self, full: Full, at: Micros) -> Verdict {
        let (store, check) = (self.store, self.check);
        let shared = store.shared().map(|shared| shared.lock(check.meter(), self.fingerprint));
        match store.share(shared, check, full, at) {
            Ok(mut shared) => {
                let kernel = check.meter().kernel();
                let mut state = shared.copy(kernel, at);
                let (verdict, changed) = self.step(kernel, &mut state, at);
                if changed {
                    shared.set(kernel, state, at);
                }
                verdict
            }
            Err(full) => store.without_room(check, full, self.now),
        }
    }

    /// Decides on a state, and says whether it has changed.
    #[inline(always)]
    fn step<K: Kernel + ?Sized>(&self, kernel: &K, state: &mut K::State, at: Micros) -> (Verdict, bool) {
        let (verb, cost) = (self.check.verb(), self.check.cost());
        match self.store.heal(kernel, state, at, self.check) {
            None => {
                let (verdict, changed) = kernel::decide_healed(kernel, state, at, verb, cost);
                (seen_from(self.now, at, verdict), changed)
            }
            Some(mut healed) => {
                let state = healed.seen.as_mut().unwrap_or(state);
                let (verdict, changed) = kernel::decide_healed(kernel, state, healed.at, verb, cost);
                (seen_from(self.now, healed.at, verdict), changed | healed.changed)
            }
        }
    }
}

// Stores are filled there, again and again: Miri would take minutes for each.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
