//! Rules: which limits a request meets, and whose they are.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::kernel::Verb;
use tidegate::store::Check;
use tidegate::{
    CheckError, Condition, ConfigError, Decision, FailureMode, KeyAttribute, KeyPart, Limit, Limiter, ManualClock,
    MemoryStore, Missing, Name, Policy, Request, Rule, Setting, WarmUp,
};
use tidegate_testkit::{Random, block_on};

const ONE: Limit = Limit::per_hour(1);

fn limiter(policy: impl Into<Policy>) -> Limiter {
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn equals(value: &str) -> Condition {
    Condition::Equals(value.into())
}

#[test]
fn a_request_meets_the_rules_that_match_it_and_no_other() {
    let limiter = limiter(
        Policy::new()
            .rule(Rule::new("writes", Limit::per_hour(10)).when("method", equals("POST")).key(["user"]))
            .rule(
                Rule::new("api", Limit::per_hour(20))
                    .when("path", Condition::StartsWith("/api/".into()))
                    .key(["user", "path"]),
            )
            .rule(
                Rule::new("office", Limit::per_hour(30))
                    .when("ip", Condition::Within("10.0.0.0/8".parse().expect("a network"))),
            )
            .rule(
                Rule::new("bots", Limit::per_hour(5)).when("agent", Condition::Matches("*bot*".into())).key(["agent"]),
            ),
    );
    let request = |method, path, ip: &'static str, agent| {
        let ip: IpAddr = ip.parse().expect("an address");
        Request::user("alice").with("method", method).with("path", path).with("ip", ip).with("agent", agent)
    };
    for (request, rule) in [
        (request("POST", "/", "192.0.2.1", "curl"), "writes"),
        (request("GET", "/api/x", "192.0.2.1", "curl"), "api"),
        (request("GET", "/", "10.9.9.9", "curl"), "office"),
        (request("POST", "/api/x", "10.9.9.9", "a bot!"), "bots"),
    ] {
        assert_eq!(limiter.peek(request.clone()).expect("an answer").rule().as_str(), rule, "{request:?}");
    }
    let unlimited = limiter.check(request("GET", "/", "192.0.2.1", "curl")).expect("an answer");
    assert!(unlimited.is_allowed() && unlimited.is_unlimited());
}

#[test]
fn a_refused_request_charges_no_rule_in_any_order() {
    let rules = ["a", "b", "c"].map(|name| {
        let limit = if name == "b" { 1 } else { 3 };
        Rule::new(name, Limit::per_hour(limit)).key([name])
    });
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let policy = order.into_iter().fold(Policy::new(), |policy, rule| policy.rule(rules[rule].clone()));
        let limiter = limiter(policy);
        let request = || Request::new("").with("a", "x").with("b", "x").with("c", "x");
        assert!(limiter.allow(request()));
        let refusal = limiter.check(request()).expect("an answer");
        assert!(!refusal.is_allowed() && refusal.rule() == "b");
        let left = |name| limiter.peek(Request::new("").with("a", "x").with("c", "x").rule(name)).expect("an answer");
        assert_eq!((left("a").remaining(), left("c").remaining()), (Some(2), Some(2)));
    }
}

#[test]
fn the_longest_wait_and_the_least_remaining_are_told() {
    let limiter = limiter(Policy::new().limit("slow", Limit::per_hour(1)).limit("fast", Limit::per_second(1)));
    assert!(limiter.allow("alice"));
    let refusal = limiter.check("alice").expect("an answer");
    assert_eq!((refusal.rule().as_str(), refusal.retry_after()), ("slow", Some(Duration::from_secs(3_600))));
}

#[test]
fn exact_before_pattern_before_tier_before_default() {
    let rule = Rule::new("rule", Limit::per_hour(1))
        .tier("plan", "pro", Limit::per_hour(2))
        .override_matching("tenant", "acme-*", Limit::per_hour(3))
        .override_matching("tenant", "*", Limit::per_hour(4))
        .override_exactly("tenant", "acme-eu", Limit::per_hour(5))
        .override_exactly("tenant", "friend", Setting::Unlimited)
        .override_exactly("tenant", "foe", Setting::Blocked)
        .key(["tenant"])
        .override_exactly("tenant", "*", Limit::per_hour(6))
        .missing(Missing::Shared);
    let limiter = limiter(rule);
    let limit = |request| limiter.check(request).expect("an answer").capacity();
    let of = |tenant| Request::new("").with("tenant", tenant).with("plan", "pro");
    assert_eq!(limit(of("*")), Some(6), "the text itself, and no pattern");
    assert_eq!(limit(of("acme-eu")), Some(5));
    assert_eq!(limit(of("acme-us")), Some(3));
    assert_eq!(limit(of("other")), Some(4));
    assert_eq!(limit(Request::new("").with("plan", "pro")), Some(2));
    assert_eq!(limit(Request::new("").with("plan", "free")), Some(1));
    assert!((0..10).all(|_| limiter.check(of("friend")).is_ok_and(|decision| decision.is_unlimited())));
    let blocked = limiter.check(of("foe")).expect("an answer");
    assert!(!blocked.is_allowed() && blocked.is_blocked() && blocked.rule() == "rule");
}

#[test]
fn costs_are_by_rule() {
    let policy = Policy::new()
        .rule(Rule::new("requests", Limit::per_hour(10)).fixed_cost(1))
        .rule(Rule::new("units", Limit::per_hour(100)).cost_multiplier(3));
    let limiter = limiter(policy);
    assert!(limiter.allow(Request::new("alice").cost(20)));
    let left = |rule| limiter.peek(Request::new("alice").cost(0).rule(rule)).expect("an answer").remaining();
    assert_eq!((left("requests"), left("units")), (Some(9), Some(40)));
    let outcome = limiter.check(Request::new("alice").cost(34));
    assert!(matches!(outcome, Err(CheckError::Unsatisfiable { cost: 102, capacity: 100, .. })), "{outcome:?}");
    assert_eq!((left("requests"), left("units")), (Some(9), Some(40)), "nothing was charged");
    let explanation = limiter.explain(Request::new("alice").cost(34)).expect("an answer");
    assert!(explanation.decision.is_blocked() && explanation.decision.rule() == "units", "{explanation}");
    assert!(explanation.to_string().contains("100/h can never let a cost of 102 pass  <- binds"), "{explanation}");
}

#[test]
fn an_additional_cost_is_not_charged_by_a_rule_with_a_fixed_cost() {
    let policy = Policy::new()
        .rule(Rule::new("requests", Limit::per_hour(10)).fixed_cost(10))
        .rule(Rule::new("units", Limit::per_hour(100)).cost_multiplier(3));
    let limiter = limiter(policy);
    let left = |rule| limiter.peek(Request::new("alice").cost(0).rule(rule)).expect("an answer").remaining();
    assert!(limiter.allow("alice") && !limiter.allow("alice"));
    assert!(limiter.allow(Request::new("alice").cost(5).in_addition()));
    assert_eq!((left("requests"), left("units")), (Some(0), Some(82)));
    let decisions = limiter.check_many([Request::new("alice").in_addition(), Request::new("alice")]);
    assert!(decisions.expect("answers").into_iter().map(|decision| decision.is_allowed()).eq([true, false]));
    assert_eq!((left("requests"), left("units")), (Some(0), Some(79)));
}

#[test]
fn the_rule_for_all_others_is_for_them_only() {
    let policy = Policy::new()
        .rule(Rule::new("known", Limit::per_hour(5)).when("user", Condition::Present).key(["user"]))
        .rule(Rule::new("watch", Limit::per_hour(5)).shadow())
        .otherwise(Rule::new("others", Limit::per_hour(1)).key([] as [&str; 0]));
    let limiter = limiter(policy);
    assert_eq!(limiter.check(Request::user("alice")).expect("an answer").rule(), "known");
    assert_eq!(limiter.check(Request::new("x")).expect("an answer").rule(), "others");
    assert!(!limiter.allow(Request::new("y")), "one key for all of them");
}

#[test]
fn a_rule_can_be_asked_for_by_its_name() {
    let policy = Policy::new()
        .rule(Rule::new("login", Limit::per_hour(1)).when("path", equals("/login")))
        .limit("all", Limit::per_hour(100));
    let limiter = limiter(policy);
    assert_eq!(limiter.check(Request::new("alice").rule("login")).expect("an answer").rule(), "login");
    assert!(!limiter.allow(Request::new("alice").rule("login")));
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(100), "the other was not asked");
    let error = limiter.check(Request::new("alice").rule("unknown")).expect_err("no such rule");
    assert!(matches!(&error, CheckError::UnknownRule { rule } if &**rule == "unknown"), "{error}");
}

#[test]
fn lists_come_before_every_rule_and_deny_before_allow() {
    let network = |text: &str| Condition::Within(text.parse().expect("a network"));
    let policy =
        Policy::new().deny("ip", network("192.0.2.0/24")).allow("ip", network("192.0.0.0/16")).limit("all", ONE);
    let limiter = limiter(policy);
    let from = |ip: &'static str| Request::new("x").with("ip", ip);
    let denied = limiter.check(from("192.0.2.7")).expect("an answer");
    assert!(denied.is_blocked() && denied.rule() == "denied");
    assert!((0..5).all(|_| limiter.allow(from("192.0.3.1"))));
    assert!(limiter.allow(from("198.51.100.1")) && !limiter.allow(from("198.51.100.1")));
}

#[test]
fn only_a_limit_on_all_requests_by_their_own_keys_is_the_only_one() {
    let is_only = |policy: Policy| limiter(policy).with_only_meter(|meter| assert_eq!(meter.name(), "rule")).is_some();
    let rule = || Rule::new("rule", ONE);
    assert!(is_only(Policy::new().rule(rule())) && is_only(Policy::new().rule(rule().cost_multiplier(1))));
    assert!(is_only(Policy::new().rule(rule().missing(Missing::Skip))));
    let unlike = [
        rule().when("method", equals("POST")),
        rule().key(["user"]),
        rule().key([] as [&str; 0]),
        rule().override_exactly("user", "root", Setting::Unlimited),
        rule().override_matching("user", "m*", Setting::Blocked),
        rule().tier("plan", "pro", Setting::Unlimited),
        rule().tier("plan", "pro", Limit::per_hour(2)),
        rule().cost_multiplier(2),
        rule().cost_multiplier(0),
        rule().fixed_cost(1),
        rule().shadow(),
        rule().candidate(Limit::per_hour(2)),
        Rule::with_setting("rule", Setting::Unlimited),
        Rule::with_setting("rule", Setting::Unlimited).tier("plan", "free", ONE),
    ];
    for rule in unlike {
        assert!(!is_only(Policy::new().rule(rule.clone())), "{rule:?}");
    }
    assert!(!is_only(Policy::new().rule(rule()).limit("other", ONE)));
    assert!(!is_only(
        Policy::new().rule(rule()).rule(Rule::with_setting("other", Setting::Blocked).when("a", equals("b")))
    ));
    assert!(!is_only(Policy::new().rule(rule()).deny("ip", equals("192.0.2.1"))));
    assert!(!is_only(Policy::new().rule(rule()).allow("ip", equals("192.0.2.1"))));
    assert!(!is_only(Policy::new().otherwise(rule())), "others may come before");
}

#[test]
fn a_request_that_one_rule_blocks_is_charged_to_no_other() {
    let foe = Rule::with_setting("closed", Setting::Blocked).when("user", equals("foe"));
    let limiter = limiter(Policy::new().limit("all", ONE).rule(foe));
    for _ in 0..2 {
        assert!(limiter.check(Request::user("foe")).is_ok_and(|decision| decision.is_blocked()));
        assert!(limiter.check(Request::user("foe").cost(2)).is_ok_and(|decision| decision.is_blocked()));
    }
    assert!(limiter.allow(Request::new("foe")));
}

#[test]
fn a_cost_too_large_to_tell_is_not_taken_for_a_small_one() {
    let limiter = limiter(Rule::new("rule", ONE).cost_multiplier(1 << 63));
    let outcome = limiter.check(Request::new("alice").cost(2));
    assert!(matches!(outcome, Err(CheckError::Unsatisfiable { cost: u64::MAX, .. })), "{outcome:?}");
}

#[test]
fn one_list_alone_decides_as_well_as_two() {
    let from = |ip: &'static str| Request::new("x").with("ip", ip);
    let denied = limiter(Policy::new().limit("all", ONE).deny("ip", equals("192.0.2.1")));
    assert!(!denied.allow(from("192.0.2.1")) && denied.allow(from("192.0.2.2")));
    let allowed = limiter(Policy::new().limit("all", ONE).allow("ip", equals("192.0.2.1")));
    assert!((0..3).all(|_| allowed.allow(from("192.0.2.1"))));
    assert!(allowed.allow(from("192.0.2.2")) && !allowed.allow(from("192.0.2.2")));
}

#[test]
fn a_policy_may_be_for_all_others_only_and_the_same_limit_twice_is_one() {
    let others = limiter(Policy::new().otherwise(Rule::new("others", ONE)));
    assert!(others.has_rule("others") && !others.has_rule("other"));
    assert!(others.allow("alice") && !others.allow("alice"));
    let twice = limiter([ONE, Limit::per_hour(2), ONE]);
    let mut names = Vec::new();
    let tell = |_: &Decision, limits: &[Check<'_>]| names = limits.iter().map(|of| of.meter().name().clone()).collect();
    assert!(twice.check_with_limits("alice", tell).is_ok());
    assert_eq!(names, ["1/h", "2/h"]);
}

#[test]
fn the_limits_that_made_a_decision_are_told_however_it_is_asked_for() {
    let (one, two) = (Policy::new().limit("first", ONE), Policy::new().limit("first", ONE).limit("second", ONE));
    for (policy, names) in [(one, &["first"][..]), (two, &["first", "second"])] {
        for id in [None, Some("once")] {
            let request = |key| id.map_or(Request::new(key), |id| Request::new(key).id(id));
            let mut told = Vec::new();
            let mut tell = |decision: &Decision, limits: &[Check<'_>]| {
                assert!(limits.iter().all(|limit| *limit.key() == "alice".into()));
                told.push((decision.is_allowed(), limits.iter().map(|limit| limit.meter().name().clone()).collect()));
            };
            let limiter = limiter(policy.clone());
            let _ = limiter.check_with_limits(request("alice"), &mut tell).expect("an answer");
            let _ = block_on(limiter.decide_with_limits_async(Verb::Charge, "alice", &mut tell)).expect("an answer");
            let names: Vec<Name> = names.iter().copied().map(Name::from).collect();
            assert_eq!(told, [(true, names.clone()), (false, names)]);
        }
    }
}

#[test]
fn what_a_request_owns_is_freed_with_it() {
    let tenant: Arc<str> = "tenant".into();
    let request = || Request::new("alice").with("tenant", Arc::clone(&tenant));
    for count in 1..=6 {
        let several = (0..count).map(|number| (format!("limit {number}"), Limit::per_hour(2)));
        let limiter = limiter(several.fold(Policy::new(), |policy, (name, limit)| policy.limit(name, limit)));
        assert!(limiter.allow(request()) && limiter.check(request()).is_ok_and(|decision| decision.is_allowed()));
        assert!(!limiter.allow(request()) && limiter.check(request().cost(3)).is_err());
        assert!(!limiter.allow(request().cost(3)), "no cost that a limit could never admit passes");
        assert_eq!(Arc::strong_count(&tenant), 1);
    }
}

#[test]
fn the_user_is_the_key_only_where_the_rule_says_so() {
    let by = |attribute: &str| limiter(Rule::new("rule", ONE).key([attribute]));
    let (by_user, by_path) = (by("user"), by("path"));
    assert!(!by_path.allow(Request::user("alice")), "it lacks the path");
    assert!(by_path.allow(Request::user("alice").with("path", "/")));
    assert!(!by_path.allow(Request::user("bob").with("path", "/")));
    assert!(by_user.allow(Request::user("alice")) && !by_user.allow(Request::new("key").with("user", "alice")));
    assert!(by_user.allow(Request::user("alice").with("user", "bob")) && !by_user.allow(Request::user("bob")));
}

#[test]
fn every_limit_of_a_rule_warms_up() {
    let climb = WarmUp::new(1, Duration::from_secs(600)).expect("a warm-up");
    let rule = Rule::new("rule", Limit::per_hour(9)).tier("plan", "pro", Limit::per_hour(99)).warm_up(climb);
    let limiter = limiter(rule);
    for (plan, limit) in [("free", 9), ("pro", 99)] {
        let decision = limiter.peek(Request::new("alice").with("plan", plan)).expect("an answer");
        assert_eq!((decision.capacity(), decision.remaining()), (Some(limit), Some(1)));
    }
}

#[test]
fn a_rule_tells_what_it_is() {
    let rule = Rule::new("rule", ONE).key(["user", "path"]);
    assert_eq!((rule.name().as_str(), rule.is_shadow(), rule.in_words().as_str()), ("rule", false, "1/h"));
    assert_eq!(rule.key_attributes(), Some(&["user".into(), "path".into()][..]));
    assert_eq!(rule.failure_mode(), None);
    assert_eq!(rule.clone().on_failure(FailureMode::Open).failure_mode(), Some(FailureMode::Open));
    assert!(rule.shadow().is_shadow());
    assert_eq!(Rule::new("rule", ONE).key_attributes(), None);
    let policy = Policy::new()
        .rule(Rule::new("a", ONE).when("method", equals("GET")).key(["user"]).override_exactly("tenant", "x", ONE))
        .otherwise(Rule::new("b", ONE).tier("plan", "pro", ONE))
        .deny("ip", equals("192.0.2.1"))
        .allow("agent", equals("curl"));
    assert!(policy.attributes().into_iter().eq(["agent", "ip", "method", "plan", "tenant", "user"]));
}

#[test]
fn a_request_without_a_required_attribute_is_an_error_and_no_other_is() {
    let rule = |setting: Setting| Rule::with_setting("rule", setting).key([KeyAttribute::new("user").or("ip")]);
    let limit = Setting::Limit(ONE);
    for (rule, is_required) in [
        (rule(limit), true),
        (rule(limit).candidate(ONE), true),
        (rule(limit).missing(Missing::Skip), false),
        (rule(limit).missing(Missing::Shared), false),
        (rule(limit).shadow(), false),
        (rule(Setting::Blocked), false),
        (rule(Setting::Unlimited), false),
        (Rule::new("rule", ONE).key([""; 0]), false),
        (Rule::new("rule", ONE), false),
    ] {
        assert_eq!(!rule.required_attributes().is_empty(), is_required, "{rule:?}");
        let answer = limiter(rule.clone()).check("alice");
        assert_eq!(matches!(answer, Err(CheckError::MissingAttribute { .. })), is_required, "{rule:?}");
    }
}

#[test]
fn allow_refuses_a_cost_above_the_capacity() {
    for policy in [Policy::new().limit("a", ONE), Policy::new().limit("a", ONE).limit("b", ONE)] {
        let limiter = limiter(policy);
        assert!(!limiter.allow(Request::new("alice").cost(2)) && limiter.allow("alice"));
    }
}

#[test]
fn a_named_rule_is_asked_beside_any_other_rules() {
    let one = limiter(Policy::new().limit("api", ONE));
    let two = limiter(Policy::new().limit("api", ONE).limit("other", ONE));
    for limiter in [one, two] {
        let [unknown, known] = ["unknown", "api"].map(|rule| move || Request::new("alice").rule(rule));
        let batch = limiter.check_many([known(), unknown()]).map(drop);
        let errors = [limiter.check(unknown()).map(drop), limiter.explain(unknown()).map(drop), batch];
        assert!(errors.iter().all(|error| matches!(error, Err(CheckError::UnknownRule { .. }))), "{errors:?}");
        assert!(limiter.check_with_limits(unknown(), |_, limits| panic!("{limits:?}")).is_err());
        assert!(limiter.allow(known()) && !limiter.allow(known()));
    }
}

#[test]
fn nonsense_is_refused_when_the_limiter_is_made() {
    let make = |policy: Policy| Limiter::builder(policy).build().err();
    assert!(matches!(make(Policy::new()), Some(ConfigError::EmptyPolicy)));
    let twice = Policy::new().limit("a", ONE).rule(Rule::new("a", ONE).key(["user"]));
    assert!(matches!(make(twice), Some(ConfigError::DuplicateRule { name }) if name == "a"));
}

#[test]
fn many_threads_pass_several_rules_exactly_as_often_as_the_tightest_allows() {
    let policy = Policy::new()
        .rule(Rule::new("user", Limit::per_hour(300)).key(["user"]))
        .rule(Rule::new("all", Limit::per_hour(1_000)).key([] as [&str; 0]))
        .rule(Rule::new("path", Limit::sliding_log(700, Duration::from_secs(3_600))).key(["path"]));
    let limiter = limiter(policy);
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = ["a", "b", "c", "d"]
            .map(|user| {
                let limiter = &limiter;
                scope.spawn(move || {
                    (0..500).filter(|_| limiter.allow(Request::user(user).with("path", "/"))).count() as u64
                })
            })
            .into();
        threads.into_iter().map(|thread| thread.join().expect("the thread ends")).sum()
    });
    assert_eq!(admitted, 700);
    let left = |rule| limiter.peek(Request::user("a").with("path", "/").rule(rule)).expect("an answer").remaining();
    assert_eq!((left("all"), left("path")), (Some(300), Some(0)), "a refused request charges nothing");
}

/// Text with everything in it that might be taken for a separator, any text, or none.
fn value(random: &mut Random) -> String {
    let letters = ['a', ':', '/', '+', '%', '{', '}', ',', ' ', '\\', '-'];
    match random.within(0..=2) {
        0 => (0..random.within(0..=4)).map(|_| random.choose(&letters)).collect(),
        1 => {
            let any = (0..random.within(0..=8)).map(|_| random.magnitude(0..=0x10_ffff) as u32);
            any.filter_map(char::from_u32).collect()
        }
        _ => String::new(),
    }
}

#[test]
fn different_values_are_different_keys() {
    for seed in 0..500 {
        let random = &mut Random::new(seed);
        let mut values = || [(); 3].map(|()| random.percent(50).then(|| value(random)));
        let (left, right) = (values(), values());
        let limiter = limiter(Rule::new("rule", ONE).key(["a", "b", "c"]).missing(Missing::Shared));
        let ask = |values: &[Option<String>; 3]| {
            let given =
                ["a", "b", "c"].into_iter().zip(values).filter_map(|(name, value)| Some((name, value.as_ref()?)));
            limiter
                .allow(given.fold(Request::new(""), |request, (name, value)| request.with(name, KeyPart::from(value))))
        };
        assert!(ask(&left), "seed {seed}: {left:?}");
        assert_eq!(ask(&right), left != right, "seed {seed}: {left:?} {right:?}");
    }
}

#[test]
fn the_same_values_under_other_names_or_rules_are_different_keys() {
    let random = &mut Random::new(0);
    let policy = |name: &'static str, key: &'static str| Policy::new().rule(Rule::new(name, ONE).key([key]));
    for _ in 0..500 {
        let value = value(random);
        let store = Arc::new(MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings"));
        for (rule, key) in [("rule", "a"), ("rule", "b"), ("other", "a")] {
            let limiter = Limiter::with_store(policy(rule, key), Arc::clone(&store)).expect("a valid policy");
            let request = Request::new("").with(key, KeyPart::from(&value));
            assert!(limiter.allow(request.clone()), "{rule} {key} {value:?}");
            assert!(!limiter.allow(request), "{rule} {key} {value:?}");
        }
    }
}

#[test]
fn of_several_overrides_the_first_one_counts() {
    // In every process: a hash of the names must not decide.
    for _ in 0..20 {
        let rule = Rule::new("api", Limit::per_hour(1))
            .override_exactly("tenant", "acme", Limit::per_hour(2))
            .override_exactly("user", "alice", Limit::per_hour(3))
            .tier("plan", "pro", Limit::per_hour(4))
            .tier("region", "eu", Limit::per_hour(5));
        let limiter = Limiter::new(Policy::new().rule(rule.key(["user"])));
        let alice = Request::user("alice").with("tenant", "acme").with("plan", "pro").with("region", "eu");
        assert_eq!(limiter.check(alice).expect("an answer").capacity(), Some(2));
        let bob = Request::user("bob").with("plan", "pro").with("region", "eu");
        assert_eq!(limiter.check(bob).expect("an answer").capacity(), Some(4));
        assert_eq!(limiter.check(Request::user("alice")).expect("an answer").capacity(), Some(3));
        assert_eq!(limiter.check(Request::user("bob").with("region", "eu")).expect("an answer").capacity(), Some(5));
        // A value counts for its own attribute only.
        let eve = Request::user("acme").with("tenant", "alice").with("plan", "eu").with("region", "pro");
        assert_eq!(limiter.check(eve).expect("an answer").capacity(), Some(1));
    }
}

#[test]
fn one_of_very_many_rules_is_found_by_its_name_in_time() {
    let lookup = |rules: u64| {
        let names: Vec<String> = (0..rules).map(|number| format!("rule number {number}")).collect();
        let rule = |name: &String| {
            let name = Name::from(name);
            Rule::new(&name, Limit::per_hour(1_000_000)).when("number", equals(name.as_str()))
        };
        let limiter = limiter(names.iter().map(rule).fold(Policy::new(), Policy::rule));
        let round = |_| {
            let began = Instant::now();
            let mut asked = names.iter().rev().cycle().take(1_000);
            assert!(asked.all(|name| limiter.allow(Request::new("alice").rule(name))));
            began.elapsed()
        };
        // The shortest of many times: whatever else the machine does only makes them longer.
        (0..100).map(round).min().expect("there are rounds")
    };
    // All names were compared, each time: that takes a hundred times as long among so many.
    let (few, many) = (lookup(10), lookup(10_000));
    assert!(many < 10 * few, "{many:?} for 1,000 requests by 10,000 rules, {few:?} by 10");
}

#[test]
fn a_rule_counts_another_unit_by_the_multiplier_that_it_has() {
    let rule = || Rule::new("rule", Limit::per_hour(100));
    let rules = [
        (rule().unit("tokens"), 90),
        (rule().cost_multiplier(3).unit("tokens"), 70),
        (rule().unit("tokens").cost_multiplier(3), 70),
        (rule().unit("bytes").cost_multiplier(3).unit("tokens"), 70),
        (rule().fixed_cost(7).unit("tokens"), 90),
        (rule().unit("calls").default_amount(4), 96),
        (rule().default_amount(4).unit("calls"), 96),
        (rule().default_amount(4).cost_multiplier(3).unit("calls"), 88),
    ];
    for (rule, remaining) in rules {
        let limiter = Limiter::new(Policy::new().rule(rule.clone()));
        let decision = limiter.check(Request::new("alice").cost(2).amount("tokens", 10).amount("bytes", 1));
        assert_eq!(decision.expect("an answer").remaining(), Some(remaining), "{rule:?}");
    }
}
