//! Requests with ids: charged once, however often and from however many
//! threads they are sent.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::kernel::Verb;
use tidegate::{
    CheckError, CountingObserver, Event, Limit, Limiter, ManualClock, MemoryStore, Observer, Policy, Request, Rule,
};

fn limiter(policy: impl Into<Policy>) -> Limiter {
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

#[test]
fn threads_that_send_one_request_are_charged_for_one() {
    for round in 0..200 {
        let limiter = limiter([Limit::per_hour(100), Limit::fixed_window(100, Duration::from_secs(86_400))]);
        let id = format!("request {round}");
        let remaining: Vec<u64> = std::thread::scope(|scope| {
            let ask = || {
                limiter.check(Request::new("alice").cost(7).id(&id)).expect("an answer").remaining().expect("a limit")
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(remaining, [93; 4], "one decision for all");
        assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(93));
    }
}

#[test]
fn an_id_is_forgotten_when_its_time_is_over() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).remember_ids_for(Duration::from_secs(10));
    let limiter = Limiter::with_store(Limit::per_day(10), store.build().expect("valid settings")).expect("a policy");
    let ask = || limiter.check(Request::new("alice").id("a")).expect("an answer");
    assert_eq!((ask().is_repeated(), ask().is_repeated()), (false, true));
    clock.advance(Duration::from_secs(10));
    assert_eq!((ask().is_repeated(), ask().is_repeated()), (false, true));
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(8));
}

#[test]
fn an_id_lasts_for_its_ttl_rounded_up_to_milliseconds() {
    const MILLI: u64 = 1_000;
    let nanos = |nanos| Duration::from_nanos(nanos);
    let cases = [
        (Duration::ZERO, MILLI),
        (nanos(1), MILLI),
        (nanos(1_000_000), MILLI),
        (nanos(1_000_001), 2 * MILLI),
        (nanos(4_999_999), 5 * MILLI),
        (Duration::from_secs(3_600), 3_600_000 * MILLI),
        (Duration::MAX, u64::from(u32::MAX) * MILLI),
    ];
    for (told, micros) in cases {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
        let limiter = Limiter::with_store(Limit::per_day(10), store).expect("a policy");
        let is_repeated = || limiter.check(Request::new("alice").lasts(told).id("a")).expect("an answer").is_repeated();
        assert!(!is_repeated());
        clock.advance(Duration::from_micros(micros - 1));
        assert!(is_repeated(), "{told:?}");
        clock.advance(Duration::from_micros(1));
        assert!(!is_repeated(), "{told:?}");
    }
}

#[test]
fn an_id_that_lasts_less_long_than_those_before_it_is_forgotten_first() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_day(1_000), store).expect("a policy");
    // Ids of one shard among them, whichever it is.
    let ids: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let ask = |id, secs| {
        let request = Request::new("alice").lasts(Duration::from_secs(secs)).id(id);
        limiter.check(request).expect("an answer").is_repeated()
    };
    assert!(ids.iter().all(|id| !ask(id, 60)));
    assert!(!ask("short", 1));
    clock.advance(Duration::from_micros(999_999));
    assert!(ask("short", 1));
    clock.advance(Duration::from_micros(1));
    assert!(!ask("short", 1) && ask("short", 1));
    assert!(ids.iter().all(|id| ask(id, 60)));
}

#[test]
fn a_charge_a_report_and_a_refund_of_one_id_are_each_carried_out_once() {
    let limiter = limiter(Limit::per_hour(100));
    let request = |cost| Request::new("alice").cost(cost).id("a");
    let left = || limiter.peek("alice").expect("an answer").remaining();
    for _ in 0..2 {
        assert!(limiter.allow(request(10)));
        assert!(limiter.report(request(5)).is_ok());
        assert!(limiter.refund(request(5)).is_ok());
        assert_eq!(left(), Some(90));
    }
}

#[test]
fn an_id_with_other_amounts_is_an_error_in_whichever_order_they_are_named() {
    let rule = |unit: &'static str| Rule::new(unit, Limit::per_hour(100)).unit(unit);
    let limiter = limiter(Policy::new().rule(rule("tokens")).rule(rule("bytes")));
    let order = |tokens, bytes| Request::new("alice").amount("tokens", tokens).amount("bytes", bytes).id("a");
    assert!(limiter.allow(order(3, 5)));
    let others = [
        order(4, 5),
        order(3, 6),
        order(5, 3),
        Request::new("alice").amount("tokens", 3).id("a"),
        Request::new("alice").amount("tokens", 3).amount("packets", 5).id("a"),
        order(3, 5).amount("calls", 1),
    ];
    for other in others {
        let reused = limiter.check(other.clone());
        assert!(matches!(reused, Err(CheckError::IdReused { .. })), "{other:?}: {reused:?}");
    }
    let turned = Request::new("alice").amount("bytes", 5).amount("tokens", 3).id("a");
    assert!(limiter.check(turned).is_ok_and(|decision| decision.is_repeated()));
}

#[test]
fn no_more_ids_are_kept_than_fit() {
    let limiter = limiter(Limit::per_hour(1_000_000));
    let ids: Vec<String> = (0..200_000).map(|number| number.to_string()).collect();
    for id in &ids {
        assert!(limiter.allow(Request::new("alice").id(id)));
    }
    let known = ids
        .iter()
        .rev()
        .take(100_000)
        .filter(|id| limiter.check(Request::new("alice").id(id)).is_ok_and(|decision| decision.is_repeated()));
    assert!(known.count() > 95_000, "the newest ones are known");
}

#[test]
fn a_flood_of_ids_by_one_key_forgets_no_id_of_another() {
    let limiter = limiter(Limit::per_hour(1_000_000));
    let order = || limiter.check(Request::new("alice").id("order 7")).expect("an answer");
    assert!(!order().is_repeated());
    for number in 0..400_000 {
        assert!(limiter.allow(Request::new("mallory").id(&number.to_string())));
    }
    assert!(order().is_repeated(), "charged once");
}

#[test]
fn an_id_belongs_to_whose_request_it_is() {
    let limiter = limiter(Limit::per_hour(10));
    for (key, id) in [("alice", "a"), ("bob", "a"), ("b", "oba"), ("", "alicea")] {
        let first = limiter.check(Request::new(key).id(id)).expect("an answer");
        assert!(!first.is_repeated(), "{key:?} has not sent {id:?} before");
        assert!(limiter.check(Request::new(key).id(id)).is_ok_and(|again| again.is_repeated()));
    }
}

#[test]
fn another_request_by_the_same_id_is_an_error_and_takes_nothing() {
    let policy = Policy::new().rule(Rule::new("user", Limit::per_hour(10)).key(["user"]));
    let limiter = limiter(policy);
    let order = || Request::user("alice").with("path", "/orders").id("a");
    assert!(limiter.allow(order()));
    for other in [order().cost(2), order().with("path", "/returns"), order().with("more", "yes"), order().rule("user")]
    {
        let error = limiter.check(other).err();
        let Some(error @ CheckError::IdReused { .. }) = error else { panic!("{error:?}") };
        let said = "the request id \"a\" was used for another request: give each request an id of its own";
        assert_eq!((error.to_string(), error.source().is_none()), (said.to_owned(), true));
    }
    assert!(limiter.check(order()).is_ok_and(|decision| decision.is_repeated()));
    assert_eq!(limiter.peek(order()).expect("an answer").remaining(), Some(9));
    // The order in which attributes are named is no part of a request.
    let turned = Request::new("alice").with("path", "/orders").with("user", "alice").id("a");
    assert!(limiter.check(turned).is_ok_and(|decision| decision.is_repeated()));
    // Nor is what was changed before it was sent.
    let changed = Request::user("alice").with("path", "/returns").with("path", "/orders").id("a");
    assert!(limiter.check(changed).is_ok_and(|decision| decision.is_repeated()));
}

#[test]
fn an_id_with_any_other_field_is_another_request() {
    let nameless = Rule::new("", Limit::per_hour(10));
    let limiter = limiter(Policy::new().limit("a", Limit::per_hour(10)).limit("b", Limit::per_hour(10)).rule(nameless));
    let request = || Request::new(("alice", "x"));
    let requests = [
        request(),
        Request::new(("alice", "y")),
        Request::new(("alice",)),
        Request::new("alice"),
        request().cost(2),
        request().in_addition(),
        request().rule("a"),
        request().rule("b"),
        request().rule(""),
        request().with("ab", "c"),
        request().with("a", "bc"),
        request().with("abc", ""),
        request().with("ab", "c").with("d", ""),
        request().with("in addition", ""),
    ];
    for (index, first) in requests.iter().enumerate() {
        let id = index.to_string();
        assert!(!limiter.check(first.clone().cost(0)).expect("an answer").is_repeated());
        assert!(limiter.reset(first.clone()).is_ok() && limiter.allow(first.clone().id(&id)), "{first:?}");
        for (other_index, other) in requests.iter().enumerate() {
            match limiter.check(other.clone().id(&id)) {
                Ok(decision) => assert!(decision.is_repeated() && index == other_index, "{first:?} {other:?}"),
                Err(CheckError::IdReused { .. }) => assert_ne!(index, other_index, "{first:?}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_request_that_takes_nothing_needs_no_id() {
    let limiter = limiter(Limit::per_hour(10));
    let look = |name| limiter.check(Request::new("alice").cost(0).with(name, "").id("a")).expect("an answer");
    assert!(!look("a").is_repeated() && !look("a").is_repeated() && !look("b").is_repeated());
    assert!(limiter.check(Request::new("alice").id("a")).is_ok_and(|decision| !decision.is_repeated()));
    assert!(!look("a").is_repeated());
}

#[test]
fn a_changed_limit_does_not_charge_again() {
    let limiter = limiter(Policy::new().limit("api", Limit::per_hour(10)));
    let request = || Request::new("alice").cost(4).id("a");
    assert!(limiter.allow(request()));
    limiter.set_policy(Policy::new().limit("api", Limit::per_hour(20))).expect("a valid policy");
    let again = limiter.check(request()).expect("an answer");
    assert!(again.is_allowed() && again.is_repeated());
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(16));
}

#[derive(Default)]
struct ShadowCharges(AtomicU64);

impl Observer for ShadowCharges {
    fn observe(&self, event: &Event<'_>) {
        if event.shadow && event.verb == Verb::Charge {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn shadows_and_observers_count_a_request_once() {
    let observer = Arc::new(CountingObserver::default());
    let shadow_charges = Arc::new(ShadowCharges::default());
    let policy = Policy::new().limit("api", Limit::per_hour(10)).rule(Rule::new("watch", Limit::per_hour(5)).shadow());
    let limiter = Limiter::builder(policy)
        .observer(Arc::clone(&observer))
        .observer(Arc::clone(&shadow_charges))
        .build()
        .expect("a valid policy");
    for _ in 0..3 {
        assert!(limiter.allow(Request::new("alice").id("a")));
    }
    assert_eq!((observer.allowed(), observer.repeated()), (1, 2));
    assert_eq!(shadow_charges.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_limit_that_is_charged_nothing_does_not_hide_the_id_from_the_others() {
    let free = || Rule::new("free", Limit::per_hour(10)).fixed_cost(0);
    let paid = || Rule::new("paid", Limit::per_hour(10));
    for policy in [Policy::new().rule(free()).rule(paid()), Policy::new().rule(paid()).rule(free())] {
        let limiter = limiter(policy);
        let ask = || limiter.check(Request::new("alice").id("order-17")).expect("an answer");
        assert_eq!((ask().is_repeated(), ask().is_repeated()), (false, true));
        assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(9));
        assert!(limiter.check(Request::new("alice").cost(2).id("order-17")).is_err());
    }
}

/// A reset needs no id, and what comes with it does.
#[test]
fn what_comes_after_a_reset_is_charged_once() {
    for order in [[0, 1], [1, 0]] {
        let limiter = limiter(Limit::per_hour(10));
        let asked = || {
            let both = [(Verb::Reset, Request::new("alice")), (Verb::Charge, Request::new("bob").id("order-17"))];
            order.map(|index| both[index].clone())
        };
        for _ in 0..3 {
            assert!(tidegate_testkit::block_on(limiter.decide_all_async(&asked())).is_ok());
        }
        assert_eq!(limiter.peek("bob").expect("an answer").remaining(), Some(9), "{order:?}");
    }
}

/// A peek beside it is decided anew, and keeps nothing from being repeated.
#[test]
fn a_charge_beside_a_peek_is_repeated_though_nothing_is_left_for_it() {
    for order in [[0, 1], [1, 0]] {
        let limiter = limiter(Limit::per_hour(10));
        let asked = [(Verb::Charge, Request::new("alice").cost(8).id("order-17")), (Verb::Peek, Request::new("bob"))];
        for repeated in [false, true, true] {
            let asked = order.map(|index| asked[index].clone());
            let said = tidegate_testkit::block_on(limiter.decide_all_async(&asked)).expect("answers");
            let alice = said[order[0]].as_ref().expect("a decision");
            assert_eq!((alice.is_allowed(), alice.is_repeated()), (true, repeated), "{order:?}");
        }
        // What the peek asks for has to be there.
        assert!(limiter.allow(Request::new("bob").cost(10)));
        let asked = [asked[0].clone(), (Verb::Peek, Request::new("bob"))];
        let said = tidegate_testkit::block_on(limiter.decide_all_async(&asked)).expect("answers");
        assert!(said[1].as_ref().is_ok_and(|decision| !decision.is_allowed()));
    }
}
