//! Attributes that rules count by: missing from a request, or never supplied.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate::{KeyAttribute, Missing};
use tidegate_tower::LayerError;

use super::*;

fn by_user() -> Rule {
    Rule::new("orders", Limit::per_hour(1)).key(["user"])
}

/// A layer on the memory store and one on a store that answers later.
fn layers(policy: impl Into<Policy>) -> [RateLimitLayer; 2] {
    let policy = policy.into();
    let later = Slow { store: Arc::default(), answers: Arc::new(Semaphore::new(100)) };
    [
        RateLimitLayer::new(limiter(policy.clone()).0),
        RateLimitLayer::new(Limiter::with_store(policy, later).expect("a valid policy")),
    ]
}

fn problem(response: &Response<String>) -> serde_json::Value {
    serde_json::from_str(response.body()).expect("JSON")
}

#[tokio::test]
async fn a_request_without_a_key_attribute_is_refused_and_shares_no_limit() {
    for layer in layers(by_user()) {
        let layer = layer.attribute("user", by::header("x-user"));
        for anonymous in [from(ALICE), from(BOB), with_header("x-user", "")] {
            let response = ask(&layer, anonymous, 200).await;
            assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
            assert!(!response.headers().contains_key(RETRY_AFTER), "no waiting helps");
            let problem = problem(&response);
            assert_eq!(problem["type"], "urn:problem-type:tidegate:missing-attribute");
            let detail = problem["detail"].as_str().expect("text");
            assert!(detail.starts_with("rule \"orders\": key attribute \"user\" is missing"), "{detail}");
        }
        let named = ["alice", "alice", "bob"].map(|user| with_header("x-user", user));
        assert_eq!(statuses(&layer, named).await, [200, 429, 200]);
        let mut call = from(ALICE);
        call.headers_mut().insert("content-type", "application/grpc".parse().expect("a header value"));
        assert_eq!(ask(&layer, call, 200).await.headers()["grpc-status"], "3");
    }
}

#[tokio::test]
async fn a_rule_can_say_what_to_do_without_its_attribute() {
    let shared = by_user().missing(Missing::Shared);
    let instead = Rule::new("orders", Limit::per_hour(1)).key([KeyAttribute::new("user").or("ip")]);
    let rules =
        [(by_user().missing(Missing::Skip), [200, 200, 200]), (shared, [200, 429, 429]), (instead, [200, 200, 429])];
    for (rule, expected) in rules {
        for layer in layers(rule.clone()) {
            let layer = layer.http_attributes().attribute("user", by::header("x-user"));
            assert_eq!(statuses(&layer, [ALICE, BOB, ALICE].map(from)).await, expected, "{rule:?}");
        }
    }
}

#[tokio::test]
async fn a_rule_by_address_blames_the_server_that_does_not_tell_its_peer() {
    let nowhere = || Request::new(String::new());
    let by_address = || Rule::new("clients", Limit::per_hour(1)).key(["ip"]);
    let instead = Rule::new("clients", Limit::per_hour(1)).key([KeyAttribute::new("user").or("ip")]);
    let renamed = Rule::new("clients", Limit::per_hour(1)).key(["peer"]);
    for layer in layers(by_address()).into_iter().chain(layers(instead)).chain(layers(renamed)) {
        let layer = layer.http_attributes().attribute("peer", by::client_ip());
        let layer = layer.key(by::everyone()).keyless(Keyless::Refuse(StatusCode::UNAUTHORIZED));
        for _ in 0..2 {
            let response = ask(&layer, nowhere(), 200).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert!(!response.headers().contains_key(RETRY_AFTER), "no waiting helps");
            let detail = problem(&response)["detail"].to_string();
            assert!(detail.contains("clients") && detail.contains("into_make_service_with_connect_info"), "{detail}");
        }
        assert_eq!(statuses(&layer, [ALICE, ALICE, BOB].map(from)).await, [200, 429, 200]);
    }
    for layer in layers(by_address()) {
        // The peer's address would not help here: a header or a proxy's entry is missing.
        let layer = layer.key(by::everyone());
        let by_header = layer.clone().attribute("ip", by::header("x-client"));
        assert_eq!(statuses(&by_header, [nowhere(), from(ALICE)]).await, [422, 422]);
        let layer = layer.http_attributes().client_ip(ClientIp::behind(1));
        assert_eq!(statuses(&layer, [nowhere(), from(ALICE)]).await, [422, 422]);
        let forwarded = |peer| {
            let mut request = from(peer);
            request.headers_mut().insert("x-forwarded-for", "::ffff:192.0.2.9".parse().expect("a header value"));
            request
        };
        assert_eq!(statuses(&layer, [ALICE, BOB].map(forwarded)).await, [200, 429]);
    }
}

#[tokio::test]
async fn text_that_is_no_address_is_refused() {
    for layer in layers(Rule::new("clients", Limit::per_hour(1)).key(["ip"])) {
        let layer = layer.attribute("ip", by::header("x-client"));
        let clients = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:DB8:0::2"];
        assert_eq!(statuses(&layer, clients.map(|ip| with_header("x-client", ip))).await, [200, 429, 200, 429]);
        let response = ask(&layer, with_header("x-client", "localhost"), 200).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(problem(&response)["type"], "urn:problem-type:tidegate:not-an-address");
    }
}

/// What a layer that does not fit says, as an error and as a panic.
fn misfit(layer: RateLimitLayer) -> String {
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let panic = catch_unwind(AssertUnwindSafe(|| layer.layer(service))).expect_err("a panic");
    let error = layer.checked().expect_err("an error").to_string();
    assert_eq!(panic.downcast_ref::<String>(), Some(&error));
    error
}

#[test]
fn a_policy_that_needs_an_attribute_which_the_layer_does_not_supply_does_not_start() {
    let layer = |rule: Rule| RateLimitLayer::new(Limiter::new(rule));
    let error = misfit(layer(by_user()));
    assert!(
        error.starts_with("rule \"orders\": the layer does not supply key attribute \"user\" (it supplies none): ")
    );
    assert!(error.contains("call .attribute(\"user\", by::header(\"x-user\")) (by::extension(..) if"), "{error}");
    let error = misfit(layer(by_user()).http_attributes().attribute("tenant", by::header("x-tenant")));
    assert!(error.contains("(it supplies \"method\", \"path\", \"ip\", \"route\", \"tenant\"): "), "{error}");
    let error = misfit(layer(Rule::new("routes", Limit::per_hour(1)).key(["route"])));
    assert!(error.contains("call .http_attributes(), or have the rule say"), "{error}");
    let error = misfit(layer(Rule::new("clients", Limit::per_hour(1)).key(["ip"])));
    assert!(error.contains("call .http_attributes() (serve an axum app with into_make_service_with_connect_info"));
    let either = Rule::new("either", Limit::per_hour(1)).key([KeyAttribute::new("user").or("method")]);
    let error = misfit(layer(either.clone()));
    assert!(error.contains("key attribute \"user\" or \"method\" (it supplies none)"), "{error}");
    assert!(error.contains(" callers must not choose it) or .http_attributes(), or have the rule say"), "{error}");
    // Each attribute of a key, each rule, and the one for all others.
    let both = Rule::new("both", Limit::per_hour(1)).key(["method", "user"]);
    let error = misfit(layer(both).http_attributes());
    assert!(error.starts_with("rule \"both\": the layer does not supply key attribute \"user\" "), "{error}");
    let policy = Policy::new().limit("all", Limit::per_hour(1)).otherwise(by_user());
    assert!(misfit(RateLimitLayer::new(Limiter::new(policy))).starts_with("rule \"orders\": "));

    let later = Slow::new();
    let later = RateLimitLayer::new(Limiter::with_store(by_user(), later).expect("a valid policy"));
    assert!(matches!(later.checked(), Err(LayerError::MissingAttribute { attributes, .. }) if attributes == ["user"]));

    for layer in [
        layer(by_user()).attribute("user", by::header("x-user")),
        layer(either).http_attributes(),
        layer(by_user().missing(Missing::Skip)),
        layer(by_user().missing(Missing::Shared)),
        layer(by_user().shadow()),
        layer(Rule::with_setting("orders", Setting::Blocked).key(["user"])),
        layer(Rule::new("one for all", Limit::per_hour(1)).key([""; 0])),
        RateLimitLayer::new(Limiter::new(Policy::new().rule(by_user()).limit("reads", Limit::per_hour(1))))
            .rule("reads"),
    ] {
        assert!(layer.checked().is_ok());
    }
}

#[test]
fn a_layer_that_names_an_unknown_rule_does_not_start() {
    let policy = Policy::new().limit("reads", Limit::per_hour(1)).rule(by_user());
    let layer = RateLimitLayer::new(Limiter::new(policy)).attribute("user", by::header("x-user"));
    let error = misfit(layer.clone().rule("raeds"));
    assert!(error.starts_with("the policy has no rule \"raeds\": "), "{error}");
    // A layer that was found to fit is asked again after it was changed.
    let layer = layer.checked().expect("it fits");
    assert_eq!(misfit(layer.clone().rule("raeds")), error);
    assert!(layer.rule("reads").checked().is_ok());
}

#[test]
#[should_panic(expected = "the layer does not supply key attribute \"user\"")]
fn axum_does_not_start_with_a_route_layer_that_does_not_fit() {
    let router = axum::Router::new().route("/", axum::routing::get(|| async {}));
    let router = router.route_layer(RateLimitLayer::new(Limiter::new(by_user())));
    let _ = router.into_make_service_with_connect_info::<SocketAddr>();
}

#[tokio::test]
async fn a_policy_that_comes_later_does_not_stop_the_service() {
    let (limiter, _) = limiter(Policy::new().limit("orders", Limit::per_hour(9)));
    let (all, one) = (RateLimitLayer::new(limiter.clone()), RateLimitLayer::new(limiter.clone()).rule("orders"));
    assert_eq!(statuses(&all, [from(ALICE)]).await, [200]);
    assert_eq!(statuses(&one, [from(ALICE)]).await, [200]);
    limiter.set_policy(Rule::new("users", Limit::per_hour(9)).key(["user"])).expect("a valid policy");
    for (layer, reason) in [(&all, "missing-attribute"), (&one, "unknown-rule")] {
        let response = ask(layer, from(ALICE), 200).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(problem(&response)["type"], format!("urn:problem-type:tidegate:{reason}"));
    }
    limiter.set_policy(Policy::new().limit("orders", Limit::per_hour(9))).expect("a valid policy");
    assert_eq!(statuses(&all, [from(ALICE)]).await, [200]);
}

#[tokio::test]
async fn a_tier_from_an_extension_is_not_the_callers_to_choose() {
    #[derive(Clone)]
    struct Account(&'static str, &'static str);
    let rule = by_user().tier("plan", "pro", Limit::per_hour(2));
    let layer = RateLimitLayer::new(limiter(rule).0)
        .attribute("user", by::extension(|account: &Account| account.0.into()))
        .attribute("plan", by::extension(|account: &Account| account.1.into()));
    let mut forged =
        [("alice", "free"), ("alice", "free"), ("bob", "pro"), ("bob", "pro"), ("bob", "pro")].map(|account| {
            let mut request = with_header("x-plan", "pro");
            request.extensions_mut().insert(Account(account.0, account.1));
            request
        });
    for (number, request) in forged.iter_mut().enumerate() {
        request.headers_mut().insert("x-user", number.into());
    }
    assert_eq!(statuses(&layer, forged).await, [200, 429, 200, 200, 429]);
}
