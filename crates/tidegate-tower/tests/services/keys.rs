//! Whose limit it is.

use super::*;

#[tokio::test]
async fn each_address_has_a_limit_and_ipv6_counts_by_its_network() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let layer = RateLimitLayer::new(limiter);
    let addresses =
        ["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"];
    assert_eq!(statuses(&layer, addresses.map(from)).await, [200, 200, 429, 200, 429, 200]);
    let wider = layer.ipv6_bits(48);
    assert_eq!(statuses(&wider, ["2001:db8:9::1", "2001:db8:9:7::1"].map(from)).await, [200, 429]);
}

#[tokio::test]
async fn a_request_without_an_address_is_refused_unless_configured_otherwise() {
    let nowhere = || Request::new(String::new());
    let (limiter, _) = limiter(Limit::per_hour(1));
    let layer = RateLimitLayer::new(limiter.clone());
    let response = ask(&layer, nowhere(), 200).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(!response.headers().contains_key(RETRY_AFTER));
    assert_eq!(limiter.store().count_keys(), 0);
    let pass = layer.clone().keyless(Keyless::Pass);
    assert_eq!(statuses(&pass, [nowhere(), nowhere(), nowhere()]).await, [200; 3]);
    let unauthorized = layer.clone().key(by::api_key()).keyless(Keyless::Refuse(StatusCode::UNAUTHORIZED));
    assert_eq!(statuses(&unauthorized, [from(ALICE)]).await, [401]);
    let share = layer.keyless(Keyless::Share);
    assert_eq!(statuses(&share, [nowhere(), nowhere(), from(ALICE)]).await, [200, 429, 200]);
}

#[tokio::test]
async fn every_ready_way_to_make_a_key_tells_requests_apart() {
    #[derive(Clone)]
    struct Claims(&'static str);
    let (limiter, _) = limiter(Limit::per_hour(1));
    let layer = || RateLimitLayer::new(limiter.clone());
    let authorized = |value: &str| with_header("authorization", value);
    let key = |value: &str| with_header("x-api-key", value);
    let by_api_key = layer().key(by::api_key());
    let requests = [key("a"), key("b"), authorized("Bearer a"), authorized("Bearer c"), authorized("Bearer"), key("")];
    assert_eq!(statuses(&by_api_key, requests).await, [200, 200, 429, 200, 500, 500]);
    let either = layer().key(by::first_of(by::header("x-user"), by::client_ip()));
    let forged = with_header("x-user", ALICE);
    assert_eq!(statuses(&either, [from(ALICE), forged, with_header("x-user", "eve")]).await, [200, 200, 200]);
    assert_eq!(statuses(&either, [from(ALICE)]).await, [429]);
    let method = |method: &str| {
        let mut request = from(ALICE);
        *request.method_mut() = method.parse().expect("a method");
        request
    };
    let both = layer().key(by::both(by::client_ip(), by::method()));
    assert_eq!(statuses(&both, [method("GET"), method("POST"), method("GET")]).await, [200, 200, 429]);
    let claims = |subject| {
        let mut request = from(ALICE);
        request.extensions_mut().insert(Claims(subject));
        request
    };
    let subject = layer().key(by::extension(|claims: &Claims| claims.0.into()));
    assert_eq!(statuses(&subject, [claims("s1"), claims("s2"), claims("s1"), from(ALICE)]).await, [200, 200, 429, 500]);
    let path = |path: &str| {
        let mut request = from(ALICE);
        *request.uri_mut() = path.parse().expect("a URI");
        request
    };
    let by_path = layer().key(by::path());
    assert_eq!(statuses(&by_path, [path("/a"), path("/b?x"), path("/b?y")]).await, [200, 200, 429]);
    let own = layer().key(|request| Some(Value::from(request.uri().query()?)));
    assert_eq!(statuses(&own, [path("/?1"), path("/x?1"), path("/")]).await, [200, 429, 500]);
    let all = layer().key(by::everyone());
    assert_eq!(statuses(&all, [from(ALICE), Request::default()]).await, [200, 429]);
}

#[tokio::test]
async fn a_peer_that_axum_is_told_of_in_a_test_is_one() {
    use axum::extract::connect_info::MockConnectInfo;
    let (limiter, _) = limiter(Limit::per_hour(1));
    let router = axum::Router::new().route("/", axum::routing::get(|| async {}));
    let app = |address: &str| {
        let peer = SocketAddr::new(address.parse().expect("an address"), 4711);
        router.clone().layer(RateLimitLayer::new(limiter.clone())).layer(MockConnectInfo(peer))
    };
    let mut statuses = Vec::new();
    for address in [ALICE, BOB, ALICE] {
        let request = Request::new(axum::body::Body::empty());
        statuses.push(app(address).oneshot(request).await.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_path_is_what_was_asked_for_also_within_a_nested_router() {
    use axum::Router;
    use axum::routing::get;
    let orders = Rule::new("orders", Limit::per_hour(1)).when("path", Condition::StartsWith("/v1/orders".into()));
    let (by_rule, _) = limiter(Policy::new().rule(orders));
    let (by_path, _) = limiter(Limit::per_hour(1));
    let router = || Router::new().route("/orders", get(|| async {}));
    for layer in [RateLimitLayer::new(by_rule).http_attributes(), RateLimitLayer::new(by_path).key(by::path())] {
        let nested = || router().layer(layer.clone());
        let app = Router::new().nest("/v1", nested()).nest("/v2", nested());
        let mut statuses = Vec::new();
        for path in ["/v1/orders", "/v2/orders", "/v1/orders"] {
            let mut request = from(ALICE).map(axum::body::Body::from);
            *request.uri_mut() = path.parse().expect("a URI");
            statuses.push(app.clone().oneshot(request).await.expect("a response").status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 429]);
    }
}

#[tokio::test]
async fn a_path_that_no_route_matches_has_no_key_by_route() {
    use axum::Router;
    use axum::routing::get;
    let (limiter, _) = limiter(Limit::per_hour(9));
    let layer = RateLimitLayer::new(limiter).key(by::route());
    let router = || Router::new().route("/users/{id}", get(|| async {}));
    for (app, expected) in
        [(router().layer(layer.clone()), [200, 500]), (router().route_layer(layer.clone()), [200, 404])]
    {
        for (path, status) in ["/users/1", "/nowhere"].into_iter().zip(expected) {
            let request = Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
            assert_eq!(app.clone().oneshot(request).await.expect("a response").status(), status, "{path}");
        }
    }
}

#[tokio::test]
async fn an_address_claimed_by_the_client_is_ignored() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let layer = RateLimitLayer::new(limiter);
    let forged = || {
        let names = ["forwarded", "x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip"];
        names.map(|name| with_header(name, if name == "forwarded" { "for=203.0.113.9" } else { "203.0.113.9" }))
    };
    assert_eq!(statuses(&layer, forged()).await, [200, 429, 429, 429, 429]);
    let trusting = layer.client_ip(ClientIp::behind_any_of(["10.0.0.0/8".parse().expect("a network")]));
    assert_eq!(statuses(&trusting, forged()).await, [429; 5], "the peer is no proxy");
}
