//! One connection of HTTP, of either version, for any service: bounded in
//! time, and finished when the server closes. What holds for all answers, and
//! for the heads of all requests, is seen to here.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::header::{CONNECTION, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tower::{Service, ServiceExt};
use tracing::debug;

use super::counted::{Answering, Counted, Unread};
use super::guard::protocol_of;
use super::heads;
use super::problem::Problem;
use super::reply::NOSNIFF;
use crate::run::buffered::FREE;
use crate::run::listen::Stream;
use crate::wire::app::App;

/// Requests that one connection of HTTP/2 may have open.
const MAX_STREAMS: u32 = 200;

/// What a client of HTTP/2 may send before it is read: of a request the protocol's own default, and of a
/// connection twice that, so that one request that is not read holds up no other.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 2 * STREAM_WINDOW;

/// Bytes of an answer of HTTP/2 that wait for its client to read.
const MAX_SEND_BUFFER: usize = 64 * 1024;

/// The longest head of a request.
const MAX_HEAD: usize = 16 << 10;

/// How long the rest of a head may take once the server closes.
const LAST_HEAD: Duration = Duration::from_secs(1);

/// What a connection may do.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The time for the first head, and of HTTP/1 for each.
    pub(super) head_timeout: Duration,
    /// Whether there may be more than one request. Without it, HTTP/2 has one at a
    /// time, until the time for the head is over.
    pub(super) keep_alive: bool,
}

/// Serves all requests of a connection by `service`.
pub(crate) async fn serve_connection<S>(stream: Stream, app: Arc<App>, service: S)
where
    S: Service<Request<Counted>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let terms = Terms { head_timeout: app.settings.idle(), keep_alive: true };
    serve_connection_on(terms, stream, app, service).await;
}

pub(super) async fn serve_connection_on<S>(terms: Terms, stream: Stream, app: Arc<App>, service: S)
where
    S: Service<Request<Counted>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let Terms { head_timeout, keep_alive } = terms;
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(head_timeout).keep_alive(keep_alive).max_buf_size(MAX_HEAD);
    let mut http2 = builder.http2();
    let streams = if keep_alive { MAX_STREAMS } else { 1 };
    http2.timer(TokioTimer::new()).max_concurrent_streams(streams).max_header_list_size(MAX_HEAD as u32);
    http2.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    http2.max_send_buf_size(MAX_SEND_BUFFER);
    // HTTP/2 has no time for a head: a peer that is silent is asked whether it is there.
    http2.keep_alive_interval(app.settings.idle()).keep_alive_timeout(app.settings.idle());
    let requests = Requests { app: Arc::clone(&app), begun: 0.into(), open: 0.into(), unread: Arc::default() };
    let requests = Arc::new(requests);
    let write_timeout = stream.write_timeout;
    let (of_service, link) = (Arc::clone(&requests), stream.link().clone());
    let (stream, heads) = heads::watched(stream);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(link.clone());
        let (service, open) = (service.clone(), Requests::begin(&of_service));
        let refused = heads.next_refused(&request);
        async move {
            let (is_http1, method) = (request.version() < http::Version::HTTP_2, request.method().clone());
            let held = Arc::new(open.0.app.guards.buffered.hold(FREE));
            if !is_http1 {
                // For calls whose body goes on: what was read of it is given back.
                request.extensions_mut().insert(Arc::clone(&held));
            }
            let request = request.map(|body| Counted::new(body, Arc::clone(&held)));
            let response = match &refused {
                Some(problem) => problem.response(),
                None => {
                    let tracer = &open.0.app.records.metrics.tracer;
                    let origin = tracer.origin(|| (protocol_of(&request), Some(request.headers())));
                    origin.scope(service.oneshot(request)).await?
                }
            };
            let requests = Arc::clone(&open.0);
            let unread = Some(&requests.unread).filter(|_| !is_http1);
            let answering = Answering { buffered: &requests.app.guards.buffered, method, unread, open };
            let response = answering.counted(response);
            let mut response = response.unwrap_or_else(|over| Problem::from(over).response());
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static(NOSNIFF));
            if is_http1 && (refused.is_some() || requests.app.guards.drain.is_leaving()) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Before its first bytes hyper does not know which HTTP it is, and waits
    // for them without an end.
    let mut timeout = pin!(tokio::time::sleep(head_timeout));
    let (mut is_watched, mut is_closing) = (true, false);
    // The socket cannot tell that a client of HTTP/2 reads all but its answers: it may open no window for them.
    let mut period = pin!(tokio::time::sleep(write_timeout));
    let mut last_period = Arc::default();
    // Nor that it asks for nothing more: it may answer whether it is there.
    let (mut last_begun, mut idle) = (0, Duration::ZERO);
    let served = loop {
        tokio::select! {
            // What has arrived is read before the server closes.
            biased;
            served = connection.as_mut() => break served,
            () = app.guards.drain.closing(), if !is_closing => {
                // The runtime has to look at the socket for it to know of what has arrived.
                tokio::task::yield_now().await;
                tokio::select! {
                    biased;
                    served = connection.as_mut() => break served,
                    () = std::future::ready(()) => {}
                }
                connection.as_mut().graceful_shutdown();
                timeout.set(tokio::time::sleep(LAST_HEAD));
                (is_watched, is_closing) = (true, true);
            }
            () = timeout.as_mut(), if is_watched => {
                let is_waited_for = if is_closing { requests.are_open() } else { requests.have_begun() };
                if !is_waited_for {
                    return;
                }
                if !keep_alive {
                    connection.as_mut().graceful_shutdown();
                }
                is_watched = false;
            }
            () = period.as_mut() => {
                if Arc::strong_count(&last_period) > 1 {
                    return debug!("the client did not read an answer for {write_timeout:?}");
                }
                last_period = requests.unread.next_period();
                let begun = requests.begun.load(Ordering::Relaxed);
                let is_idle = begun == last_begun && requests.are_over();
                (last_begun, idle) = (begun, if is_idle { idle + write_timeout } else { Duration::ZERO });
                if idle >= app.settings.idle() {
                    connection.as_mut().graceful_shutdown();
                }
                period.set(tokio::time::sleep(write_timeout));
            }
        }
    };
    if let Err(error) = served {
        debug!(%error, "a connection ended badly");
    }
}

/// The requests of one connection.
struct Requests {
    app: Arc<App>,
    begun: AtomicUsize,
    open: AtomicUsize,
    unread: Arc<Unread>,
}

/// A request, from its head to the end of its answer.
struct Open(Arc<Requests>);

impl Requests {
    fn begin(requests: &Arc<Requests>) -> Open {
        requests.begun.fetch_add(1, Ordering::Relaxed);
        requests.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(requests))
    }

    fn have_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing is answered, not even by a stream: those have what the client has not read.
    fn are_over(&self) -> bool {
        !self.are_open() && Arc::strong_count(&self.unread) == 1
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::client::conn::{http1, http2};
    use tidegate::MemoryStore;
    use tidegate_testkit::servers::GUARD;
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::*;
    use crate::run::buffered::FOR_READS;
    use crate::run::peer::Peer;
    use crate::{Server, Settings};

    #[tokio::test]
    async fn beyond_the_budget_an_answer_to_get_is_503_and_what_was_done_is_answered() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let app = server.app();
        let _all = app.guards.buffered.hold_anyway(app.settings.max_buffered + FOR_READS);
        let (near, far) = tokio::io::duplex(1 << 20);
        let service = tower::service_fn(|_| async { Ok(Response::new(Body::from(vec![0; FREE + 1]))) });
        tokio::spawn(serve_connection(Stream::new(far, Peer::Unix), Arc::clone(app), service));
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        for (method, status) in [("GET", 503), ("POST", 200), ("PUT", 200)] {
            let request = Request::builder().method(method).uri("/").header("host", "localhost");
            let answer = sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), status, "{method}");
            answer.into_body().collect().await.unwrap();
        }
        let text = app.records.metrics.text();
        assert!(text.contains("tidegate_requests_shed_total{reason=\"buffered\"} 1\n"), "{text}");
    }

    /// The client lives, and answers whether it is there.
    #[tokio::test]
    async fn a_connection_of_http2_that_asks_for_nothing_ends() {
        let settings = Settings { http: Vec::new(), idle_seconds: 1, ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let (near, far) = tokio::io::duplex(1_000);
        let mut stream = Stream::new(far, Peer::Unix);
        stream.write_timeout = Duration::from_millis(10);
        let service = tower::service_fn(|_| async { Ok(Response::new(Body::from("an answer"))) });
        tokio::spawn(serve_connection(stream, Arc::clone(server.app()), service));
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
        let ended = tokio::spawn(connection);
        let answer = sender.send_request(Request::get("http://localhost/").body(Body::empty()).unwrap()).await.unwrap();
        answer.into_body().collect().await.unwrap();
        timeout(GUARD, ended).await.expect("the server ends it").unwrap().unwrap();
    }

    /// The client reads on when another connection, which has half a head, has been cut.
    #[tokio::test]
    async fn an_answer_that_is_being_read_is_not_cut_when_the_server_closes() {
        for is_http1 in [true, false] {
            let settings = Settings { http: Vec::new(), ..Settings::default() };
            let server = Server::start(settings, MemoryStore::default()).await.unwrap();
            let app = server.app();
            let service = tower::service_fn(|_| async { Ok(Response::new(Body::from(vec![0; 300_000]))) });
            let serve = |far| tokio::spawn(serve_connection(Stream::new(far, Peer::Unix), Arc::clone(app), service));
            let (near, far) = tokio::io::duplex(1_000);
            serve(far);
            let request = Request::get("http://localhost/").header("host", "localhost").body(Body::empty()).unwrap();
            let answer = if is_http1 {
                let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            } else {
                let mut client = http2::Builder::new(TokioExecutor::new());
                let client = client.initial_stream_window_size(20_000).handshake(TokioIo::new(near));
                let (mut sender, connection) = client.await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            };
            app.guards.drain.close();
            let (mut near, far) = tokio::io::duplex(1_000);
            near.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
            timeout(GUARD, serve(far)).await.expect("a head does not go on for long").unwrap();
            let body = timeout(GUARD, answer.into_body().collect()).await.expect("the answer ends").unwrap();
            assert_eq!(body.to_bytes().len(), 300_000, "HTTP/1: {is_http1}");
        }
    }

    /// The client lives and opens a window of so many bytes for each answer, and no more.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_of_http2_that_does_not_read_its_answer_is_given_up() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let app = server.app();
        for (window, length) in [(0, 1), (0, FREE + 1), (1, FREE + 1), (20_000, 100_000)] {
            let (near, far) = tokio::io::duplex(1 << 20);
            let mut stream = Stream::new(far, Peer::Unix);
            stream.write_timeout = Duration::from_millis(20);
            let service = tower::service_fn(move |_| async move { Ok(Response::new(Body::from(vec![0; length]))) });
            let served = tokio::spawn(serve_connection(stream, Arc::clone(app), service));
            let mut client = http2::Builder::new(TokioExecutor::new());
            client.initial_stream_window_size(window);
            let (mut sender, connection) = client.handshake(TokioIo::new(near)).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("http://localhost/").body(Body::empty()).unwrap();
            // On a slow machine the connection ends before the head of the answer is read.
            let answer = sender.send_request(request).await;
            timeout(GUARD, served).await.expect("the connection ends").unwrap();
            if let Ok(answer) = answer {
                assert!(answer.into_body().collect().await.is_err(), "{window} of {length}");
            }
            tidegate_testkit::servers::eventually("the answer to be given back", || {
                let text = app.records.metrics.text();
                if text.contains("\ntidegate_buffered_bytes 0\n") { Ok(()) } else { Err(text) }
            });
        }
    }
}
