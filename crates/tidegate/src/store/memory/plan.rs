//! Charges to states of one word that sit in their home lines: what nearly
//! every check comes to.
//!
//! The planner locks the lines in their order, asks the kernels, and writes
//! only if all of them admit. It does nothing at all unless every charge is
//! simple. Where one is not (a new key, a key in its second line, a state to be
//! healed), it says so, and the [round](super::round) decides.
//!
//! One charge to a bucket is the same without a list, and without a lock where
//! charges are being refused. Where that one is not simple, a
//! [single check](super::single) decides.

use super::MemoryStore;
use super::line_lock::LockedLine;
use super::pack::Pack;
use super::table::{Approach, Table};
use crate::kernel::{Admission, Bucket, BucketState, Kernel, Verdict};
use crate::store::{Check, MeterKernel};
use crate::time::Micros;

/// The most charges that are planned at once.
const MAX_CHARGES: usize = 16;
/// Up to so many share a smaller plan, which takes less time to set up.
const USUAL_CHARGES: usize = 4;

/// Whether a check charges a state of one word, and concerns no other state.
#[inline(always)]
fn is_simple(check: &Check<'_>) -> bool {
    check.is_simple() && check.is_charge()
}

/// The bucket of a check that the planner can charge by itself.
#[inline(always)]
pub(super) fn simple_bucket<'a>(check: &Check<'a>) -> Option<&'a Bucket> {
    match check.meter().kernel() {
        MeterKernel::Bucket(bucket) if is_simple(check) => Some(bucket),
        MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_) => None,
    }
}

/// A charge as it would be carried out.
#[derive(Clone, Copy)]
struct Plan {
    /// The place of its line among the locked ones.
    lock: usize,
    slot: usize,
    after: [u64; 1],
    /// The answer if it is carried out, and if it is not.
    charged: Verdict,
    withheld: Verdict,
}

impl MemoryStore {
    /// Charges one bucket: the state afterwards, and the level if it is
    /// admitted. If that is not simple, nothing has changed: the home line,
    /// locked, if the bucket is not there.
    #[inline(always)]
    pub(super) fn charge_one<'t>(
        &'t self,
        bucket: &Bucket,
        cost: u64,
        approach: Approach<'t>,
        now: Micros,
    ) -> Result<(BucketState, Option<u64>), Option<LockedLine<'t>>> {
        // A refusal changes nothing, so it needs no lock.
        if Table::has_refused(approach.line) {
            if let Some(words) = self.narrow.glance(approach) {
                if let Some((state, None)) = fill(bucket, words, now, cost) {
                    return Ok((state, None));
                }
            }
        }
        let line = LockedLine::lock(approach.line);
        let Some(slot) = Table::<1>::find(&line, approach.home.tag) else { return Err(Some(line)) };
        let Some((state, filled)) = fill(bucket, Table::<1>::read(&line, slot), now, cost) else { return Err(None) };
        if filled.is_some() {
            Table::<1>::write(&line, slot, bucket.pack(&state));
        }
        Table::note_refused(&line, filled.is_none());
        Ok((state, filled))
    }

    /// Charges all or none; `None` if that is not simple, and nothing has changed.
    pub(super) fn charge_all(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Option<Micros> {
        match checks.len() {
            count if count <= USUAL_CHARGES => self.charge_up_to::<USUAL_CHARGES>(checks, verdicts),
            count if count <= MAX_CHARGES => self.charge_up_to::<MAX_CHARGES>(checks, verdicts),
            _ => None,
        }
    }

    /// [`charge_all`](Self::charge_all) for at most `MAX` charges.
    fn charge_up_to<const MAX: usize>(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Option<Micros> {
        let mut approaches: [Option<Approach<'_>>; MAX] = [None; MAX];
        // The checks in the order of their lines.
        let mut order = [0; MAX];
        for (index, check) in checks.iter().enumerate() {
            if !is_simple(check) {
                return None;
            }
            let approach = self.narrow.approach(self.fingerprint(*check));
            let is_before =
                |other: &usize| approaches[*other].is_some_and(|other| other.home.line <= approach.home.line);
            let place = order[..index].iter().take_while(|other| is_before(other)).count();
            order.copy_within(place..index, place + 1);
            order[place] = index;
            approaches[index] = Some(approach);
        }
        let order = &order[..checks.len()];
        let now = self.clock.now();
        let mut locks: [Option<LockedLine<'_>>; MAX] = [const { None }; MAX];
        let mut plans: [Option<Plan>; MAX] = [None; MAX];
        let mut all_pass = true;
        for (place, index) in order.iter().enumerate() {
            let approach = approaches[*index]?;
            let mut lock = place;
            for neighbour in order[..place].iter().rev() {
                let (other, plan) = (approaches[*neighbour]?, plans[*neighbour]?);
                if other.home.line != approach.home.line {
                    break;
                }
                if other.home.tag == approach.home.tag {
                    // Perhaps the same state twice, which the round reports.
                    return None;
                }
                lock = plan.lock;
            }
            if lock == place {
                locks[lock] = Some(LockedLine::lock(approach.line));
            }
            let line = locks[lock].as_ref()?;
            let slot = Table::<1>::find(line, approach.home.tag)?;
            let (words, cost) = (Table::<1>::read(line, slot), checks[*index].cost());
            let (after, charged, withheld) = match checks[*index].meter().kernel() {
                MeterKernel::Bucket(bucket) => plan(bucket, words, now, cost),
                MeterKernel::Window(window) => plan(window, words, now, cost),
                MeterKernel::Heap(_) => None,
            }?;
            all_pass &= charged.allowed;
            plans[*index] = Some(Plan { lock, slot, after, charged, withheld });
        }
        for (plan, verdict) in plans.iter().flatten().zip(verdicts) {
            *verdict = if all_pass { plan.charged } else { plan.withheld };
            if let (true, Some(line)) = (all_pass, &locks[plan.lock]) {
                Table::<1>::write(line, plan.slot, plan.after);
            }
        }
        Some(now)
    }
}

/// The state of a bucket after a charge, and the level if there is room;
/// `None` if the state is to be healed.
#[inline(always)]
fn fill(bucket: &Bucket, words: [u64; 1], now: Micros, cost: u64) -> Option<(BucketState, Option<u64>)> {
    let mut state = bucket.unpack(words);
    let filled = bucket.fill_if_room(&mut state, now, cost);
    // A bucket that is to be healed is fuller than full.
    if filled.is_none() && bucket.heal(&state, now).is_some() {
        return None;
    }
    Some((state, filled))
}

/// The state of any kernel after a charge, and the answers with and without
/// it; `None` if the state is to be healed.
#[inline(always)]
fn plan<K: Pack<1>>(kernel: &K, words: [u64; 1], now: Micros, cost: u64) -> Option<([u64; 1], Verdict, Verdict)>
where
    K::State: Clone,
{
    let before = kernel.unpack(words);
    if kernel.heal(&before, now).is_some() {
        return None;
    }
    let withheld = kernel.read(&before, now);
    let mut state = before.clone();
    let (admission, reading) = kernel.take(&mut state, now, cost);
    let after = match admission {
        Admission::Pass { .. } => kernel.pack(&state),
        Admission::Wait { .. } => words,
    };
    Some((after, Verdict::new(admission, reading), Verdict::new(admission, withheld)))
}

#[cfg(all(test, not(loom)))]
mod tests;
