//! How long requests take: a histogram without locks that can be
//! read by others than Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in nanoseconds: from a decision in memory to a store at its
/// deadline.
const BOUNDS: [u64; 12] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
];

/// Durations, counted by bounds. Cheap to clone; clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// One for each bound, and one for what is above all.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// In nanoseconds: enough for five centuries.
    sum: AtomicU64,
}

/// What a histogram has counted.
pub(crate) struct Reading {
    /// Upper bounds, the last of which is none, and how many were within each
    /// and above the one before.
    pub(crate) buckets: Vec<(Option<Duration>, u64)>,
    pub(crate) sum: Duration,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS.len());
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Reading {
        let bounds = BOUNDS.map(|bound| Some(Duration::from_nanos(bound)));
        let counts = self.0.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets = bounds.into_iter().chain([None]).zip(counts).collect();
        Reading { buckets, sum: Duration::from_nanos(self.0.sum.load(Ordering::Relaxed)) }
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Reading { buckets, sum } = self.read();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        let buckets: Vec<(f64, u64)> = buckets.into_iter().map(|(upper, count)| (bound(upper), count)).collect();
        encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}
