//! How long decisions take, cheaply enough for each rule: one atomic addition each.
//!
//! Two buckets for each doubling, so a quantile is told by a bound that is at most half as much again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// From half a microsecond to two seconds; the last takes all that is longer.
const BUCKETS: usize = 44;

/// The finest time that is told apart, in nanoseconds.
const UNIT: u128 = 500;

/// Durations, counted by bounds. Counters begin anew after 2^32.
pub(crate) struct Latencies([AtomicU32; BUCKETS]);

/// What was counted at some time: the difference of two is what happened between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatencyReading([u32; BUCKETS]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([const { AtomicU32::new(0) }; BUCKETS])
    }
}

impl Default for LatencyReading {
    fn default() -> LatencyReading {
        LatencyReading([0; BUCKETS])
    }
}

impl Latencies {
    /// So many decisions took so long.
    pub(crate) fn observe(&self, took: Duration, decisions: u32) {
        self.0[bucket(took)].fetch_add(decisions, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> LatencyReading {
        LatencyReading(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

impl LatencyReading {
    /// What was counted since a reading before.
    pub(crate) fn since(&self, before: &LatencyReading) -> LatencyReading {
        LatencyReading(std::array::from_fn(|at| self.0[at].wrapping_sub(before.0[at])))
    }

    /// The microseconds within which so many in a hundred were; none if there was nothing.
    pub(crate) fn quantile(&self, percent: u64) -> Option<u32> {
        let total: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let within = |count: &u32| {
            seen += u64::from(*count);
            seen >= wanted
        };
        self.0.iter().position(within).map(bound)
    }
}

fn bucket(took: Duration) -> usize {
    match u64::try_from(took.as_nanos() / UNIT).unwrap_or(u64::MAX) {
        0 | 1 => 1,
        units => {
            let doublings = units.ilog2();
            let half = (units >> (doublings - 1)) & 1;
            // Both are small numbers.
            (2 * doublings as usize + half as usize).min(BUCKETS - 1)
        }
    }
}

/// The upper bound of a bucket, in microseconds.
fn bound(bucket: usize) -> u32 {
    let (doublings, half) = (bucket / 2, bucket % 2);
    let units = if half == 0 { 3 << doublings >> 1 } else { 2_u32 << doublings };
    units.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_its_bound_and_above_the_one_before() {
        let mut nanos = 1_u64;
        while nanos < 1_500_000_000 {
            let at = bucket(Duration::from_nanos(nanos));
            assert!(nanos <= u64::from(bound(at)) * 1_000, "{nanos}");
            assert!(at == 1 || nanos * 2 >= u64::from(bound(at - 1)) * 1_000, "{nanos}");
            nanos += nanos.div_ceil(7);
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since() {
        let latencies = Latencies::default();
        latencies.observe(Duration::from_secs(1), 5);
        let before = latencies.read();
        assert_eq!(before.since(&before).quantile(50), None);
        latencies.observe(Duration::from_nanos(900), 98);
        latencies.observe(Duration::from_micros(100), 2);
        let since = latencies.read().since(&before);
        assert_eq!((since.quantile(50), since.quantile(98), since.quantile(99)), (Some(1), Some(1), Some(128)));
        let wrapped = LatencyReading([u32::MAX; BUCKETS]);
        assert_eq!(LatencyReading::default().since(&wrapped).0, [1; BUCKETS]);
    }
}
