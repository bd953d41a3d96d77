//! Which former limits a check is made with after a policy change, and until when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{Clock, ConfigError, Limit, ManualClock, MemoryStore, Micros, Policy, Request, Rule, Setting};

const START: u64 = 1_700_000_000;
/// How long anything charged to so many an hour matters, in seconds: debt takes twice as long to drain.
const HOUR: u64 = 7_201;

type Limiter = tidegate::Limiter<Recording>;

/// The former limits of a check: their words, and until when they matter.
type Former = Vec<(String, Micros)>;

/// A memory store that keeps the former limits of the last checks.
struct Recording {
    store: MemoryStore,
    former: Arc<Mutex<Vec<Former>>>,
}

impl Store for Recording {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let words = |check: &Check<'_>| {
            check.former().iter().map(|former| (former.meter.meaning().to_owned(), former.until)).collect()
        };
        *self.former.lock().expect("no panic") = checks.iter().map(words).collect();
        self.store.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

impl ImmediateStore for Recording {}

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(Micros::new(START * 1_000_000));
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let store = Recording { store, former: Arc::default() };
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

/// The former limits of each rule that applies to a request.
fn former(limiter: &Limiter, request: Request<'_>) -> Vec<Former> {
    let _ = limiter.peek(request).expect("an answer");
    limiter.store().former.lock().expect("no panic").clone()
}

fn set(limiter: &Limiter, policy: impl Into<Policy>) {
    limiter.set_policy(policy).expect("a valid policy");
}

/// A rule by user, of so many an hour.
fn rule(count: u64) -> Rule {
    Rule::new("api", Limit::per_hour(count)).key(["user"])
}

fn with(count: u64, user: &str, own: u64) -> Rule {
    rule(count).override_exactly("user", user, Limit::per_hour(own))
}

/// The former limits of a request: so many an hour, and for how long since the start.
fn past(limiter: &Limiter, request: Request<'_>) -> Vec<(u64, u64)> {
    let hourly = |(words, until): (String, Micros)| {
        let count = words.split('/').next().and_then(|count| count.parse().ok());
        (count.expect("so many an hour"), until.get() / 1_000_000 - START)
    };
    let mut past: Vec<_> = former(limiter, request).into_iter().flatten().map(hourly).collect();
    past.sort_unstable();
    past
}

fn of(limiter: &Limiter, user: &'static str) -> Vec<(u64, u64)> {
    past(limiter, Request::user(user))
}

#[test]
fn a_former_limit_is_looked_at_until_nothing_charged_to_it_matters() {
    let (limiter, clock) = limiter(rule(10));
    set(&limiter, rule(20));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR)]);
    clock.advance(Duration::from_secs(HOUR) - Duration::from_micros(1));
    set(&limiter, rule(30));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR), (20, HOUR + HOUR - 1)]);
    clock.advance(Duration::from_micros(1));
    set(&limiter, rule(40));
    assert_eq!(of(&limiter, "alice"), [(20, HOUR + HOUR - 1), (30, 2 * HOUR)]);
    // The same again is no change.
    clock.advance(Duration::from_secs(5));
    set(&limiter, rule(40));
    assert_eq!(of(&limiter, "alice"), [(20, HOUR + HOUR - 1), (30, 2 * HOUR)]);
}

#[test]
fn a_limit_that_comes_and_goes_matters_from_when_it_went_last_and_never_to_itself() {
    let (limiter, clock) = limiter(rule(10));
    for (seconds, count, expected) in
        [(0, 20, vec![(10, HOUR)]), (100, 10, vec![(20, 100 + HOUR)]), (200, 20, vec![(10, 300 + HOUR)])]
    {
        clock.advance(Duration::from_secs(seconds));
        set(&limiter, rule(count));
        assert_eq!(of(&limiter, "alice"), expected);
    }
    set(&limiter, rule(30));
    assert_eq!(of(&limiter, "alice"), [(10, 300 + HOUR), (20, 300 + HOUR)]);
}

#[test]
fn an_override_that_stays_has_no_former_limit_of_its_own() {
    let (limiter, _) = limiter(with(10, "alice", 50));
    set(&limiter, with(20, "alice", 50));
    assert_eq!((of(&limiter, "alice"), of(&limiter, "bob")), (vec![(10, HOUR)], vec![(10, HOUR)]));
    // Nor does a rule that stays as it is.
    let other = |count| Policy::new().rule(rule(10)).limit("other", Limit::per_hour(count));
    set(&limiter, other(1));
    set(&limiter, other(2));
    assert_eq!(past(&limiter, Request::user("bob").rule("other")), [(1, HOUR)]);
    assert_eq!(past(&limiter, Request::user("bob").rule("api")), [(20, HOUR)]);
    assert_eq!(past(&limiter, Request::user("alice").rule("api")), [(20, HOUR), (50, HOUR)]);
}

#[test]
fn a_new_override_has_all_former_limits_that_match_the_request() {
    let patterns = || {
        rule(10)
            .tier("plan", "pro", Limit::per_hour(20))
            .override_matching("user", "al*", Limit::per_hour(30))
            .override_matching("user", "a*", Limit::per_hour(40))
            .override_matching("tenant", "*", Limit::per_hour(50))
    };
    let (limiter, _) = limiter(patterns());
    let own = |user: &str| patterns().override_exactly("user", user, Limit::per_hour(100));
    set(&limiter, own("alice"));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR), (30, HOUR), (40, HOUR)]);
    set(&limiter, own("bob"));
    assert_eq!(of(&limiter, "bob"), [(10, HOUR)]);
    assert_eq!(past(&limiter, Request::user("bob").with("plan", "pro")), [(10, HOUR), (20, HOUR)]);
    assert_eq!(past(&limiter, Request::user("carol").with("plan", "pro")), []);
    assert!(of(&limiter, "alice").contains(&(100, HOUR)), "what was hers is the pattern's again");
}

#[test]
fn a_new_override_looks_at_other_limits_until_nothing_charged_to_them_before_matters() {
    let (limiter, clock) = limiter(rule(10).override_exactly("user", "bob", Limit::per_day(5)));
    let own = |count| with(count, "alice", 50).override_exactly("user", "bob", Limit::per_day(5));
    set(&limiter, own(10));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR)], "nothing of hers was charged to an override of another value");
    clock.advance(Duration::from_secs(HOUR) - Duration::from_micros(1));
    set(&limiter, own(20));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR + HOUR - 1), (20, HOUR)]);
    clock.advance(Duration::from_micros(1));
    set(&limiter, own(30));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR + HOUR - 1), (20, 2 * HOUR)], "the override is no longer new");
}

#[test]
fn a_former_limit_of_several_places_is_looked_at_for_as_long_as_any_of_them_says() {
    let pattern = |count| rule(count).override_matching("user", "a*", Limit::per_hour(10));
    let (limiter, clock) = limiter(pattern(10));
    set(&limiter, pattern(20));
    clock.advance(Duration::from_secs(100));
    set(&limiter, rule(20));
    assert_eq!((of(&limiter, "alice"), of(&limiter, "bob")), (vec![(10, 100 + HOUR)], vec![(10, HOUR)]));
}

#[test]
fn a_new_tier_has_the_former_limits_of_the_rule() {
    let rule = || with(10, "bob", 30).tier("plan", "pro", Limit::per_hour(20));
    let (tier, _) = limiter(rule());
    set(&tier, rule().tier("plan", "free", Limit::per_hour(60)));
    assert_eq!(past(&tier, Request::user("alice").with("plan", "free")), [(10, HOUR)]);
    assert_eq!(past(&tier, Request::user("alice").with("plan", "pro")), []);
    let (pattern, _) = limiter(rule().override_matching("user", "*l*", Limit::per_hour(40)));
    let patterns = rule().override_matching("user", "*l*", Limit::per_hour(40));
    set(&pattern, patterns.override_matching("user", "c*", Limit::per_hour(70)));
    assert_eq!(of(&pattern, "carmen"), [(10, HOUR)]);
    assert_eq!(of(&pattern, "alice"), []);
    // Of tiers alone, too.
    let plans = ["free", "pro", "team"];
    let tiers = |count| plans.iter().fold(self::rule(count), |rule, plan| rule.tier("plan", *plan, Limit::per_hour(5)));
    let (alone, _) = limiter(tiers(10));
    set(&alone, tiers(20));
    assert_eq!(of(&alone, "alice"), [(10, HOUR)]);
}

#[test]
fn an_override_for_some_requests_of_a_key_begins_anew_and_counts_only_its_own() {
    let rule = || Rule::new("api", Limit::per_hour(10)).key(["tenant"]);
    let own = |count| rule().override_exactly("user", "alice", Limit::per_hour(count));
    let alice = || Request::user("alice").with("tenant", "acme");
    let (limiter, _) = limiter(rule());
    set(&limiter, own(50));
    assert_eq!(past(&limiter, alice()), []);
    set(&limiter, own(55));
    assert_eq!(past(&limiter, alice()), [(50, HOUR)]);
    set(&limiter, rule());
    assert_eq!(past(&limiter, alice()), [(50, HOUR), (55, HOUR)]);
    set(&limiter, own(60));
    assert_eq!(past(&limiter, alice()), [(50, HOUR), (55, HOUR)]);
    // Nor does it count what others of its key used of the rule's own limit.
    let changed = Rule::new("api", Limit::per_hour(20)).key(["tenant"]);
    set(&limiter, changed.override_exactly("user", "alice", Limit::per_hour(60)));
    assert_eq!(past(&limiter, alice()), [(50, HOUR), (55, HOUR)]);
    assert_eq!(past(&limiter, Request::user("bob").with("tenant", "acme")), [(10, HOUR)]);
}

#[test]
fn a_pattern_for_some_requests_of_a_key_counts_its_own_former_limits_and_no_other_patterns() {
    // As text, the second pattern matches the first.
    let patterns = |count| {
        let rule = Rule::new("api", Limit::per_hour(10)).key(["tenant"]);
        let rule = rule.override_matching("user", "??", Limit::per_hour(50));
        rule.override_matching("user", "a*", Limit::per_hour(count))
    };
    let of = |limiter: &Limiter, user: &'static str| past(limiter, Request::user(user).with("tenant", "acme"));
    let (limiter, _) = limiter(patterns(60));
    set(&limiter, patterns(65));
    assert_eq!((of(&limiter, "alice"), of(&limiter, "bo")), (vec![(60, HOUR)], vec![]));
}

#[test]
fn a_rule_of_other_keys_begins_anew_and_remembers_when_it_is_as_before() {
    let (limiter, _) = limiter(rule(10));
    let alice = || past(&limiter, Request::user("alice").with("tenant", "acme"));
    set(&limiter, rule(20).key(["tenant"]));
    assert_eq!(alice(), []);
    set(&limiter, rule(30));
    assert_eq!(alice(), [(10, HOUR)]);
}

#[test]
fn a_rule_that_comes_back_counts_what_any_pattern_counted() {
    let patterns = || {
        ["al*", "ali*", "alic*", "a*"]
            .into_iter()
            .zip([30, 40, 50, 60])
            .fold(rule(10), |rule, (pattern, count)| rule.override_matching("user", pattern, Limit::per_hour(count)))
    };
    // No order of a hash may decide.
    for _ in 0..20 {
        let (limiter, _) = limiter(patterns());
        assert!(limiter.allow(Request::user("alice").cost(8)));
        set(&limiter, Policy::new().limit("other", Limit::per_hour(1)));
        set(&limiter, with(10, "alice", 100));
        assert_eq!(limiter.peek(Request::user("alice")).expect("an answer").remaining(), Some(92));
        let former: Vec<Former> = former(&limiter, Request::user("alice"));
        let words: Vec<&str> = former[0].iter().map(|(words, _)| words.as_str()).collect();
        assert_eq!(words, ["60/h by user", "30/h by user", "40/h by user", "50/h by user", "10/h by user"]);
    }
}

#[test]
fn the_number_of_remembered_changes_is_bounded() {
    let (often, _) = limiter(rule(100));
    (101..=132).for_each(|count| set(&often, rule(count)));
    assert_eq!(of(&often, "alice").len(), 32);
    assert_eq!(often.set_policy(rule(133)), Err(ConfigError::TooManyChanges { rule: "api".into(), bound: 32 }));
}

#[test]
fn limits_without_names_follow_each_other_in_their_order() {
    let limits = |counts: [u64; 2]| counts.map(Limit::per_hour);
    let (limiter, _) = limiter(limits([10, 20]));
    set(&limiter, limits([20, 30]));
    let replaced = |limiter: &Limiter| {
        let words = |former: Former| former.into_iter().map(|(words, _)| words).collect::<Vec<_>>();
        former(limiter, Request::new("alice")).into_iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(replaced(&limiter), [vec![], vec!["10/h"]]);
    set(&limiter, limits([40, 50]));
    assert_eq!(replaced(&limiter), [vec!["20/h"], vec!["10/h", "30/h"]]);
    // Another that is added replaces none.
    set(&limiter, [40, 50, 60].map(Limit::per_hour));
    assert_eq!(replaced(&limiter), [vec!["20/h"], vec!["10/h", "30/h"], vec![]]);
    set(&limiter, [50, 70, 60].map(Limit::per_hour));
    assert_eq!(replaced(&limiter), [vec!["10/h", "30/h"], vec!["20/h", "40/h"], vec![]]);
    // One with a name is not meant.
    set(&limiter, Policy::new().limit("all", Limit::per_hour(80)));
    assert_eq!(replaced(&limiter), [Vec::<String>::new()]);
}

#[test]
fn an_unlimited_setting_leaves_no_former_limit() {
    let (limiter, _) = limiter(rule(10).override_exactly("user", "alice", Setting::Unlimited));
    set(&limiter, rule(10));
    assert_eq!(of(&limiter, "alice"), []);
    set(&limiter, with(10, "alice", 20));
    assert_eq!(of(&limiter, "alice"), [(10, HOUR)]);
}
