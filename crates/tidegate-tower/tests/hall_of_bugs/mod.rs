//! The hall of bugs, where HTTP is spoken: rows 23, 24, 28, 38, 39, 75 to 77, 79
//! and 82. What the hall is stands in `crates/tidegate/tests/hall_of_bugs/main.rs`.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Policy};
use tidegate_tower::{ClientIp, HeaderStyle, RateLimitLayer, by};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_test::mock;

const ALICE: &str = "192.0.2.1";

fn from(address: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    let address: IpAddr = address.parse().expect("an address");
    request.extensions_mut().insert(SocketAddr::new(address, 4711));
    request
}

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

async fn ask(layer: &RateLimitLayer, request: Request<String>) -> Response<String> {
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    layer.layer(service).oneshot(request).await.expect("a service that does not fail")
}

async fn admitted(layer: &RateLimitLayer, requests: impl IntoIterator<Item = Request<String>>) -> usize {
    let mut admitted = 0;
    for request in requests {
        admitted += usize::from(ask(layer, request).await.status() == StatusCode::OK);
    }
    admitted
}

fn header<'r>(response: &'r Response<String>, name: &str) -> &'r str {
    response.headers()[name].to_str().expect("text")
}

/// brandur/redis-cell#56, hashicorp/boundary#4094, balena-io/open-balena-api#1472:
/// `Retry-After` was rounded down, so a client that kept to it was refused again.
#[tokio::test]
async fn row_23_admitted_after_the_retry_after_header() {
    for words in ["7/10s", "1/1500ms", "3/s", "sliding-log 2/3333ms", "sliding 3/2500ms", "fixed 2/7s"] {
        let (limiter, clock) = limiter(words.parse::<Limit>().expect(words));
        let layer = RateLimitLayer::new(limiter);
        for _ in 0..50 {
            clock.advance(Duration::from_micros(123_457));
            let response = ask(&layer, from(ALICE)).await;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                let seconds = header(&response, "retry-after").parse().expect("whole seconds");
                clock.advance(Duration::from_secs(seconds));
                assert_eq!(ask(&layer, from(ALICE)).await.status(), StatusCode::OK, "{words} after {seconds} s");
            }
        }
    }
}

/// benwis/tower-governor#65, alisaifee/flask-limiter#62: a wait of less than a
/// second was told as zero.
#[tokio::test]
async fn row_24_retry_after_is_never_zero() {
    for words in ["1000/s burst 1", "1/100ms", "sliding-log 1/10ms"] {
        let (limiter, _) = limiter(words.parse::<Limit>().expect(words));
        let layer = RateLimitLayer::new(limiter).headers([HeaderStyle::Draft10, HeaderStyle::XRateLimit]);
        assert_eq!(admitted(&layer, [from(ALICE)]).await, 1);
        let refusal = ask(&layer, from(ALICE)).await;
        assert_eq!((refusal.status().as_u16(), header(&refusal, "retry-after")), (429, "1"), "{words}");
        assert!(header(&refusal, "ratelimit").ends_with(";t=1"), "{words}: {}", header(&refusal, "ratelimit"));
    }
}

/// zulip/zulip#39879, lambdaclass/throttle#26: fields with fractions, or numbers
/// far below zero.
#[tokio::test]
async fn row_28_fields_are_whole_numbers_that_are_not_below_zero() {
    // Without debt a leaky bucket is healed in time, and none of its requests is held back.
    for words in ["7/3s", "40/day burst 1000000", "sliding 3/7s", "leaky 3/7s queue 2 debt 0"] {
        let (limiter, clock) = limiter(words.parse::<Limit>().expect(words));
        let layer = RateLimitLayer::new(limiter).headers([HeaderStyle::Draft10, HeaderStyle::XRateLimit]);
        for step in 0..40 {
            // Back as well, where a key has used more than there is.
            clock.set(tidegate::Micros::new(10_000_000 + (step * 7_777_777) % 9_000_000));
            let response = ask(&layer, from(ALICE)).await;
            for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
                let value = header(&response, name);
                assert!(value.parse::<u32>().is_ok() && !value.starts_with('+'), "{words}: {name}: {value}");
            }
            let field = sfv::Parser::new(header(&response, "ratelimit")).parse::<sfv::List>();
            assert!(field.is_ok(), "{words}: {}", header(&response, "ratelimit"));
        }
    }
}

/// apollographql/router#9034: a service that was not ready for a moment was taken
/// for one that was over its limit, and the client got 429.
#[tokio::test]
async fn row_38_not_ready_is_not_over_the_limit() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, Response<String>, _>(RateLimitLayer::new(limiter));
    handle.allow(0);
    for _ in 0..100 {
        assert!(service.poll_ready().is_pending(), "pending, and nothing else");
    }
    handle.allow(1);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let response = service.call(from(ALICE));
    let (_, send) = handle.next_request().await.expect("it was let through");
    send.send_response(Response::default());
    assert_eq!(response.await.expect("a response").status(), StatusCode::OK);
}

/// tower-rs/tower#438 and #454, joshrotenberg/tower-resilience#286: the readiness
/// of one clone was spent on another, which had never been asked.
#[tokio::test]
async fn row_39_the_service_that_was_ready_is_the_one_that_is_called() {
    /// Panics if it is called before it was ready, as tower allows it to.
    #[derive(Default)]
    struct Exact(bool);
    impl Clone for Exact {
        fn clone(&self) -> Exact {
            // What was promised to one clone is not promised to another.
            Exact(false)
        }
    }
    impl Service<Request<String>> for Exact {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called without being ready");
            std::future::ready(Ok(Response::default()))
        }
    }
    let (limiter, _) = limiter(Limit::per_hour(100));
    let mut service = RateLimitLayer::new(limiter).layer(Exact::default());
    for _ in 0..10 {
        let mut clone = service.clone();
        for each in [&mut service, &mut clone] {
            let response = each.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
            assert_eq!(response.status(), StatusCode::OK);
        }
    }
}

/// coder/coder#27273, outline/outline#13504, ovumcy/ovumcy-web#354: `/Login`, `/login/`
/// and `/%6cogin` had a limit each. The route is what the router made of it.
#[tokio::test]
async fn row_75_a_route_is_one_key_however_it_is_spelled() {
    use axum::Router;
    use axum::routing::get;
    let (limiter, _) = limiter(Limit::per_hour(3));
    let layer = RateLimitLayer::new(limiter.clone()).key(by::route());
    let router = Router::new().route("/users/{id}", get(|| async {})).route_layer(layer);
    let mut statuses = Vec::new();
    for path in ["/users/1", "/users/%31", "/users/ONE", "/users/1?x=y", "/users/..", "/users/2#z", "/users/%2F"] {
        let request = Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
        statuses.push(router.clone().oneshot(request).await.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429]);
    assert_eq!(limiter.store().count_keys(), 1);
}

/// nestjs/throttler#2695, zulip/zulip#21544: one subscriber had 2^64 addresses, and
/// a limit for each.
#[tokio::test]
async fn row_76_a_subscriber_is_one_client() {
    let (limiter, _) = limiter(Limit::per_hour(2));
    let layer = RateLimitLayer::new(limiter.clone());
    let addresses = (0..1_000_u32).map(|host| from(&format!("2001:db8::{:x}:{:x}", host / 7, host)));
    assert_eq!(admitted(&layer, addresses).await, 2);
    assert_eq!(limiter.store().count_keys(), 1);
}

/// migadu/alps#18, forgekeep/nebula-mesh#232, everruns/everruns#2643: the leftmost
/// address was believed, which is what the client wrote: a new key for each
/// request, or another client's.
#[tokio::test]
async fn row_77_the_client_is_the_address_that_the_proxy_saw() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    let layer = RateLimitLayer::new(limiter.clone()).client_ip(ClientIp::behind(1));
    let forwarded = |line: String| {
        let mut request = from("127.0.0.1");
        request.headers_mut().insert("x-forwarded-for", line.parse().expect("a value"));
        request
    };
    let forged = (0..100).map(|number| forwarded(format!("10.0.{number}.1, 203.0.113.7")));
    assert_eq!(admitted(&layer, forged).await, 1, "one client, whatever it writes");
    let victim = forwarded("198.51.100.9".to_owned());
    assert_eq!(admitted(&layer, [victim]).await, 1, "and the victim is not locked out");
}

/// aks129/HealthClawGuardrails#339 (150 of 150 passed): the tenant that the client
/// named in a header was the key. Ours looks at no header unless it is told to.
#[tokio::test]
async fn row_79_a_header_is_no_key_by_itself() {
    let (limiter, _) = limiter(Limit::per_hour(5));
    let layer = RateLimitLayer::new(limiter.clone());
    let names = ["x-tenant-id", "x-api-key", "authorization", "x-forwarded-for", "x-real-ip", "forwarded"];
    let claims = (0..150).map(|number| {
        let mut request = from(ALICE);
        for name in names {
            request.headers_mut().insert(name, format!("tenant{number}").parse().expect("a value"));
        }
        request
    });
    assert_eq!(admitted(&layer, claims).await, 5);
    assert_eq!(limiter.store().count_keys(), 1);
}

/// moonbitlang/async#494, TheMorpheus407/the-dmz#278: text of a client went into a
/// header as it was, line breaks and all.
#[tokio::test]
async fn row_82_no_key_is_seen_in_a_header() {
    let (limiter, _) = limiter(Policy::new().limit("api", Limit::per_hour(1)));
    let layer = RateLimitLayer::new(limiter)
        .key(|request| Some(request.uri().query()?.into()))
        .headers([HeaderStyle::Draft10, HeaderStyle::XRateLimit])
        .partition_key([7; 16]);
    for _ in 0..2 {
        let mut request = from(ALICE);
        *request.uri_mut() = "/?evil%0d%0aset-cookie:x=evil".parse().expect("a URI");
        let response = ask(&layer, request).await;
        for (name, value) in response.headers() {
            let value = value.to_str().expect("text");
            assert!(!value.contains("evil") && !value.contains(['\r', '\n']), "{name}: {value}");
        }
        assert!(!response.body().contains("evil"), "{}", response.body());
    }
}
