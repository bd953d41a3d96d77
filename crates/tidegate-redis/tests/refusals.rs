//! Refusals remembered, against a real server.

use std::time::Duration;

use crate::support::{self, SERVER};
use tidegate::{Condition, Limit, Limiter, ManualClock, Micros, Policy, Request, Rule};
use tidegate_redis::{Lease, RedisStore, RefusalCache};
use tidegate_testkit::block_on;

const START: u64 = 1_700_000_000_000_000;

fn limiter(prefix: &str, clock: &ManualClock, policy: impl Into<Policy>) -> Limiter<RedisStore> {
    let store = support::builder(&SERVER.url()).prefix(prefix).clock(clock.clone());
    let store = store.lease("leased", Lease { chunk: 2, ttl: Duration::from_secs(5) });
    let store = store.remember_refusals(RefusalCache::default());
    Limiter::with_store(policy, support::build(store)).expect("a valid policy")
}

fn at_start() -> (String, ManualClock) {
    let clock = ManualClock::default();
    clock.set(Micros::new(START));
    (support::new_prefix(), clock)
}

#[test]
fn a_refused_key_is_refused_here_until_it_can_pass() {
    let (prefix, clock) = at_start();
    let limiter = limiter(&prefix, &clock, Limit::per_second(2));
    while block_on(limiter.check_async("alice")).expect("an answer").is_allowed() {}
    let before = limiter.store().statistics();
    for micros in [0, 1, 250_000, 499_999] {
        clock.set(Micros::new(START + micros));
        let refusal = block_on(limiter.check_async("alice")).expect("an answer");
        assert!(!refusal.is_allowed() && refusal.remaining() == Some(0) && !refusal.is_degraded());
        assert_eq!(refusal.retry_after(), Some(Duration::from_micros(500_000 - micros)));
        assert_eq!(refusal.reset_after(), Some(Duration::from_micros(1_000_000 - micros)));
    }
    let after = limiter.store().statistics();
    assert_eq!((after.round_trips, after.repeated), (before.round_trips, before.repeated + 4));
    clock.set(Micros::new(START + 500_000));
    assert!(block_on(limiter.check_async("alice")).expect("an answer").is_allowed());
}

#[test]
fn others_costs_and_peeks_are_asked_about() {
    let (prefix, clock) = at_start();
    let limiter = limiter(&prefix, &clock, Limit::per_second(4));
    assert!(block_on(limiter.check_async(Request::new("alice").cost(3))).expect("an answer").is_allowed());
    assert!(!block_on(limiter.check_async(Request::new("alice").cost(2))).expect("an answer").is_allowed());
    assert!(block_on(limiter.check_async("alice")).expect("an answer").is_allowed(), "one more does fit");
    assert!(block_on(limiter.check_async("bob")).expect("an answer").is_allowed());
    assert!(!block_on(limiter.peek_async("alice")).expect("an answer").is_allowed());
}

#[test]
fn a_reset_a_refund_and_another_limit_are_seen_at_once() {
    let (prefix, clock) = at_start();
    let tight = limiter(&prefix, &clock, Policy::new().limit("rule", Limit::per_hour(1)));
    let refused =
        |limiter: &Limiter<RedisStore>| !block_on(limiter.check_async("alice")).expect("an answer").is_allowed();
    assert!(!refused(&tight) && refused(&tight) && refused(&tight));
    let _ = block_on(tight.reset_async("alice")).expect("an answer");
    assert!(!refused(&tight) && refused(&tight));
    let _ = block_on(tight.refund_async("alice")).expect("an answer");
    assert!(!refused(&tight) && refused(&tight));
    let looser = Policy::new().limit("rule", Limit::per_hour(2));
    let looser = Limiter::with_store(looser, tight.store().clone()).expect("a valid policy");
    assert!(!refused(&looser), "a changed limit is asked about");
}

#[test]
fn a_refund_with_an_id_is_seen_at_once() {
    let (prefix, clock) = at_start();
    let limiter = limiter(&prefix, &clock, Limit::per_hour(1));
    let refused = || !block_on(limiter.check_async("alice")).expect("an answer").is_allowed();
    assert!(!refused() && refused());
    let _ = block_on(limiter.refund_async(Request::new("alice").id("once"))).expect("an answer");
    assert!(!refused());
}

#[test]
fn a_reset_of_a_limit_beside_a_leased_one_is_seen_at_once() {
    let (prefix, clock) = at_start();
    let leased = Rule::new("leased", Limit::per_hour(10)).when("path", Condition::Equals("/".into())).key(["path"]);
    let policy = Policy::new().rule(Rule::new("user", Limit::per_hour(1)).key(["user"])).rule(leased);
    let limiter = limiter(&prefix, &clock, policy);
    let refused = || !block_on(limiter.check_async(Request::user("alice"))).expect("an answer").is_allowed();
    assert!(!refused() && refused());
    let _ = block_on(limiter.reset_async(Request::user("alice").with("path", "/"))).expect("an answer");
    assert!(!refused());
}

#[test]
fn a_reset_elsewhere_is_seen_after_a_second() {
    let (prefix, clock) = at_start();
    let (here, elsewhere) =
        (limiter(&prefix, &clock, Limit::per_hour(1)), limiter(&prefix, &clock, Limit::per_hour(1)));
    let refused = || !block_on(here.check_async("alice")).expect("an answer").is_allowed();
    assert!(!refused() && refused());
    let _ = block_on(elsewhere.reset_async("alice")).expect("an answer");
    assert!(refused());
    clock.set(Micros::new(START + 1_000_000));
    assert!(!refused());
}

#[test]
fn several_limits_are_remembered_together() {
    let (prefix, clock) = at_start();
    let policy = Policy::new().limit("a", Limit::per_second(1)).limit("b", Limit::per_hour(2));
    let limiter = limiter(&prefix, &clock, policy);
    assert!(block_on(limiter.check_async("alice")).expect("an answer").is_allowed());
    let first = block_on(limiter.check_async("alice")).expect("an answer");
    let before = limiter.store().statistics().round_trips;
    let second = block_on(limiter.check_async("alice")).expect("an answer");
    assert_eq!((second.clone(), limiter.store().statistics().round_trips), (first, before));
    assert_eq!(second.rule().as_str(), "a");
}
