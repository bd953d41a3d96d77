//! The latency of each step of the history: two numbers, made of readings of one histogram.

use serde::{Deserialize, Serialize};

use super::{SCALES, place};
use crate::tell::metrics::LatencyReading;

/// Seconds over which the latency of now is told.
const RECENT: usize = 10;

/// The microseconds within which a half, and 99 in a hundred, were; none where there were no requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: Option<u32>,
    pub(crate) p99_us: Option<u32>,
}

impl Latency {
    fn of(reading: &LatencyReading) -> Latency {
        Latency { p50_us: reading.quantile(50), p99_us: reading.quantile(99) }
    }
}

/// The latency of each step, as it is told.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ToldLatency {
    pub(crate) p50_us: Vec<Option<u32>>,
    pub(crate) p99_us: Vec<Option<u32>>,
}

/// The same as it is kept; zero where there were no requests.
#[derive(Clone, Copy, Default)]
struct Kept {
    p50_us: u32,
    p99_us: u32,
}

/// The latency of each step of all scales.
pub(super) struct LatencySteps {
    rings: [Box<[Kept]>; SCALES.len()],
    /// The histogram at the beginning of the newest step of each scale.
    since: [LatencyReading; SCALES.len()],
    /// The same for each of the last seconds.
    recent: Box<[LatencyReading; RECENT]>,
    latest: LatencyReading,
}

impl LatencySteps {
    /// Begins with what had been counted before.
    pub(super) fn new(before: LatencyReading) -> LatencySteps {
        LatencySteps {
            rings: SCALES.map(|scale| vec![Kept::default(); scale.length].into_boxed_slice()),
            since: [before; SCALES.len()],
            recent: Box::new([before; RECENT]),
            latest: before,
        }
    }

    /// Begins a step of a scale.
    pub(super) fn begin(&mut self, scale: usize, step: u64) {
        self.rings[scale][place(step, SCALES[scale].length)] = Kept::default();
        self.since[scale] = self.latest;
        if scale == 0 {
            self.recent[place(step, RECENT)] = self.latest;
        }
    }

    /// Takes a reading for the newest steps; of the first scale, for the last few.
    pub(super) fn record(&mut self, reading: LatencyReading, newest: [u64; SCALES.len()], seconds: u64) {
        self.latest = reading;
        for (at, scale) in SCALES.iter().enumerate() {
            let Latency { p50_us, p99_us } = Latency::of(&reading.since(&self.since[at]));
            let kept = Kept { p50_us: p50_us.unwrap_or(0), p99_us: p99_us.unwrap_or(0) };
            let steps = if at == 0 { seconds } else { 1 };
            for step in (0..steps).map(|back| newest[at].saturating_sub(back)) {
                self.rings[at][place(step, scale.length)] = kept;
            }
        }
    }

    /// The latency of the last ten seconds, the one that has begun included.
    pub(super) fn now(&self, newest: u64) -> Latency {
        Latency::of(&self.latest.since(&self.recent[place(newest + 1, RECENT)]))
    }

    pub(super) fn tell(&self, scale: usize, steps: std::ops::Range<u64>) -> ToldLatency {
        let kept = || steps.clone().map(|step| self.rings[scale][place(step, SCALES[scale].length)]);
        let told = |micros: u32| (micros > 0).then_some(micros);
        ToldLatency {
            p50_us: kept().map(|kept| told(kept.p50_us)).collect(),
            p99_us: kept().map(|kept| told(kept.p99_us)).collect(),
        }
    }
}
