//! Interleaved measurement: every contestant runs a short slice in every round.
//!
//! Times on a shared machine move by tens of percent within minutes, but they
//! move for all. So nothing is ever compared across rounds: a ratio is
//! taken within a round, and the median of those is what counts. The time a
//! thread spent waiting for a core is taken off, as far as the kernel tells.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How long everything takes.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Slices per contestant and workload.
    pub(crate) rounds: usize,
    /// What is measured of a slice.
    pub(crate) slice: Duration,
    /// What comes before, so that the last contestant's lines leave the caches.
    pub(crate) warm_up: Duration,
    /// Rounds of what cannot be cut into slices: filling and forgetting.
    pub(crate) fills: usize,
}

impl Pace {
    /// For numbers to quote: about six minutes for everything.
    pub(crate) const FULL: Pace =
        Pace { rounds: 25, slice: Duration::from_millis(60), warm_up: Duration::from_millis(15), fills: 9 };
    /// For a first look: about a minute.
    pub(crate) const QUICK: Pace =
        Pace { rounds: 5, slice: Duration::from_millis(30), warm_up: Duration::from_millis(10), fills: 2 };
}

/// One contestant's turn, which answers with its measurement.
pub(crate) struct Run<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut() -> f64 + 'a>,
}

/// What one contestant measured, round by round; what is not a number does
/// not count.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<f64>,
}

/// Runs every contestant once in every round, and starts each round with another.
pub(crate) fn race(rounds: usize, mut runs: Vec<Run<'_>>) -> Vec<Series> {
    let mut series: Vec<Series> =
        runs.iter().map(|turn| Series { name: turn.name, rounds: Vec::with_capacity(rounds) }).collect();
    let count = runs.len();
    for round in 0..rounds {
        for place in 0..count {
            let index = (round + place) % count;
            series[index].rounds.push((runs[index].run)());
        }
    }
    series
}

impl Series {
    fn valid(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().copied().filter(|value| !value.is_nan())
    }

    /// How many rounds count.
    pub(crate) fn count(&self) -> usize {
        self.valid().count()
    }

    /// The value that `percent` of the rounds do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted: Vec<f64> = self.valid().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.len().checked_sub(1).map_or(f64::NAN, |last| sorted[last * percent / 100])
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// This series in multiples of another, round by round.
    pub(crate) fn over(&self, other: &Series) -> Series {
        let rounds = self.rounds.iter().zip(&other.rounds).map(|(mine, theirs)| mine / theirs);
        Series { name: self.name, rounds: rounds.collect() }
    }
}

/// Measures the time that this thread had a core.
pub(crate) struct Stopwatch {
    started: Instant,
    waiting: Waiting,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        let waiting = Waiting::start();
        Stopwatch { started: Instant::now(), waiting }
    }

    /// The time gone by, waits included: cheap enough for a loop.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time gone by, and how much of it was spent waiting for a core.
    pub(crate) fn stop(mut self) -> Lap {
        let elapsed = self.started.elapsed();
        Lap { elapsed, waited: self.waiting.since_last() }
    }
}

/// What a stopwatch measured.
#[derive(Clone, Copy)]
pub(crate) struct Lap {
    pub(crate) elapsed: Duration,
    pub(crate) waited: Duration,
}

impl Lap {
    /// Nanoseconds with a core.
    pub(crate) fn nanos(self) -> f64 {
        self.elapsed.saturating_sub(self.waited).as_nanos() as f64
    }
}

/// How long this thread was ready to run while others had the cores.
pub(crate) struct Waiting {
    /// Run time, waiting time, and number of runs; missing on some kernels.
    schedstat: Option<File>,
    last: u64,
}

impl Waiting {
    pub(crate) fn start() -> Waiting {
        let mut waiting = Waiting { schedstat: File::open("/proc/thread-self/schedstat").ok(), last: 0 };
        waiting.since_last();
        waiting
    }

    /// The waiting since the last call.
    pub(crate) fn since_last(&mut self) -> Duration {
        let total = self.total().unwrap_or(self.last);
        let waited = total.saturating_sub(self.last);
        self.last = total;
        Duration::from_nanos(waited)
    }

    fn total(&self) -> Option<u64> {
        let mut buffer = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut buffer, 0).ok()?;
        std::str::from_utf8(&buffer[..length]).ok()?.split_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_does_not_count() {
        let series = Series { name: "", rounds: vec![3.0, f64::NAN, 1.0, 2.0] };
        assert_eq!((series.count(), series.percentile(0), series.median()), (3, 1.0, 2.0));
        assert!(Series { name: "", rounds: vec![f64::NAN] }.median().is_nan());
    }

    #[test]
    fn every_contestant_runs_once_in_every_round() {
        let runs = ["a", "b", "c"].map(|name| Run { name, run: Box::new(|| 1.0) });
        assert!(race(4, runs.into()).iter().all(|series| series.rounds == [1.0; 4]));
    }
}
