//! The layer around services of all kinds, without a socket: what is charged,
//! when, and what is said of it.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use tidegate::kernel::Verdict;
use tidegate::{
    Check, Clock, Condition, CountingObserver, FailureMode, ImmediateStore, Limit, Limiter, ManualClock, MemoryStore,
    Micros, Policy, Rule, Setting, Store, StoreError,
};
use tidegate_tower::{ClientIp, HeaderStyle, Keyless, RateLimitLayer, Reason, Value, by, settle};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_test::mock;

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

fn from(address: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    let address: IpAddr = address.parse().expect("an address");
    request.extensions_mut().insert(SocketAddr::new(address, 4711));
    request
}

fn with_header(name: &'static str, value: &str) -> Request<String> {
    let mut request = from(ALICE);
    request.headers_mut().insert(name, value.parse().expect("a header value"));
    request
}

/// A limiter by a clock that stands still.
fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

/// What the layer makes of a request to a service that answers with `status`.
async fn ask(layer: &RateLimitLayer, request: Request<String>, status: u16) -> Response<String> {
    let service = service_fn(move |_: Request<String>| async move {
        let mut response = Response::new("x".repeat(100));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        Ok::<_, Infallible>(response)
    });
    layer.layer(service).oneshot(request).await.expect("a service that does not fail")
}

async fn statuses(layer: &RateLimitLayer, requests: impl IntoIterator<Item = Request<String>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(ask(layer, request, 200).await.status().as_u16());
    }
    statuses
}

mod readiness {
    use super::*;

    #[tokio::test]
    async fn being_ready_is_up_to_the_inner_service_and_charges_nothing() {
        let (limiter, _) = limiter(Limit::per_hour(2));
        let layer = RateLimitLayer::new(limiter.clone());
        let (mut service, mut handle) = mock::spawn_layer::<Request<String>, Response<String>, _>(layer);
        handle.allow(0);
        for _ in 0..100 {
            assert!(service.poll_ready().is_pending());
        }
        handle.allow(1);
        for _ in 0..100 {
            assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
        }
        assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), 2);
        let response = service.call(from(ALICE));
        let (_, send) = handle.next_request().await.expect("a request");
        send.send_response(Response::default());
        assert_eq!(response.await.expect("a response").status(), 200);
        assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), 1);
    }

    #[tokio::test]
    async fn a_refused_request_never_reaches_the_inner_service() {
        let (limiter, _) = limiter(Limit::per_hour(1));
        assert!(limiter.is_allowed(ALICE));
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter).layer(mock);
        let response = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
        assert_eq!(response.status(), 429);
        assert!(handle.next_request().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_response_that_nobody_waits_for_stays_charged_and_leaves_nothing_behind() {
        let (limiter, _) = limiter(Limit::per_hour(2));
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter.clone()).settle(settle::only_failures()).layer(mock);
        let response = service.ready().await.expect("ready").call(from(ALICE));
        let (_, send) = handle.next_request().await.expect("a request");
        drop(response);
        send.send_response(Response::default());
        assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), 1);
        let response = service.ready().await.expect("ready").call(from(ALICE));
        handle.next_request().await.expect("a request").1.send_response(Response::default());
        assert_eq!(response.await.expect("a response").headers()["ratelimit"], "\"2/h\";r=1;t=1800", "was refunded");
    }

    #[tokio::test]
    async fn clones_share_the_limit() {
        let (limiter, _) = limiter(Limit::per_hour(3));
        let layer = RateLimitLayer::new(limiter);
        let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
        let first = layer.layer(service);
        let mut admitted = 0;
        for mut service in [first.clone(), first, layer.clone().layer(service), layer.layer(service)] {
            for _ in 0..2 {
                let response = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
                admitted += u32::from(response.status() == 200);
            }
        }
        assert_eq!(admitted, 3);
    }
}

/// A store that answers when it is let.
#[derive(Clone)]
struct Slow {
    store: Arc<MemoryStore>,
    answers: Arc<Semaphore>,
}

impl Slow {
    fn new() -> Slow {
        Slow { store: Arc::default(), answers: Arc::new(Semaphore::new(0)) }
    }
}

impl Store for Slow {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.answers.acquire().await.expect("open").forget();
        self.store.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

#[tokio::test]
async fn bodies_of_hypers_users_will_do() {
    use axum::body::Bytes;
    use http_body_util::{BodyExt, Full};
    let (limiter, _) = limiter(Limit::per_hour(1));
    let service =
        service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let service = RateLimitLayer::new(limiter).layer(service);
    assert_eq!(service.clone().oneshot(from(ALICE)).await.expect("a response").status(), 200);
    let refused = service.oneshot(from(ALICE)).await.expect("a response");
    let body = refused.into_body().collect().await.expect("a body").to_bytes();
    assert!(body.starts_with(b"{\"type\":"));
}

mod waiting {
    use super::*;

    #[tokio::test]
    async fn a_store_that_waits_decides_before_the_inner_service_is_called() {
        let slow = Slow::new();
        let limiter = Limiter::with_store(Limit::per_hour(1), slow.clone()).expect("a valid policy");
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter).layer(mock);
        let mut response = service.ready().await.expect("ready").call(from(ALICE));
        assert!((&mut response).now_or_never().is_none());
        assert!(handle.next_request().now_or_never().is_none(), "not before it is decided");
        slow.answers.add_permits(1);
        assert!((&mut response).now_or_never().is_none());
        handle.next_request().await.expect("a request").1.send_response(Response::default());
        let response = response.await.expect("a response");
        assert_eq!(response.headers()["ratelimit-policy"], "\"1/h\";q=1;w=3600");
        slow.answers.add_permits(1);
        let refused = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
        assert_eq!(refused.status(), 429);
    }

    #[tokio::test]
    async fn a_request_dropped_before_it_is_decided_charges_nothing() {
        let slow = Slow::new();
        let limiter = Limiter::with_store(Limit::per_hour(1), slow.clone()).expect("a valid policy");
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter).layer(mock);
        for _ in 0..10 {
            let mut response = service.ready().await.expect("ready").call(from(ALICE));
            assert!((&mut response).now_or_never().is_none());
            drop(response);
        }
        assert!(handle.next_request().now_or_never().is_none());
        assert_eq!(slow.store.count_keys(), 0);
    }

    #[tokio::test]
    async fn a_leaky_bucket_holds_requests_back_by_its_own_clock() {
        let (limiter, clock) = limiter(Limit::leaky_bucket(1, Duration::from_secs(1)).queue(3));
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter).layer(mock);
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push(tokio::spawn(service.ready().await.expect("ready").call(from(ALICE))));
        }
        for leaving in 0..3 {
            tokio::task::yield_now().await;
            handle.next_request().await.expect("one at a time").1.send_response(Response::default());
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(handle.next_request().now_or_never().is_none(), "{leaving} have left, and time stands still");
            clock.advance(Duration::from_secs(1));
        }
        let mut statuses = Vec::new();
        for call in calls {
            statuses.push(call.await.expect("the call ends").expect("a response").status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 429]);
    }

    #[tokio::test]
    async fn a_request_dropped_while_it_is_held_back_is_not_served() {
        let (limiter, clock) = limiter(Limit::leaky_bucket(1, Duration::from_secs(1)).queue(3));
        let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
        let mut service = RateLimitLayer::new(limiter.clone()).layer(mock);
        assert!(limiter.is_allowed(ALICE));
        let mut held = service.ready().await.expect("ready").call(from(ALICE));
        assert!((&mut held).now_or_never().is_none());
        drop(held);
        clock.advance(Duration::from_secs(5));
        assert!(handle.next_request().now_or_never().is_none());
    }
}

mod keys {
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
    async fn a_request_without_an_address_is_refused_unless_somebody_chose_otherwise() {
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
        let requests =
            [key("a"), key("b"), authorized("Bearer a"), authorized("Bearer c"), authorized("Bearer"), key("")];
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
        assert_eq!(
            statuses(&subject, [claims("s1"), claims("s2"), claims("s1"), from(ALICE)]).await,
            [200, 200, 429, 500]
        );
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
    async fn what_a_client_writes_about_itself_is_no_address() {
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
}

mod rules {
    use super::*;

    #[tokio::test]
    async fn attributes_choose_the_rules_and_make_their_keys() {
        let tenant = Rule::new("tenant", Limit::per_hour(3)).key(["tenant"]).tier("tenant", "big", Limit::per_hour(9));
        let writes =
            Rule::new("writes", Limit::per_hour(1)).when("method", Condition::Equals("POST".into())).key(["ip"]);
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
        assert_eq!(response.headers()["ratelimit"], "\"tenant\";r=1;t=1200", "the refused one was charged to nobody");
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
        assert_eq!(response.headers()["ratelimit"], "\"api\";r=0;t=60", "what was used stays used");
        // Two limits in the place of one, and one again.
        let policy = Policy::new().limit("api", Limit::per_hour(2)).limit("day", Limit::per_day(9));
        limiter.set_policy(policy).expect("a valid policy");
        let listed = ask(&layer, from(BOB), 200).await;
        assert_eq!(listed.headers()["ratelimit-policy"], "\"api\";q=2;w=3600, \"day\";q=9;w=86400");
        limiter.set_policy(Policy::new().limit("api", Limit::per_hour(2))).expect("a valid policy");
        assert_eq!(ask(&layer, from(BOB), 200).await.headers()["ratelimit-policy"], "\"api\";q=2;w=3600");
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
    async fn what_is_blocked_is_forbidden_and_a_shadow_refuses_nobody() {
        let counts = Arc::new(CountingObserver::default());
        let (denied, _) = limiter(Policy::new().rule(Rule::new("nobody", Setting::Blocked)));
        let response = ask(&RateLimitLayer::new(denied), from(ALICE), 200).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(!response.headers().contains_key(RETRY_AFTER));
        let policy =
            Policy::new().limit("lax", Limit::per_hour(9)).rule(Rule::new("strict", Limit::per_hour(1)).shadow());
        let shadowed = Limiter::builder(policy).observer(counts.clone()).build().expect("a valid policy");
        let layer = RateLimitLayer::new(shadowed);
        assert_eq!(statuses(&layer, [from(ALICE), from(ALICE), from(ALICE)]).await, [200; 3]);
        assert_eq!((counts.allowed(), counts.refused()), (3, 0));
    }
}

mod costs {
    use super::*;

    #[tokio::test]
    async fn the_request_says_what_it_costs() {
        let (limiter, _) = limiter(Limit::per_hour(10));
        let layer = RateLimitLayer::new(limiter)
            .cost(|request| request.header("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1));
        let costs = ["4", "x", "7", "5"].map(|cost| with_header("x-cost", cost));
        assert_eq!(statuses(&layer, costs).await, [200, 200, 429, 200]);
        let impossible = ask(&layer, with_header("x-cost", "11"), 200).await;
        assert_eq!(impossible.status(), StatusCode::BAD_REQUEST);
        assert!(!impossible.headers().contains_key(RETRY_AFTER), "no waiting helps");
    }

    #[tokio::test]
    async fn the_response_settles_what_was_charged() {
        let (limiter, _) = limiter(Limit::per_hour(10));
        let layer = || RateLimitLayer::new(limiter.clone());
        let remaining = |response: &Response<String>| {
            let field = response.headers()["ratelimit"].to_str().expect("text").to_owned();
            field.split(";r=").nth(1).and_then(|rest| rest.split(';').next()?.parse::<u64>().ok()).expect("a number")
        };
        let failures = layer().settle(settle::only_failures());
        for (status, left) in [(200, 10), (302, 10), (404, 9), (500, 8), (204, 8)] {
            assert_eq!(remaining(&ask(&failures, from(ALICE), status).await), left, "{status}");
        }
        let successes = layer().settle(settle::only_successes());
        for (status, left) in [(404, 8), (204, 7), (500, 7)] {
            assert_eq!(remaining(&ask(&successes, from(ALICE), status).await), left, "{status}");
        }
        // The body has 100 bytes: four units in all.
        let by_size = layer().settle(settle::by_size(30));
        assert_eq!(remaining(&ask(&by_size, from(ALICE), 200).await), 3);
        assert_eq!(remaining(&ask(&by_size, from(ALICE), 200).await), 0, "as far as there is any");
        assert_eq!(ask(&by_size, from(ALICE), 200).await.status(), 429);
    }

    #[tokio::test]
    async fn a_request_that_is_sent_again_is_charged_and_settled_once() {
        for asynchronous in [false, true] {
            let slow = Slow { store: Arc::default(), answers: Arc::new(Semaphore::new(100)) };
            let layer = match asynchronous {
                false => RateLimitLayer::new(limiter(Limit::per_hour(10)).0),
                true => RateLimitLayer::new(Limiter::with_store(Limit::per_hour(10), slow).expect("a valid policy")),
            };
            let layer = layer.id(by::header("idempotency-key")).settle(settle::only_successes());
            let named = |name: &str| with_header("idempotency-key", name);
            let left = |response: &Response<String>| response.headers()["ratelimit"].to_str().expect("text").to_owned();
            assert!(left(&ask(&layer, named("a"), 200).await).contains(";r=9"));
            assert!(left(&ask(&layer, named("a"), 200).await).contains(";r=9"), "sent again");
            assert!(left(&ask(&layer, named("b"), 200).await).contains(";r=8"));
            assert!(left(&ask(&layer, named("b"), 500).await).contains(";r=8"), "nothing to give back a second time");
            assert!(left(&ask(&layer, from(ALICE), 200).await).contains(";r=7"), "without a name");
            assert!(left(&ask(&layer, from(ALICE), 200).await).contains(";r=6"));
            let layer = layer.cost(|_| 2);
            let reused = ask(&layer, named("a"), 200).await;
            assert_eq!(reused.status(), StatusCode::UNPROCESSABLE_ENTITY);
            assert!(reused.body().contains("urn:tidegate:id-reused"), "{}", reused.body());
            assert!(!reused.headers().contains_key(RETRY_AFTER), "no waiting helps");
        }
    }

    #[tokio::test]
    async fn a_stream_has_the_size_that_its_header_tells() {
        use axum::body::Body;
        use futures_util::stream;
        for (length, left) in [(Some(100), 6), (None, 9)] {
            let service = service_fn(|_: Request<String>| async {
                let body = Body::from_stream(stream::iter([Ok::<_, Infallible>("x".repeat(100))]));
                let response = Response::builder();
                let response = length.into_iter().fold(response, |told, length| told.header("content-length", length));
                response.body(body)
            });
            let (limiter, _) = limiter(Limit::per_hour(10));
            let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(30));
            assert_eq!(layer.layer(service).oneshot(from(ALICE)).await.expect("a response").status(), 200);
            assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), left, "{length:?}");
        }
    }

    #[tokio::test]
    async fn a_call_of_grpc_has_failed_if_its_own_status_says_so() {
        for (status, failures, successes) in [("0", 10, 9), ("16", 9, 10), ("8", 9, 10)] {
            for (layer, left) in [
                (RateLimitLayer::new(limiter(Limit::per_hour(10)).0).settle(settle::only_failures()), failures),
                (RateLimitLayer::new(limiter(Limit::per_hour(10)).0).settle(settle::only_successes()), successes),
            ] {
                let service = service_fn(|_: Request<String>| async {
                    Response::builder().header("grpc-status", status).body(String::new())
                });
                let response = layer.grpc().layer(service).oneshot(from(ALICE)).await.expect("a response");
                let field = response.headers()["ratelimit"].to_str().expect("text");
                assert!(field.contains(&format!(";r={left}")), "{status}: {field}");
            }
        }
    }

    #[tokio::test]
    async fn a_rule_that_always_costs_the_same_is_charged_once() {
        let (limiter, _) = limiter(
            Policy::new()
                .rule(Rule::new("requests", Limit::per_hour(10)).always(2))
                .rule(Rule::new("units", Limit::per_hour(1_000))),
        );
        // The body has 100 bytes: four units in all.
        let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(30));
        let response = ask(&layer, from(ALICE), 200).await;
        let left = |rule| limiter.peek(tidegate::Request::new(ALICE).rule(rule)).expect("an answer").remaining();
        assert_eq!((left("requests"), left("units")), (8, 996));
        assert_eq!(response.headers()["ratelimit"], "\"requests\";r=8;t=360", "of all limits the tightest");
    }

    #[tokio::test]
    async fn what_costs_several_times_as_much_is_charged_as_far_as_there_is_any() {
        let (limiter, _) = limiter(Policy::new().rule(Rule::new("dear", Limit::per_hour(1_000)).times(10)));
        let layer = RateLimitLayer::new(limiter.clone()).settle(|_| settle::Settlement::Charge(999));
        for (address, used) in [(ALICE, 0), (BOB, 51), ("192.0.2.3", 98), ("192.0.2.4", 99)] {
            assert!(limiter.is_allowed(tidegate::Request::new(address).cost(used)));
            assert_eq!(ask(&layer, from(address), 200).await.status(), 200);
            assert_eq!(limiter.peek(address).expect("an answer").remaining(), 0, "{used} were used before");
        }
    }

    #[tokio::test]
    async fn a_response_that_took_the_rest_tells_when_the_next_unit_comes() {
        let (limiter, _) = limiter(Limit::per_minute(10));
        let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(10));
        for used in [9, 0] {
            assert!(limiter.reset(ALICE).is_ok());
            assert!(limiter.is_allowed(tidegate::Request::new(ALICE).cost(used)));
            let response = ask(&layer, from(ALICE), 200).await;
            assert_eq!(response.headers()["ratelimit"], "\"10/min\";r=0;t=6", "{used} were used before");
        }
    }

    #[tokio::test]
    async fn a_service_that_fails_without_a_response_is_no_success() {
        let (limiter, _) = limiter(Limit::per_hour(10));
        let broken = || service_fn(|_: Request<String>| async { Err::<Response<String>, _>("broken") });
        for (layer, left) in [
            (RateLimitLayer::new(limiter.clone()).settle(settle::only_successes()), 10),
            (RateLimitLayer::new(limiter.clone()).settle(settle::only_failures()), 9),
        ] {
            assert!(layer.layer(broken()).oneshot(from(ALICE)).await.is_err());
            assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), left);
        }
    }
}

mod words {
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
            let mut response = Response::new(format!("again in {} s", refusal.retry_after().unwrap_or(0)));
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        });
        assert!(ask(&layer, from(ALICE), 200).await.headers().is_empty());
        let response = ask(&layer, from(ALICE), 200).await;
        assert_eq!((response.status().as_u16(), response.body().as_str()), (418, "again in 60 s"));
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
                let service =
                    service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
                let service = layer(outer_is_hour).layer(layer(!outer_is_hour).layer(service));
                let response = service.oneshot(from(ALICE)).await.expect("a response");
                assert_eq!(response.headers()["ratelimit"], hour, "not {minute}");
                if let Some(reset) = response.headers().get("x-ratelimit-reset") {
                    assert_eq!(reset, "3600");
                }
            }
        }
    }
}

mod failures {
    use super::*;

    /// A store that is always away.
    struct Away(ManualClock);

    #[derive(Debug)]
    struct Gone;

    impl std::fmt::Display for Gone {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("gone")
        }
    }
    impl std::error::Error for Gone {}

    impl Store for Away {
        async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
            Err(StoreError::Failed { source: Box::new(Gone) })
        }

        fn clock(&self) -> &dyn Clock {
            &self.0
        }
    }

    #[tokio::test]
    async fn a_store_that_is_away_answers_as_its_failure_mode_says() {
        let modes = [
            (None, [503, 503, 503]),
            (Some(FailureMode::Open), [200, 200, 200]),
            (Some(FailureMode::Closed), [503, 503, 503]),
            (Some(FailureMode::local(2)), [200, 503, 503]),
        ];
        for (mode, expected) in modes {
            let builder = Limiter::builder(Limit::per_hour(2)).store(Away(ManualClock::default()));
            let limiter = match mode {
                Some(mode) => builder.on_failure(mode),
                None => builder,
            };
            let layer = RateLimitLayer::new(limiter.build().expect("a valid policy"));
            assert_eq!(statuses(&layer, [from(ALICE), from(ALICE), from(ALICE)]).await, expected, "{mode:?}");
            let refused = ask(&layer, from(ALICE), 200).await;
            if refused.status() == StatusCode::SERVICE_UNAVAILABLE {
                assert!(refused.headers().contains_key(RETRY_AFTER), "{mode:?}");
                assert!(refused.body().contains("#temporary-reduced-capacity"), "{}", refused.body());
            }
        }
    }

    /// A store that is away while it is told to be.
    struct Wavering {
        store: MemoryStore,
        is_away: Arc<AtomicBool>,
    }

    impl Store for Wavering {
        async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
            if self.is_away.load(Ordering::Relaxed) {
                return Err(StoreError::Failed { source: Box::new(Gone) });
            }
            self.store.decide_now(checks, verdicts)
        }

        fn clock(&self) -> &dyn Clock {
            self.store.clock()
        }
    }

    #[tokio::test]
    async fn what_a_stand_in_let_pass_is_not_given_back_to_the_store() {
        for mode in [FailureMode::Open, FailureMode::local(1)] {
            let is_away = Arc::new(AtomicBool::new(false));
            let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build();
            let store = Wavering { store: store.expect("valid settings"), is_away: Arc::clone(&is_away) };
            let limiter = Limiter::builder(Limit::per_hour(5)).store(store).on_failure(mode).build();
            let limiter = limiter.expect("a valid policy");
            let layer = RateLimitLayer::new(limiter.clone()).settle(settle::only_failures());
            for _ in 0..3 {
                assert_eq!(ask(&layer, from(ALICE), 401).await.status(), 401);
            }
            is_away.store(true, Ordering::Relaxed);
            let service = service_fn(|_: Request<String>| {
                is_away.store(false, Ordering::Relaxed);
                async { Ok::<_, Infallible>(Response::<String>::default()) }
            });
            let response = layer.layer(service).oneshot(from(ALICE)).await.expect("a response");
            assert_eq!(response.status(), 200, "somebody stands in");
            let left = limiter.peek_async(ALICE).await.expect("the store is back").remaining();
            assert_eq!(left, 2, "three failures count on: {mode:?}");
        }
    }
}
