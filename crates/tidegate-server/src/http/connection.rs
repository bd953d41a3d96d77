//! One connection of HTTP, of either version, for any service: bounded in
//! time, and finished when the server closes. What holds for all answers, and
//! for the heads of all requests, is seen to here.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::header::{CONNECTION, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tower::{Service, ServiceExt};
use tracing::debug;

use super::counted::{Counted, counted};
use super::guard::protocol_of;
use super::heads;
use super::reply::NOSNIFF;
use crate::app::App;
use crate::buffered::FREE;
use crate::listen::Stream;

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
    let requests = Arc::new(Requests { app: Arc::clone(&app), begun: false.into(), open: 0.into() });
    let (of_service, link) = (Arc::clone(&requests), stream.link().clone());
    let (stream, heads) = heads::watched(stream);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(link.clone());
        let (service, open) = (service.clone(), Requests::begin(&of_service));
        let refused = heads.next_refused(&request);
        async move {
            let is_http1 = request.version() < http::Version::HTTP_2;
            let held = Arc::new(open.0.app.buffered.hold(FREE));
            if !is_http1 {
                // For calls whose body goes on: what was read of it is given back.
                request.extensions_mut().insert(Arc::clone(&held));
            }
            let request = request.map(|body| Counted::new(body, Arc::clone(&held)));
            let response = match &refused {
                Some(problem) => problem.response(),
                None => {
                    let tracer = &open.0.app.metrics.tracer;
                    let origin = tracer.origin(|| (protocol_of(&request), Some(request.headers())));
                    origin.scope(service.oneshot(request)).await?
                }
            };
            let mut response = counted(response, &open.0.app.buffered);
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static(NOSNIFF));
            if is_http1 && (refused.is_some() || open.0.app.drain.is_leaving()) {
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
    let served = loop {
        tokio::select! {
            // What has arrived is read before the server closes.
            biased;
            served = connection.as_mut() => break served,
            () = app.drain.closing(), if !is_closing => {
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
        }
    };
    if let Err(error) = served {
        debug!(%error, "a connection ended badly");
    }
}

/// The requests of one connection.
struct Requests {
    app: Arc<App>,
    begun: AtomicBool,
    open: AtomicUsize,
}

/// A request, from its head to its answer.
struct Open(Arc<Requests>);

impl Requests {
    fn begin(requests: &Arc<Requests>) -> Open {
        requests.begun.store(true, Ordering::Relaxed);
        requests.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(requests))
    }

    fn have_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
