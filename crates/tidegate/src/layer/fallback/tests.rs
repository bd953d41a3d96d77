use super::*;
use crate::{CheckError, Condition, Key, Limit, Limiter, ManualClock, Name, Policy, Request, Rule};

/// A store that is always away.
struct Away(ManualClock);

#[derive(Debug, thiserror::Error)]
#[error("gone")]
struct Gone;

impl Store for Away {
    async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
        Err(StoreError::Failed { source: Box::new(Gone) })
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

impl ImmediateStore for Away {}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

fn limiter(policy: impl Into<Policy>, mode: Option<FailureMode>) -> Limiter<Away> {
    let clock = ManualClock::default();
    let local = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
    let builder = Limiter::builder(policy).store(Away(clock)).local_store(local);
    match mode {
        Some(mode) => builder.on_failure(mode),
        None => builder,
    }
    .build()
    .expect("a valid policy")
}

#[test]
fn without_a_mode_the_error_is_the_answer() {
    let limiter = limiter(Limit::per_second(2), None);
    assert!(block_on(limiter.check_async("alice")).is_err_and(|error| error.is_unavailable()));
    let never = block_on(limiter.check_async(Request::new("alice").cost(3)));
    assert!(never.is_err_and(|error| !error.is_unavailable()));
    assert!(!limiter.allow("alice"), "no answer counts as refused");
    assert_eq!(limiter.allow_many(["alice", "bob"]), [false; 2]);
}

#[test]
fn a_request_without_limits_needs_no_store() {
    let rule = Rule::new("orders", Limit::per_second(2)).when("method", Condition::Equals("POST".into()));
    let limiter = limiter(rule, None);
    let ask = |method| block_on(limiter.check_async(Request::new("alice").with("method", method)));
    assert!(ask("POST").is_err() && ask("GET").is_ok_and(|decision| decision.is_allowed()));
}

#[test]
fn a_limit_has_its_mode_on_a_store_that_never_waits_as_well() {
    let meter = Meter::new(Name::literal("open"), Limit::per_second(2)).on_failure(FailureMode::Open);
    let limiter = limiter(Policy::new().meter(meter), None);
    let decision = limiter.check("alice").expect("the fallback answers");
    assert!(decision.is_allowed() && decision.is_degraded() && limiter.allow("alice"));
}

#[test]
fn open_lets_pass_and_closed_does_not_and_both_say_so() {
    for (mode, allowed) in [(FailureMode::Open, true), (FailureMode::Closed, false)] {
        let limiter = limiter(Limit::per_second(2), Some(mode));
        for _ in 0..5 {
            let decision = block_on(limiter.check_async("alice")).expect("the fallback answers");
            assert_eq!((decision.is_allowed(), decision.is_degraded()), (allowed, true));
            assert_eq!(decision.wait() == Micros::ZERO, allowed);
        }
        assert!(block_on(limiter.refund_async("alice")).is_err(), "a refund has no fallback");
        assert!(block_on(limiter.reset_async("alice")).is_err(), "a reset has no fallback");
    }
}

#[test]
fn local_keeps_the_share_of_one_process() {
    let limiter = limiter(Limit::per_second(8), Some(FailureMode::local(4)));
    let admitted = (0..10).filter(|_| block_on(limiter.check_async("alice")).is_ok_and(|d| d.is_allowed()));
    assert_eq!(admitted.count(), 2);
    let beyond = block_on(limiter.check_async(Request::new("bob").cost(3))).expect("the fallback answers");
    assert!(!beyond.is_allowed() && beyond.is_degraded(), "more than the share holds");
    assert!(block_on(limiter.check_async(Key::from("bob"))).is_ok_and(|d| d.is_allowed()), "and bob was not charged");
}

#[test]
fn a_refund_beside_a_charge_is_left_out() {
    let clock = ManualClock::default();
    let local = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
    let store = Fallback::new(Away(clock)).on_failure(FailureMode::local(4)).local_store(local);
    let meter = Meter::new(Name::literal("api"), Limit::per_second(8));
    let (alice, bob) = (Key::from("alice"), Key::from("bob"));
    let ask = |asked: &[(&Key<'_>, Verb, u64)]| {
        let check = |&(key, verb, cost)| Check::new(&meter, key, verb, cost).expect("it fits");
        let checks: Vec<Check<'_>> = asked.iter().map(check).collect();
        let mut verdicts = vec![Verdict::default(); checks.len()];
        block_on(store.decide(&checks, &mut verdicts)).expect("the fallback answers");
        verdicts.iter().map(|verdict| (verdict.allowed, verdict.remaining)).collect::<Vec<_>>()
    };
    assert_eq!(ask(&[(&bob, Verb::Charge, 2)]), [(true, 0)], "all of the share");
    assert_eq!(ask(&[(&alice, Verb::Charge, 1), (&bob, Verb::Refund, 1)]), [(true, 1), (true, 0)]);
    assert_eq!(ask(&[(&bob, Verb::Peek, 1)]), [(false, 0)], "nothing was given back");
}

#[test]
fn a_request_with_an_id_is_charged_once_where_a_process_decides_by_itself() {
    let limiter = limiter(Limit::per_hour(8), Some(FailureMode::local(2)));
    let ask = |id| block_on(limiter.check_async(Request::new("alice").id(id))).expect("the fallback answers");
    assert_eq!((ask("a").remaining(), ask("a").remaining(), ask("b").remaining()), (Some(3), Some(3), Some(2)));
    assert!(ask("a").is_repeated() && ask("a").is_degraded());
}

#[test]
fn use_of_a_local_share_survives_a_limit_change() {
    let limiter = limiter(Limit::per_hour(8), Some(FailureMode::local(2)));
    let ask = |cost| block_on(limiter.check_async(Request::new("alice").cost(cost)));
    assert_eq!(ask(3).expect("the fallback answers").remaining(), Some(1));
    limiter.set_policy(Limit::per_hour(20)).expect("a valid policy");
    assert_eq!(ask(1).expect("the fallback answers").remaining(), Some(6));
}

#[test]
fn each_rule_has_its_own_failure_mode_and_closed_charges_nothing() {
    let policy = Policy::new()
        .meter(Meter::new(Name::literal("local"), Limit::per_second(2)).on_failure(FailureMode::local(1)))
        .meter(Meter::new(Name::literal("closed"), Limit::per_second(2)).on_failure(FailureMode::Closed));
    let limiter = limiter(policy, Some(FailureMode::Open));
    for _ in 0..5 {
        let decision = block_on(limiter.check_async("alice")).expect("the fallback answers");
        assert_eq!((decision.is_allowed(), decision.rule().as_str()), (false, "closed"));
        assert_eq!((decision.remaining(), decision.wait()), (Some(0), FailureMode::RETRY_AFTER));
    }
    let local = block_on(limiter.peek_async(Request::new("alice").rule("local"))).expect("the fallback answers");
    assert_eq!((local.remaining(), local.is_degraded()), (Some(2), true));
}

#[test]
fn a_cost_above_the_local_share_charges_no_other_limit() {
    let policy = Policy::new().limit("small", Limit::per_second(4)).limit("large", Limit::per_second(40));
    let limiter = limiter(policy, Some(FailureMode::local(2)));
    let decision = block_on(limiter.check_async(Request::new("alice").cost(3))).expect("the fallback answers");
    assert_eq!((decision.is_allowed(), decision.rule().as_str()), (false, "small"));
    assert_eq!(decision.wait(), FailureMode::RETRY_AFTER);
    let large = block_on(limiter.peek_async(Request::new("alice").rule("large"))).expect("the fallback answers");
    assert_eq!(large.remaining(), Some(20));
}

#[test]
fn a_limit_without_a_mode_leaves_all_without_an_answer() {
    let policy = Policy::new()
        .meter(Meter::new(Name::literal("open"), Limit::per_second(2)).on_failure(FailureMode::Open))
        .limit("none", Limit::per_second(2));
    let limiter = limiter(policy, None);
    assert!(block_on(limiter.check_async("alice")).is_err());
    let open = block_on(limiter.check_async(Request::new("alice").rule("open"))).expect("the fallback answers");
    assert_eq!((open.is_allowed(), open.remaining()), (true, Some(2)));
}

#[test]
fn a_rule_has_a_mode_of_its_own() {
    let rule = Rule::new("api", Limit::per_second(2)).tier("plan", "pro", Limit::per_second(3));
    let limiter = limiter(rule.on_failure(FailureMode::Closed), Some(FailureMode::Open));
    for request in [Request::new("alice"), Request::new("alice").with("plan", "pro")] {
        assert!(!block_on(limiter.check_async(request)).expect("the fallback answers").is_allowed());
    }
}

#[test]
fn limiters_can_share_one_fallback_store() {
    let clock = ManualClock::default();
    let local = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
    let local = Arc::new(local);
    let admitted = [(); 2].map(|()| {
        let builder = Limiter::builder(Limit::per_second(2)).store(Away(clock.clone()));
        let limiter = builder.on_failure(FailureMode::local(1)).local_store(Arc::clone(&local)).build();
        let limiter = limiter.expect("a valid policy");
        (0..5).filter(|_| block_on(limiter.check_async("alice")).is_ok_and(|d| d.is_allowed())).count()
    });
    assert_eq!(admitted, [2, 0]);
}

#[test]
fn no_fallback_for_errors_of_the_caller() {
    let store = MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build().expect("valid settings");
    let builder = Limiter::builder(Limit::per_second(5)).store(store);
    let limiter = builder.on_failure(FailureMode::Open).build().expect("a valid policy");
    assert!(limiter.allow(Request::new("alice").id("a")));
    let reused = limiter.check(Request::new("alice").cost(2).id("a"));
    assert!(matches!(reused, Err(CheckError::IdReused { .. })), "{reused:?}");
}

#[test]
fn no_mode_answers_for_the_correction_of_a_charge() {
    let tokens = Rule::new("tokens", Limit::per_hour(100)).unit("tokens");
    let limiter = limiter(Policy::new().limit("requests", Limit::per_hour(5)).rule(tokens), Some(FailureMode::Open));
    let request = || Request::new("alice").amount("tokens", 9).id("r-1");
    assert!(limiter.check(request()).is_ok_and(|decision| decision.is_degraded()));
    // Of the requests only how things stand is asked, which a mode could say.
    let spent = || crate::Amounts::new().amount("tokens", 4);
    let corrections = [limiter.settle(request(), spent()), limiter.release(request()), limiter.renew(request())];
    for correction in corrections {
        assert!(matches!(correction, Err(CheckError::Store(_))), "{correction:?}");
    }
}
