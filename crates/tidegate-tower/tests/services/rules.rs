//! Several rules, and one by its name.

use super::*;

#[tokio::test]
async fn attributes_choose_the_rules_and_make_their_keys() {
    let tenant = Rule::new("tenant", Limit::per_hour(3)).key(["tenant"]).tier("tenant", "big", Limit::per_hour(9));
    let writes = Rule::new("writes", Limit::per_hour(1)).when("method", Condition::Equals("POST".into())).key(["ip"]);
    let internal = Condition::Within("10.0.0.0/8".parse().expect("a network"));
    let (limiter, _) = limiter(Policy::new().rule(tenant).rule(writes).allow("ip", internal));
    let layer = RateLimitLayer::new(limiter).http_attributes().attribute("tenant", by::header("x-tenant"));
    let post = |tenant| {
        let mut request = with_header("x-tenant", tenant);
        *request.method_mut() = http::Method::POST;
        request
    };
    let response = ask(&layer, post("acme"), 200).await;
    assert_eq!(response.headers()["ratelimit"], "\"writes\";r=0;t=3600");
    assert_eq!(response.headers()["ratelimit-policy"], "\"tenant\";q=3;w=3600, \"writes\";q=1;w=3600");
    let response = ask(&layer, post("acme"), 200).await;
    assert_eq!(response.status(), 429);
    assert!(response.body().contains("\"violated-policies\":[\"writes\"]"), "{}", response.body());
    let response = ask(&layer, with_header("x-tenant", "acme"), 200).await;
    assert_eq!(response.headers()["ratelimit"], "\"tenant\";r=1;t=1200", "the refused one was not charged");
    let response = ask(&layer, with_header("x-tenant", "big"), 200).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"tenant\";q=9;w=3600");
    let response = ask(&layer, from("10.1.2.3"), 200).await;
    assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0), "no limit, nothing to tell");
}

#[tokio::test]
async fn a_policy_that_changes_is_told_as_it_is_now() {
    let (limiter, _) = limiter(Policy::new().limit("api", Limit::per_hour(2)));
    let layer = RateLimitLayer::new(limiter.clone());
    assert_eq!(ask(&layer, from(ALICE), 200).await.headers()["ratelimit-policy"], "\"api\";q=2;w=3600");
    // Another window with the same quota, so that only the policy tells them apart.
    let policy = Policy::new().limit("api", Limit::fixed_window(2, Duration::from_secs(60)));
    limiter.set_policy(policy).expect("a valid policy");
    let response = ask(&layer, from(ALICE), 200).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"api\";q=2;w=60");
    assert_eq!(response.headers()["ratelimit"], "\"api\";r=0;t=1800", "what was used of 2/h drains as fast as before");
    // Two limits in the place of one, and one again.
    let policy = Policy::new().limit("api", Limit::per_hour(2)).limit("day", Limit::per_day(9));
    limiter.set_policy(policy).expect("a valid policy");
    let listed = ask(&layer, from(BOB), 200).await;
    assert_eq!(listed.headers()["ratelimit-policy"], "\"api\";q=2;w=3600, \"day\";q=9;w=86400");
    limiter.set_policy(Policy::new().limit("api", Limit::per_hour(2))).expect("a valid policy");
    assert_eq!(ask(&layer, from(BOB), 200).await.headers()["ratelimit-policy"], "\"api\";q=2;w=3600");
    // The same limit of another unit.
    limiter.set_policy(Rule::new("api", Limit::per_hour(2)).unit("tokens")).expect("a valid policy");
    let told = ask(&layer, from(BOB), 200).await;
    assert_eq!(told.headers()["ratelimit-policy"], "\"api\";q=2;qu=\"tokens\";w=3600");
}

/// A refusal stands though the policy changes meanwhile: it is told by the one that refused.
#[tokio::test]
async fn all_limits_that_are_told_are_of_the_policy_that_decided() {
    let one = || Policy::new().limit("api", Limit::per_hour(1));
    let two = || one().limit("day", Limit::per_day(5));
    for (policy, told) in [(one(), "\"api\";q=1;w=3600"), (two(), "\"api\";q=1;w=3600, \"day\";q=5;w=86400")] {
        let clock = MeddlingClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let store = Arc::new(store);
        let at_once = Limiter::with_store(policy.clone(), Arc::clone(&store)).expect("a valid policy");
        let later = Limiter::with_store(policy.clone(), Arc::new(store)).expect("a valid policy");
        let swap = [
            Box::new({
                let limiter = at_once.clone();
                move |policy| limiter.set_policy(policy).expect("a valid policy")
            }) as Box<dyn Fn(Policy) + Send>,
            Box::new({
                let limiter = later.clone();
                move |policy| limiter.set_policy(policy).expect("a valid policy")
            }),
        ];
        let plain = [RateLimitLayer::new(at_once), RateLimitLayer::new(later)];
        for (layer, swap) in plain.into_iter().zip(swap) {
            let _used_up = ask(&layer, from(ALICE), 200).await;
            let after = Policy::new().limit("api", Limit::per_hour(7)).limit("week", Limit::per_day(9));
            clock.first(move || swap(after));
            let refused = ask(&layer, from(ALICE), 200).await;
            assert!(clock.is_done() && refused.status() == 429);
            assert_eq!(refused.headers()["ratelimit-policy"], told);
            let listed = ask(&layer, from(ALICE), 200).await;
            assert_eq!(listed.headers()["ratelimit-policy"], "\"api\";q=7;w=3600, \"week\";q=9;w=86400");
        }
    }
}

#[tokio::test]
async fn a_route_can_have_a_rule_of_its_own() {
    let policy = Policy::new().limit("reads", Limit::per_hour(2)).limit("writes", Limit::per_hour(1));
    let (limiter, _) = limiter(policy);
    let (reads, writes) =
        (RateLimitLayer::new(limiter.clone()).rule("reads"), RateLimitLayer::new(limiter).rule("writes"));
    assert_eq!(statuses(&reads, [from(ALICE), from(ALICE), from(ALICE)]).await, [200, 200, 429]);
    assert_eq!(statuses(&writes, [from(ALICE), from(ALICE)]).await, [200, 429]);
}

#[tokio::test]
async fn a_blocked_key_gets_403_and_a_shadow_rule_refuses_nothing() {
    let counts = Arc::new(CountingObserver::default());
    let blocked = Policy::new().rule(Rule::with_setting("closed", Setting::Blocked));
    let denied = Policy::new().limit("all", Limit::per_hour(9)).deny("ip", Condition::Equals(ALICE.into()));
    for policy in [blocked, denied] {
        let layer = RateLimitLayer::new(limiter(policy).0).http_attributes();
        let response = ask(&layer, from(ALICE), 200).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(!response.headers().contains_key(RETRY_AFTER));
    }
    let policy = Policy::new().limit("lax", Limit::per_hour(9)).rule(Rule::new("strict", Limit::per_hour(1)).shadow());
    let shadowed = Limiter::builder(policy).observer(counts.clone()).build().expect("a valid policy");
    let layer = RateLimitLayer::new(shadowed);
    assert_eq!(statuses(&layer, [from(ALICE), from(ALICE), from(ALICE)]).await, [200; 3]);
    assert_eq!((counts.allowed(), counts.refused()), (3, 0));
}
