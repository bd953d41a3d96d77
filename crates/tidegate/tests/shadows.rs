//! Rules that only watch: shadows, and candidates beside the limits in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::explain::RuleFinding;
use tidegate::{
    Amounts, Condition, Event, Limit, Limiter, ManualClock, MemoryStore, Observer, Policy, Request, Rule, Setting,
};

/// Counts what shadows would have refused.
#[derive(Default)]
struct Shadows {
    refused: AtomicU64,
    allowed: AtomicU64,
}

impl Observer for Shadows {
    fn observe(&self, event: &Event<'_>) {
        if event.shadow {
            let count = if event.decision.is_allowed() { &self.allowed } else { &self.refused };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A limiter, and what its shadows have said.
fn watched(rules: Policy) -> (Limiter, Arc<Shadows>) {
    let seen = Arc::new(Shadows::default());
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    let limiter = Limiter::builder(rules).store(store).observer(seen.clone()).build().expect("a valid policy");
    (limiter, seen)
}

#[test]
fn a_shadow_and_a_candidate_watch_and_never_refuse() {
    let rules = Policy::new()
        .rule(Rule::new("live", Limit::per_hour(6)).candidate(Limit::per_hour(4)))
        .rule(Rule::new("watch", Limit::per_hour(2)).shadow());
    let (limiter, seen) = watched(rules);
    let admitted = (0..10).filter(|_| limiter.allow("alice")).count();
    assert_eq!(admitted, 6, "only the live limit decides");
    assert_eq!(seen.allowed.load(Ordering::Relaxed), 4 + 2);
    assert_eq!(seen.refused.load(Ordering::Relaxed), 6 + 8, "the refused requests are only looked at");
}

#[test]
fn the_rule_for_all_others_can_have_a_candidate() {
    let rest = Rule::new("rest", Limit::per_hour(6)).candidate(Limit::per_hour(4));
    let rules = Policy::new()
        .rule(Rule::new("api", Limit::per_hour(1)).when("path", Condition::Equals("/api".into())))
        .otherwise(rest);
    let (limiter, seen) = watched(rules);
    assert!(limiter.allow(Request::new("alice").with("path", "/api")));
    assert_eq!(seen.allowed.load(Ordering::Relaxed), 0, "it is no rule for others");
    assert_eq!((0..10).filter(|_| limiter.allow("alice")).count(), 6);
    assert_eq!((seen.allowed.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed)), (4, 6));
    let explanation = limiter.explain("bob").expect("an answer");
    let answers = explanation.rules.iter().filter(|rule| matches!(rule.finding, RuleFinding::Answers { .. }));
    assert!(answers.map(|rule| (rule.rule.as_str(), rule.shadow)).eq([("rest", false), ("rest (candidate)", true)]));
}

#[test]
fn a_candidate_counts_requests_that_name_its_rule() {
    let rules = Policy::new()
        .rule(Rule::new("live", Limit::per_hour(6)).candidate(Limit::per_hour(4)))
        .rule(Rule::new("watch", Limit::per_hour(2)).shadow());
    let (limiter, seen) = watched(rules);
    assert_eq!((0..5).filter(|_| limiter.allow(Request::new("alice").rule("live"))).count(), 5);
    assert_eq!((seen.allowed.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed)), (4, 1));
    let explanation = limiter.explain(Request::new("bob").rule("live")).expect("an answer");
    let answers = explanation.rules.iter().filter(|rule| matches!(rule.finding, RuleFinding::Answers { .. }));
    assert!(answers.map(|rule| rule.rule.as_str()).eq(["live", "live (candidate)"]), "{explanation}");
    assert_eq!(limiter.explain(Request::new("bob").rule("watch")).expect("an answer").rules.len(), 3);
}

#[test]
fn a_larger_shadow_rule_charges_admitted_requests_only() {
    let rules = Policy::new()
        .limit("live", Limit::per_hour(2))
        .rule(Rule::new("watch", Limit::per_hour(5)).shadow())
        .rule(Rule::with_setting("closed", Setting::Blocked).shadow());
    let (limiter, seen) = watched(rules);
    for asked in 1..=10 {
        let decision = match asked % 2 {
            0 => limiter.check("alice"),
            _ => tidegate_testkit::block_on(limiter.check_async("alice")),
        };
        assert_eq!(decision.expect("an answer").is_allowed(), asked <= 2);
        assert_eq!((seen.allowed.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed)), (asked, 0));
    }
    // Refunds and resets apply to shadow rules, too.
    let left = || limiter.explain("alice").expect("an answer").to_string();
    assert!(left().contains("watch (shadow): 5/h for \"alice\" allows a cost of 1, 3 left"), "{}", left());
    assert!(limiter.refund("alice").is_ok());
    assert!(left().contains("allows a cost of 1, 4 left"), "{}", left());
    assert!(tidegate_testkit::block_on(limiter.reset_async("alice")).is_ok());
    assert!(left().contains("allows a cost of 1, 5 left"), "{}", left());
}

#[test]
fn shadow_rules_settle_and_release_reservations() {
    let rules = Policy::new()
        .rule(Rule::new("live", Limit::per_hour(100)).unit("tokens"))
        .rule(Rule::new("tokens", Limit::per_hour(10)).unit("tokens").shadow())
        .rule(Rule::new("permits", Limit::in_flight(1, Duration::from_secs(60))).shadow());
    let (limiter, seen) = watched(rules);
    let said = || (seen.allowed.load(Ordering::Relaxed), seen.refused.load(Ordering::Relaxed));
    let left = |rule: &str| limiter.peek(Request::new("alice").rule(rule).cost(0)).expect("an answer").remaining();
    let reserve =
        |tokens: u64| limiter.reserve(Request::new("alice").amount("tokens", tokens)).expect("an answer").made();
    let first = reserve(8).expect("the live limit has 100");
    assert_eq!(said(), (2, 0));
    // The shadows would have refused this one, and are not charged.
    let second = reserve(8).expect("the live limit has 92");
    assert_eq!(said(), (2, 2));
    let _ = second.settle(Amounts::new().amount("tokens", 3)).expect("settled");
    let _ = first.settle(Amounts::new().amount("tokens", 5)).expect("settled");
    assert_eq!(said(), (2, 2), "a settlement is no decision");
    assert_eq!(left("live"), Some(92));
    assert!(reserve(5).is_some(), "and is dropped");
    assert_eq!(said(), (4, 2), "5 of 10 were left, and the permit was there");
    assert!(reserve(0).is_some());
    assert_eq!(said(), (6, 2), "it was there again");
}
