//! What is to be simulated: traffic, limits, a seed and a length.

use std::time::Duration;

use tidegate::{Algorithm, ConfigError, Limit, Micros};

use crate::traffic::{Traffic, TrafficError};
use crate::words::print_time;

/// Traffic that each of some limits has to itself, for a while.
///
/// ```
/// use std::time::Duration;
/// use tidegate_simulate::{Scenario, every_algorithm};
///
/// let report = Scenario::new("bursts 20 every 3s within 400ms from 800ms".parse()?)
///     .limits(every_algorithm("10/s".parse()?)?)
///     .lasting(Duration::from_secs(3))
///     .run()?;
/// let worst: Vec<u64> = report.outcomes.iter().map(|outcome| outcome.flow.worst_window.units).collect();
/// assert_eq!(worst, [13, 13, 20, 10, 12]); // the fixed window: twice its limit
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a scenario does nothing until it runs"]
pub struct Scenario {
    pub(crate) traffic: Traffic,
    pub(crate) limits: Vec<Limit>,
    pub(crate) seed: u64,
    pub(crate) length: Micros,
}

/// Why there is nothing to simulate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No limit was given.
    #[error("there is no limit to simulate: give at least one")]
    NoLimit,
    /// More limits than can be told apart.
    #[error("{limits} limits are too many: simulate at most {bound} at once")]
    TooManyLimits {
        /// How many there were.
        limits: usize,
        /// The number that is allowed.
        bound: usize,
    },
    /// Requests that could never pass.
    #[error("requests that cost {cost} can never pass {limit}: lower the cost or raise the limit")]
    Unsatisfiable {
        /// The largest cost of the traffic.
        cost: u64,
        /// A limit that is smaller.
        limit: Limit,
    },
    /// Requests that come faster than they end.
    #[error(
        "about {requests} requests would be in flight at once: have at most {bound}, by less traffic or shorter requests"
    )]
    TooManyInFlight {
        /// How many there would be.
        requests: u128,
        /// The number that is allowed.
        bound: u128,
    },
    /// A length of time that is none, or that passes all calendars.
    #[error("a simulation lasts from a microsecond to ten years: choose another length")]
    Length,
    /// Traffic that ends before so many requests have come.
    #[error("the traffic ends after {sent} of {requests} requests: give a length of time instead")]
    TooFewRequests {
        /// How many there are.
        sent: u64,
        /// How many were asked for.
        requests: u64,
    },
    /// Numbers that make no limit.
    #[error(transparent)]
    Limit(#[from] ConfigError),
    /// Words that make no traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}

impl Scenario {
    /// The most limits of a simulation.
    pub const MAX_LIMITS: usize = 16;
    /// About the most requests in flight at once, if all are admitted.
    pub const MAX_IN_FLIGHT: u128 = 1_000_000;
    /// The longest simulation: ten years.
    pub const MAX_LENGTH: Duration = Limit::MAX_PERIOD;

    /// This traffic for a minute, as yet without a limit.
    pub fn new(traffic: Traffic) -> Scenario {
        Scenario { traffic, limits: Vec::new(), seed: 0, length: Micros::new(60_000_000) }
    }

    /// The scenario to begin with: a burst across the edge of a window, then
    /// twice what the limit allows, for three periods, through each of the five.
    ///
    /// # Errors
    /// If there is no limit or no traffic of these numbers: twice the count is
    /// too much, or two fifths of a period are less than a microsecond.
    pub fn lesson(limit: Limit) -> Result<Scenario, ScenarioError> {
        let period = Micros::from_duration(limit.period()).get();
        let time = |fifths: u64| print_time(Micros::new(period.saturating_mul(fifths) / 5));
        let twice = Limit::try_token_bucket(limit.count().saturating_mul(2), limit.period())?;
        let (size, every, within, from, after) = (twice.count(), time(15), time(2), time(4), time(6));
        let words = format!("bursts {size} every {every} within {within} from {from} + {twice} from {after}");
        let scenario = Scenario::new(words.parse()?).limits(every_algorithm(limit)?);
        Ok(scenario.lasting(Duration::from_micros(period.saturating_mul(3))))
    }

    /// These limits, each with the whole traffic to itself.
    pub fn limits(mut self, limits: impl IntoIterator<Item = Limit>) -> Scenario {
        self.limits = limits.into_iter().collect();
        self
    }

    /// What chance begins with: 0 unless set.
    pub fn seed(mut self, seed: u64) -> Scenario {
        self.seed = seed;
        self
    }

    /// For how long: a minute unless set.
    pub fn lasting(mut self, length: Duration) -> Scenario {
        self.length = Micros::from_duration(length);
        self
    }

    /// For as long as it takes until so many requests have come, and any that
    /// come at the same instant as the last. Goes through the traffic once, to
    /// see how long that is.
    ///
    /// # Errors
    /// If the traffic ends before.
    pub fn lasting_requests(mut self, requests: u64) -> Result<Scenario, ScenarioError> {
        let mut sent = 0;
        for arrival in self.traffic.arrivals(self.seed) {
            sent += 1;
            if sent >= requests {
                self.length = arrival.at.saturating_add(Micros::new(1));
                return Ok(self);
            }
        }
        Err(ScenarioError::TooFewRequests { sent, requests })
    }

    /// The traffic.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// How long it lasts.
    #[must_use]
    pub fn length(&self) -> Micros {
        self.length
    }
}

/// The same numbers under each of the five algorithms; the burst or queue of
/// `limit` for both buckets, if it has one.
///
/// # Errors
/// As [`Limit::try_new`], of numbers that one algorithm takes and another does not.
pub fn every_algorithm(limit: Limit) -> Result<Vec<Limit>, ConfigError> {
    Algorithm::ALL.into_iter().map(|algorithm| with_algorithm(limit, algorithm)).collect()
}

/// The same numbers under another algorithm.
///
/// # Errors
/// As [`every_algorithm`].
pub fn with_algorithm(limit: Limit, algorithm: Algorithm) -> Result<Limit, ConfigError> {
    if limit.algorithm() == algorithm {
        return Ok(limit);
    }
    let other = Limit::try_new(algorithm, limit.count(), limit.period())?;
    match algorithm {
        Algorithm::TokenBucket => other.try_burst(limit.capacity()),
        Algorithm::LeakyBucket => other.try_queue(limit.capacity()),
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => Ok(other),
    }
}
