//! How the calls of the last moment ended: two counts for each slice of a
//! sliding horizon.
//!
//! The memory is bounded: a slice that is older than the horizon is emptied and
//! used again. The horizon slides by a slice at a time, so between nine and ten
//! tenths of it are counted.

use std::time::Duration;

use tokio::time::Instant;

const SLICES: usize = 10;

/// The calls since [`began`](Recent::began) that ended within the horizon.
#[derive(Debug)]
pub(crate) struct Recent {
    began: Instant,
    /// Of one slice, in microseconds; never zero.
    length: u128,
    slices: [Tally; SLICES],
    /// The number of the newest slice, counted from the beginning.
    newest: u64,
}

/// Calls that ended, and those of them that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) calls: u32,
    pub(crate) failures: u32,
}

impl Recent {
    pub(crate) fn new(horizon: Duration, began: Instant) -> Recent {
        let length = (horizon.as_micros() / SLICES as u128).max(1);
        Recent { began, length, slices: Default::default(), newest: 0 }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn answered(&mut self, now: Instant) {
        let slice = self.slice(now);
        slice.calls = slice.calls.saturating_add(1);
    }

    /// Counts a failure, and sums up the horizon.
    pub(crate) fn failed(&mut self, now: Instant) -> Tally {
        let slice = self.slice(now);
        slice.calls = slice.calls.saturating_add(1);
        slice.failures = slice.failures.saturating_add(1);
        self.slices.iter().fold(Tally::default(), |sum, slice| Tally {
            calls: sum.calls.saturating_add(slice.calls),
            failures: sum.failures.saturating_add(slice.failures),
        })
    }

    fn slice(&mut self, now: Instant) -> &mut Tally {
        let number = now.saturating_duration_since(self.began).as_micros() / self.length;
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let passed = number.saturating_sub(self.newest).min(SLICES as u64);
        for expired in 0..passed {
            self.slices[((number - expired) % SLICES as u64) as usize] = Tally::default();
        }
        self.newest = self.newest.max(number);
        &mut self.slices[(self.newest % SLICES as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tally(calls: u32, failures: u32) -> Tally {
        Tally { calls, failures }
    }

    #[test]
    fn calls_are_counted_for_as_long_as_the_horizon() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut recent = Recent::new(SECOND, start);
        recent.answered(at(0));
        recent.answered(at(150));
        assert_eq!(recent.failed(at(250)), tally(3, 1));
        assert_eq!(recent.failed(at(999)), tally(4, 2));
        assert_eq!(recent.failed(at(1_000)), tally(4, 3), "the first slice has expired");
        assert_eq!(recent.failed(at(1_100)), tally(4, 4));
        assert_eq!(recent.failed(at(1_200)), tally(4, 4));
        assert_eq!(recent.failed(at(2_199)), tally(2, 2));
    }

    #[test]
    fn after_a_horizon_without_calls_nothing_is_left() {
        let start = Instant::now();
        for idle in [SECOND, 3 * SECOND, Duration::from_millis(10_500), Duration::from_secs(86_400 * 365)] {
            let mut recent = Recent::new(SECOND, start);
            for slice in 0..10 {
                recent.answered(start + slice * SECOND / 10);
            }
            assert_eq!(recent.failed(start + SECOND + idle), tally(1, 1), "{idle:?}");
        }
    }

    /// The threads of a process do not count in the order in which they looked at the clock.
    #[test]
    fn a_call_that_is_counted_late_counts_in_the_newest_slice() {
        let start = Instant::now();
        let mut recent = Recent::new(SECOND, start);
        recent.answered(start + SECOND);
        recent.answered(start);
        assert_eq!(recent.failed(start + 2 * SECOND - Duration::from_millis(1)), tally(3, 1));
    }

    #[test]
    fn every_horizon_is_one() {
        let start = Instant::now();
        for (horizon, expected) in [(Duration::ZERO, tally(1, 1)), (Duration::MAX, tally(2, 1))] {
            let mut recent = Recent::new(horizon, start);
            recent.answered(start);
            assert_eq!(recent.failed(start + SECOND), expected, "{horizon:?}");
        }
    }
}
