//! Layers around clients: those that wait for a limit of their own, and those
//! that keep to what servers say.

use std::convert::Infallible;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use futures_util::FutureExt;
use http::{Request, Response};
use tidegate::{AcquireError, Clock, Limit, Limiter, ManualClock, MemoryStore, Micros};
use tidegate_tower::RateLimitLayer;
use tidegate_tower::client::{AcquireLayer, BoxError, HonourLayer, TooLong};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: Limit) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(limit, store).expect("a valid policy"), clock)
}

fn to(host: &str) -> Request<String> {
    Request::get(format!("http://{host}/")).body(String::new()).expect("a request")
}

/// Every task that can go on has gone on.
async fn settled() {
    for _ in 0..50 {
        yield_now().await;
    }
}

mod acquire {
    use super::*;

    /// A service that counts, behind the layer.
    fn service(layer: &AcquireLayer, served: &Arc<AtomicUsize>) -> BoxCloneService<&'static str, (), BoxError> {
        let served = Arc::clone(served);
        let inner = service_fn(move |_: &'static str| {
            served.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(()) }
        });
        BoxCloneService::new(layer.layer(inner))
    }

    #[tokio::test]
    async fn requests_wait_for_their_turn_and_readiness_charges_nothing() {
        let (limiter, clock) = limiter(Limit::per_second(1));
        let served = Arc::new(AtomicUsize::new(0));
        let mut service = service(&AcquireLayer::new(limiter.clone()), &served);
        for _ in 0..100 {
            service.ready().await.expect("ready");
        }
        assert_eq!(limiter.peek("").expect("an answer").remaining(), Some(1));
        for _ in 0..3 {
            tokio::spawn(service.ready().await.expect("ready").call("request"));
        }
        for second in 1..=3 {
            settled().await;
            assert_eq!(served.load(Ordering::Relaxed), second);
            clock.advance(SECOND);
        }
    }

    #[tokio::test]
    async fn a_cancelled_request_charges_nothing_and_a_late_one_times_out() {
        let (limiter, clock) = limiter(Limit::per_second(1));
        assert!(limiter.allow(""));
        let served = Arc::new(AtomicUsize::new(0));
        let mut service = service(&AcquireLayer::new(limiter.clone()).timeout(2 * SECOND), &served);
        let mut dropped = Box::pin(service.ready().await.expect("ready").call("dropped"));
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        clock.advance(SECOND);
        assert_eq!(limiter.peek("").expect("an answer").remaining(), Some(1));
        let (slow, _) = super::limiter(Limit::per_hour(1));
        assert!(slow.allow(""));
        let mut hopeless = super::acquire::service(&AcquireLayer::new(slow).timeout(SECOND), &served);
        let error = hopeless.ready().await.expect("ready").call("hopeless").await.expect_err("an error");
        assert!(matches!(error.downcast_ref(), Some(AcquireError::Timeout { .. })), "{error}");
        assert_eq!(served.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn the_timeout_covers_the_delay_of_a_leaky_bucket() {
        let (limiter, clock) = limiter(Limit::leaky_bucket(1, SECOND).queue(10));
        let served = Arc::new(AtomicUsize::new(0));
        let mut service = service(&AcquireLayer::new(limiter.clone()).timeout(2 * SECOND), &served);
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.push(tokio::spawn(service.ready().await.expect("ready").call("request")));
            settled().await;
        }
        assert_eq!(limiter.peek("").expect("an answer").remaining(), Some(7), "who cannot wait has charged nothing");
        for call in calls.split_off(3) {
            assert!(call.is_finished(), "told at once");
            let error = call.await.expect("no panic").expect_err("two seconds are not enough");
            assert!(matches!(error.downcast_ref(), Some(AcquireError::Timeout { .. })), "{error}");
        }
        for second in 1..=3 {
            settled().await;
            assert_eq!(served.load(Ordering::Relaxed), second);
            clock.advance(SECOND);
        }
    }

    #[tokio::test]
    async fn each_host_can_have_a_limit_of_its_own() {
        let (limiter, _) = limiter(Limit::per_hour(1));
        let layer = AcquireLayer::new(limiter)
            .timeout(SECOND)
            .key(|request: &Request<String>| request.uri().host().unwrap_or("").to_owned());
        let inner = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(()) });
        let mut service = ServiceBuilder::new().layer(layer).service(inner);
        let mut admitted = Vec::new();
        for host in ["a.example", "b.example", "a.example"] {
            admitted.push(service.ready().await.expect("ready").call(to(host)).await.is_ok());
        }
        assert_eq!(admitted, [true, true, false]);
    }
}

mod honour {
    use super::*;

    type Reply = Response<String>;

    /// A client whose server answers with these headers.
    fn client(
        clock: &ManualClock,
        status: u16,
        headers: &'static [(&'static str, &'static str)],
    ) -> BoxCloneService<Request<String>, Reply, BoxError> {
        let layer = HonourLayer::with_clock(clock.clone()).timeout(60 * SECOND);
        let server = service_fn(move |_: Request<String>| async move {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            response.body(String::new()).map_err(BoxError::from)
        });
        BoxCloneService::new(layer.layer(server))
    }

    async fn ask<C>(client: &mut C, host: &str) -> JoinHandle<Result<Reply, BoxError>>
    where
        C: Service<Request<String>, Response = Reply, Error = BoxError, Future: Send + 'static>,
    {
        let call = client.ready().await.expect("ready").call(to(host));
        let call = tokio::spawn(call);
        settled().await;
        call
    }

    #[tokio::test]
    async fn a_refusal_holds_back_what_goes_to_that_host_until_then() {
        for headers in [
            [("retry-after", "5"), ("ratelimit", "\"x\";r=9;t=1")],
            [("ratelimit", "\"x\";r=0;t=5"), ("x", "")],
            [("ratelimit", "limit=9, remaining=0, reset=5"), ("x", "")],
            [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")],
        ] {
            let headers: &'static [_] = Box::leak(Box::new(headers));
            let clock = ManualClock::default();
            let mut client = client(&clock, 429, headers);
            assert!(ask(&mut client, "a.example").await.is_finished());
            let held = ask(&mut client, "a.example").await;
            assert!(!held.is_finished(), "{headers:?}");
            assert!(ask(&mut client, "b.example").await.is_finished(), "others are free");
            clock.advance(5 * SECOND - Duration::from_micros(1));
            settled().await;
            assert!(!held.is_finished());
            clock.advance(Duration::from_micros(1));
            settled().await;
            assert!(held.is_finished());
        }
    }

    #[tokio::test]
    async fn as_many_pass_as_are_said_to_be_left() {
        let clock = ManualClock::default();
        let first = Arc::new(AtomicUsize::new(0));
        let layer = HonourLayer::with_clock(clock.clone());
        let mut client = ServiceBuilder::new().layer(layer).service_fn(move |_: Request<String>| {
            let first = first.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let response = Response::builder();
                let response = if first { response.header("ratelimit", "\"x\";r=2;t=10") } else { response };
                response.body(String::new()).map_err(BoxError::from)
            }
        });
        for _ in 0..3 {
            assert!(ask(&mut client, "a.example").await.is_finished());
        }
        let held = ask(&mut client, "a.example").await;
        assert!(!held.is_finished());
        clock.advance(10 * SECOND);
        settled().await;
        assert!(held.is_finished());
    }

    #[tokio::test]
    async fn a_server_that_has_more_again_is_believed() {
        let mut client = client(&ManualClock::default(), 200, &[("ratelimit", "\"x\";r=1;t=10")]);
        for _ in 0..5 {
            assert!(ask(&mut client, "a.example").await.is_finished());
        }
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_lifts_no_refusal() {
        let clock = ManualClock::default();
        let asked = AtomicUsize::new(0);
        let (asked, gate) = (Arc::new(asked), Arc::new(Semaphore::new(0)));
        let slow = Arc::clone(&gate);
        let server = service_fn(move |_: Request<String>| {
            let (is_first, slow) = (asked.fetch_add(1, Ordering::Relaxed) == 0, Arc::clone(&slow));
            async move {
                if is_first {
                    slow.acquire().await?.forget();
                }
                let field = if is_first { "\"x\";r=9;t=10" } else { "\"x\";r=0;t=10" };
                Ok::<_, BoxError>(Response::builder().header("ratelimit", field).body(String::new())?)
            }
        });
        let mut client = HonourLayer::with_clock(clock.clone()).layer(server);
        let late = ask(&mut client, "a.example").await;
        assert!(ask(&mut client, "a.example").await.is_finished());
        gate.add_permits(1);
        settled().await;
        assert!(late.is_finished());
        let held = ask(&mut client, "a.example").await;
        assert!(!held.is_finished());
        clock.advance(10 * SECOND);
        settled().await;
        assert!(held.is_finished());
    }

    #[tokio::test]
    async fn no_request_waits_longer_than_its_timeout() {
        let clock = ManualClock::default();
        let date = httpdate::fmt_http_date(SystemTime::now() + 600 * SECOND);
        let headers: &'static [_] = Box::leak(Box::new([("retry-after", &*Box::leak(date.into_boxed_str()))]));
        let mut client = client(&clock, 503, headers);
        assert!(ask(&mut client, "a.example").await.is_finished());
        let error = ask(&mut client, "a.example").await.await.expect("no panic").expect_err("too long");
        let TooLong { host, wait } = error.downcast_ref().expect("the reason");
        assert!(host == "a.example" && *wait > 500 * SECOND && *wait <= 600 * SECOND, "{wait:?}");
    }

    #[tokio::test]
    async fn a_server_is_known_by_its_host_and_port_however_that_is_written() {
        let clock = ManualClock::default();
        let mut client = client(&clock, 429, &[("retry-after", "600")]);
        let mut is_refused = async |request: Request<String>| match client.call(request).await {
            Ok(_) => None,
            Err(error) => Some(error.downcast_ref::<TooLong>().expect("the reason").host.clone()),
        };
        let by_field = |host: &str| Request::get("/").header("host", host).body(String::new()).expect("a request");
        assert_eq!(is_refused(to("user:secret@a.example:81")).await, None);
        for request in [to("a.example:81"), to("other:secret@A.Example:81"), by_field("a.example:81")] {
            assert_eq!(is_refused(request).await.as_deref(), Some("a.example:81"), "and no password is shown");
        }
        assert_eq!(is_refused(by_field("b.example")).await, None, "another server");
        assert_eq!(is_refused(by_field("c.example")).await, None, "and another");
        assert_eq!(is_refused(to("b.example")).await.as_deref(), Some("b.example"));
    }

    #[tokio::test]
    async fn cached_and_malformed_responses_set_no_wait() {
        for (status, headers) in [
            (429, [("retry-after", "soon"), ("ratelimit", "x;r=0;t=5")]),
            (429, [("retry-after", "5"), ("age", "12")]),
            (200, [("retry-after", "5"), ("x", "")]),
            (200, [("ratelimit", "\"x\";r=0"), ("x", "")]),
            (200, [("ratelimit", "\"x\";r=-1;t=5"), ("x", "")]),
        ] {
            let headers: &'static [_] = Box::leak(Box::new(headers));
            let mut client = client(&ManualClock::default(), status, headers);
            for _ in 0..3 {
                assert!(ask(&mut client, "a.example").await.is_finished(), "{headers:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_honours_a_server_is_never_refused() {
    let limiter = Limiter::new(Limit::per_second(4).burst(4));
    let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut client = ServiceBuilder::new().layer(HonourLayer::new()).service_fn(move |request: Request<String>| {
        let http = http.clone();
        async move {
            let response = http.execute(request.try_into()?).await?;
            Ok::<Response<reqwest::Body>, BoxError>(response.into())
        }
    });
    for _ in 0..6 {
        let response = client.ready().await.expect("ready").call(to(&host)).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
}

/// A clock that stands still and keeps its alarms.
#[derive(Clone, Default)]
struct Stopped(Arc<Mutex<Vec<Waker>>>);

impl Clock for Stopped {
    fn now(&self) -> Micros {
        Micros::ZERO
    }

    fn wake_at(&self, _: Micros, waker: &Waker) {
        self.0.lock().expect("no panic").push(waker.clone());
    }
}

impl Stopped {
    fn take_alarms(&self) -> Vec<Waker> {
        mem::take(&mut self.0.lock().expect("no panic"))
    }

    fn leaky_limiter(&self) -> Limiter {
        let store = MemoryStore::builder().max_keys(1_000).clock(self.clone()).build().expect("valid settings");
        Limiter::with_store(Limit::leaky_bucket(1, SECOND).queue(3), store).expect("a valid policy")
    }

    fn assert_one_alarm(&self, held_back: impl Future) {
        let mut held_back = pin!(held_back);
        for _ in 0..1_000 {
            assert!(held_back.as_mut().now_or_never().is_none());
        }
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut is_held_back = || held_back.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        assert!(is_held_back());
        let alarms = self.take_alarms();
        assert_eq!(alarms.len(), 1, "however often it was polled, and by whichever task");
        alarms.into_iter().for_each(Waker::wake);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "the task that polled last");
        assert!(is_held_back() && is_held_back());
        assert_eq!(self.take_alarms().len(), 1, "an alarm that rang early is set again");
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn accept(_: Request<String>) -> Result<Response<String>, Infallible> {
    Ok(Response::default())
}

#[tokio::test]
async fn an_acquired_request_sets_one_alarm_for_its_delay() {
    let clock = Stopped::default();
    let mut service = AcquireLayer::new(clock.leaky_limiter()).layer(service_fn(accept));
    assert!(service.call(to("a.example")).await.is_ok());
    clock.assert_one_alarm(service.call(to("a.example")));
}

#[tokio::test]
async fn a_request_held_back_for_its_server_sets_one_alarm() {
    let clock = Stopped::default();
    let mut service = HonourLayer::with_clock(clock.clone()).layer(service_fn(async |_: Request<String>| {
        Response::builder().status(429).header("retry-after", "5").body(String::new())
    }));
    assert!(service.call(to("a.example")).await.is_ok());
    clock.assert_one_alarm(service.call(to("a.example")));
}

#[tokio::test]
async fn a_request_held_back_by_a_server_sets_one_alarm() {
    let clock = Stopped::default();
    let layer = RateLimitLayer::new(clock.leaky_limiter()).key(|_| Some("all".into()));
    let mut service = layer.layer(service_fn(accept));
    assert!(service.call(to("a.example")).await.is_ok());
    clock.assert_one_alarm(service.call(to("a.example")));
}
