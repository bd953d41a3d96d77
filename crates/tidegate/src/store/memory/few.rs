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
            if !check.is_charge() || !check.is_simple() {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::Verb;
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Key;
    use crate::store::memory::Seeds;
    use crate::store::{ImmediateStore, Meter, StoreError};
    use crate::time::ManualClock;

    const NOW: Micros = Micros::new(1_000_000_000_000);

    /// Four lines of four slots.
    fn store(clock: &ManualClock) -> MemoryStore {
        let builder = MemoryStore::builder().max_keys(1).clock(clock.clone());
        builder.build_with(Seeds::new(1, 2)).expect("valid settings")
    }

    fn meters() -> Vec<Meter> {
        let limit = |count| Limit::token_bucket(count, std::time::Duration::from_secs(60)).burst(5);
        let window = Limit::fixed_window(5, std::time::Duration::from_secs(60));
        (1..=9).map(limit).chain([window]).map(|limit| Meter::new(Name::literal("limit"), limit)).collect()
    }

    fn charge<'a>(meter: &'a Meter, key: &'a Key<'a>) -> Check<'a> {
        Check::new(meter, key, Verb::Charge, 1).expect("a cost of one")
    }

    fn peek(store: &MemoryStore, check: Check<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        store.decide_one_now(check.as_peek(), &mut verdict).expect("an answer");
        verdict
    }

    /// Charges of one key whose states are in lines that `choose` picks.
    fn with_charges(choose: impl Fn(&[usize]) -> bool, ask: impl Fn(&MemoryStore, &[Check<'_>], &ManualClock)) {
        let (meters, key) = (meters(), Key::from("alice"));
        let mut found = 0;
        for first in 0..meters.len() {
            for count in 1..=MOST {
                let checks: Vec<Check<'_>> =
                    (0..count).map(|index| charge(&meters[(first + index * 3) % meters.len()], &key)).collect();
                let clock = ManualClock::at(NOW);
                let store = store(&clock);
                let line = |check: &Check<'_>| store.narrow.home(store.fingerprint(*check)).line;
                let lines: Vec<usize> = checks.iter().map(line).collect();
                if choose(&lines) {
                    found += 1;
                    checks.iter().for_each(|check| assert!(store.admits_now(*check).is_ok_and(|admitted| admitted)));
                    ask(&store, &checks, &clock);
                }
            }
        }
        assert!(found > 0, "there are some such keys");
    }

    fn charge_few(store: &MemoryStore, checks: &[Check<'_>]) -> (Option<Micros>, Vec<Verdict>) {
        let mut verdicts = vec![Verdict::default(); checks.len()];
        (store.charge_few(checks, &mut verdicts), verdicts)
    }

    fn are_charged_at_once(store: &MemoryStore, checks: &[Check<'_>], _: &ManualClock) {
        for left in [3, 2, 1, 0] {
            let (at, verdicts) = charge_few(store, checks);
            assert_eq!(at, Some(NOW));
            assert!(verdicts.iter().all(|verdict| verdict.allowed && verdict.remaining == left), "{verdicts:?}");
        }
        let (at, verdicts) = charge_few(store, checks);
        assert_eq!(at, Some(NOW));
        assert!(verdicts.iter().all(|verdict| !verdict.allowed && verdict.retry_after > Micros::ZERO));
    }

    #[test]
    fn up_to_four_charges_at_home_need_no_longer_way() {
        with_charges(|lines| lines.len() == MOST, are_charged_at_once);
        with_charges(|lines| lines.is_sorted() && lines.first() < lines.last(), are_charged_at_once);
        with_charges(|lines| !lines.is_sorted(), are_charged_at_once);
        with_charges(|lines| lines.len() > 1 && lines.first() == lines.last(), are_charged_at_once);
    }

    #[test]
    fn if_one_is_refused_none_is_charged_and_each_says_what_it_would_have() {
        with_charges(
            |lines| lines.len() > 1,
            |store, checks, _| {
                let last = checks[checks.len() - 1];
                while store.admits_now(last).is_ok_and(|admitted| admitted) {}
                let before: Vec<Verdict> = checks.iter().map(|check| peek(store, *check)).collect();
                assert_eq!(charge_few(store, checks), (Some(NOW), before.clone()));
                assert_eq!(checks.iter().map(|check| peek(store, *check)).collect::<Vec<_>>(), before);
            },
        );
    }

    #[test]
    fn what_is_not_that_simple_is_left_as_it_is() {
        with_charges(
            |lines| lines.len() == 2,
            |store, checks, clock| {
                let [first, second] = [checks[0], checks[1]];
                let left = || [first, second].map(|check| peek(store, check).remaining);
                let stranger = Key::from("bob");
                let free = Check::new(second.meter(), second.key(), Verb::Charge, 0).expect("no cost");
                for other in [second.as_peek(), second.as_refund(), free, charge(second.meter(), &stranger)] {
                    assert_eq!(charge_few(store, &[first, other]).0, None);
                    assert_eq!(charge_few(store, &[other, first]).0, None);
                }
                assert_eq!(charge_few(store, &[first, second, second, second, second]).0, None);
                assert_eq!(charge_few(store, &[first, first]).0, None, "one state twice");
                let twice = store.decide_now(&[first, first], &mut [Verdict::default(); 2]);
                assert!(matches!(twice, Err(StoreError::SameStateTwice { .. })));
                assert_eq!(left(), [4, 4]);
                // The clock was set back by hours: both states are from the future.
                clock.set(NOW.saturating_since(Micros::new(86_400_000_000)));
                assert_eq!(charge_few(store, &[first, second]).0, None);
            },
        );
    }

    #[test]
    fn lines_are_waited_for_in_their_order() {
        with_charges(
            |lines| lines.len() == 2 && lines[0] != lines[1],
            |store, checks, _| {
                let seat = |check: &Check<'_>| store.narrow.reach(store.fingerprint(*check));
                let mut seats = [seat(&checks[0]), seat(&checks[1])];
                seats.sort_by_key(|seat| seat.home.line);
                let first = LockedLine::lock(seats[0].line);
                std::thread::scope(|scope| {
                    let waiting = scope.spawn(|| charge_few(store, checks).0);
                    for _ in 0..200 {
                        std::thread::yield_now();
                        let second = LockedLine::try_lock(seats[1].line);
                        assert!(second.is_some(), "who waits for a line holds none behind it");
                    }
                    drop(first);
                    assert_eq!(waiting.join().expect("it ends"), Some(NOW));
                });
            },
        );
    }
}
