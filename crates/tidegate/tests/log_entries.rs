//! The bound on the entries of a sliding log: wherever a limit can stand, and
//! whenever it is changed.

use std::time::Duration;

use tidegate::{ConfigError, Limit, Limiter, ManualClock, MemoryStore, Policy, Request, Rule, WarmUp};

const DAY: Duration = Duration::from_secs(86_400);

fn log(count: u64) -> Limit {
    Limit::sliding_log(count, DAY)
}

/// Policies with this limit, in every place that a limit can have.
fn policies(limit: Limit) -> Vec<Policy> {
    let rule = || Rule::new("api", Limit::per_second(1));
    let warm_up = WarmUp::new(1, DAY).expect("a warm-up");
    let rules = [
        Rule::new("api", limit),
        Rule::new("api", limit).shadow(),
        Rule::new("api", limit).warm_up(warm_up),
        rule().candidate(limit),
        rule().tier("plan", "pro", limit),
        rule().override_exactly("user", "alice", limit),
        rule().override_matching("user", "a*", limit),
    ];
    let otherwise = Policy::new().rule(Rule::new("all", Limit::per_second(1))).otherwise(Rule::new("api", limit));
    rules.into_iter().map(Policy::from).chain([otherwise]).collect()
}

#[test]
fn a_log_beyond_the_bound_is_refused_wherever_it_stands() {
    let is_refused = |refused: Option<ConfigError>, entries, bound| {
        let Some(ConfigError::TooManyLogEntries { rule, limit, entries: found, bound: allowed }) = &refused else {
            panic!("{refused:?}")
        };
        assert!(rule.starts_with("api"), "{rule}");
        assert_eq!((&**limit, *found, *allowed), (&*log(entries).to_string(), entries, bound));
    };
    for (bound, limiter) in [(Limiter::DEFAULT_MAX_LOG_ENTRIES, None), (5, Some(5)), (3_000_000, Some(3_000_000))] {
        let build = |policy: Policy| match limiter {
            None => Limiter::builder(policy).build(),
            Some(bound) => Limiter::builder(policy).max_log_entries(bound).build(),
        };
        let in_force = build(Policy::from(Limit::per_second(1))).expect("no log at all");
        for (fits, too_long) in policies(log(bound)).into_iter().zip(policies(log(bound + 1))) {
            assert!(build(fits.clone()).is_ok() && in_force.set_policy(fits.clone()).is_ok(), "{fits:?}");
            is_refused(build(too_long.clone()).err(), bound + 1, bound);
            is_refused(in_force.set_policy(too_long).err(), bound + 1, bound);
            assert_eq!(in_force.policy(), fits, "the one in force stays");
        }
    }
}

#[test]
fn the_error_says_which_rule_and_what_to_do() {
    let error = Limiter::builder(Rule::new("orders", log(3_000_000))).build().expect_err("too long");
    let said = "rule \"orders\": sliding-log 3000000/day may keep 3000000 entries for each key, and at most 100000 are \
                allowed: use a sliding counter, lower the count, or raise max_log_entries";
    assert_eq!(error.to_string(), said);
}

#[test]
fn other_limits_and_periods_of_few_microseconds_have_no_such_bound() {
    let large = 1_000_000_000;
    let short = Limit::sliding_log(large, Duration::from_micros(Limiter::DEFAULT_MAX_LOG_ENTRIES));
    let limits = [Limit::per_day(large), Limit::fixed_window(large, DAY), Limit::sliding_counter(large, DAY), short];
    for limit in limits {
        assert!(Limiter::builder(limit).build().is_ok(), "{limit}");
    }
}

/// A log that is walked, copied or decoded for each of these checks would take
/// hours.
#[test]
fn checks_of_a_long_log_cost_no_more_than_those_of_a_short_one() {
    const ENTRIES: u64 = 200_000;
    const CHECKS: u64 = 50_000;
    let clock = ManualClock::default();
    clock.advance(DAY);
    let limiter = |policy: Policy, store: MemoryStore| {
        Limiter::builder(policy).store(store).max_log_entries(2 * ENTRIES).build().expect("a valid policy")
    };
    let warm_up = WarmUp::new(1, Duration::from_micros(10)).expect("a warm-up");
    for rule in [Rule::new("log", log(ENTRIES)), Rule::new("log", log(ENTRIES)).warm_up(warm_up)] {
        let cost = if rule == Rule::new("log", log(ENTRIES)) { ENTRIES } else { 1 };
        let policy = Policy::from(rule).limit("other", Limit::per_second(1_000_000));
        let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
        let first = limiter(policy.clone(), store);
        for _ in 0..ENTRIES {
            clock.advance(Duration::from_micros(2));
            assert!(first.allow("alice"));
        }
        let ask = |limiter: &Limiter| {
            for _ in 0..CHECKS {
                assert!(!limiter.allow(Request::new("alice").cost(cost)));
                assert!(!limiter.allow(Request::new("alice").cost(cost).rule("log")));
                assert_eq!(limiter.peek(Request::new("alice").cost(cost)).expect("an answer").remaining(), Some(0));
            }
        };
        ask(&first);
        // From a snapshot, as well.
        let mut bytes = Vec::new();
        first.store().snapshot(&mut bytes).expect("written");
        let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).restore(&*bytes).expect("a snapshot");
        let restored = limiter(policy, store);
        ask(&restored);
        // A key whose limit was changed is looked at by a copy, until its next charge moves the log.
        restored.set_policy(Policy::from(Rule::new("log", log(ENTRIES + 1)))).expect("a valid policy");
        let look = || assert!(restored.peek("alice").expect("an answer").remaining() <= Some(1));
        (0..10).for_each(|_| look());
        assert!(!restored.allow(Request::new("alice").cost(2)));
        (0..CHECKS).for_each(|_| look());
    }
}
