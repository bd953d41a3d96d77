//! The traffic before each limit, one request at a time, in virtual time.
//!
//! What decides are the library's kernels, by the function that every store
//! calls between its read and its write. Clients are numbers here, so their
//! states lie in a list: nothing is hashed, nothing overflows, and the same
//! scenario gives the same answers for ever.

mod lane;

use tidegate::kernel::Verdict;
use tidegate::{Limit, Micros};

use self::lane::Lane;
use crate::measure::Measure;
use crate::report::{Outcome, Report};
use crate::scenario::{Scenario, ScenarioError};
use crate::series::Grid;
use crate::traffic::{Arrival, Arrivals};

/// A scenario under way.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Micros;
/// use tidegate_simulate::{Scenario, every_algorithm};
///
/// let mut simulation = Scenario::new("poisson 50/s".parse()?)
///     .limits(every_algorithm("10/s".parse()?)?)
///     .lasting(Duration::from_secs(60))
///     .start()?;
/// // As it goes on, a second at a time:
/// let mut refused_by_the_log = 0;
/// while let Some(answer) = simulation.step_before(Micros::new(1_000_000)) {
///     refused_by_the_log += u32::from(!answer.verdicts[3].allowed);
/// }
/// assert_eq!(simulation.report().outcomes[3].refused().requests, u64::from(refused_by_the_log));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    arrivals: Arrivals,
    upcoming: Option<Arrival>,
    lanes: Vec<Lane>,
    verdicts: Vec<Verdict>,
    offered: Measure,
    measures: Vec<Measure>,
    now: Micros,
}

impl Scenario {
    /// A simulation at its beginning.
    ///
    /// # Errors
    /// If the parts do not fit together.
    pub fn start(self) -> Result<Simulation, ScenarioError> {
        if self.limits.is_empty() {
            return Err(ScenarioError::NoLimit);
        }
        if self.limits.len() > Scenario::MOST_LIMITS {
            return Err(ScenarioError::TooManyLimits { limits: self.limits.len(), bound: Scenario::MOST_LIMITS });
        }
        if self.length == Micros::ZERO || self.length.to_duration() > Scenario::LONGEST {
            return Err(ScenarioError::Length);
        }
        let cost = self.traffic.largest_cost();
        if let Some(limit) = self.limits.iter().find(|limit| limit.capacity() < cost) {
            return Err(ScenarioError::Unsatisfiable { cost, limit: *limit });
        }
        Ok(Simulation::new(self))
    }

    /// The whole simulation at once.
    ///
    /// # Errors
    /// As [`start`](Scenario::start).
    pub fn run(self) -> Result<Report, ScenarioError> {
        let mut simulation = self.start()?;
        while simulation.step().is_some() {}
        Ok(simulation.report())
    }
}

/// What each limit said of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Answer<'s> {
    /// The request.
    pub arrival: Arrival,
    /// A verdict for each limit, in the order of the scenario.
    pub verdicts: &'s [Verdict],
}

impl Simulation {
    fn new(scenario: Scenario) -> Simulation {
        let clients = scenario.traffic.clients() as usize;
        let grid = Grid::new(scenario.length, scenario.limits[0].period());
        let measure = |limit: &Limit| Measure::new(*limit, clients, grid);
        let mut arrivals = scenario.traffic.arrivals(scenario.seed);
        Simulation {
            upcoming: arrivals.next(),
            arrivals,
            lanes: scenario.limits.iter().map(|limit| Lane::new(*limit, clients)).collect(),
            verdicts: vec![Verdict::default(); scenario.limits.len()],
            offered: measure(&scenario.limits[0]),
            measures: scenario.limits.iter().map(measure).collect(),
            now: Micros::ZERO,
            scenario,
        }
    }

    /// Decides the next request, or says that the scenario is over.
    pub fn step(&mut self) -> Option<Answer<'_>> {
        self.step_before(self.scenario.length)
    }

    /// Decides the next request if it comes before `time`; if none does, moves
    /// on to that time.
    pub fn step_before(&mut self, time: Micros) -> Option<Answer<'_>> {
        let end = time.min(self.scenario.length);
        let Some(arrival) = self.upcoming.filter(|arrival| arrival.at < end) else {
            self.now = self.now.max(end);
            return None;
        };
        self.upcoming = self.arrivals.next();
        self.now = arrival.at;
        self.offered.admit(arrival, Micros::ZERO);
        for ((lane, verdict), measure) in self.lanes.iter_mut().zip(&mut self.verdicts).zip(&mut self.measures) {
            *verdict = lane.decide(arrival);
            if verdict.allowed {
                measure.admit(arrival, verdict.delay);
            }
        }
        Some(Answer { arrival, verdicts: &self.verdicts })
    }

    /// The virtual time: when the last request came, or the time that was
    /// waited for.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.now
    }

    /// When the next request comes, if one does before the end.
    #[must_use]
    pub fn next_at(&self) -> Option<Micros> {
        self.upcoming.map(|arrival| arrival.at).filter(|at| *at < self.scenario.length)
    }

    /// What is simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What there is to say so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let outcome = |(measure, limit): (&Measure, &Limit)| Outcome {
            limit: *limit,
            flow: measure.flow(self.now),
            offered: self.offered.count(),
        };
        Report {
            traffic: self.scenario.traffic.clone(),
            seed: self.scenario.seed,
            length: self.scenario.length,
            offered: self.offered.flow(self.now),
            outcomes: self.measures.iter().zip(&self.scenario.limits).map(outcome).collect(),
        }
    }
}
