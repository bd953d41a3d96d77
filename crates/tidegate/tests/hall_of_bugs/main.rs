//! The hall of bugs: what has really gone wrong in rate limiters, and what ours
//! does instead.
//!
//! Each test is a reported defect, with the project and the
//! number of its thread; most are of good projects with careful authors. Rows
//! have numbers so that none is forgotten: those about Redis, HTTP and the
//! server are in `tests/hall_of_bugs` of those crates, and the last test here
//! sees that every number is a test somewhere or has a reason not to be one.

mod admission;
mod change;
mod keys;
mod rows;
mod telling;
mod waiting;

use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request};

/// An instant of no importance, in 2023, at the start of a minute.
const START: u64 = 1_700_000_040_000_000;
const SECOND: u64 = 1_000_000;

/// A limiter by a clock that stands until it is set.
fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

fn limit(words: &str) -> Limit {
    words.parse().unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// One of each algorithm, of five units.
fn every_algorithm() -> [Limit; 6] {
    let period = Duration::from_secs(10);
    [
        Limit::token_bucket(5, period),
        Limit::leaky_bucket(5, period).queue(5),
        Limit::fixed_window(5, period),
        Limit::fixed_window(5, period).from_first_request(),
        Limit::sliding_log(5, period),
        Limit::sliding_counter(5, period),
    ]
}

fn takes(limiter: &Limiter, cost: u64) -> bool {
    limiter.check(Request::new("alice").cost(cost)).expect("a cost within the limit").is_allowed()
}

/// How many of `tries` pass now.
fn passes(limiter: &Limiter, tries: u64) -> u64 {
    (0..tries).filter(|_| takes(limiter, 1)).count() as u64
}

fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek("alice").expect("an answer").remaining().expect("a limit")
}
