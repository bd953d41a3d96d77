//! Reservations that are held until the response body has ended.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use bytes::Buf;
use futures_util::stream;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tidegate_tower::{BodyEnd, ReserveLayer, ReservedBody, Spent, Tally};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// One request at once, and a log of tokens, which gives back exactly.
fn policy() -> Policy {
    Policy::new()
        .rule(Rule::new("tokens", Limit::sliding_log(1_000, MINUTE)).unit("tokens").default_amount(100))
        .limit("at once", Limit::in_flight(1, MINUTE))
}

pub(super) fn left<S: Store>(limiter: &Limiter<S>, rule: &str) -> u64 {
    let peek = limiter.peek_async(tidegate::Request::new(ALICE).rule(rule).cost(0));
    let decision = peek.now_or_never().expect("at once").expect("an answer");
    decision.remaining().expect("a limit")
}

/// A body of these frames, of which none is there before it is asked for.
pub(super) fn streamed(frames: &[&str]) -> Body {
    let frames: Vec<_> =
        frames.iter().map(|frame| Ok::<_, Infallible>(Bytes::copy_from_slice(frame.as_bytes()))).collect();
    Body::from_stream(stream::iter(frames))
}

async fn call(layer: &ReserveLayer, body: Body) -> Response<ReservedBody<Body>> {
    let body = Mutex::new(Some(body));
    let service = service_fn(|_: Request<String>| {
        let body = body.lock().expect("no panic").take();
        async { Ok::<_, Infallible>(Response::new(body.unwrap_or_default())) }
    });
    layer.layer(service).oneshot(from(ALICE)).await.expect("a response")
}

/// Says what the last frame and the trailers say.
#[derive(Default)]
struct Numbers {
    last: Option<u64>,
    says_when_cut: bool,
}

impl Tally for Numbers {
    fn data(&mut self, data: &[u8]) {
        self.last = std::str::from_utf8(data).expect("text").parse().ok();
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        self.last = trailers.get("x-tokens").and_then(|tokens| tokens.to_str().ok()?.parse().ok());
    }

    fn spent(&mut self, end: BodyEnd) -> Option<Spent> {
        let may_say = end == BodyEnd::Complete || self.says_when_cut;
        Some(Spent::new().amount("tokens", self.last.filter(|_| may_say)?))
    }
}

#[tokio::test]
async fn a_permit_is_held_while_the_body_streams_and_given_back_at_its_end() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).reserve();
    let mut body = call(&layer, streamed(&["a", "b"])).await.into_body();
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (0, 900));
    for expected in ["a", "b"] {
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), expected);
        assert_eq!(left(&limiter, "at once"), 0);
    }
    assert!(body.frame().await.is_none());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900), "the estimate stays");
    drop(body);
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900), "once");
}

#[tokio::test]
async fn a_body_that_says_that_it_has_ended_gives_back_without_being_asked_again() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(|_| Numbers::default());
    let mut body = call(&layer, Body::from("30")).await.into_body();
    assert_eq!(left(&limiter, "at once"), 0);
    assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 970), "hyper stops here");
    let empty = call(&layer, Body::empty()).await;
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 870), "and here");
    drop(empty);
}

#[tokio::test]
async fn a_request_is_refused_while_the_permit_is_held_and_told_as_without_a_reservation() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone());
    let held = call(&layer.clone().reserve(), streamed(&["a"])).await;
    let plain = ask(&layer, from(ALICE), 200).await;
    let reserving = call(&layer.clone().reserve(), Body::empty()).await;
    assert_eq!((reserving.status(), plain.status()), (StatusCode::TOO_MANY_REQUESTS, StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(reserving.headers(), plain.headers());
    assert_eq!(reserving.headers()["retry-after"], "60");
    let problem = reserving.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(problem, plain.into_body());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (0, 900), "a refusal holds nothing");
    drop(held);
    let admitted = call(&layer.reserve(), Body::empty()).await;
    assert_eq!(admitted.headers()["ratelimit"], "\"at once\";r=0;t=60");
}

#[tokio::test]
async fn a_permit_is_given_back_when_the_body_is_dropped_or_fails() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).reserve();
    drop(call(&layer, streamed(&["a", "b"])).await);
    assert_eq!(left(&limiter, "at once"), 1, "never read");
    let mut body = call(&layer, streamed(&["a", "b"])).await.into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(left(&limiter, "at once"), 1, "read in part");
    let broken = Body::from_stream(stream::iter([Ok("a"), Err("broken")]));
    let mut body = call(&layer, broken).await.into_body();
    assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
    assert!(body.frame().await.is_some_and(|frame| frame.is_err()));
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 700), "failed, and not dropped yet");
}

#[tokio::test]
async fn a_permit_is_given_back_when_the_call_is_cancelled() {
    let (limiter, _) = limiter(policy());
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter.clone()).reserve().layer(mock);
    let mut response = service.ready().await.expect("ready").call(from(ALICE));
    assert_eq!(left(&limiter, "at once"), 1, "nothing is reserved before the future is polled");
    assert!((&mut response).now_or_never().is_none());
    let served = handle.next_request().await.expect("a request");
    assert_eq!(left(&limiter, "at once"), 0);
    drop(response);
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900));
    drop(served);
}

#[tokio::test]
async fn a_permit_is_given_back_when_the_inner_service_fails_or_panics() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(|_| Numbers::default());
    let failing = service_fn(|_: Request<String>| async { Err::<Response<String>, _>("broken") });
    assert!(layer.layer(failing).oneshot(from(ALICE)).await.is_err());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900));
    let panics_later = service_fn(|_: Request<String>| async {
        if true { panic!("later") } else { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let panicked = AssertUnwindSafe(layer.layer(panics_later).oneshot(from(ALICE))).catch_unwind().await;
    assert!(panicked.is_err());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 800));
    let panics_at_once = service_fn(|_: Request<String>| {
        if true {
            panic!("at once");
        }
        std::future::ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    let panicked = AssertUnwindSafe(layer.layer(panics_at_once).oneshot(from(ALICE))).catch_unwind().await;
    assert!(panicked.is_err());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 700));
}

#[tokio::test]
async fn a_panic_beside_a_body_gives_its_permit_back_without_asking_the_tally() {
    let (limiter, _) = limiter(policy());
    let says = |_: &_| Numbers { last: Some(5), says_when_cut: true };
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(says);
    let body = call(&layer, streamed(&["1"])).await.into_body();
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _body = body;
        panic!("a handler");
    }));
    assert!(panicked.is_err());
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900));
}

#[tokio::test]
async fn a_tally_settles_at_the_end_and_of_a_cut_body_if_it_can_say() {
    for (says_when_cut, of_cut) in [(false, 900), (true, 990)] {
        let (limiter, _) = limiter(policy());
        let tally = move |_: &_| Numbers { last: None, says_when_cut };
        let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(tally);
        let mut body = call(&layer, streamed(&["10", "20"])).await.into_body();
        assert!(body.frame().await.is_some());
        drop(body);
        assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, of_cut));
        let body = call(&layer, streamed(&["10", "200"])).await.into_body();
        assert_eq!(body.collect().await.expect("a body").to_bytes(), "10200");
        assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, of_cut - 200), "more than estimated");
    }
}

#[tokio::test]
async fn a_tally_gets_the_head_of_the_response_and_sees_trailers() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(|parts| {
        assert_eq!(parts.headers["x-model"], "small");
        Numbers::default()
    });
    let service = service_fn(|_: Request<String>| async {
        let trailers = HeaderMap::from_iter([("x-tokens".parse().expect("a name"), "7".parse().expect("a value"))]);
        let frames = [Frame::data(Bytes::from("text")), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        Response::builder().header("x-model", "small").body(Body::new(StreamBody::new(stream::iter(frames))))
    });
    let response = layer.layer(service).oneshot(from(ALICE)).await.expect("a response");
    let collected = response.into_body().collect().await.expect("a body");
    assert_eq!(collected.trailers().expect("passed on")["x-tokens"], "7");
    assert_eq!(left(&limiter, "tokens"), 993);
}

/// Says what all frames together say.
#[derive(Default)]
struct Text(String);

impl Tally for Text {
    fn data(&mut self, data: &[u8]) {
        self.0 += std::str::from_utf8(data).expect("text");
    }

    fn spent(&mut self, _: BodyEnd) -> Option<Spent> {
        Some(Spent::new().amount("tokens", self.0.parse().ok()?))
    }
}

/// Data that shows only its first piece before it is taken.
struct Hidden(Bytes, Bytes);

impl Buf for Hidden {
    fn remaining(&self) -> usize {
        self.0.len() + self.1.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.0.is_empty() { &self.1 } else { &self.0 }
    }

    fn advance(&mut self, count: usize) {
        let first = count.min(self.0.len());
        self.0.advance(first);
        self.1.advance(count - first);
    }
}

/// What is left of the tokens after a response with this data, which passes unchanged.
async fn left_after(data: impl Buf + Send + 'static) -> u64 {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).grpc().reserve().tally(|_| Text::default());
    let data = Mutex::new(Some(data));
    let service = service_fn(|_: Request<String>| {
        let data = data.lock().expect("no panic").take().expect("one request");
        async { Ok::<_, Infallible>(Response::new(Full::new(data))) }
    });
    let response = layer.layer(service).oneshot(from(ALICE)).await.expect("a response");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "456");
    left(&limiter, "tokens")
}

#[tokio::test]
async fn data_in_pieces_is_seen_whole_or_leaves_the_estimate() {
    let piece = Bytes::from_static;
    assert_eq!(left_after(piece(b"4").chain(piece(b"5")).chain(piece(b"6"))).await, 1_000 - 456);
    assert_eq!(left_after(Hidden(piece(b"4"), piece(b"56"))).await, 900);
}

#[tokio::test]
async fn a_response_is_settled_by_its_body_only() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).settle(settle::only_failures());
    assert_eq!(call(&layer.reserve(), Body::from("30")).await.status(), 200);
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 900));
}

#[tokio::test]
async fn the_request_says_how_much_it_is_estimated_to_take() {
    let (limiter, _) = limiter(policy());
    let layer =
        RateLimitLayer::new(limiter.clone()).amount("tokens", |request| request.header("x-max-tokens")?.parse().ok());
    let service = || service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let reserving = layer.clone().reserve();
    for (asked, status, rest) in [("250", 200, 750), ("751", 429, 750), ("x", 200, 650), ("1001", 422, 650)] {
        let request = with_header("x-max-tokens", asked);
        let response = reserving.layer(service()).oneshot(request).await.expect("a response");
        assert_eq!((response.status().as_u16(), left(&limiter, "tokens")), (status, rest), "{asked}");
    }
    // Without a reservation, too; a refund gives the amounts back, and a further charge takes none.
    let refunding = layer.clone().settle(settle::only_failures()).rule("tokens");
    assert_eq!(ask(&refunding, with_header("x-max-tokens", "400"), 200).await.status(), 200);
    assert_eq!(left(&limiter, "tokens"), 650);
    let by_size = layer.settle(settle::by_size(30)).rule("tokens");
    assert_eq!(ask(&by_size, with_header("x-max-tokens", "50"), 200).await.status(), 200);
    assert_eq!(left(&limiter, "tokens"), 600);
}

#[tokio::test]
async fn frames_renew_the_permit_once_a_third_of_its_time_has_passed() {
    for (step, is_held) in [(20, true), (30, true), (59, true), (60, false)] {
        let (limiter, clock) = limiter(policy());
        let layer = RateLimitLayer::new(limiter.clone()).reserve();
        let mut body = call(&layer, streamed(&["a"; 10])).await.into_body();
        for frame in 0..10 {
            clock.advance(Duration::from_secs(step));
            assert!(body.frame().await.is_some());
            assert_eq!(left(&limiter, "at once"), u64::from(!is_held), "frame {frame} after {step}s each");
        }
        assert!(body.frame().await.is_none());
        assert_eq!(left(&limiter, "at once"), 1);
    }
}

#[tokio::test]
async fn frames_keep_a_reservation_that_would_be_forgotten() {
    for (lasts, rest) in [(4, 900), (16, 990)] {
        let (limiter, clock) = limiter(
            Policy::new()
                .rule(Rule::new("tokens", Limit::sliding_log(1_000, 60 * MINUTE)).unit("tokens").default_amount(100)),
        );
        let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(|_| Numbers::default());
        let layer = layer.lasts(Duration::from_secs(lasts));
        let mut body = call(&layer, streamed(&["10"; 10])).await.into_body();
        for _ in 0..10 {
            clock.advance(Duration::from_secs(5));
            assert!(body.frame().await.is_some());
        }
        assert!(body.frame().await.is_none());
        assert_eq!(left(&limiter, "tokens"), rest, "{lasts}s");
    }
}

#[tokio::test]
async fn a_request_that_comes_again_gives_nothing_back_of_the_first() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).id(by::header("idempotency-key")).reserve();
    let layer = layer.tally(|_| Numbers { last: Some(1), says_when_cut: true });
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new(streamed(&["5"]))) });
    let service = layer.layer(service);
    let first = service.clone().oneshot(with_header("idempotency-key", "a")).await.expect("a response");
    let again = service.oneshot(with_header("idempotency-key", "a")).await.expect("a response");
    assert_eq!((first.status(), again.status()), (StatusCode::OK, StatusCode::OK));
    drop(again);
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (0, 900));
    drop(first);
    assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, 999));
}

#[tokio::test]
async fn a_request_that_lacks_a_key_attribute_is_refused_as_without_a_reservation() {
    let rule = Rule::new("at once", Limit::in_flight(1, MINUTE)).key(["user"]);
    let layer = RateLimitLayer::new(limiter(rule).0).attribute("user", by::header("x-user"));
    let plain = ask(&layer, from(ALICE), 200).await;
    let reserving = call(&layer.reserve(), Body::empty()).await;
    assert_eq!((reserving.status().as_u16(), reserving.headers()), (422, plain.headers()));
    assert_eq!(reserving.into_body().collect().await.expect("a body").to_bytes(), plain.into_body());
}

#[tokio::test]
async fn a_request_without_a_key_that_passes_holds_nothing() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter.clone()).key(by::api_key()).keyless(Keyless::Pass).reserve();
    let held = [call(&layer, streamed(&["a"])).await, call(&layer, streamed(&["a"])).await];
    assert!(held.iter().all(|response| response.status() == 200));
    assert_eq!(left(&limiter, "at once"), 1);
}

#[tokio::test]
async fn a_leaky_buckets_delay_is_waited_for_with_the_permit_held() {
    let policy = Policy::new()
        .limit("flow", Limit::leaky_bucket(1, Duration::from_secs(1)).queue(3))
        .limit("at once", Limit::in_flight(3, MINUTE));
    let (limiter, clock) = limiter(policy);
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter.clone()).reserve().layer(mock);
    assert!(limiter.allow(tidegate::Request::new(ALICE).rule("flow")));
    for is_cancelled in [true, false] {
        let mut response = service.ready().await.expect("ready").call(from(ALICE));
        assert!((&mut response).now_or_never().is_none());
        assert!(handle.next_request().now_or_never().is_none(), "held back");
        assert_eq!(left(&limiter, "at once"), 2);
        if is_cancelled {
            drop(response);
        } else {
            clock.advance(Duration::from_secs(3));
            assert!((&mut response).now_or_never().is_none());
            handle.next_request().await.expect("a request").1.send_response(Response::default());
            assert_eq!(response.await.expect("a response").status(), 200);
        }
        assert_eq!(left(&limiter, "at once"), 3);
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store that answers later, and keeps what is to be done in the background.
#[derive(Clone)]
struct Remote {
    slow: Slow,
    tasks: Arc<Mutex<Vec<Task>>>,
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.slow.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.slow.clock()
    }

    fn in_background(&self, task: Task) {
        self.tasks.lock().expect("no panic").push(task);
    }
}

#[tokio::test]
async fn a_store_that_answers_later_settles_in_the_background() {
    let remote = Remote { slow: Slow::new(), tasks: Arc::default() };
    let limiter = Limiter::with_store(policy(), remote.clone()).expect("a valid policy");
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(|_| Numbers::default());
    for rest in [970, 940] {
        remote.slow.answers.add_permits(1);
        let response = call(&layer, Body::from("30")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "30", "the body does not wait");
        let task = remote.tasks.lock().expect("no panic").pop().expect("a settlement");
        remote.slow.answers.add_permits(1);
        task.await;
        assert!(remote.tasks.lock().expect("no panic").is_empty());
        remote.slow.answers.add_permits(2);
        assert_eq!((left(&limiter, "at once"), left(&limiter, "tokens")), (1, rest));
    }
}

#[tokio::test]
async fn a_permit_is_renewed_no_more_often_than_needed() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let slow = Slow { store: Arc::new(store), answers: Arc::new(Semaphore::new(1)) };
    let remote = Remote { slow, tasks: Arc::default() };
    let layer = RateLimitLayer::new(Limiter::with_store(policy(), remote.clone()).expect("a valid policy")).reserve();
    let mut body = call(&layer, streamed(&["a"; 60])).await.into_body();
    for second in 1..=60 {
        clock.advance(Duration::from_secs(1));
        assert!(body.frame().await.is_some());
        assert_eq!(remote.tasks.lock().expect("no panic").len(), second / 20, "renewals after {second}s");
    }
}

#[tokio::test]
async fn axum_and_tonic_take_the_layer() {
    let (limiter, _) = limiter(policy());
    let layer = RateLimitLayer::new(limiter).reserve();
    let _: axum::Router = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(layer);
    let (limiter, _) = super::limiter(policy());
    let (_, health) = tonic_health::server::health_reporter();
    let layer = RateLimitLayer::new(limiter).grpc().reserve();
    let _ = tonic::transport::Server::builder().layer(layer).add_service(health);
}
