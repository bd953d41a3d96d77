//! Whose state it is: one for each key, rule and limit, and none before the
//! first charge.

use std::net::Ipv4Addr;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Meter, Store};
use tidegate::{CheckError, Key, Limit, Limiter, ManualClock, Micros, Name, Request};

use super::{Bench, START, limits};
use crate::block_on::block_on;
use crate::random::Random;

/// When its reset has passed, a used key decides every check as a new one
/// does.
pub fn a_key_whose_reset_has_passed_is_as_if_never_seen<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (used, new) = (bench.account(limit, "used"), bench.account(limit, "new"));
        let mut random = Random::new(17);
        for _ in 0..10 {
            used.charge(random.within(1..=limit.capacity()));
            bench.clock.advance(Duration::from_micros(random.magnitude(1..=1_000_000)));
        }
        let last = used.charge(1);
        bench.clock.advance(last.reset_after.to_duration());
        for verb in [Verb::Peek, Verb::Refund, Verb::Charge, Verb::Charge, Verb::Charge, Verb::Peek] {
            let cost = random.within(1..=limit.capacity());
            assert_eq!(used.ask(verb, cost), new.ask(verb, cost), "{limit}: {verb:?} of {cost}");
            bench.clock.advance(Duration::from_micros(random.magnitude(1..=1_000_000)));
        }
    }
}

/// A cost above the capacity is an error, never a refusal with a waiting
/// time, and charges nothing.
pub fn a_cost_above_the_capacity_is_an_error<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let (store, _clock) = make();
        let limiter = Limiter::with_store(limit, store).expect("one limit is a policy");
        let ask = |cost| block_on(limiter.check_async(Request::new("alice").cost(cost)));
        for above in [limit.capacity() + 1, u64::MAX] {
            match ask(above) {
                Err(CheckError::Unsatisfiable { cost, capacity, .. }) => {
                    assert_eq!((cost, capacity), (above, limit.capacity()), "{limit}");
                }
                other => panic!("{limit}: {other:?} to a cost of {above}"),
            }
        }
        assert!(ask(limit.capacity()).is_ok_and(|decision| decision.is_allowed()), "{limit}: all that fits, fits");
    }
}

/// Keys that look alike in some way are different keys.
pub fn different_keys_never_collide<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let keys: Vec<Key<'_>> = vec![
        Key::from(("a:b", "c")),
        Key::from(("a", "b:c")),
        Key::from(("a", "b", "c")),
        Key::from(("a:b:c",)),
        Key::from("a:b:c"),
        Key::from(("ab",)),
        Key::from("ab"),
        Key::from(("a", "b")),
        Key::from(("b", "a")),
        Key::from(("", "ab")),
        Key::from(("ab", "")),
        Key::from("AB"),
        Key::from("ab "),
        Key::from("ab\0"),
        Key::from("\u{1}ab"),
        Key::from("\u{2}ab"),
        Key::from(""),
        Key::from(("",)),
        Key::from(("", "")),
        Key::from("{ab}"),
        Key::from("rule"),
        Key::from(7),
        Key::from(70),
        Key::from((7, 0)),
        Key::from(Ipv4Addr::new(1, 2, 3, 4)),
        Key::from(Ipv4Addr::new(12, 3, 4, 1)),
        Key::from(&[0xff, 0xfe][..]),
        Key::from(&[0xff][..]),
        Key::from(&long),
        Key::from(&longer),
        Key::from((&long, "")),
    ];
    for limit in limits() {
        let bench = Bench::new(make);
        for key in &keys {
            assert!(bench.account(limit, key).takes_all(), "{limit}: {key:?} was charged for another key");
        }
        for key in &keys {
            assert!(!bench.account(limit, key).takes_all(), "{limit}: {key:?} was forgotten");
        }
    }
}

/// The same key and limit under two rules are two states.
pub fn a_key_under_two_rules_is_two_keys<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        // Nor are a rule's name and a key ever joined.
        let alike = [
            ("one", "alice"),
            ("two", "alice"),
            ("on", "ealice"),
            ("", "onealice"),
            ("one:two", "alice"),
            ("onealice", ""),
        ];
        for (rule, key) in alike {
            let account = bench.account_of(Meter::new(Name::literal(rule), limit), key);
            assert!(account.takes_all(), "{limit}: {key:?} of rule {rule:?} was charged for another rule");
        }
    }
}

/// Fixed windows that go by their [period](Meter::by_period) have one state,
/// whatever their counts.
pub fn fixed_windows_of_one_period_count_together<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let bench = Bench::new(make);
    let of = |count, seconds| {
        let limit = Limit::fixed_window(count, Duration::from_secs(seconds));
        bench.account_of(Meter::new(Name::literal("rule"), limit).by_period(), "alice")
    };
    let [six, ten, thousands] = [6, 10, 5_000].map(|count| of(count, 10));
    let say = |verdict: Verdict| (verdict.allowed, verdict.remaining);
    assert_eq!(say(ten.charge(5)), (true, 5));
    assert_eq!(say(six.charge(1)), (true, 0), "five of six were used");
    assert_eq!(say(six.charge(1)), (false, 0));
    assert_eq!(say(ten.charge(1)), (true, 3), "a refusal of one charges none");
    assert_eq!(say(thousands.charge(93)), (true, 4_900));
    for narrow in [&six, &ten] {
        let refused = narrow.charge(1);
        assert_eq!(say(refused), (false, 0));
        // The window began 3.123457 seconds ago.
        assert_eq!([refused.retry_after, refused.reset_after].map(Micros::get), [6_876_543; 2]);
    }
    assert_eq!(say(ten.refund(4)), (true, 0), "more is used than it could give back");
    assert_eq!(say(thousands.refund(91)), (true, 4_995));
    assert_eq!(say(six.peek(1)), (true, 1));
    assert!(of(6, 20).takes_all(), "another period is another state");
    assert!(bench.account(Limit::fixed_window(6, Duration::from_secs(10)), "alice").takes_all(), "and so is one alone");
    assert_eq!(say(six.reset()), (true, 6));
    assert_eq!(say(thousands.charge(50)), (true, 4_950), "a reset of one is one of all");
    bench.set(START + 10_000_000);
    assert!(six.takes_all() && !ten.charge(5).allowed, "in the next window");
}

/// A rule whose limit is changed starts anew: what one limit keeps, another
/// does not read.
pub fn a_rule_under_two_limits_is_two_rules<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let bench = Bench::new(make);
    let alike = [
        Limit::per_second(2),
        Limit::per_second(2).burst(3),
        Limit::per_minute(2),
        Limit::token_bucket(4, Duration::from_secs(2)).burst(2),
        Limit::leaky_bucket(2, Duration::from_secs(1)),
        Limit::fixed_window(2, Duration::from_secs(1)),
        Limit::fixed_window(2, Duration::from_secs(1)).from_first_request(),
        Limit::sliding_log(2, Duration::from_secs(1)),
        Limit::sliding_counter(2, Duration::from_secs(1)),
    ];
    for limit in alike.into_iter().chain(limits()) {
        assert!(bench.account(limit, "alice").takes_all(), "{limit} was charged for another limit");
    }
}
