//! A few charges at once, each to a state of one word that sits in its home
//! line: what a check of several limits nearly always comes to.
//!
//! The same as for [several](super::several), without a list of anything: the
//! lines are locked in their order, the kernels asked, and only if all agree
//! is anything written. Where it is not that simple (a new key, a key in its
//! second line, a state to be healed) nothing has been done yet, and the
//! longer way is taken.

use super::MemoryStore;
use super::line_lock::LockedLine;
use super::pack::Pack;
use super::table::{Approach, Table};
use crate::kernel::{Admission, Verdict};
use crate::store::{Check, MeterKernel};
use crate::time::Micros;

/// Limits in one check that are still a few.
const MOST: usize = 4;

/// A charge as it would be carried out.
#[derive(Clone, Copy)]
struct Plan {
    lock: usize,
    slot: usize,
    after: [u64; 1],
    /// The answer if it is, and if it is not.
    charged: Verdict,
    withheld: Verdict,
}

impl MemoryStore {
    /// Decides a few charges, all or none; `None` if it is not that simple.
    pub(super) fn charge_few(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Option<Micros> {
        if checks.len() > MOST {
            return None;
        }
        let mut approaches: [Option<Approach<'_>>; MOST] = [None; MOST];
        // The checks in the order of their lines.
        let mut order = [0; MOST];
        for (index, check) in checks.iter().enumerate() {
            if !check.is_charge() || !check.meter().is_simple() {
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
        let mut locks: [Option<LockedLine<'_>>; MOST] = [const { None }; MOST];
        let mut plans: [Option<Plan>; MOST] = [None; MOST];
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
                    // One state twice, perhaps: not for us to say.
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
            let planned = match checks[*index].meter().kernel() {
                MeterKernel::Bucket(bucket) => plan(bucket, words, now, cost),
                MeterKernel::Window(window) => plan(window, words, now, cost),
                MeterKernel::Heap(_) => None,
            };
            let (after, charged, withheld) = planned?;
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

/// The state afterwards, and the answers with and without the charge; `None`
/// if the state seems to come from the future.
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
