//! A policy that takes over while a request is decided.

use std::sync::{Arc, Mutex};

use tidegate::kernel::Verdict;
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{
    CheckError, Clock, Condition, Decision, FailureMode, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy,
    Request, Rule, Setting,
};
use tidegate_testkit::{MeddlingClock, block_on};

fn limit(words: &str) -> Limit {
    words.parse().expect("a limit")
}

/// What a limit says without being asked for anything.
fn peek(limiter: &Limiter, key: &str) -> Decision {
    limiter.peek(key).expect("an answer")
}

fn limiter(policy: Policy) -> (Limiter, MeddlingClock) {
    let meddler = MeddlingClock::at(START);
    let store = MemoryStore::builder().max_keys(1_000).clock(meddler.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), meddler)
}

const START: Micros = Micros::new(1_700_000_000_000_000);

/// Sets another policy while the next request is decided, then runs `then`.
fn change(clock: &MeddlingClock, limiter: &Limiter, policy: Policy, then: impl FnOnce(&Limiter) + Send + 'static) {
    let limiter = limiter.clone();
    clock.first(move || {
        limiter.set_policy(policy).expect("a valid policy");
        then(&limiter);
    });
}

/// A policy of one limit, and one of two.
const POLICIES: [fn(u64) -> Policy; 2] = [
    |count| Policy::new().limit("api", Limit::per_hour(count)),
    |count| Policy::new().limit("api", Limit::per_hour(count)).limit("all", Limit::per_hour(1_000)),
];

type Ask = fn(&Limiter, Request<'static>) -> Result<Decision, CheckError>;

const CHARGES: [Ask; 3] = [
    |limiter, request| limiter.check(request),
    |limiter, request| block_on(limiter.check_async(request)),
    |limiter, request| Ok(limiter.check_many([request])?[0].clone()),
];

fn alice(cost: u64) -> Request<'static> {
    Request::new("alice").cost(cost)
}

#[test]
fn a_policy_change_during_a_charge_charges_the_new_policy_only() {
    for policy in POLICIES {
        for charge in CHARGES {
            let (limiter, meddler) = limiter(policy(10));
            assert!(limiter.allow(alice(4)));
            // From the policy of the beginning, and from one that came later.
            for (count, used) in [(20, 9), (30, 14)] {
                change(&meddler, &limiter, policy(count), |limiter| assert!(limiter.allow(alice(3))));
                let decision = charge(&limiter, alice(2)).expect("an answer");
                assert_eq!((decision.is_allowed(), decision.capacity()), (true, Some(count)));
                assert_eq!(
                    (decision.remaining(), peek(&limiter, "alice").remaining()),
                    (Some(count - used), Some(count - used))
                );
            }
        }
        let allow: [fn(&Limiter, Request<'static>) -> bool; 2] =
            [|limiter, request| limiter.allow(request), |limiter, request| limiter.allow_many([request]) == [true]];
        for allow in allow {
            let (limiter, meddler) = limiter(policy(10));
            for (count, used) in [(20, 5), (30, 10)] {
                change(&meddler, &limiter, policy(count), |limiter| assert!(limiter.allow(alice(3))));
                assert!(allow(&limiter, alice(2)) && meddler.is_done());
                assert_eq!(peek(&limiter, "alice").remaining(), Some(count - used));
            }
        }
    }
}

#[test]
fn a_policy_change_during_a_charge_without_a_key_charges_the_new_policy_only() {
    for policy in POLICIES {
        let (limiter, meddler) = limiter(policy(10));
        for (count, used) in [(20, 4), (30, 8)] {
            change(&meddler, &limiter, policy(count), |limiter| assert!(limiter.allow(Request::new(()).cost(3))));
            assert!(limiter.allow(()) && meddler.is_done());
            assert_eq!(peek(&limiter, "").remaining(), Some(count - used));
        }
        change(&meddler, &limiter, policy(40), |_| ());
        assert!(!limiter.allow(Request::new(()).cost(23)) && meddler.is_done());
        assert_eq!(peek(&limiter, "").remaining(), Some(32));
    }
}

#[test]
fn a_policy_change_during_a_charge_by_attribute_charges_the_new_policy_only() {
    let policy = |count| Policy::new().rule(Rule::new("users", Limit::per_hour(count)).key(["user"]));
    let user = |cost| Request::new("a session").with("user", "alice").cost(cost);
    let left = |limiter: &Limiter| limiter.peek(user(0)).expect("an answer").remaining();
    let admits: [fn(&Limiter, Request<'static>) -> bool; 2] = [
        |limiter, request| limiter.allow(request),
        |limiter, request| limiter.check(request).expect("an answer").is_allowed(),
    ];
    for admits in admits {
        // Once with former limits that still matter, and once without.
        let (limiter, meddler) = limiter(policy(10));
        for (count, used) in [(20, 5), (30, 10)] {
            change(&meddler, &limiter, policy(count), move |limiter| assert!(limiter.allow(user(3))));
            assert!(admits(&limiter, user(2)) && meddler.is_done());
            assert_eq!(left(&limiter), Some(count - used));
        }
        // What is refused by the old limit was charged nothing, and stands.
        let (limiter, meddler) = self::limiter(policy(10));
        assert!(admits(&limiter, user(9)));
        change(&meddler, &limiter, policy(20), |_| ());
        assert!(!admits(&limiter, user(2)) && meddler.is_done());
        assert_eq!(left(&limiter), Some(11));
    }
    let (limiter, meddler) = limiter(policy(10));
    change(&meddler, &limiter, policy(20), move |limiter| assert!(limiter.allow(user(3))));
    let decision = limiter.check(user(2)).expect("an answer");
    assert_eq!((decision.capacity(), decision.remaining()), (Some(20), Some(15)));
}

#[test]
fn the_policy_that_takes_over_has_the_last_word() {
    for policy in POLICIES {
        let (limiter, meddler) = limiter(policy(10));
        for (count, used) in [(5, 5), (6, 6)] {
            change(&meddler, &limiter, policy(count), |limiter| while limiter.allow("alice") {});
            assert!(!limiter.allow(alice(2)) && meddler.is_done());
            limiter.set_policy(policy(20)).expect("a valid policy");
            assert_eq!(peek(&limiter, "alice").remaining(), Some(20 - used), "nothing is left of what was charged");
            limiter.set_policy(policy(count)).expect("a valid policy");
        }
    }
}

#[test]
fn a_refusal_stands_that_a_change_overtakes() {
    for policy in POLICIES {
        for charge in CHARGES {
            let (limiter, meddler) = limiter(policy(10));
            for count in [20, 30] {
                assert!(limiter.allow(alice(10)));
                change(&meddler, &limiter, policy(count), |_| ());
                let decision = charge(&limiter, alice(1)).expect("an answer");
                assert_eq!((decision.is_allowed(), decision.capacity()), (false, Some(count - 10)));
                assert_eq!(peek(&limiter, "alice").remaining(), Some(10));
            }
        }
        let (limiter, meddler) = limiter(policy(10));
        for count in [20, 30] {
            assert!(limiter.allow(alice(10)));
            change(&meddler, &limiter, policy(count), |_| ());
            assert!(!limiter.allow("alice") && meddler.is_done());
        }
    }
}

#[test]
fn peek_uses_the_new_policy_and_charges_nothing() {
    let peeks: [Ask; 2] =
        [|limiter, request| limiter.peek(request), |limiter, request| block_on(limiter.peek_async(request))];
    for policy in POLICIES {
        for look in peeks {
            let (limiter, meddler) = limiter(policy(10));
            assert!(limiter.allow(alice(4)));
            for (count, more, used) in [(20, 0, 4), (30, 3, 7), (40, 3, 10)] {
                change(&meddler, &limiter, policy(count), move |limiter| assert!(limiter.allow(alice(more))));
                let decision = look(&limiter, alice(2)).expect("an answer");
                assert_eq!((decision.capacity(), decision.remaining()), (Some(count), Some(count - used)));
                assert_eq!(peek(&limiter, "alice").remaining(), Some(count - used));
            }
        }
    }
}

#[test]
fn a_refund_during_a_policy_change_applies_once() {
    let refunds: [Ask; 2] = [
        |limiter, request| limiter.refund(request).map(tidegate::Decision::from),
        |limiter, request| block_on(limiter.refund_async(request)).map(tidegate::Decision::from),
    ];
    for policy in POLICIES {
        for refund in refunds {
            let (limiter, meddler) = limiter(policy(10));
            assert!(limiter.allow(alice(6)));
            for (count, used) in [(20, 5), (30, 4)] {
                change(&meddler, &limiter, policy(count), |_| ());
                let decision = refund(&limiter, alice(1)).expect("an answer");
                assert_eq!((decision.capacity(), decision.remaining()), (Some(count - 10), Some(count - 10 - used)));
                assert_eq!(peek(&limiter, "alice").remaining(), Some(count - used));
            }
        }
    }
}

#[test]
fn a_reset_that_a_change_overtakes_forgets_what_either_limit_counts() {
    let resets: [Ask; 2] = [
        |limiter, request| limiter.reset(request).map(Decision::from),
        |limiter, request| block_on(limiter.reset_async(request)).map(Decision::from),
    ];
    for policy in POLICIES {
        for reset in resets {
            let (limiter, meddler) = limiter(policy(10));
            for count in [20, 30] {
                assert!(limiter.allow(alice(10)));
                change(&meddler, &limiter, policy(count), |limiter| assert!(limiter.allow("alice")));
                assert_eq!(reset(&limiter, alice(1)).expect("an answer").remaining(), Some(count));
                assert_eq!(peek(&limiter, "alice").remaining(), Some(count));
            }
        }
    }
}

#[test]
fn a_request_with_an_id_is_charged_once_though_a_change_overtakes_it() {
    for policy in POLICIES {
        for charge in &CHARGES[..2] {
            let (limiter, meddler) = limiter(policy(10));
            change(&meddler, &limiter, policy(20), |_| ());
            let order = || alice(2).id("order-17");
            let decision = charge(&limiter, order()).expect("an answer");
            assert_eq!((decision.capacity(), decision.remaining(), decision.is_repeated()), (Some(10), Some(8), false));
            assert_eq!(peek(&limiter, "alice").remaining(), Some(18));
            let again = charge(&limiter, order()).expect("an answer");
            assert!(again.is_allowed() && again.is_repeated());
            assert_eq!(peek(&limiter, "alice").remaining(), Some(18));
        }
    }
}

/// When nothing matters any more that was charged to 10 an hour at the start.
const FORGOTTEN: u64 = START.get() + 7_201_000_000;

/// Whether there is nothing to look at but the one limit in force.
fn is_settled(limiter: &Limiter) -> bool {
    limiter.with_only_meter(|_| ()).is_some()
}

#[test]
fn former_limits_are_dropped_by_the_first_check_after_they_matter() {
    for ask in CHARGES {
        let (limiter, meddler) = limiter(POLICIES[0](10));
        limiter.set_policy(POLICIES[0](20)).expect("a valid policy");
        for (at, settled) in [(START.get(), false), (FORGOTTEN - 1, false), (FORGOTTEN, true)] {
            meddler.set(Micros::new(at));
            assert!(ask(&limiter, alice(1)).expect("an answer").is_allowed());
            assert_eq!(is_settled(&limiter), settled);
        }
        assert_eq!(limiter.policy(), POLICIES[0](20));
    }
}

#[test]
fn a_policy_whose_former_limits_are_dropped_does_not_come_back() {
    let asks: [Ask; 3] = [
        |limiter, request| limiter.refund(request).map(Decision::from),
        |limiter, request| block_on(limiter.refund_async(request)).map(Decision::from),
        |limiter, request| Ok(limiter.check_many([request])?[0].clone()),
    ];
    for ask in asks {
        let (limiter, meddler) = limiter(POLICIES[0](10));
        limiter.set_policy(POLICIES[0](20)).expect("a valid policy");
        meddler.set(Micros::new(FORGOTTEN));
        change(&meddler, &limiter, POLICIES[0](30), |_| ());
        assert!(ask(&limiter, alice(1)).expect("an answer").is_allowed());
        assert_eq!(limiter.policy(), POLICIES[0](30));
    }
}

#[test]
fn check_many_is_repeated_whole_after_a_policy_change() {
    let clock = MeddlingClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(limit("10/h"), store).expect("a valid policy");
    let changed = limiter.clone();
    clock.first(move || {
        let closed = Rule::with_setting("closed", Setting::Blocked).when("tenant", Condition::Equals("acme".into()));
        changed.set_policy(Policy::new().rule(closed).limit("all", limit("20/h"))).expect("a valid policy");
    });
    let batch = [
        Request::new("alice"),
        Request::new("bob").with("tenant", "acme"),
        Request::new("carol").cost(3),
        Request::new("dave").with("tenant", "other"),
        Request::new("erin").with("tenant", "acme").cost(2),
    ];
    let decisions = limiter.check_many(batch).expect("answers");
    let told = decisions.iter().map(|decision| (decision.rule().as_str(), decision.remaining()));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [("all", 19), ("closed", 0), ("all", 17), ("all", 19), ("closed", 0)].map(|(rule, left)| (rule, Some(left)))
    );
}

#[test]
fn a_key_that_is_in_a_batch_twice_is_charged_twice_after_a_policy_change() {
    let clock = MeddlingClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Rule::new("all", limit("10/h")), store).expect("a valid policy");
    let changed = limiter.clone();
    clock.first(move || changed.set_policy(Rule::new("all", limit("20/h"))).expect("a valid policy"));
    let decisions = limiter.check_many(["alice", "alice"]).expect("answers");
    assert_eq!(decisions.iter().map(Decision::remaining).collect::<Vec<_>>(), [Some(19), Some(18)]);
}

type Deed = Box<dyn FnOnce() + Send>;

/// A store that fails once it has been told what to do meanwhile.
struct Failing {
    store: MemoryStore,
    meanwhile: Arc<Mutex<Option<Deed>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("gone for a moment")]
struct Gone;

impl Store for Failing {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

impl ImmediateStore for Failing {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let meanwhile = self.meanwhile.lock().expect("not poisoned").take();
        match meanwhile {
            None => self.store.decide_now(checks, verdicts),
            Some(meanwhile) => {
                meanwhile();
                Err(StoreError::Failed { source: Box::new(Gone) })
            }
        }
    }
}

#[test]
fn units_admitted_by_the_fallback_are_not_refunded_to_the_store() {
    let meanwhile = Arc::new(Mutex::new(None));
    let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().expect("valid settings");
    let store = Failing { store, meanwhile: Arc::clone(&meanwhile) };
    let limiter = Limiter::builder(limit("100/h")).store(store).on_failure(FailureMode::Open).build();
    let limiter = limiter.expect("a valid policy");
    assert!(limiter.allow(Request::new("alice").cost(50)));
    for (count, used) in [(200, 51), (300, 52)] {
        let changing = limiter.clone();
        let change = move || changing.set_policy(Limit::per_hour(count)).expect("a valid policy");
        *meanwhile.lock().expect("not poisoned") = Some(Box::new(change));
        // One by the immediate path, one by the asynchronous one.
        let decision = match count {
            200 => limiter.check("alice"),
            _ => block_on(limiter.check_async("alice")),
        };
        assert_eq!(decision.expect("an answer").remaining(), Some(count - used));
    }
}

#[test]
fn a_batch_has_its_stand_in_too() {
    let meanwhile: Arc<Mutex<Option<Deed>>> = Arc::new(Mutex::new(Some(Box::new(|| ()))));
    let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().expect("valid settings");
    let limiter = Limiter::builder(limit("1/h")).store(Failing { store, meanwhile }).on_failure(FailureMode::Open);
    let decisions = limiter.build().expect("a valid policy").check_many(["alice", "alice", "alice"]);
    let decisions = decisions.expect("the fallback answers").into_iter().map(|d| (d.is_allowed(), d.is_degraded()));
    assert!(decisions.eq([(true, true), (true, false), (false, false)]));
}

#[test]
fn allow_refuses_while_the_store_fails() {
    for policy in POLICIES {
        let meanwhile: Arc<Mutex<Option<Deed>>> = Arc::default();
        let store = MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build().expect("valid settings");
        let store = Failing { store, meanwhile: Arc::clone(&meanwhile) };
        let limiter = Limiter::with_store(policy(10), store).expect("a valid policy");
        *meanwhile.lock().expect("not poisoned") = Some(Box::new(|| ()));
        assert!(!limiter.allow("alice") && limiter.allow("alice"));
    }
}

/// What a request brings beside its key and cost is not lost where it is asked again.
#[test]
fn allow_many_is_repeated_whole_after_a_policy_change() {
    let (limiter, meddler) = limiter(Policy::new().limit("api", Limit::per_hour(10)));
    change(&meddler, &limiter, Policy::new().rule(Rule::new("users", Limit::per_hour(10)).key(["user"])), |_| {});
    let requests = ["alice", "bob"].map(Request::user);
    assert_eq!(limiter.allow_many(requests), [true, true]);
    assert!(meddler.is_done());
    for user in ["alice", "bob"] {
        assert_eq!(limiter.peek(Request::user(user)).expect("an answer").remaining(), Some(9));
    }
}

/// It counts beside the limits of the policy that took over, so it is not reported again.
#[test]
fn a_report_that_a_change_overtakes_counts_once() {
    let one = |count| Policy::new().limit("api", Limit::per_hour(count));
    let two = |count| one(count).limit("day", Limit::per_day(1_000));
    for (before, after) in [(one(10), one(20)), (two(10), two(20))] {
        for is_async in [false, true] {
            let (limiter, meddler) = limiter(before.clone());
            change(&meddler, &limiter, after.clone(), |_| {});
            let request = Request::new("alice").cost(3);
            let reported = if is_async { block_on(limiter.report_async(request)) } else { limiter.report(request) };
            assert!(reported.is_ok_and(|decision| decision.is_allowed()) && meddler.is_done());
            assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(17), "asynchronously: {is_async}");
        }
    }
}
