//! What a simulation has shown.

use tidegate::{Algorithm, Floor, Limit, Micros};

use crate::measure::{Count, Flow};
use crate::series::Bin;
use crate::traffic::Traffic;

/// What became of the traffic under each limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The traffic.
    pub traffic: Traffic,
    /// What chance began with.
    pub seed: u64,
    /// How long it was to last.
    pub length: Micros,
    /// What came, measured by the first limit's rate and period.
    pub offered: Flow,
    /// What became of it under each limit, in their order; where the traffic has several
    /// [classes](Traffic::classes), of each of them.
    pub outcomes: Vec<Outcome>,
}

/// What came of one class of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it leaves to others.
    pub floor: Floor,
    /// What came, measured by the first limit's rate and period.
    pub offered: Flow,
}

/// What became of the traffic, or of one class of it, under one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The limit.
    pub limit: Limit,
    /// The class, if there are several.
    pub class: Option<Class>,
    /// What it admitted.
    pub flow: Flow,
    /// What came.
    pub offered: Count,
}

impl Report {
    /// What came of which an outcome tells: the whole traffic, or a class of it.
    pub(crate) fn offered_of<'r>(&'r self, outcome: &'r Outcome) -> &'r Flow {
        outcome.class.as_ref().map_or(&self.offered, |class| &class.offered)
    }

    /// Whether requests leave at other times than they come, under any limit.
    #[must_use]
    pub fn delays(&self) -> bool {
        self.outcomes.iter().any(Outcome::delays)
    }
}

impl Outcome {
    /// What was refused.
    #[must_use]
    pub fn refused(&self) -> Count {
        let (offered, admitted) = (self.offered, self.flow.passed);
        Count { requests: offered.requests - admitted.requests, units: offered.units - admitted.units }
    }

    /// Whether requests leave at other times than they come.
    #[must_use]
    pub fn delays(&self) -> bool {
        self.flow.longest_delay > Micros::ZERO
    }

    /// The most that counted against the limit at once: admitted of one client in any period, or
    /// in flight, where the limit is on that and requests last.
    #[must_use]
    pub fn peak(&self) -> u64 {
        if self.counts_in_flight() { self.flow.most_in_flight } else { self.flow.worst_window.units }
    }

    /// [`peak`](Outcome::peak), over time.
    pub(crate) fn peak_of(&self, bin: &Bin) -> u64 {
        if self.counts_in_flight() { bin.in_flight } else { bin.fullest_window }
    }

    pub(crate) fn counts_in_flight(&self) -> bool {
        self.limit.is_in_flight() && self.flow.most_in_flight > 0
    }

    /// What the algorithm is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.limit.is_in_flight() { "in-flight" } else { name(self.limit.algorithm()) }
    }
}

/// What people call an algorithm.
#[must_use]
pub fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "token bucket",
        Algorithm::LeakyBucket => "leaky bucket",
        Algorithm::FixedWindow => "fixed window",
        Algorithm::SlidingLog => "sliding log",
        Algorithm::SlidingCounter => "sliding counter",
    }
}
