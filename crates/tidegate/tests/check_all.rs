//! Several requests, all or nothing.

use tidegate::kernel::Verb;
use tidegate::{
    CheckError, CountingObserver, Decision, Limit, Limiter, ManualClock, MemoryStore, Policy, Request, Rule, Setting,
};
use tidegate_testkit::{MeddlingClock, block_on};

fn limiter(policy: impl Into<Policy>) -> Limiter {
    let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn left(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).expect("an answer").remaining().expect("a limit")
}

fn allowed(decisions: &[Decision]) -> Vec<bool> {
    decisions.iter().map(Decision::is_allowed).collect()
}

#[test]
fn all_are_charged_or_none_is() {
    let limiter = limiter(Limit::per_hour(10));
    let both = [Request::new("alice").cost(4), Request::new("bob").cost(6)];
    let decisions = limiter.check_all(&both).expect("answers");
    assert_eq!((allowed(&decisions), decisions[1].remaining()), (vec![true, true], Some(4)));
    let decisions = limiter.check_all(&both).expect("answers");
    assert_eq!(allowed(&decisions), [true, false], "bob has no room for six more");
    assert_eq!(decisions[0].remaining(), Some(6), "and alice is not charged");
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [6, 4]);
    assert!(limiter.check_all(&[]).expect("answers").is_empty());
}

#[test]
fn requests_of_one_key_are_charged_together() {
    let limiter = limiter(Limit::per_hour(10));
    let twice = |cost| [Request::new("alice").cost(cost), Request::new("bob"), Request::new("alice").cost(cost)];
    assert_eq!(allowed(&limiter.check_all(&twice(4)).expect("answers")), [true; 3]);
    assert_eq!(left(&limiter, "alice"), 2);
    assert_eq!(allowed(&limiter.check_all(&twice(2)).expect("answers")), [false, true, false], "four do not fit");
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [2, 9]);
    let never = limiter.check_all(&twice(6));
    assert!(matches!(never, Err(CheckError::Unsatisfiable { cost: 12, capacity: 10, .. })), "{never:?}");
}

#[test]
fn a_request_that_is_blocked_or_wrong_keeps_the_others_from_being_charged() {
    let rule = Rule::new("api", Limit::per_hour(10)).key(["user"]).override_for("user", "mallory", Setting::Blocked);
    let limiter = limiter(rule);
    let user = |name| Request::user(name).cost(3);
    let decisions = limiter.check_all(&[user("alice"), user("mallory")]).expect("answers");
    assert_eq!((allowed(&decisions), decisions[1].is_blocked()), (vec![true, false], true));
    for (wrong, reason) in
        [(Request::new("carol"), "missing-attribute"), (Request::user("carol").cost(11), "unsatisfiable")]
    {
        let error = limiter.check_all(&[user("alice"), wrong.clone()]).expect_err(reason);
        assert_eq!(error.reason(), reason);
        let each = block_on(limiter.decide_all_async(&[(Verb::Charge, user("alice")), (Verb::Charge, wrong)]));
        let each = each.expect("the store answers");
        assert!(
            each[0].as_ref().is_ok_and(|decision| decision.remaining() == Some(10)) && each[1].is_err(),
            "{reason}"
        );
    }
    assert_eq!(limiter.peek(Request::user("alice")).expect("an answer").remaining(), Some(10));
}

#[test]
fn a_peek_that_is_refused_refuses_all() {
    let limiter = limiter(Limit::per_hour(10));
    let ask = |asked: [(Verb, &'static str, u64); 3]| {
        let asked = asked.map(|(verb, key, cost)| (verb, Request::new(key).cost(cost)));
        let decisions = block_on(limiter.decide_all_async(&asked)).expect("the store answers");
        decisions.into_iter().map(|decision| decision.expect("a decision").is_allowed()).collect::<Vec<_>>()
    };
    assert_eq!(ask([(Verb::Charge, "alice", 8), (Verb::Peek, "bob", 1), (Verb::Refund, "carol", 2)]), [true; 3]);
    assert_eq!(left(&limiter, "alice"), 2);
    assert_eq!(
        ask([(Verb::Charge, "bob", 8), (Verb::Peek, "alice", 3), (Verb::Refund, "alice", 5)]),
        [true, false, true],
    );
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [2, 10], "nothing is charged or given back");
    assert_eq!(ask([(Verb::Charge, "alice", 1), (Verb::Refund, "alice", 5), (Verb::Charge, "bob", 1)]), [true; 3]);
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [6, 9], "a charge and a refund are their difference");
}

#[test]
fn an_id_names_all_of_them() {
    let limiter = limiter(Limit::per_hour(10));
    let orders = [Request::new("alice").cost(2).id("order-17"), Request::new("bob").cost(3)];
    for repeated in [false, true] {
        let decisions = limiter.check_all(&orders).expect("answers");
        assert_eq!(decisions.iter().map(Decision::is_repeated).collect::<Vec<_>>(), [repeated; 2]);
    }
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [8, 7]);
    let others = [orders[0].clone(), Request::new("bob").cost(4)];
    assert!(matches!(limiter.check_all(&others), Err(CheckError::IdReused { .. })));
}

#[test]
fn a_change_of_the_policy_meanwhile_has_all_asked_again() {
    let clock = MeddlingClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    let changed = limiter.clone();
    clock.first(move || changed.set_policy(Limit::per_hour(20)).expect("a valid policy"));
    let decisions = limiter.check_all(&[Request::new("alice").cost(2), Request::new("bob")]).expect("answers");
    assert_eq!(
        decisions.iter().map(|d| (d.capacity(), d.remaining())).collect::<Vec<_>>(),
        [(Some(20), Some(18)), (Some(20), Some(19))]
    );
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [18, 19]);
}

#[test]
fn an_admitted_request_that_was_not_charged_is_told_as_a_peek() {
    let counts = std::sync::Arc::new(CountingObserver::default());
    let limiter = Limiter::builder(Limit::per_hour(5)).observer(counts.clone()).build().expect("a valid policy");
    let both = [Request::new("alice").cost(3), Request::new("bob").cost(3)];
    assert_eq!(allowed(&limiter.check_all(&both).expect("answers")), [true; 2]);
    assert_eq!((counts.allowed(), counts.refused()), (2, 0));
    assert!(limiter.refund(Request::new("alice").cost(3)).is_ok());
    assert_eq!(allowed(&limiter.check_all(&both).expect("answers")), [true, false]);
    assert_eq!((counts.allowed(), counts.refused()), (2, 1));
    let too_much = [Request::new("carol").cost(3), Request::new("carol").cost(3)];
    assert!(limiter.check_all(&too_much).is_err());
    assert_eq!((counts.allowed(), counts.refused()), (2, 1), "an error is no decision");
}
