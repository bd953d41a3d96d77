//! Observers are told everything, and can break nothing.

use std::sync::{Arc, Mutex};

use tidegate::kernel::Verb;
use tidegate::{
    Amounts, Condition, CountingObserver, Event, Limit, Limiter, ManualClock, MemoryStore, Micros, Observer, Policy,
    Request, Rule, Setting,
};

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn observe(&self, event: &Event<'_>) {
        let Event { key, verb, cost, decision, at, .. } = event;
        let answer = if decision.is_allowed() { "allowed" } else { "refused" };
        let note = format!("{at} {verb:?} {key} cost {cost}: {answer} by {}", decision.rule());
        self.0.lock().expect("not poisoned").push(note);
    }
}

struct Panicking;

impl Observer for Panicking {
    fn observe(&self, _: &Event<'_>) {
        panic!("an observer that panics");
    }
}

fn limiter(policy: impl Into<Policy>) -> (Limiter, Arc<Notes>, Arc<CountingObserver>) {
    let (notes, counts) = (Arc::new(Notes::default()), Arc::new(CountingObserver::default()));
    let store = MemoryStore::builder().max_keys(100).clock(ManualClock::at(Micros::new(7)));
    let limiter = Limiter::builder(policy)
        .store(store.build().expect("valid settings"))
        .observer(notes.clone())
        .observer(Panicking)
        .observer(counts.clone())
        .build()
        .expect("a valid policy");
    (limiter, notes, counts)
}

#[test]
fn every_observer_is_told_of_every_decision_even_after_one_that_panics() {
    let policy = Policy::new().limit("tight", Limit::per_second(1)).limit("loose", Limit::per_minute(100));
    let (limiter, notes, counts) = limiter(policy);
    assert!(limiter.allow(("alice", "GET /")));
    assert!(!limiter.allow(("alice", "GET /")));
    assert!(limiter.peek("bob").is_ok_and(|decision| decision.is_allowed()));
    assert!(limiter.refund(Request::new("bob").cost(1)).is_ok());
    assert!(limiter.reset("bob").is_ok());
    let expected = [
        "7us Charge alice / GET / cost 1: allowed by tight",
        "7us Charge alice / GET / cost 1: refused by tight",
        "7us Peek bob cost 1: allowed by tight",
        "7us Refund bob cost 1: allowed by tight",
        "7us Reset bob cost 1: allowed by tight",
    ];
    assert_eq!(*notes.0.lock().expect("not poisoned"), expected);
    assert_eq!((counts.allowed(), counts.refused(), counts.degraded()), (1, 1, 0));
}

#[test]
fn a_request_that_gets_an_error_is_not_told() {
    let policy =
        Policy::new().rule(Rule::new("users", Limit::per_hour(2)).key(["user"])).limit("all", Limit::per_hour(9));
    let (limiter, notes, _) = limiter(policy);
    assert!(limiter.check("alice").is_err(), "it lacks the user");
    assert!(limiter.check(Request::user("alice").cost(3)).is_err(), "it can never pass");
    assert!(limiter.check(Request::user("alice").rule("none")).is_err());
    assert!(limiter.check_all(&[Request::user("alice"), Request::user("bob").cost(3)]).is_err());
    assert!(notes.0.lock().expect("not poisoned").iter().all(|note| note.contains("Peek alice")), "{notes:?}");
}

#[test]
fn shadow_rules_charge_the_same_cost_as_rules_that_decide() {
    let rule = || Rule::new("decides", Limit::per_hour(100)).cost_multiplier(10);
    let watches = Rule::new("watches", Limit::per_hour(100)).cost_multiplier(10).shadow();
    let (limiter, notes, _) = limiter(Policy::new().rule(rule().candidate(Limit::per_hour(50))).rule(watches));
    assert!(limiter.allow(Request::new("alice").cost(2)));
    let expected =
        ["decides", "decides (candidate)", "watches"].map(|rule| format!("7us Charge alice cost 2: allowed by {rule}"));
    assert_eq!(*notes.0.lock().expect("not poisoned"), expected);
}

#[test]
fn batches_and_waits_are_observed_too() {
    let (limiter, notes, counts) = limiter(Limit::per_second(2));
    let decisions = limiter.check_many(["alice", "alice", "alice"]).expect("an answer");
    assert_eq!(decisions.len(), 3);
    assert!(limiter.acquire("bob", std::time::Duration::ZERO).is_ok());
    assert_eq!((counts.allowed(), counts.refused()), (3, 1));
    let notes = notes.0.lock().expect("not poisoned");
    assert_eq!(notes.len(), 4);
    assert!(notes[3].contains(&format!("{:?} bob", Verb::Charge)));
}

#[test]
fn a_blocked_request_is_reported_with_the_key_of_the_blocking_rule() {
    let users =
        Rule::new("users", Limit::per_hour(5)).key(["user"]).override_exactly("user", "mallory", Setting::Blocked);
    let policy = Policy::new()
        .rule(Rule::new("addresses", Limit::per_hour(5)).key(["ip"]))
        .rule(users)
        .deny("ip", Condition::Equals("192.0.2.9".into()));
    let (limiter, notes, _) = limiter(policy);
    let from = |ip: &'static str| Request::new(()).with("user", "mallory").with("ip", ip);
    assert!(!limiter.allow(from("192.0.2.1")));
    // Where a list decides, no rule has a key.
    assert!(!limiter.allow(from("192.0.2.9")));
    let expected = ["7us Charge mallory cost 1: refused by users", "7us Charge  cost 1: refused by denied"];
    assert_eq!(*notes.0.lock().expect("not poisoned"), expected);
}

#[test]
fn one_limit_alone_is_observed_too() {
    let (limiter, notes, counts) = limiter(Limit::per_second(1));
    assert!(limiter.check("alice").is_ok_and(|decision| decision.is_allowed()) && !limiter.allow("alice"));
    assert!(limiter.peek("bob").is_ok());
    let expected = [
        "7us Charge alice cost 1: allowed by 1/s",
        "7us Charge alice cost 1: refused by 1/s",
        "7us Peek bob cost 1: allowed by 1/s",
    ];
    assert_eq!(*notes.0.lock().expect("not poisoned"), expected);
    assert_eq!((counts.allowed(), counts.refused()), (1, 1));
}

#[test]
fn a_settlement_of_named_amounts_costs_nothing_else() {
    let policy = Policy::new()
        .limit("requests", Limit::per_minute(10))
        .rule(Rule::new("tokens", Limit::per_minute(100)).unit("tokens"));
    let (limiter, notes, _) = limiter(policy);
    for actual in [Amounts::new().amount("tokens", 5), Amounts::from(2)] {
        let reserved = limiter
            .reserve(Request::new("alice").cost(3).amount("tokens", 9))
            .expect("an answer")
            .made()
            .expect("a reservation");
        let _ = reserved.settle(actual).expect("settled");
    }
    let notes = notes.0.lock().expect("no panic while it is locked");
    let costs = notes.iter().map(|note| note.split(" cost ").nth(1).and_then(|rest| rest.split(':').next()));
    assert_eq!(costs.collect::<Vec<_>>(), [Some("3"), Some("0"), Some("3"), Some("2")]);
}
