//! Several requests, all or nothing.

use std::sync::Mutex;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{
    CheckError, Clock, Condition, CountingObserver, Decision, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy,
    Request, Rule, Setting,
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
    let [first, _, second] = twice(1);
    assert_eq!(allowed(&limiter.check_all(&[first, second]).expect("answers")), [true; 2]);
    assert_eq!(left(&limiter, "alice"), 0);
    let never = limiter.check_all(&twice(6));
    assert!(matches!(never, Err(CheckError::Unsatisfiable { cost: 12, capacity: 10, .. })), "{never:?}");
}

#[test]
fn a_request_that_is_blocked_or_wrong_keeps_the_others_from_being_charged() {
    let rule =
        Rule::new("api", Limit::per_hour(10)).key(["user"]).override_exactly("user", "mallory", Setting::Blocked);
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

type Asked = (Verb, &'static str, u64);

fn decide_all(limiter: &Limiter, asked: &[Asked]) -> Vec<Result<Decision, CheckError>> {
    let asked: Vec<_> = asked.iter().map(|(verb, key, cost)| (*verb, Request::new(*key).cost(*cost))).collect();
    block_on(limiter.decide_all_async(&asked)).expect("the store answers")
}

#[test]
fn several_verbs_are_decided_together_whether_or_not_they_share_a_key() {
    const ALICE: &str = "alice";
    const BOB: &str = "bob";
    const CHARGE: Verb = Verb::Charge;
    const PEEK: Verb = Verb::Peek;
    const REFUND: Verb = Verb::Refund;
    /// Whether a request is admitted and what is left, or nothing for an error.
    type Outcome = Option<(bool, u64)>;
    /// What alice has used, what is asked, the answers, and what is left to alice and to bob.
    type Case = (u64, &'static [Asked], &'static [Outcome], [u64; 2]);
    let cases: [Case; 12] = [
        // The difference of a charge and a refund fits, though the charge alone would not.
        (8, &[(CHARGE, ALICE, 5), (REFUND, ALICE, 4)], &[Some((true, 1)); 2], [1, 10]),
        (8, &[(REFUND, ALICE, 4), (CHARGE, ALICE, 5)], &[Some((true, 1)); 2], [1, 10]),
        // A peek before a charge keeps its own answer.
        (8, &[(PEEK, BOB, 1), (CHARGE, ALICE, 1)], &[Some((true, 10)), Some((true, 1))], [1, 10]),
        // Of a charge and a peek of one key the larger has to fit, in either order.
        (5, &[(PEEK, ALICE, 3), (CHARGE, ALICE, 4)], &[Some((true, 5)), Some((true, 1))], [1, 10]),
        (5, &[(CHARGE, ALICE, 4), (PEEK, ALICE, 3)], &[Some((true, 1)), Some((true, 5))], [1, 10]),
        // A peek of another key changes nothing.
        (
            8,
            &[(CHARGE, ALICE, 5), (REFUND, ALICE, 4), (PEEK, BOB, 1)],
            &[Some((true, 1)), Some((true, 1)), Some((true, 10))],
            [1, 10],
        ),
        // What is reported beside a charge is charged with it.
        (5, &[(Verb::Report, ALICE, 4), (CHARGE, ALICE, 2)], &[Some((true, 5)), Some((false, 5))], [5, 10]),
        // A refund needs no room.
        (10, &[(PEEK, BOB, 1), (REFUND, ALICE, 5)], &[Some((true, 10)), Some((true, 5))], [5, 10]),
        // A refund that is left out is not refused.
        (8, &[(PEEK, ALICE, 3), (REFUND, ALICE, 5)], &[Some((false, 2)), Some((true, 2))], [2, 10]),
        // Of two peeks the larger cost has to fit.
        (8, &[(PEEK, ALICE, 1), (PEEK, ALICE, 2)], &[Some((true, 2)); 2], [2, 10]),
        (8, &[(PEEK, ALICE, 1), (PEEK, ALICE, 3)], &[Some((false, 2)); 2], [2, 10]),
        // Of two charges their sum, also where an error keeps them from being carried out.
        (
            8,
            &[(CHARGE, ALICE, 1), (CHARGE, ALICE, 2), (CHARGE, BOB, 11)],
            &[Some((false, 2)), Some((false, 2)), None],
            [2, 10],
        ),
    ];
    for (used, asked, answers, after) in cases {
        let limiter = limiter(Limit::per_hour(10));
        assert!(limiter.allow(Request::new(ALICE).cost(used)));
        let decided = decide_all(&limiter, asked).into_iter().map(|decision| {
            let decision = decision.ok()?;
            Some((decision.is_allowed(), decision.remaining()?))
        });
        assert_eq!(decided.collect::<Vec<Outcome>>(), answers, "{asked:?}");
        assert_eq!([left(&limiter, ALICE), left(&limiter, BOB)], after, "{asked:?}");
    }
}

#[test]
fn a_reset_beside_another_verb_of_the_same_key_is_an_error_and_changes_nothing() {
    let limiter = limiter(Limit::per_hour(10));
    assert!(limiter.allow(Request::new("alice").cost(8)));
    let ask = |verbs: [Verb; 2]| {
        let asked = verbs.map(|verb| (verb, Request::new("alice").cost(1)));
        block_on(limiter.decide_all_async(&asked))
    };
    for other in [Verb::Charge, Verb::Peek, Verb::Report, Verb::Refund] {
        for verbs in [[other, Verb::Reset], [Verb::Reset, other]] {
            let error = ask(verbs).expect_err("no answer");
            let words = std::error::Error::source(&error).expect("its cause").to_string();
            assert!(words.contains("twice about the same key"), "{verbs:?}: {words}");
            assert_eq!(left(&limiter, "alice"), 2, "{verbs:?}");
        }
    }
    assert!(ask([Verb::Reset; 2]).is_ok());
    assert_eq!(left(&limiter, "alice"), 10);
}

#[test]
fn reports_of_one_key_are_recorded_together_and_never_refused() {
    let limiter = limiter(Limit::per_hour(10));
    let both = decide_all(&limiter, &[(Verb::Report, "alice", 3), (Verb::Report, "alice", 4)]);
    assert!(both.iter().all(|decision| decision.as_ref().is_ok_and(|report| report.remaining() == Some(3))));
    let more = decide_all(&limiter, &[(Verb::Report, "alice", 3), (Verb::Report, "alice", 4)]);
    assert!(more.iter().all(|decision| decision.as_ref().is_ok_and(Decision::is_allowed)));
    // Fourteen of ten are a debt of four, and six more can be owed.
    let last = limiter.report(Request::new("alice").cost(7)).expect("recorded");
    assert_eq!((last.remaining(), last.unrecorded()), (Some(0), 1));
}

#[test]
fn a_reservation_is_corrected_by_itself_or_not_at_all() {
    let limiter = limiter(Limit::per_hour(10));
    limiter
        .reserve(Request::new("alice").cost(4).id("r-1"))
        .expect("an answer")
        .made()
        .expect("a reservation")
        .leave_open();
    for verb in [Verb::SETTLE, Verb::RENEW] {
        let correction = (verb, Request::new("alice").id("r-1"));
        assert!(block_on(limiter.decide_all_async(&[correction, (Verb::Charge, Request::new("bob"))])).is_err());
        assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [6, 10], "{verb:?}");
    }
}

/// A store that keeps each slice that it was asked.
struct Recording(MemoryStore, Mutex<Vec<Vec<(Verb, u64)>>>);

impl Store for Recording {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let slice = checks.iter().map(|check| (check.verb(), check.cost())).collect();
        self.1.lock().expect("no panic while it is locked").push(slice);
        self.0.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

#[test]
fn the_store_is_asked_once_unless_some_only_look_and_some_do_not() {
    let store = Recording(MemoryStore::default(), Mutex::default());
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    let ask = |asked: [Asked; 2]| {
        let asked = asked.map(|(verb, key, cost)| (verb, Request::new(key).cost(cost)));
        assert!(block_on(limiter.decide_all_async(&asked)).is_ok());
        std::mem::take(&mut *limiter.store().1.lock().expect("no panic while it is locked"))
    };
    let (charge, peek, reset) = (Verb::Charge, Verb::Peek, Verb::Reset);
    assert_eq!(ask([(charge, "alice", 2), (charge, "bob", 3)]), [[(charge, 2), (charge, 3)]]);
    assert_eq!(ask([(charge, "alice", 2), (charge, "alice", 3)]), [[(charge, 5)]]);
    assert_eq!(ask([(peek, "alice", 2), (peek, "bob", 3)]), [[(peek, 2), (peek, 3)]]);
    assert_eq!(ask([(reset, "alice", 2), (reset, "alice", 3)]), [[(reset, 0)]]);
    assert_eq!(ask([(peek, "alice", 2), (charge, "bob", 3)]), [vec![(peek, 2), (peek, 3)], vec![(charge, 3)]]);
}

#[test]
fn a_charge_that_is_given_back_at_once_is_answered_like_one_of_nothing() {
    let limiter = limiter(Limit::leaky_bucket(10, Duration::from_secs(10)));
    assert!(limiter.allow(Request::new("alice").cost(3)));
    let nothing = limiter.check(Request::new("alice").cost(0)).expect("an answer");
    let both = decide_all(&limiter, &[(Verb::Charge, "alice", 2), (Verb::Refund, "alice", 2)]);
    assert!(nothing.delay() > Duration::ZERO && both[0].as_ref().is_ok_and(|charge| *charge == nothing), "{both:?}");
    assert_eq!(left(&limiter, "alice"), 7);
}

/// A store that refuses whatever it is asked.
struct Refusing(ManualClock);

impl Store for Refusing {
    async fn decide(&self, _: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        verdicts.fill(Verdict { retry_after: Micros::new(5), degraded: true, ..Verdict::default() });
        Ok(Micros::ZERO)
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

#[test]
fn a_refund_beside_others_is_not_refused_and_alone_is_what_the_store_says() {
    let store = Refusing(ManualClock::default());
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    for verb in [Verb::Refund, Verb::Reset] {
        let alone = block_on(limiter.decide_async(verb, "alice")).expect("an answer");
        assert_eq!((alone.is_allowed(), alone.retry_after()), (false, Some(Duration::from_micros(5))), "{verb:?}");
        let asked = [(verb, Request::new("alice")), (Verb::Charge, Request::new("bob"))];
        let both = block_on(limiter.decide_all_async(&asked)).expect("the store answers");
        let both: Vec<Decision> = both.into_iter().map(|decision| decision.expect("a decision")).collect();
        assert_eq!((allowed(&both), both[0].retry_after()), (vec![true, false], Some(Duration::ZERO)), "{verb:?}");
    }
}

#[test]
fn an_id_names_each_of_many_and_their_order() {
    let limiter = limiter(Limit::per_hour(10));
    let names: Vec<String> = (0..100).map(|number| format!("user{number}")).collect();
    let mut orders: Vec<Request<'_>> = names.iter().map(Request::new).collect();
    orders[0] = orders[0].clone().id("order-17");
    let (mut turned, mut dearer) = (orders.clone(), orders.clone());
    turned.swap(1, 2);
    dearer[40] = dearer[40].clone().cost(2);
    assert!(allowed(&limiter.check_all(&orders).expect("answers")).into_iter().all(|allowed| allowed));
    for other in [turned, dearer] {
        assert!(matches!(limiter.check_all(&other), Err(CheckError::IdReused { .. })));
    }
    assert!(limiter.check_all(&orders).expect("answers").iter().all(Decision::is_repeated));
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
    // Also where nothing is left by now.
    assert!(limiter.allow(Request::new("alice").cost(8)));
    assert!(limiter.check_all(&orders).expect("answers").iter().all(Decision::is_repeated));
}

#[test]
fn a_policy_change_meanwhile_repeats_the_whole_check() {
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

#[test]
fn a_request_that_no_rule_limits_is_told_as_a_charge() {
    let counts = std::sync::Arc::new(CountingObserver::default());
    let orders = Rule::new("orders", Limit::per_hour(5)).when("method", Condition::Equals("POST".into()));
    let limiter = Limiter::builder(orders).observer(counts.clone()).build().expect("a valid policy");
    let free = || Request::new("alice").with("method", "GET");
    assert!(limiter.allow(free()));
    assert_eq!(allowed(&limiter.check_all(&[free(), free()]).expect("answers")), [true; 2]);
    assert_eq!((counts.allowed(), counts.refused()), (3, 0));
}

#[test]
fn a_request_that_no_rule_limits_is_told_as_a_peek_beside_one_that_is_denied() {
    let counts = std::sync::Arc::new(CountingObserver::default());
    let orders = Rule::with_setting("orders", Setting::Blocked).when("method", Condition::Equals("POST".into()));
    let limiter = Limiter::builder(orders).observer(counts.clone()).build().expect("a valid policy");
    let both = ["GET", "POST"].map(|method| Request::new("alice").with("method", method));
    assert_eq!(allowed(&limiter.check_all(&both).expect("answers")), [true, false]);
    assert_eq!((counts.allowed(), counts.refused()), (0, 1));
}

#[test]
fn an_estimate_is_clamped_beside_other_requests_as_well() {
    let limiter = limiter(Rule::new("tokens", Limit::per_hour(10)).clamp_estimate());
    let both = [Request::new("alice").cost(99), Request::new("bob")];
    assert_eq!(allowed(&limiter.check_all(&both).expect("answers")), [true, true]);
    assert_eq!([left(&limiter, "alice"), left(&limiter, "bob")], [0, 9]);
    let peeks = both.map(|request| (Verb::Peek, request));
    let refused = block_on(limiter.decide_all_async(&peeks)).expect("answers");
    assert_eq!(
        refused.iter().map(|answer| answer.as_ref().is_ok_and(Decision::is_allowed)).collect::<Vec<_>>(),
        [false, true]
    );
    // A charge beside what is given back is no more than all of the limit either.
    let asked = [(Verb::Refund, Request::new("carol").cost(4)), (Verb::Charge, Request::new("carol").cost(99))];
    let answers = block_on(limiter.decide_all_async(&asked)).expect("answers");
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(Decision::is_allowed)), "{answers:?}");
    assert_eq!(left(&limiter, "carol"), 4);
}
