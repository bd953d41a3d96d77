//! Limits in several places of one rule, and what was used of each when they
//! are changed.

use std::time::{Duration, Instant};

use tidegate::{ConfigError, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request, Rule};

const HOUR: Duration = Duration::from_secs(3_600);

fn limiter(policy: impl Into<Policy>) -> Limiter {
    limiter_and_clock(policy).0
}

fn limiter_and_clock(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

fn limit(words: &str) -> Limit {
    words.parse().expect("a limit")
}

#[test]
fn a_limit_that_still_applies_elsewhere_keeps_what_it_counted() {
    // An override of no attribute of the key, whose limit is that of another place.
    let rule =
        |alice: &str| Rule::new("api", limit("10/h")).key(["tenant"]).override_exactly("user", "alice", limit(alice));
    let with = |alice: &str| rule(alice).override_exactly("user", "bob", limit("20/h"));
    let by = |user| Request::user(user).with("tenant", "acme");
    for (former, other, most) in [("10/h", "carol", 10), ("20/h", "bob", 20)] {
        let limiter = limiter(with(former));
        assert!(limiter.allow(by(other)));
        limiter.set_policy(with("50/h")).expect("a valid policy");
        let mut admitted = 1;
        for _ in 0..5 {
            assert!(limiter.allow(by("alice")));
            admitted += (0..30).filter(|_| limiter.allow(by(other))).count();
        }
        assert_eq!(admitted, most, "by {other}");
        // When it applies nowhere any more, what was used of it goes to its place.
        let place = rule("50/h").override_exactly("user", "bob", limit("100/h"));
        limiter.set_policy(place).expect("a valid policy");
        if other == "bob" {
            assert_eq!(limiter.peek(by("bob")).expect("an answer").remaining(), Some(80));
        }
    }
}

#[test]
fn each_of_many_limits_that_become_one_keeps_what_was_used() {
    let count = 1_000;
    let with = |words: Option<&str>| {
        (0..count).fold(Rule::new("api", limit("10/h")).key(["user"]), |rule, number| {
            let limit = words.map_or_else(|| Limit::per_hour(100 + number), limit);
            rule.override_exactly("user", number.to_string(), limit)
        })
    };
    let limiter = limiter(with(None));
    assert!(limiter.allow(Request::user("5").cost(30)) && limiter.allow(Request::user("7").cost(50)));
    limiter.set_policy(with(Some("200/h"))).expect("a valid policy");
    let left = |user| limiter.peek(Request::user(user)).expect("an answer").remaining();
    assert_eq!([left("5"), left("7"), left("9")], [170, 150, 200].map(Some));
    assert!(limiter.allow(Request::user("5").cost(170)) && !limiter.allow(Request::user("5")));
    // The one that they have become is changed once more.
    limiter.set_policy(with(Some("300/h"))).expect("a valid policy");
    assert_eq!([left("5"), left("7"), left("9")], [100, 250, 300].map(Some));
}

#[test]
fn many_limits_are_replaced_by_one_at_once() {
    let (limiter, _) = limiter_and_clock(Rule::new("api", limit("10/h")).key(["user"]));
    let with = |words: Option<&str>| {
        (0..40).fold(Rule::new("api", limit("10/h")).key(["user"]), |rule, number| {
            let limit = words.map_or_else(|| Limit::per_hour(100 + number), limit);
            rule.override_exactly("user", number.to_string(), limit)
        })
    };
    limiter.set_policy(with(None)).expect("a valid policy");
    assert!(limiter.allow(Request::user("7").cost(3)));
    limiter.set_policy(with(Some("200/h"))).expect("a valid policy");
    assert!(limiter.allow(Request::user("5").cost(7)));
    limiter.set_policy(Rule::new("api", limit("10/h")).key(["user"])).expect("a valid policy");
    let left = |user| limiter.peek(Request::user(user)).expect("an answer").remaining();
    assert_eq!([left("5"), left("7"), left("9")], [3, 7, 10].map(Some));
}

#[test]
fn places_that_share_keys_share_what_was_used_before() {
    let rule = |own: &str, alice: &str| {
        Rule::new("api", limit(own)).key(["tenant"]).override_exactly("user", "alice", limit(alice))
    };
    let limiter = limiter(rule("10/h", "20/h"));
    let by = |user| Request::user(user).with("tenant", "acme");
    assert!(limiter.allow(by("alice").cost(15)) && limiter.allow(by("bob").cost(8)));
    limiter.set_policy(rule("30/h", "30/h")).expect("a valid policy");
    assert_eq!(limiter.check(by("bob")).expect("an answer").remaining(), Some(30 - 15 - 8 - 1));
}

#[test]
fn very_many_overrides_are_put_in_the_place_of_others_in_time() {
    const OVERRIDES: u32 = 30_000;
    let change = |count: u32| {
        let with = |from: u32| {
            (from..from + count).fold(Rule::new("api", limit("10/h")).key(["user"]), |rule, number| {
                rule.override_exactly("user", number.to_string(), limit("100/h"))
            })
        };
        let round = |_| {
            let limiter = limiter(with(0));
            assert!(limiter.allow(Request::user("7").cost(4)));
            let next = with(count);
            let began = Instant::now();
            limiter.set_policy(next).expect("a valid policy");
            let took = began.elapsed();
            assert_eq!(limiter.peek(Request::user("7")).expect("an answer").remaining(), Some(6));
            took
        };
        // As many overrides in all: what else the machine does delays few at a time and all at once alike.
        let rounds = |_| (0..OVERRIDES / count).map(round).sum::<Duration>();
        (0..3).map(rounds).min().expect("there are rounds")
    };
    // Each was compared with all others: that takes twenty times as long among so many.
    let (few, many) = (change(OVERRIDES / 30), change(OVERRIDES));
    assert!(many < 8 * few, "{many:?} for all overrides at once, {few:?} for a thirtieth at a time");
}

#[test]
fn a_rule_that_was_changed_too_often_is_not_taken_away_before_it_is_forgotten() {
    let other = || Rule::new("other", limit("5/h"));
    let with = |count: u64| Policy::new().rule(other()).rule(Rule::new("api", Limit::fixed_window(count, HOUR)));
    for (changes, taken_away) in
        [(31, Ok(())), (32, Err(ConfigError::TooManyChanges { rule: "api".into(), bound: 32 }))]
    {
        let limiter = limiter(with(1));
        (2..2 + changes).for_each(|count| limiter.set_policy(with(count)).expect("a change"));
        assert_eq!(limiter.set_policy(Policy::new().rule(other())), taken_away, "after {changes}");
    }
}
