//! How much may pass in an interval, by what has gone wrong in it.

use std::time::{Duration, Instant};

use tidegate::{Algorithm, Limit};
use tidegate_testkit::servers::Admission;

/// What a fault costs at most: nothing, unless it says so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    /// How often the store lost what it knew.
    pub(crate) losses: u64,
    /// By how much the store's clock went forwards, at one stroke.
    pub(crate) step: Duration,
    /// For how long there may have been two primaries that both answered.
    pub(crate) beside: Duration,
    /// Units that processes may hold on lease from before an interval began.
    pub(crate) on_lease: u64,
}

impl Damage {
    pub(crate) const NONE: Damage = Damage::losses(0);

    pub(crate) const fn losses(losses: u64) -> Damage {
        Damage { losses, step: Duration::ZERO, beside: Duration::ZERO, on_lease: 0 }
    }

    /// Whether the store still knows all that it was told.
    pub(crate) fn forgets_nothing(&self) -> bool {
        self.losses == 0 && self.beside.is_zero()
    }

    /// The most that may pass in any interval of this length.
    pub(crate) fn most(&self, limit: &Limit, length: Duration) -> u64 {
        let plain = allowance(limit, length);
        // A sliding counter rounds up before the step, and again after it.
        let rounded = u64::from(limit.algorithm() == Algorithm::SlidingCounter);
        let stepped = allowance(limit, length.saturating_add(self.step)).min(plain + limit.capacity() + rounded);
        let beside = if self.beside.is_zero() { 0 } else { allowance(limit, self.beside) };
        stepped + self.losses * limit.capacity() + beside + self.on_lease
    }
}

/// The most that a limit lets pass in any interval of this length: P1 of `PROMISES.md`.
///
/// The length was measured by this machine's clocks, of which one is the store's. They were read one after the
/// other, and the store's counts whole microseconds, or goes by the processor's counter.
pub(crate) fn allowance(limit: &Limit, length: Duration) -> u64 {
    let length = length + length / 1_000 + Duration::from_millis(1);
    let (count, period, length) = (u128::from(limit.count()), limit.period().as_nanos(), length.as_nanos());
    let most = match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => u128::from(limit.capacity()) + count * length / period,
        Algorithm::SlidingCounter => count + (count * length).div_ceil(period),
        Algorithm::FixedWindow => count * (length.div_ceil(period) + 1),
        Algorithm::SlidingLog => count * (length / period + 1),
    };
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// The interval that comes nearest to its bound, or passes it by most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tightest {
    pub(crate) length: Duration,
    pub(crate) admitted: u64,
    pub(crate) most: u64,
}

/// Looks at every interval between two admissions. Each was decided at some time
/// between its request and its answer, so those that lie within as a whole count.
pub(crate) fn tightest(admissions: &[Admission], most: impl Fn(Duration) -> u64) -> Option<Tightest> {
    let mut by_answer: Vec<&Admission> = admissions.iter().collect();
    by_answer.sort_unstable_by_key(|admission| admission.answered);
    let beginnings = by_answer.iter().map(|admission| admission.asked);
    let intervals = beginnings.filter_map(|from| tightest_since(from, &by_answer, &most));
    intervals.min_by_key(|interval| i128::from(interval.most) - i128::from(interval.admitted))
}

fn tightest_since(from: Instant, by_answer: &[&Admission], most: &impl Fn(Duration) -> u64) -> Option<Tightest> {
    let within = by_answer.iter().filter(|admission| admission.asked >= from);
    let intervals = within.zip(1..).map(|(last, admitted)| {
        let length = last.answered - from;
        Tightest { length, admitted, most: most(length) }
    });
    intervals.min_by_key(|interval| i128::from(interval.most) - i128::from(interval.admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn admissions(offsets: &[u64]) -> Vec<Admission> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        offsets.iter().map(|ms| Admission { asked: at(*ms), answered: at(*ms), degraded: false }).collect()
    }

    #[test]
    fn each_algorithm_has_the_bound_that_is_promised() {
        let table = [
            (Limit::per_second(10), SECOND / 2, 15),
            (Limit::per_second(10).burst(3), SECOND, 13),
            (Limit::sliding_counter(10, SECOND), SECOND / 2, 16),
            (Limit::fixed_window(10, SECOND), SECOND / 2, 20),
            (Limit::sliding_log(10, SECOND), SECOND / 2, 10),
            (Limit::sliding_log(10, SECOND), SECOND * 3 / 2, 20),
        ];
        for (limit, length, most) in table {
            assert_eq!(allowance(&limit, length), most, "{limit} in {length:?}");
        }
    }

    #[test]
    fn a_loss_is_a_burst_and_a_step_no_more_than_one() {
        let limit = Limit::per_second(10).burst(5);
        let in_no_time = |damage: Damage| damage.most(&limit, Duration::ZERO);
        assert_eq!(in_no_time(Damage::NONE), 5);
        assert_eq!(in_no_time(Damage::losses(2)), 15);
        assert_eq!(in_no_time(Damage { step: SECOND / 5, ..Damage::NONE }), 7);
        assert_eq!(in_no_time(Damage { step: SECOND * 3_600, ..Damage::NONE }), 10);
        assert_eq!(in_no_time(Damage { beside: SECOND, ..Damage::NONE }), 20);
        let counter = Limit::sliding_counter(10, SECOND);
        let leap = Damage { step: SECOND * 3_600, ..Damage::NONE };
        assert_eq!([Damage::NONE, leap].map(|damage| damage.most(&counter, Duration::ZERO)), [11, 22]);
    }

    #[test]
    fn too_many_in_any_interval_are_found() {
        let limit = Limit::per_second(1).burst(2);
        let most = |length| Damage::NONE.most(&limit, length);
        let fine = tightest(&admissions(&[0, 0, 1_000, 2_000, 3_000]), most).expect("an interval");
        assert!(fine.admitted <= fine.most, "{fine:?}");
        // In all there are few enough, but not in the middle.
        let over = tightest(&admissions(&[0, 9_000, 9_100, 9_200, 9_300, 20_000]), most).expect("an interval");
        assert_eq!((over.admitted, over.most), (4, 2), "{over:?}");
        assert_eq!(tightest(&[], most), None);
    }

    #[test]
    fn who_waited_long_for_an_answer_counts_only_where_it_must() {
        let start = Instant::now();
        let one = Admission { asked: start, answered: start + SECOND, degraded: false };
        let tightest = tightest(&[one, one, one], |_| 3).expect("an interval");
        assert_eq!((tightest.length, tightest.admitted), (SECOND, 3));
    }
}
