//! One traffic through each of the five algorithms: what the library itself
//! answers, on a clock that moves only when told to.

use std::error::Error;
use std::time::Duration;

use tidegate::{AlgorithmKind, Clock, Limit, Limiter, ManualClock, MemoryStore, Micros};

/// All five allow this many per [`PERIOD`].
pub(crate) const COUNT: u64 = 10;
pub(crate) const PERIOD: u64 = 1_000_000;
/// The pictures show this long, in columns of [`COLUMN`].
pub(crate) const LENGTH: u64 = 3 * PERIOD;
pub(crate) const COLUMN: u64 = 100_000;
pub(crate) const COLUMNS: usize = (LENGTH / COLUMN) as usize;

/// An edge of every window of a second.
const START: u64 = 1_700_000_000_000_000;

/// What became of the traffic under one algorithm.
pub(crate) struct Run {
    pub(crate) limit: Limit,
    pub(crate) requests: Vec<Outcome>,
}

/// What became of one request; times are microseconds from the start.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) at: u64,
    pub(crate) allowed: bool,
    /// When an admitted request goes: later than it came only from a leaky
    /// bucket.
    pub(crate) leaves: u64,
}

/// A burst across the edge of a window, then twice what the limits allow.
fn traffic() -> impl Iterator<Item = u64> {
    let burst = (800_000..1_200_000).step_by(20_000);
    let pressure = (1_200_000..LENGTH).step_by(50_000);
    burst.chain(pressure)
}

/// The five algorithms, each with the whole traffic to itself.
pub(crate) fn runs() -> Result<Vec<Run>, Box<dyn Error>> {
    AlgorithmKind::ALL.into_iter().map(run).collect()
}

fn run(algorithm: AlgorithmKind) -> Result<Run, Box<dyn Error>> {
    let limit = Limit::from(algorithm, COUNT, Duration::from_micros(PERIOD))?;
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::builder().max_keys(1).clock(clock.clone()).build()?;
    let limiter = Limiter::with_store(limit, store)?;
    let mut requests = Vec::new();
    for at in traffic() {
        clock.set(Micros::new(START + at));
        let decision = limiter.check("alice")?;
        let goes = clock.now().saturating_add(Micros::from_duration(decision.delay()));
        requests.push(Outcome { at, allowed: decision.is_allowed(), leaves: goes.get() - START });
    }
    Ok(Run { limit, requests })
}

impl Run {
    pub(crate) fn name(&self) -> &'static str {
        match self.limit.algorithm() {
            AlgorithmKind::TokenBucket => "token bucket",
            AlgorithmKind::LeakyBucket => "leaky bucket",
            AlgorithmKind::FixedWindow => "fixed window",
            AlgorithmKind::SlidingLog => "sliding log",
            AlgorithmKind::SlidingCounter => "sliding counter",
        }
    }

    /// When requests were admitted, and when they left, in that order.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = &Outcome> {
        self.requests.iter().filter(|request| request.allowed)
    }

    /// Whether requests leave at other times than they come.
    pub(crate) fn delays(&self) -> bool {
        self.admitted().any(|request| request.leaves > request.at)
    }

    /// The most that was admitted in any period, wherever it begins.
    pub(crate) fn most_admitted(&self) -> usize {
        most_in_a_period(&self.admitted().map(|request| request.at).collect::<Vec<_>>())
    }

    /// The most that left in any period.
    pub(crate) fn most_leaving(&self) -> usize {
        most_in_a_period(&self.admitted().map(|request| request.leaves).collect::<Vec<_>>())
    }

    /// For each column, how many were admitted and how many refused.
    pub(crate) fn arrivals(&self) -> [(usize, usize); COLUMNS] {
        let mut columns = [(0, 0); COLUMNS];
        for request in &self.requests {
            let (admitted, refused) = &mut columns[column(request.at)];
            *(if request.allowed { admitted } else { refused }) += 1;
        }
        columns
    }

    /// For each column, how many left in it.
    pub(crate) fn departures(&self) -> [usize; COLUMNS] {
        let mut columns = [0; COLUMNS];
        for request in self.admitted().filter(|request| request.leaves < LENGTH) {
            columns[column(request.leaves)] += 1;
        }
        columns
    }
}

fn column(at: u64) -> usize {
    (at / COLUMN) as usize
}

/// The most of `times`, which are sorted, in any half-open period.
pub(crate) fn most_in_a_period(times: &[u64]) -> usize {
    let in_period_from = |from: &u64| times.iter().filter(|time| (*from..from + PERIOD).contains(time)).count();
    times.iter().map(in_period_from).max().unwrap_or(0)
}
