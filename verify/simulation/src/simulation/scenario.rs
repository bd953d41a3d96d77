//! What a seed stands for: limits, processes, settings and faults.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate::{Algorithm, FailureMode, Limit, Policy};
use tidegate_redis::{BreakerSettings, Lease};
use tidegate_testkit::Random;

use super::fault::Fault;

pub(super) const PREFIX: &str = "tg";

/// The rule that may be leased.
pub(super) const LEASED: &str = "first";

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) limits: Vec<Limit>,
    pub(super) processes: usize,
    /// Callers of each.
    pub(super) callers: usize,
    pub(super) keys: usize,
    pub(super) lease: Option<Lease>,
    pub(super) is_strict: bool,
    pub(super) on_failure: Option<FailureMode>,
    pub(super) remembers_refusals: bool,
    pub(super) deadline: Duration,
    /// From the first request to the last; faults are over then.
    pub(super) length: Duration,
    /// The longest that a caller rests, in milliseconds.
    pub(super) longest_rest_ms: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) breaker: BreakerSettings,
    pub(super) seed: u64,
}

const NAMES: [&str; 2] = ["alice", "bob"];

impl Scenario {
    pub(super) fn drawn(seed: u64) -> Scenario {
        let mut random = Random::new(seed);
        let random = &mut random;
        let processes = random.within(1..=4) as usize;
        let length_ms = random.within(1_000..=4_000);
        let is_strict = random.percent(30);
        let mut limits = vec![limit(random, 1..=12)];
        if random.percent(25) {
            limits.push(limit(random, 4..=30));
        }
        let capacity = limits[0].capacity();
        let lease = random.percent(35).then(|| Lease {
            chunk: random.within(1..=capacity),
            ttl: Duration::from_millis(random.within(50..=2_000)),
        });
        let on_failure = match random.within(0..=5) {
            0 => Some(FailureMode::Open),
            1 => Some(FailureMode::Closed),
            2 | 3 => Some(FailureMode::local(processes as u32)),
            _ => None,
        };
        let number = if random.percent(10) { 0 } else { random.within(1..=6) };
        let faults = (0..number).map(|_| Fault::drawn(random, processes, length_ms)).collect();
        Scenario {
            limits,
            processes,
            callers: random.within(1..=3) as usize,
            keys: random.within(1..=2) as usize,
            lease,
            is_strict,
            on_failure,
            remembers_refusals: random.percent(25),
            deadline: Duration::from_millis(random.choose(&[20, 50, 50, 100])),
            length: Duration::from_millis(length_ms),
            longest_rest_ms: random.choose(&[60, 250, 800]),
            faults,
            breaker: BreakerSettings { failures: random.choose(&[1, 2, 5]), ..BreakerSettings::default() },
            seed,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let names = [LEASED, "second"];
        self.limits.iter().zip(names).fold(Policy::new(), |policy, (limit, name)| policy.limit(name, *limit))
    }

    /// The longest that a decision may take: a deadline, and what timers of a
    /// millisecond add to it.
    pub(super) fn longest_decision(&self) -> Duration {
        self.deadline + Duration::from_millis(2)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> + Clone {
        NAMES.into_iter().take(self.keys)
    }

    /// The largest cost of a request: all limits can hold it.
    pub(super) fn largest_cost(&self) -> u64 {
        self.limits.iter().map(Limit::capacity).fold(6, u64::min)
    }

    /// Units of a leased rule that requests have taken which still wait for
    /// the other rule's answer: they count as admitted when they have both.
    pub(super) fn under_way(&self) -> u64 {
        let waiting = self.processes * self.callers * usize::from(self.limits.len() > 1);
        waiting as u64 * self.largest_cost()
    }

    /// How long until nothing of what was used is left.
    pub(super) fn horizon(&self) -> Duration {
        let horizon = |limit: &Limit| match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                limit.period() * limit.capacity().div_ceil(limit.count()) as u32
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog => limit.period(),
            Algorithm::SlidingCounter => 2 * limit.period(),
        };
        self.limits.iter().map(horizon).max().unwrap_or_default()
    }
}

fn limit(random: &mut Random, counts: RangeInclusive<u64>) -> Limit {
    let count = random.within(counts);
    let period = Duration::from_micros(random.within(100_000..=3_000_000));
    let burst = random.within(1..=2 * count);
    match random.choose(&Algorithm::ALL) {
        Algorithm::TokenBucket => Limit::token_bucket(count, period).burst(burst),
        Algorithm::LeakyBucket => Limit::leaky_bucket(count, period).queue(burst),
        Algorithm::FixedWindow if random.percent(50) => Limit::fixed_window(count, period).from_first_request(),
        Algorithm::FixedWindow => Limit::fixed_window(count, period),
        Algorithm::SlidingLog => Limit::sliding_log(count, period),
        Algorithm::SlidingCounter => Limit::sliding_counter(count, period),
    }
}
