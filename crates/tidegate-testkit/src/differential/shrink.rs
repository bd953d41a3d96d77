//! Cutting what led to a difference down to the shortest trace that still
//! leads there.

use std::num::NonZeroU32;

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Check, Meter, Store};
use tidegate::{Key, Limit, ManualClock, Micros, Name};

use super::{Event, Probe, Reproduction};
use crate::block_on::block_on;
use crate::oracle::{Ask, Oracle};
use crate::trace::{Action, Answer, Step, Trace};

/// One key under one limit, and how to make stores to try it on.
pub(super) struct Case<'a, F> {
    limit: Limit,
    meter: Meter,
    key: &'a Key<'a>,
    make: &'a F,
}

impl<'a, S: Store, F: Fn() -> (S, ManualClock)> Case<'a, F> {
    pub(super) fn new(limit: Limit, key: &'a Key<'a>, make: &'a F) -> Case<'a, F> {
        Case { limit, meter: Meter::new(Name::literal("limit"), limit), key, make }
    }

    /// The shortest part of `events` that makes a store differ from the
    /// oracle, each event asked alone.
    pub(super) fn shortest(&self, mut events: Vec<Event>) -> Reproduction {
        let Some(last) = self.first_difference(&events) else {
            return Reproduction::History(self.trace(&events));
        };
        events.truncate(last + 1);
        let mut length = events.len();
        while length > 0 {
            let mut from = 0;
            while from + length <= events.len() {
                let mut fewer = events.clone();
                fewer.drain(from..from + length);
                match self.first_difference(&fewer) {
                    Some(last) => events = fewer[..=last].to_vec(),
                    None => from += length,
                }
            }
            length /= 2;
        }
        Reproduction::Trace(self.trace(&events))
    }

    /// Which event is the first that a new store answers otherwise than the
    /// oracle.
    fn first_difference(&self, events: &[Event]) -> Option<usize> {
        let (store, clock) = (self.make)();
        self.right_answers(events).position(|(event, right)| {
            let mut verdict = [Verdict::default()];
            let meter = self.meter.clone().with_floor(event.probe.floor);
            let check = Check::new(&meter, self.key, event.probe.verb, event.probe.cost);
            let check = check.expect("it has been asked before");
            clock.set(event.now);
            block_on(store.decide(&[check], &mut verdict)).is_err() || verdict[0] != right
        })
    }

    /// The events, each with the oracle's answer.
    fn right_answers<'e>(&self, events: &'e [Event]) -> impl Iterator<Item = (&'e Event, Verdict)> {
        let mut oracle = Oracle::new();
        let (rule, limit, key) = (self.meter.name(), self.limit, self.key);
        events.iter().map(move |event| {
            let Probe { verb, cost, floor, .. } = event.probe;
            (
                event,
                oracle.decide(
                    &[Ask { rule, limit, key, verb, cost, floor, notify: &[], former: &[], corrected: None }],
                    event.now,
                )[0],
            )
        })
    }

    /// What was asked, and what the oracle says to it.
    fn trace(&self, events: &[Event]) -> Trace {
        let start = events.iter().map(|event| event.now).min().unwrap_or_default();
        let mut trace = Trace::of([self.limit]).starting_at(start);
        for (event, verdict) in self.right_answers(events) {
            trace.push(Step {
                at: event.now.saturating_since(start),
                key: self.key.to_string(),
                action: Action::new(since(start, event.probe.verb), event.probe.cost),
                times: NonZeroU32::MIN,
                answer: Answer::from(verdict),
            });
        }
        trace
    }
}

/// The verb, with the times of a trace that starts then.
fn since(start: Micros, verb: Verb) -> Verb {
    let since = |charged: Charged| Charged { at: charged.at.saturating_since(start), ..charged };
    match verb {
        Verb::Settle(charged) => Verb::Settle(since(charged)),
        Verb::Renew(charged) => Verb::Renew(since(charged)),
        Verb::Charge | Verb::Peek | Verb::Report | Verb::Refund | Verb::Reset => verb,
    }
}
