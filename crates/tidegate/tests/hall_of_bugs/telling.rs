//! What the caller is told: rows 25 to 27, 29 and 30. How HTTP says it is in
//! `crates/tidegate-tower/tests/hall_of_bugs.rs`.

use std::time::Duration;

use tidegate::{Limit, Micros, Policy, Request};

use crate::waiting::Waiting;
use crate::{SECOND, START, every_algorithm, limit, limiter, passes, remaining, takes};

/// antifuchs/ratelimit_meter#36, bucket4j/bucket4j#88: the wait was for the
/// whole burst, or did not know of the part that was earned already.
#[test]
fn row_25_the_wait_is_for_what_is_missing() {
    let (limiter, clock) = limiter(limit("1/s burst 5"));
    assert_eq!(passes(&limiter, 9), 5);
    clock.advance(Duration::from_millis(1_400));
    let wait = |cost| limiter.check(Request::new("alice").cost(cost)).expect("an answer").retry_after();
    assert_eq!(wait(3), Some(Duration::from_millis(1_600)));
    assert_eq!(wait(5), Some(Duration::from_millis(3_600)));
    assert!(takes(&limiter, 1));
    assert_eq!(wait(1), Some(Duration::from_millis(600)));
}

/// Metron-Project/metron#629: once a limit was lowered below what was used
/// there was no time to wait, or one that was too short.
#[test]
fn row_26_the_wait_is_right_after_a_limit_was_lowered() {
    for (from, to) in [("5/10s", "2/10s"), ("fixed 5/10s", "fixed 2/10s"), ("sliding-log 5/10s", "sliding-log 1/10s")] {
        let (limiter, clock) = limiter(Policy::new().limit("rule", limit(from)));
        assert_eq!(passes(&limiter, 9), 5);
        limiter.set_policy(Policy::new().limit("rule", limit(to))).expect("a valid policy");
        assert!(!takes(&limiter, 1), "{to}");
        let told = limiter.peek("alice").expect("an answer").retry_after().expect("a wait");
        clock.advance(told - Duration::from_micros(1));
        assert!(!takes(&limiter, 1), "{to}: a microsecond sooner");
        clock.advance(Duration::from_micros(1));
        assert!(takes(&limiter, 1), "{to}: after {told:?}");
    }
}

/// boinkor-net/governor#102 and #157, upstash/ratelimit-js#61: what remained
/// never came back, fell by two, or forgot the window before.
#[test]
fn row_27_remaining_is_how_many_pass() {
    for limit in every_algorithm() {
        let (limiter, clock) = limiter(limit);
        for left in (0..5).rev() {
            let decision = limiter.check("alice").expect("an answer");
            assert_eq!((decision.is_allowed(), decision.remaining()), (true, Some(left)), "{limit}");
        }
        for step in 1..=50 {
            clock.set(Micros::new(START + step * 499_979));
            let told = remaining(&limiter);
            // Seen, not believed.
            let passed = passes(&limiter, 9);
            assert_eq!(told, passed, "{limit}: at step {step}");
            let _ = limiter.refund(Request::new("alice").cost(passed.max(1)));
        }
    }
}

/// NousResearch/hermes-agent#109234 (19 of 20 retries at the same instant),
/// sidekiq/sidekiq#5315: all refused clients retried together. Waiters
/// here are woken one by one, each when it can pass.
#[test]
fn row_29_waiters_do_not_all_retry_at_once() {
    let (limiter, clock) = limiter(limit("10/s burst 1"));
    assert!(takes(&limiter, 1));
    let mut crowd: Vec<Waiting> = (0..50).map(|_| Waiting::new(&limiter, 1)).collect();
    for waiter in &mut crowd {
        assert!(waiter.poll().is_none());
    }
    for number in 0..50 {
        clock.advance(Duration::from_millis(100));
        let woken: Vec<usize> = (0..50).filter(|index| crowd[*index].was_woken()).collect();
        assert_eq!(woken, [number], "at {number}");
        assert!(crowd[number].poll().is_some_and(|outcome| outcome.is_ok()));
        if let Some(next) = crowd.get_mut(number + 1) {
            assert!(next.was_woken(), "it is first in line");
            assert!(next.poll().is_none(), "and has to wait");
        }
    }
}

/// superagent-ai/polyresearch#111: a wait that was made a little shorter at
/// random woke clients before the limit lifted.
#[test]
fn row_30_no_waiter_is_admitted_before_retry_after() {
    for limit in [Limit::per_second(3), limit("sliding-log 3/7s"), limit("sliding 3/7s"), limit("fixed 3/7s")] {
        let (limiter, clock) = limiter(limit);
        assert_eq!(passes(&limiter, 9), 3);
        let told = limiter.peek("alice").expect("an answer").retry_after().expect("a wait");
        let mut waiter = Waiting::new(&limiter, 1);
        assert!(waiter.poll().is_none());
        clock.set(Micros::new(START + told.as_micros() as u64 - 1));
        assert!(waiter.poll().is_none(), "{limit}: a microsecond before");
        clock.set(Micros::new(START + told.as_micros() as u64));
        assert!(waiter.poll().is_some_and(|outcome| outcome.is_ok()), "{limit}");
        assert!(told < Duration::from_micros(8 * SECOND));
    }
}
