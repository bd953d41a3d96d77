//! What callers are told.

use super::*;

#[tokio::test]
async fn a_refusal_says_when_to_come_back_and_why() {
    let (limiter, _) = limiter(Policy::new().limit("api", Limit::per_minute(2)));
    let layer = RateLimitLayer::new(limiter).headers([HeaderStyle::Draft10, HeaderStyle::XRateLimit]);
    assert_eq!(statuses(&layer, [from(ALICE), from(ALICE)]).await, [200; 2]);
    let response = ask(&layer, from(ALICE), 200).await;
    let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
    assert_eq!(header("retry-after"), "30");
    assert_eq!(header("ratelimit"), "\"api\";r=0;t=30");
    assert_eq!(header("ratelimit-policy"), "\"api\";q=2;w=60");
    assert_eq!(header("x-ratelimit-reset"), "30");
    assert_eq!(header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn the_key_is_only_ever_told_as_a_keyed_hash() {
    let (limiter, _) = limiter(Limit::per_minute(10));
    let layer = |secret: u8| RateLimitLayer::new(limiter.clone()).partition_key([secret; 16]);
    let mut hashes = Vec::new();
    for (secret, address) in [(1, ALICE), (1, BOB), (2, ALICE), (1, ALICE)] {
        let response = ask(&layer(secret), from(address), 200).await;
        let field = response.headers()["ratelimit"].to_str().expect("text").to_owned();
        let hash = field.split(";pk=").nth(1).expect("a partition key").to_owned();
        let policy = response.headers()["ratelimit-policy"].to_str().expect("text");
        assert!(policy.ends_with(&hash) && !field.contains(address), "{policy}");
        hashes.push(hash);
    }
    assert!(hashes[0] == hashes[3] && hashes[0] != hashes[1] && hashes[0] != hashes[2]);
}

#[tokio::test]
async fn a_rule_with_a_key_of_its_own_is_told_with_that_one() {
    let policy = Policy::new()
        .rule(Rule::new("tenant", Limit::per_hour(5)).key(["tenant"]))
        .rule(Rule::new("client", Limit::per_hour(9)));
    let (limiter, _) = limiter(policy);
    let layer = RateLimitLayer::new(limiter).partition_key([1; 16]).attribute("tenant", by::header("x-tenant"));
    let mut told = Vec::new();
    for address in [ALICE, BOB] {
        let mut request = from(address);
        request.headers_mut().insert("x-tenant", "acme".parse().expect("a header value"));
        let response = ask(&layer, request, 200).await;
        let hashes = |name| {
            let field = response.headers()[name].to_str().expect("text").to_owned();
            field.split(", ").filter_map(|member| Some(member.split(";pk=").nth(1)?.to_owned())).collect::<Vec<_>>()
        };
        let (standing, policies) = (hashes("ratelimit"), hashes("ratelimit-policy"));
        assert_eq!((standing.len(), policies.len()), (1, 2));
        assert_eq!(standing[0], policies[0], "the tenant's limit binds");
        told.push(policies);
    }
    assert_eq!(told[0][0], told[1][0], "a quota that both share");
    assert_ne!(told[0][1], told[1][1], "and one for each");
}

#[tokio::test]
async fn a_layer_that_was_used_before_can_be_told_to_tell_the_key() {
    let (limiter, _) = limiter(Limit::per_minute(10));
    let layer = RateLimitLayer::new(limiter);
    assert_eq!(ask(&layer, from(ALICE), 200).await.headers()["ratelimit-policy"], "\"10/min\";q=10;w=60");
    let response = ask(&layer.partition_key([1; 16]), from(ALICE), 200).await;
    for name in ["ratelimit", "ratelimit-policy"] {
        let field = response.headers()[name].to_str().expect("text");
        assert!(field.contains(";pk=:"), "{name}: {field}");
    }
}

#[tokio::test]
async fn the_user_can_answer_in_other_words() {
    let (limiter, _) = limiter(Limit::per_minute(1));
    let layer = RateLimitLayer::new(limiter).headers([]).respond(|refusal| {
        assert!(matches!(refusal.reason(), Reason::OverLimit(decision) if !decision.is_allowed()));
        let mut response = Response::new(format!("retry after {} s", refusal.retry_after().unwrap_or(0)));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    assert!(ask(&layer, from(ALICE), 200).await.headers().is_empty());
    let response = ask(&layer, from(ALICE), 200).await;
    assert_eq!((response.status().as_u16(), response.body().as_str()), (418, "retry after 60 s"));
    assert_eq!(response.headers()[RETRY_AFTER], "60");
}

#[tokio::test]
async fn of_two_layers_the_tighter_is_told_and_both_are_asked() {
    let (outer, _) = limiter(Policy::new().limit("outer", Limit::per_minute(3)));
    let (inner, _) = limiter(Policy::new().limit("inner", Limit::per_minute(5)));
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
    let service = RateLimitLayer::new(outer).layer(RateLimitLayer::new(inner).layer(service));
    let response = service.clone().oneshot(from(ALICE)).await.expect("a response");
    assert_eq!(response.headers()["ratelimit"], "\"outer\";r=2;t=20");
    let policies: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, ["\"inner\";q=5;w=60", "\"outer\";q=3;w=60"]);
}

#[tokio::test]
async fn of_two_layers_with_as_much_left_the_one_to_wait_longer_for_is_told() {
    let (hour, minute) = ("\"hour\";r=0;t=3600", "\"minute\";r=0;t=60");
    for styles in [vec![HeaderStyle::Draft10], vec![HeaderStyle::Draft10, HeaderStyle::XRateLimit]] {
        for outer_is_hour in [true, false] {
            let layer = |is_hour| {
                let limit = if is_hour { Limit::per_hour(1) } else { Limit::per_minute(1) };
                let (limiter, _) = limiter(Policy::new().limit(if is_hour { "hour" } else { "minute" }, limit));
                RateLimitLayer::new(limiter).headers(styles.clone())
            };
            let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
            let service = layer(outer_is_hour).layer(layer(!outer_is_hour).layer(service));
            let response = service.oneshot(from(ALICE)).await.expect("a response");
            assert_eq!(response.headers()["ratelimit"], hour, "not {minute}");
            if let Some(reset) = response.headers().get("x-ratelimit-reset") {
                assert_eq!(reset, "3600");
            }
        }
    }
}
