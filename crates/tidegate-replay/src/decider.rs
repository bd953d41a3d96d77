//! Decides the lines of a log in the log's own time, and counts the outcomes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::{ConfigError, Key, ManualClock, Micros, OwnedRequest, Policy, Request};

use crate::batch::{Head, Record};
use crate::bins::Bins;
use crate::draft::shown;
use crate::in_flight::{InFlight, Open};
use crate::mapping::{Plan, slot};
use crate::processor;
use crate::report::{Broken, Example, MAX_EXAMPLES, in_words, short};
use crate::search::{self, SearchError, Smallest};
use crate::share::Share;
use crate::spool::Spool;
use crate::tally::{Outcome, Refusals, Side};
use crate::when::Utc;

pub(crate) struct Decider {
    clock: ManualClock,
    plan: Rc<Plan>,
    sources: Rc<[String]>,
    pub(crate) side: Side,
    pub(crate) old: Option<Side>,
    pub(crate) bins: Bins,
    pub(crate) decided: u64,
    /// The first and the last instant.
    pub(crate) span: Option<(Micros, Micros)>,
    /// Lines that came too late to be decided at their time, and by how much at
    /// most.
    pub(crate) late: u64,
    pub(crate) latest_by: Micros,
    /// Whether any line had each attribute.
    present: Vec<bool>,
    /// Whether any line had a duration, and an actual cost.
    lasted: [bool; 2],
    pub(crate) in_flight: InFlight,
    pub(crate) examples: Vec<Example>,
    pub(crate) newly_refused: Changes,
    pub(crate) newly_admitted: Changes,
    /// Processor time of the decisions, and of counting them.
    pub(crate) took: Duration,
}

/// Requests that two policies decide differently.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) refusals: Refusals,
    pub(crate) examples: Vec<Example>,
}

/// A request that was decided before, to be decided again.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// When.
    pub at: Micros,
    /// Which.
    pub request: &'a OwnedRequest,
    /// How long it lasted, if it was a reservation.
    pub lasted: Option<Duration>,
    /// What it has cost in the end, if that is known.
    pub actual: Option<u64>,
}

/// A request that is to be decided.
struct Arrival<'a> {
    at: Micros,
    request: Request<'a>,
    cost: u64,
    lasts: Option<Micros>,
    actual: Option<u64>,
}

/// Where a request comes from, and what is shown of it.
struct Whence {
    source: String,
    line: u64,
    attributes: BTreeMap<String, String>,
}

/// What the search found for each limit, and whether it had all to go by.
pub(crate) type Found = (Vec<Option<Smallest>>, bool);

impl Decider {
    pub(crate) fn new(
        (policy, against): (Policy, Option<Policy>),
        plan: &Plan,
        sources: Vec<String>,
        (max_keys, spool): (usize, Option<Spool>),
    ) -> Result<Decider, ConfigError> {
        let clock = ManualClock::default();
        let old = against.map(|policy| Side::new(policy, &clock, max_keys, None)).transpose()?;
        Ok(Decider {
            side: Side::new(policy, &clock, max_keys, spool)?,
            old,
            clock,
            sources: sources.into(),
            bins: Bins::default(),
            decided: 0,
            span: None,
            late: 0,
            latest_by: Micros::ZERO,
            present: vec![false; plan.attributes.len()],
            lasted: [false; 2],
            in_flight: InFlight::default(),
            plan: Rc::new(plan.clone()),
            examples: Vec::new(),
            newly_refused: Changes::default(),
            newly_admitted: Changes::default(),
            took: Duration::ZERO,
        })
    }

    /// Does something that counts as deciding.
    pub(crate) fn timed(&mut self, work: impl FnOnce(&mut Decider)) {
        let began = processor::time();
        work(self);
        self.took += processor::time().saturating_sub(began);
    }

    pub(crate) fn decide(&mut self, record: Record<'_>) {
        let Head { at, cost, lasts, actual, .. } = record.head;
        let (plan, sources) = (Rc::clone(&self.plan), Rc::clone(&self.sources));
        let request = record.key().map_or_else(Request::without_key, Request::new);
        let mut request = request.cost(cost);
        for (number, (name, _)) in plan.attributes.iter().enumerate() {
            if let Some(value) = record.value(number) {
                self.present[number] = true;
                request = request.with(name, value);
            }
        }
        if let Some(id) = record.id().and_then(|id| std::str::from_utf8(id).ok()) {
            request = request.id(id);
        }
        self.lasted = [self.lasted[0] || lasts.is_some(), self.lasted[1] || actual.is_some()];
        // Where only the cost is known, it is at once.
        let lasts = lasts.or(actual.map(|_| Micros::ZERO));
        self.decide_arrival(Arrival { at, request, cost, lasts, actual }, || Whence {
            source: sources.get(record.head.source as usize).cloned().unwrap_or_default(),
            line: record.head.line,
            attributes: attributes(&plan, record),
        });
    }

    /// Decides a request that was recorded as it came.
    pub(crate) fn decide_recorded(&mut self, Recorded { at, request, lasted, actual }: Recorded<'_>) {
        let (lasts, cost, line) = (lasted.map(Micros::from_duration), request.cost(), self.decided + 1);
        let arrival = Arrival { at, request: request.lent(), cost, lasts, actual };
        self.decide_arrival(arrival, || Whence {
            source: String::new(),
            line,
            attributes: request.lent().attributes().map(|(name, it)| (name.to_owned(), shown(it.as_bytes()))).collect(),
        });
    }

    fn decide_arrival(&mut self, arrival: Arrival<'_>, whence: impl Fn() -> Whence) {
        let Arrival { at: came, request, cost, lasts, actual } = arrival;
        // What ends at this instant makes room for what comes at it.
        self.settle_until(came);
        let at = self.reach(came);
        self.decided += 1;
        let own_key = request.own_key().cloned().unwrap_or_else(|| Key::from(()));
        let lasting = lasts.map(Micros::to_duration);
        let old = self.old.as_mut().map(|old| old.decide(request.clone(), &own_key, lasting));
        let (old, old_reservation) = old.map_or((None, None), |(outcome, reservation)| (Some(outcome), reservation));
        let (outcome, reservation) = self.side.decide(request, &own_key, lasting);
        if let Some(lasts) = lasts.filter(|_| reservation.is_some() || old_reservation.is_some()) {
            let ends = came.saturating_add(lasts).max(at).min(Micros::LATEST);
            self.in_flight.begin(ends, Open { reservation, old: old_reservation, estimate: cost, actual });
        }
        let bin = self.bins.at(at);
        match (&outcome, &old) {
            (Outcome::Refused(refusal), Some(Outcome::Admitted)) => {
                bin.newly_refused += 1;
                self.newly_refused.refusals.count(refusal, || whence().attributes);
            }
            (Outcome::Admitted, Some(Outcome::Refused(refusal))) => {
                bin.newly_admitted += 1;
                self.newly_admitted.refusals.count(refusal, || whence().attributes);
            }
            _ => {}
        }
        let undecided = |message: String| undecided(whence(), &message);
        match &outcome {
            Outcome::Admitted => bin.admitted += 1,
            Outcome::Refused(refusal) => bin.refuse(self.side.refused.count(refusal, BTreeMap::new)),
            Outcome::Undecided(error) => self.side.undecided.count(error, undecided),
        }
        if let (Some(outcome), Some(side)) = (&old, &mut self.old) {
            match outcome {
                Outcome::Admitted => {}
                Outcome::Refused(refusal) => _ = side.refused.count(refusal, BTreeMap::new),
                Outcome::Undecided(error) => side.undecided.count(error, undecided),
            }
        }
        self.show(at, (&outcome, old.as_ref()), whence);
    }

    /// Settles the requests that end up to this time.
    pub(crate) fn settle_until(&mut self, time: Micros) {
        while let Some((ends, Open { reservation, old, estimate, actual })) = self.in_flight.end(time) {
            self.clock.set(ends);
            let settled = reservation.is_none_or(|reservation| self.side.settle(reservation, estimate, actual));
            self.in_flight.unsettled += u64::from(!settled);
            if let (Some(side), Some(reservation)) = (&self.old, old) {
                side.settle(reservation, estimate, actual);
            }
        }
    }

    /// Moves the time, which never goes back.
    fn reach(&mut self, at: Micros) -> Micros {
        match &mut self.span {
            None => {
                self.clock.set(at);
                self.span = Some((at, at));
            }
            Some((_, now)) if at > *now => {
                self.clock.set(at);
                *now = at;
            }
            Some((_, now)) if at < *now => {
                self.late += 1;
                self.latest_by = self.latest_by.max(now.saturating_since(at));
                return *now;
            }
            Some(_) => {}
        }
        at
    }

    /// Keeps the first few as examples.
    fn show(&mut self, at: Micros, (outcome, old): (&Outcome, Option<&Outcome>), whence: impl FnOnce() -> Whence) {
        let (examples, refusal) = match (outcome, old) {
            (Outcome::Refused(refusal), Some(Outcome::Admitted)) => (&mut self.newly_refused.examples, refusal),
            (Outcome::Admitted, Some(Outcome::Refused(refusal))) => (&mut self.newly_admitted.examples, refusal),
            (Outcome::Refused(refusal), None) => (&mut self.examples, refusal),
            _ => return,
        };
        if examples.len() < MAX_EXAMPLES {
            let Whence { source, line, attributes } = whence();
            let (rule, key) = (refusal.rule.to_string(), refusal.key.to_string());
            examples.push(Example { at: Utc(at), source, line, rule, key, attributes });
        }
    }

    /// Attributes that a policy asks for, and no line has.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing =
            self.plan.attributes.iter().zip(&self.present).filter(|(_, present)| !**present && self.decided > 0);
        let lasted = [(slot::DURATION, "duration"), (slot::ACTUAL, "actual")].into_iter().zip(self.lasted);
        let never = lasted.filter(|((slot, _), lasted)| self.plan.chosen[*slot] && !lasted && self.decided > 0);
        let never = never.map(|((_, name), _)| name.to_owned());
        missing.map(|((name, _), _)| name.clone()).chain(never).collect()
    }

    pub(crate) fn search(&mut self, at_most: Option<Share>, max_keys: usize) -> Result<Found, SearchError> {
        let seen = &mut *self.side.limiter.store().seen();
        match (at_most, &mut seen.spool) {
            (Some(share), Some(spool)) => {
                Ok((search::smallest(spool, &seen.limits, share, max_keys)?, spool.is_full()))
            }
            _ => Ok((Vec::new(), false)),
        }
    }
}

/// A line that a policy could not decide.
fn undecided(Whence { source, line, attributes }: Whence, message: &str) -> Broken {
    /// Characters of a reason: it may have a value of the log in it.
    const MAX_REASON: usize = 300;
    Broken { source, line, reason: short(message, MAX_REASON), text: in_words(&attributes) }
}

/// What the policies know of a line.
fn attributes(plan: &Plan, record: Record<'_>) -> BTreeMap<String, String> {
    let value = |(number, (name, _)): (usize, &(String, usize))| Some((name.clone(), shown(record.value(number)?)));
    plan.attributes.iter().enumerate().filter_map(value).collect()
}
