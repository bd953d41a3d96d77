//! The layer around services of all kinds, without a socket: what is charged,
//! when, and what is said of it.

mod attributes;
mod costs;
mod failures;
mod keys;
mod readiness;
mod reserving;
mod rules;
mod usage;
mod waiting;
mod words;

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
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{
    Clock, Condition, CountingObserver, FailureMode, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Rule,
    Setting,
};
use tidegate_testkit::MeddlingClock;
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
