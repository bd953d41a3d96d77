//! A policy of many rules of which few match, beside direct checks.

use std::hint::black_box;
use std::time::Instant;

use tidegate::{Condition, Limit, Limiter, Policy, Request, Rule};

use crate::measure::{Run, Series, Stopwatch, race};
use crate::report::{Goal, Table};
use crate::session::Session;

const RULES: usize = 1_000;
const CHECKS: usize = 20_000;

/// So large that nothing is refused.
const LIMIT: Limit = Limit::per_second(1_000_000).burst(1_000_000_000);

const POLICY: &str = "1,000 rules, three match";
const DIRECT: &str = "three direct checks";
const LIMITS: &str = "three limits, one check";

pub(crate) fn policy(session: &mut Session) {
    let name = "policy of 1,000 rules, 1 thread";
    if session.wants(name) {
        let limiter = Limiter::new(policy_of(RULES));
        let three = Limiter::new(Policy::new().limit("a", LIMIT).limit("b", LIMIT).limit("c", LIMIT));
        let direct = [Limiter::new(LIMIT), Limiter::new(LIMIT), Limiter::new(LIMIT)];
        let request = || Request::user("alice").with("path", "/api/7/orders").with("tenant", "tenant13");
        assert_eq!(limiter.explain(request()).map(|said| said.to_string().matches("left\n").count()).ok(), Some(2));
        let runs = vec![
            Run { name: POLICY, run: Box::new(|| timed(|| assert!(limiter.allow(black_box(request()))))) },
            Run {
                name: DIRECT,
                run: Box::new(|| timed(|| assert!(direct.iter().all(|limiter| limiter.allow(black_box("alice")))))),
            },
            Run { name: LIMITS, run: Box::new(|| timed(|| assert!(three.allow(black_box("alice"))))) },
        ];
        let goals = vec![Goal::AtMostTimes { ours: POLICY, theirs: DIRECT, times: 3.0 }];
        session.add(Table::of_checks(name, race(session.pace.rounds, runs), goals));
    }
    let name = "policy of 10,000 rules, made ready";
    if session.wants(name) {
        let rounds = (0..session.pace.fills)
            .map(|_| {
                let began = Instant::now();
                black_box(Limiter::new(policy_of(10_000)));
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        let series = vec![Series { name: "tidegate", rounds }];
        let goals = vec![Goal::AtMost { ours: "tidegate", bound: 1_000.0 }];
        session.add(Table { name: name.into(), unit: "ms", series, goals });
    }
}

/// Rules by tenant, by path and for all; of the thousand, three match.
fn policy_of(rules: usize) -> Policy {
    let mut policy = Policy::new().rule(Rule::new("users", LIMIT).key(["user"]));
    for number in 1..rules {
        let name = format!("rule{number}");
        let rule = Rule::new(name, LIMIT).key(["user"]);
        policy = policy.rule(match number % 2 {
            0 => rule.when("path", Condition::StartsWith(format!("/api/{}/", number / 2 + 6))),
            _ => rule.when("tenant", Condition::Equals(format!("tenant{number}"))),
        });
    }
    policy
}

fn timed(mut run: impl FnMut()) -> f64 {
    let watch = Stopwatch::start();
    for _ in 0..CHECKS {
        run();
    }
    watch.stop().nanos() / CHECKS as f64
}
