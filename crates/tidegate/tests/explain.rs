//! Why a request is decided as it is: what every rule says, in words.

use tidegate::{Condition, Key, Limit, Limiter, ManualClock, MemoryStore, Missing, Policy, Request, Rule, Setting};

fn limiter(policy: Policy) -> Limiter {
    let store = MemoryStore::builder().max_keys(100).clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn equals(value: &str) -> Condition {
    Condition::Equals(value.into())
}

/// A rule of every kind.
fn policy() -> Policy {
    Policy::new()
        .deny("ip", Condition::Within("192.0.2.0/24".parse().expect("a network")))
        .allow("ip", Condition::Within("10.0.0.0/8".parse().expect("a network")))
        .rule(Rule::new("orders", Limit::per_minute(10)).when("method", equals("POST")).key(["user"]))
        .rule(Rule::new("tenants", Limit::per_hour(50)).key(["tenant"]).missing(Missing::Skip))
        .rule(
            Rule::new("uploads", Limit::per_hour(4))
                .when("method", equals("PUT"))
                .key(["user"])
                .cost_multiplier(2)
                .override_exactly("user", "root", Setting::Unlimited)
                .override_exactly("user", "mallory", Setting::Blocked),
        )
        .rule(Rule::new("watch", Limit::per_hour(1)).when("method", Condition::Present).key([] as [&str; 0]).shadow())
        .otherwise(Rule::new("others", Limit::per_hour(1)).key([] as [&str; 0]))
}

fn explained(limiter: &Limiter, request: Request<'_>) -> String {
    limiter.explain(request).expect("an answer").to_string()
}

#[test]
fn every_rule_says_whether_it_applies_and_what_follows() {
    let limiter = limiter(policy());
    let order = Request::user("alice").with("method", "POST").with("tenant", "acme");
    assert!(limiter.allow(order.clone()));
    let words = "\
allowed: 9 left by \"orders\"
  orders: 10/min by user for \"alice\" allows a cost of 1, 9 left  <- binds
  tenants: 50/h by tenant for \"acme\" allows a cost of 1, 49 left
  uploads: does not apply: method is \"POST\", and the rule asks that it is \"PUT\"
  watch (shadow): 1/h for all for \"\" refuses a cost of 1, retry after 3600s
  others: was not asked
";
    assert_eq!(explained(&limiter, order.clone()), words);
    assert_eq!(explained(&limiter, order), words, "it takes nothing");
    let upload = |user| Request::user(user).with("method", "PUT");
    assert!(limiter.allow(upload("alice").cost(2)));
    assert_eq!(
        explained(&limiter, upload("alice")),
        "\
refused by \"uploads\": retry after 1800s
  orders: does not apply: method is \"PUT\", and the rule asks that it is \"POST\"
  tenants: skipped: key attribute \"tenant\" is missing
  uploads: 4/h by user for \"alice\" refuses a cost of 2, retry after 1800s  <- binds
  watch (shadow): 1/h for all for \"\" refuses a cost of 1, retry after 3600s
  others: was not asked
"
    );
    let explanation = explained(&limiter, upload("root"));
    assert!(explanation.starts_with("allowed: no rule limits it\n"), "{explanation}");
    assert!(explanation.contains("  uploads: sets no limit here (by user = \"root\")\n"), "{explanation}");
    assert!(explanation.contains("  others: was not asked\n"), "no limit is a say, too: {explanation}");
    let explanation = explained(&limiter, upload("mallory"));
    assert!(explanation.starts_with("refused for good by \"uploads\"\n"), "{explanation}");
    assert!(explanation.contains("  uploads: lets nothing pass (by user = \"mallory\")  <- binds\n"), "{explanation}");
}

#[test]
fn a_limit_that_a_tier_or_an_override_chose_says_so() {
    let rule = Rule::new("orders", Limit::per_hour(1))
        .key(["user"])
        .tier("plan", "pro", Limit::per_hour(2))
        .tier("plan", "free", Limit::per_hour(1))
        .override_matching("tenant", "acme-*", Limit::per_hour(3));
    let limiter = limiter(Policy::new().rule(rule));
    let alice = || Request::user("alice");
    assert!(limiter.allow(alice()) && !limiter.allow(alice()));
    for (request, says) in [
        (alice(), "refuses a cost of 1, retry after 3600s  <- binds"),
        // The rule's own limit again, so the same state.
        (alice().with("plan", "free"), "refuses a cost of 1, retry after 3600s (by plan = \"free\")  <- binds"),
        // What was used of the rule's own limit does not count here.
        (alice().with("plan", "pro"), "allows a cost of 1, 2 left (by plan = \"pro\"; tiers count apart)  <- binds"),
        (
            alice().with("plan", "pro").with("tenant", "acme-eu"),
            "allows a cost of 1, 3 left (by tenant = \"acme-eu\"; overrides count apart)  <- binds",
        ),
    ] {
        let explanation = explained(&limiter, request);
        assert!(explanation.ends_with(&format!("{says}\n")), "{says}: {explanation}");
    }
    let skipped = limiter.explain(Request::new(()).with("plan", "pro")).expect("an answer");
    assert_eq!(skipped.rules[0].chosen_by, None, "{skipped}");
}

#[test]
fn the_rule_for_all_others_is_asked_where_no_other_is() {
    let alone = Policy::new()
        .rule(Rule::new("orders", Limit::per_minute(10)).when("method", equals("POST")).key(["user"]))
        .rule(Rule::new("watch", Limit::per_hour(5)).shadow())
        .otherwise(Rule::new("others", Limit::per_hour(2)).key([] as [&str; 0]).candidate(Limit::per_hour(1)));
    let limiter = limiter(alone);
    assert_eq!(
        explained(&limiter, Request::new("x")),
        "\
allowed: 2 left by \"others\"
  orders: does not apply: there is no method, and the rule asks that it is \"POST\"
  watch (shadow): 5/h for \"x\" allows a cost of 1, 5 left
  others: 2/h for all for \"\" allows a cost of 1, 2 left  <- binds
  others (candidate) (shadow): 1/h for all for \"\" allows a cost of 1, 1 left
"
    );
}

#[test]
fn a_list_decides_before_any_rule() {
    let limiter = limiter(policy());
    let from = |ip: &'static str| Request::user("mallory").with("method", "PUT").with("ip", ip);
    let not_asked = "
  orders: was not asked
  tenants: was not asked
  uploads: was not asked
  watch (shadow): was not asked
  others: was not asked
";
    let denied = "refused: it is denied, before every rule".to_owned() + not_asked;
    assert_eq!(explained(&limiter, from("192.0.2.1")), denied);
    assert_eq!(explained(&limiter, from("10.0.0.1")), "allowed: no rule limits it".to_owned() + not_asked);
}

#[test]
fn a_named_rule_is_the_only_one_asked() {
    let limiter = limiter(policy());
    // Its conditions do not matter then.
    assert_eq!(
        explained(&limiter, Request::user("alice").with("method", "GET").rule("orders")),
        "\
allowed: 10 left by \"orders\"
  orders: 10/min by user for \"alice\" allows a cost of 1, 10 left  <- binds
  tenants: was not asked
  uploads: was not asked
  watch (shadow): was not asked
  others: was not asked
"
    );
    let explanation = explained(&limiter, Request::user("alice").rule("others"));
    assert!(explanation.starts_with("allowed: 1 left by \"others\"\n"), "{explanation}");
}

#[test]
fn more_than_can_ever_pass_is_refused_for_good_unless_a_shadow_says_so() {
    let limiter = limiter(policy());
    let explanation = explained(&limiter, Request::user("alice").with("method", "PUT").cost(3));
    let words = "  uploads: 4/h by user can never let a cost of 6 pass  <- binds\n";
    assert!(
        explanation.starts_with("error by \"uploads\": 4/h by user can never") && explanation.contains(words),
        "{explanation}"
    );
    let explanation = explained(&limiter, Request::user("alice").with("method", "POST").cost(3));
    let words = "  watch (shadow): 1/h for all can never let a cost of 3 pass\n";
    assert!(
        explanation.starts_with("allowed: 10 left by \"orders\"\n") && explanation.contains(words),
        "{explanation}"
    );
}

#[test]
fn a_rule_that_says_nothing_does_not_bind_whatever_it_is_called() {
    let rule = |name: &'static str| Rule::new(name, Limit::per_hour(1)).when("method", equals("POST"));
    let rules = Policy::new().rule(rule("denied")).rule(rule("unlimited")).deny("ip", equals("192.0.2.1"));
    let limiter = limiter(rules);
    for request in [Request::new("x"), Request::new("x").with("ip", "192.0.2.1")] {
        let explanation = explained(&limiter, request);
        assert!(!explanation.contains("binds"), "{explanation}");
    }
}

#[test]
fn a_report_beyond_the_limit_is_shown_as_debt() {
    let limiter = limiter(Policy::new().limit("tokens", Limit::per_minute(60)));
    assert!(limiter.allow(Request::new("alice").cost(60)));
    let empty = explained(&limiter, Request::new("alice"));
    assert!(empty.contains("refuses a cost of 1, retry after 1s  <- binds"), "{empty}");
    let _ = limiter.report(Request::new("alice").cost(30)).expect("it is never refused");
    let in_debt = explained(&limiter, Request::new("alice"));
    assert!(in_debt.contains("refuses a cost of 1, retry after 31s; in debt, which is paid in 30s"), "{in_debt}");
}

#[test]
fn the_end_of_a_period_of_the_calendar_is_told_in_its_time_zone() {
    let quota: Limit = "2/month in Europe/Berlin from day 31".parse().expect("a limit");
    let limiter = limiter(Policy::new().limit("quota", quota));
    let allowed = explained(&limiter, Request::new("alice"));
    assert!(
        allowed.contains("allows a cost of 1, 2 left; resets on 31 January 1970, 00:00 Europe/Berlin"),
        "{allowed}"
    );
    assert!(limiter.allow(Request::new("alice").cost(2)));
    let refused = explained(&limiter, Request::new("alice"));
    assert!(refused.contains("retry after 2588400s; resets on 31 January 1970"), "{refused}");
}

#[test]
fn the_limits_of_a_request_are_those_that_decide_it() {
    let policy = Policy::new()
        .rule(Rule::new("user", Limit::per_hour(5)).key(["user"]))
        .rule(Rule::new("heavy", Limit::per_hour(50)).key(["user"]).cost_multiplier(3))
        .rule(Rule::new("watch", Limit::per_hour(1)).key(["user"]).shadow())
        .rule(Rule::with_setting("mallory", Setting::Blocked).when("user", equals("mallory")));
    let limiter = Limiter::new(policy);
    let of =
        |user: &'static str| limiter.limits_of(Request::without_key().with("user", user)).expect("it fits the policy");
    let limits: Vec<_> =
        of("alice").expect("limits").iter().map(|limit| (limit.meter.name().to_string(), limit.cost)).collect();
    assert_eq!(limits, [("user".to_owned(), 1), ("heavy".to_owned(), 3)]);
    assert!(of("alice").expect("limits").iter().all(|limit| limit.key == Key::from("alice")));
    assert!(of("mallory").is_none(), "a rule lets nothing of it pass");
    assert!(limiter.limits_of(Request::without_key()).is_err(), "it lacks the key");
}
