//! The traffic before each limit, one request at a time, in virtual time.
//!
//! What decides are the library's kernels, by the function that every store
//! calls between its read and its write. Requests that last are settled when they
//! end, as reservations are. Clients are numbers here, so their
//! states lie in a list: nothing is hashed, nothing overflows, and the same
//! scenario gives the same answers for ever.

mod lane;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::{Floor, Limit, Micros};

use self::lane::Lane;
use crate::measure::Measure;
use crate::report::{Class, Outcome, Report};
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
    /// Requests that have not ended, those that end first on top.
    in_flight: BinaryHeap<Reverse<InFlight>>,
    verdicts: Vec<Verdict>,
    offered: Measure,
    classes: Vec<Floor>,
    /// What came of each class, if there are several.
    offered_by: Vec<Measure>,
    /// Of each limit, for each class.
    measures: Vec<Vec<Measure>>,
    now: Micros,
}

/// A request that will end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    ends: Micros,
    arrival: Arrival,
    /// A bit for each limit that admitted it.
    admitted: u16,
}

const _: () = assert!(Scenario::MAX_LIMITS <= u16::BITS as usize);

impl Scenario {
    /// A simulation at its beginning.
    ///
    /// # Errors
    /// If the parts do not fit together.
    pub fn start(self) -> Result<Simulation, ScenarioError> {
        if self.limits.is_empty() {
            return Err(ScenarioError::NoLimit);
        }
        if self.limits.len() > Scenario::MAX_LIMITS {
            return Err(ScenarioError::TooManyLimits { limits: self.limits.len(), bound: Scenario::MAX_LIMITS });
        }
        if self.length == Micros::ZERO || self.length.to_duration() > Scenario::MAX_LENGTH {
            return Err(ScenarioError::Length);
        }
        for (cost, floor) in self.traffic.costs() {
            let above = |limit: &&Limit| limit.capacity().saturating_sub(floor.of(limit.capacity()));
            if let Some(limit) = self.limits.iter().find(|limit| above(limit) < charged(limit, cost)) {
                return Err(ScenarioError::Unsatisfiable { cost, limit: *limit });
            }
        }
        let requests = self.traffic.in_flight();
        if requests > Scenario::MAX_IN_FLIGHT {
            return Err(ScenarioError::TooManyInFlight { requests, bound: Scenario::MAX_IN_FLIGHT });
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
pub struct Decided<'s> {
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
        let classes = scenario.traffic.classes();
        let by_class = |limit: &Limit| classes.iter().map(|_| measure(limit)).collect::<Vec<_>>();
        Simulation {
            upcoming: arrivals.next(),
            arrivals,
            lanes: scenario.limits.iter().map(|limit| Lane::new(*limit, clients)).collect(),
            in_flight: BinaryHeap::new(),
            verdicts: vec![Verdict::default(); scenario.limits.len()],
            offered: measure(&scenario.limits[0]),
            offered_by: if classes.len() > 1 { by_class(&scenario.limits[0]) } else { Vec::new() },
            measures: scenario.limits.iter().map(by_class).collect(),
            classes,
            now: Micros::ZERO,
            scenario,
        }
    }

    /// Decides the next request, or says that the scenario is over.
    pub fn step(&mut self) -> Option<Decided<'_>> {
        self.step_before(self.scenario.length)
    }

    /// Decides the next request if it comes before `time`; if none does, moves
    /// on to that time.
    pub fn step_before(&mut self, time: Micros) -> Option<Decided<'_>> {
        let end = time.min(self.scenario.length);
        let next = self.upcoming.filter(|arrival| arrival.at < end);
        // What ends at this instant makes room for what comes at it.
        self.settle_until(next.map_or(end, |arrival| arrival.at));
        let Some(arrival) = next else {
            self.now = self.now.max(end);
            return None;
        };
        self.upcoming = self.arrivals.next();
        self.now = arrival.at;
        self.offered.admit(arrival, Micros::ZERO);
        let class = arrival.class as usize;
        if let Some(offered) = self.offered_by.get_mut(class) {
            offered.admit(arrival, Micros::ZERO);
        }
        let mut admitted = 0;
        let lanes = self.lanes.iter_mut().zip(&mut self.verdicts).zip(&mut self.measures);
        for (number, ((lane, verdict), measure)) in lanes.enumerate() {
            let limit = &self.scenario.limits[number];
            let (cost, floor) = (charged(limit, arrival.cost), self.classes[class].of(limit.capacity()));
            *verdict = lane.decide(arrival.client, arrival.at, (Verb::Charge, cost), floor);
            if verdict.allowed {
                measure[class].admit(arrival, verdict.delay);
                admitted |= 1 << number;
            }
        }
        if let Some(lasts) = arrival.lasts {
            let ends = arrival.at.saturating_add(lasts);
            self.in_flight.push(Reverse(InFlight { ends, arrival, admitted }));
        }
        Some(Decided { arrival, verdicts: &self.verdicts })
    }

    /// Settles the requests that end up to this time.
    fn settle_until(&mut self, time: Micros) {
        while let Some(next) = self.in_flight.peek_mut().filter(|next| next.0.ends <= time) {
            let Reverse(InFlight { ends, arrival, admitted }) = PeekMut::pop(next);
            let Arrival { at, client, cost, actual, .. } = arrival;
            let class = arrival.class as usize;
            self.offered.end(client, ends);
            if let Some(offered) = self.offered_by.get_mut(class) {
                offered.end(client, ends);
            }
            let lanes = self.lanes.iter_mut().zip(&mut self.measures).zip(&self.scenario.limits);
            for (_, ((lane, measure), limit)) in (0..).zip(lanes).filter(|(number, _)| admitted >> number & 1 == 1) {
                let actual = if limit.is_in_flight() { 0 } else { actual };
                let charged = Charged { at, cost: charged(limit, cost) };
                let left = lane.decide(client, ends, (Verb::Peek, 1), 0).remaining;
                lane.decide(client, ends, (Verb::Settle(charged), actual), 0);
                measure[class].end(client, ends);
                if actual.saturating_sub(charged.cost) > left {
                    measure[class].owe(lane.decide(client, ends, (Verb::Peek, 1), 0).retry_after);
                }
            }
        }
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
        let of_limit = |(measures, limit): (&Vec<Measure>, &Limit)| {
            let outcome = |(number, measure): (usize, &Measure)| Outcome {
                limit: *limit,
                class: self
                    .offered_by
                    .get(number)
                    .map(|offered| Class { floor: self.classes[number], offered: offered.flow(self.now) }),
                flow: measure.flow(self.now),
                offered: self.offered_by.get(number).unwrap_or(&self.offered).count(),
            };
            measures.iter().enumerate().map(outcome).collect::<Vec<_>>()
        };
        Report {
            traffic: self.scenario.traffic.clone(),
            seed: self.scenario.seed,
            length: self.scenario.length,
            offered: self.offered.flow(self.now),
            outcomes: self.measures.iter().zip(&self.scenario.limits).flat_map(of_limit).collect(),
        }
    }
}

/// What a limit charges for a request of this cost: one permit, if it counts requests in flight.
fn charged(limit: &Limit, cost: u64) -> u64 {
    if limit.is_in_flight() { 1 } else { cost }
}
