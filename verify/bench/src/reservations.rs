//! Limits on requests in flight and reservations in memory, beside logs and checks.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use tidegate::{Amounts, Limit, Limiter, Request};

use crate::measure::{Run, Stopwatch, race};
use crate::report::{Goal, Table};
use crate::session::Session;

const CHECKS: u64 = 20_000;

/// Enough that a key has a few entries at a time, and all pass.
const KEYS: u64 = 1_000;
const COUNT: u64 = 1_000;
const PERIOD: Duration = Duration::from_millis(1);

/// Longer than a round takes.
const LASTS: Duration = Duration::from_secs(60);

const LOG: &str = "a sliding log";
const IN_FLIGHT: &str = "in flight";
const LOG_WITH_ID: &str = "a sliding log, with an id";
const RESERVED: &str = "in flight, reserved";
const SETTLED: &str = "in flight, reserved and settled";

pub(crate) fn reservations(session: &mut Session) {
    let name = "requests in flight, 1,000 keys, 1 thread";
    if !session.wants(name) {
        return;
    }
    let log = || Limiter::new(Limit::sliding_log(COUNT, PERIOD));
    let in_flight = || Limiter::new(Limit::in_flight(COUNT, PERIOD));
    let (logged, flying, logged_by_id, reserved, settled) = (log(), in_flight(), log(), in_flight(), in_flight());
    let turn = Cell::new(0_u64);
    let next = || {
        turn.set(turn.get() + 1);
        turn.get()
    };
    let plain = |limiter: &Limiter| timed(|| assert!(limiter.allow(black_box(next() % KEYS))));
    let ids: Vec<String> = (0..CHECKS).map(|number| number.to_string()).collect();
    let by_id = |check: &dyn Fn(Request<'_>)| {
        let began = next();
        let watch = Stopwatch::start();
        for (number, id) in ids.iter().enumerate() {
            // An id belongs to the first part of a key.
            check(Request::new((began, number as u64 % KEYS)).id(black_box(id)).lasts(LASTS));
        }
        watch.stop().nanos() / CHECKS as f64
    };
    let passes = |limiter: &Limiter, request: Request<'_>| {
        assert!(limiter.check(request).expect("an answer").is_allowed());
    };
    let runs = vec![
        Run { name: LOG, run: Box::new(|| plain(&logged)) },
        Run { name: IN_FLIGHT, run: Box::new(|| plain(&flying)) },
        Run { name: LOG_WITH_ID, run: Box::new(|| by_id(&|request| passes(&logged_by_id, request))) },
        Run { name: RESERVED, run: Box::new(|| by_id(&|request| passes(&reserved, request.into_estimate()))) },
        Run {
            name: SETTLED,
            run: Box::new(|| {
                by_id(&|request| {
                    passes(&settled, request.clone().into_estimate());
                    let corrected = settled.settle(request, Amounts::from(1));
                    assert!(corrected.expect("it is reserved").is_allowed());
                })
            }),
        },
    ];
    let goals = vec![
        Goal::AtMostTimes { ours: IN_FLIGHT, theirs: LOG, times: 2.0 },
        Goal::AtMostTimes { ours: RESERVED, theirs: LOG_WITH_ID, times: 2.0 },
    ];
    session.add(Table::of_checks(name, race(session.pace.rounds, runs), goals));
}

fn timed(mut run: impl FnMut()) -> f64 {
    let watch = Stopwatch::start();
    for _ in 0..CHECKS {
        run();
    }
    watch.stop().nanos() / CHECKS as f64
}
