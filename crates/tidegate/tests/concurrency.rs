//! Threads that race for one limit get exactly what it allows: under a clock
//! that stands still, not one more and not one less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request};

const THREADS: usize = if cfg!(miri) { 2 } else { 8 };
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 20_000 };

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    // Miri's time for each access grows with the size of the table.
    let keys = if cfg!(miri) { 8 } else { 10_000 };
    let store = MemoryStore::builder().max_keys(keys).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::builder(policy).store(store).max_log_entries(1_000_000).build();
    (limiter.expect("a valid policy"), clock)
}

/// Runs `work(thread, round)` in all threads and adds up what it returns.
fn race(work: impl Fn(usize, u64) -> u64 + Sync) -> u64 {
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (work, total) = (&work, &total);
            scope.spawn(move || {
                let sum: u64 = (0..ROUNDS).map(|round| work(thread, round)).sum();
                total.fetch_add(sum, Ordering::Relaxed);
            });
        }
    });
    total.into_inner()
}

fn every_kind(capacity: u64) -> [Limit; 8] {
    let minute = Duration::from_secs(60);
    [
        Limit::token_bucket(7, minute).burst(capacity),
        // A reduced count above 2048: the wide layout.
        Limit::token_bucket(999_983, minute).burst(capacity),
        Limit::leaky_bucket(7, minute).queue(capacity),
        Limit::fixed_window(capacity, minute),
        Limit::fixed_window(capacity, minute).from_first_request(),
        Limit::sliding_log(capacity, minute),
        Limit::sliding_counter(capacity, minute),
        Limit::sliding_counter(capacity, Duration::from_secs(864_000)),
    ]
}

#[test]
fn one_key_admits_exactly_its_capacity() {
    let capacity = THREADS as u64 * ROUNDS / 3;
    for limit in every_kind(capacity) {
        let (limiter, _clock) = limiter(limit);
        let admitted = race(|_, _| u64::from(limiter.allow("everyone")));
        assert_eq!(admitted, capacity, "{limit}");
    }
}

#[test]
fn costs_add_up_to_no_more_than_the_capacity() {
    let capacity = THREADS as u64 * ROUNDS;
    for limit in every_kind(capacity) {
        let (limiter, _clock) = limiter(limit);
        let admitted = race(|thread, round| {
            let cost = 1 + (thread as u64 + round) % 3;
            if limiter.allow(Request::new("everyone").cost(cost)) { cost } else { 0 }
        });
        // Costs of one went on to the end, so nothing is left over.
        assert_eq!(admitted, capacity, "{limit}");
    }
}

#[test]
fn each_of_many_keys_admits_exactly_its_capacity() {
    let keys = if cfg!(miri) { 2 } else { 1_000 };
    let names: Vec<String> = (0..keys).map(|number| format!("caller {number}")).collect();
    let capacity = 5;
    for limit in every_kind(capacity) {
        let (limiter, _clock) = limiter(limit);
        let admitted = race(|thread, round| {
            let key = &names[(round as usize * 7 + thread * 13) % keys];
            u64::from(limiter.allow(key))
        });
        assert_eq!(admitted, keys as u64 * capacity, "{limit}");
    }
}

#[test]
fn several_limits_admit_what_the_tightest_does_and_charge_no_more() {
    let tight = THREADS as u64 * ROUNDS / 5;
    let policy = Policy::new()
        .limit("tight", Limit::per_hour(tight))
        .limit("loose", Limit::sliding_counter(tight * 2, Duration::from_secs(3_600)))
        .limit("log", Limit::sliding_log(tight * 3, Duration::from_secs(3_600)));
    let (limiter, _clock) = limiter(policy);
    let admitted = race(|_, _| u64::from(limiter.allow("everyone")));
    assert_eq!(admitted, tight);
    let peek = limiter.peek("everyone").expect("the memory store answers");
    assert_eq!((peek.rule().as_str(), peek.remaining()), ("tight", Some(0)));
}

#[test]
fn refunded_units_can_be_charged_again_once() {
    let capacity = 50;
    let (limiter, _clock) = limiter(Limit::per_hour(capacity));
    let kept = race(|thread, round| {
        if !limiter.allow("everyone") {
            return 0;
        }
        // Every other admission is given back.
        if (thread as u64 + round) % 2 == 0 {
            assert!(limiter.refund("everyone").is_ok());
            return 0;
        }
        1
    });
    let left = limiter.peek("everyone").expect("the memory store answers").remaining();
    assert_eq!(kept + left.expect("a limit"), capacity);
}

#[test]
fn batches_and_single_checks_share_one_count() {
    let capacity = THREADS as u64 * ROUNDS;
    let (limiter, _clock) = limiter(Limit::per_hour(capacity));
    let admitted = race(|thread, _| {
        if thread % 2 == 0 {
            return u64::from(limiter.allow("everyone"));
        }
        let decisions = limiter.check_many(["everyone"; 3]).expect("the memory store answers");
        decisions.iter().filter(|decision| decision.is_allowed()).count() as u64
    });
    assert_eq!(admitted, capacity);
}
