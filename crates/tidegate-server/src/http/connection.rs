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

use super::heads;
use super::reply::NOSNIFF;
use crate::app::App;
use crate::listen::Stream;

/// Requests that one connection of HTTP/2 may have open.
const MOST_STREAMS: u32 = 200;

/// The longest head of a request.
const LONGEST_HEAD: usize = 16 << 10;

/// How long the rest of a head may take once the server closes.
const LAST_HEAD: Duration = Duration::from_secs(1);

/// Serves all requests of a connection by `service`.
pub(crate) async fn serve_connection<S>(stream: Stream, app: Arc<App>, service: S)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(app.settings.idle()).max_buf_size(LONGEST_HEAD);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS).max_header_list_size(LONGEST_HEAD as u32);
    // HTTP/2 has no time for a head: a peer that is silent is asked whether it is there.
    http2.keep_alive_interval(app.settings.idle()).keep_alive_timeout(app.settings.idle());
    let requests = Arc::new(Requests { app: Arc::clone(&app), begun: false.into(), open: 0.into() });
    let of_service = Arc::clone(&requests);
    let (stream, heads) = heads::watched(stream);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (service, open) = (service.clone(), Requests::begin(&of_service));
        let refused = heads.next_refused(&request);
        async move {
            let is_http1 = request.version() < http::Version::HTTP_2;
            let mut response = match &refused {
                Some(problem) => problem.response(),
                None => service.oneshot(request).await?,
            };
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
    let mut patience = pin!(tokio::time::sleep(app.settings.idle()));
    let (mut is_watched, mut is_closing) = (true, false);
    let served = loop {
        tokio::select! {
            // What has arrived is read before the server closes.
            biased;
            served = connection.as_mut() => break served,
            () = app.drain.closing(), if !is_closing => {
                connection.as_mut().graceful_shutdown();
                patience.set(tokio::time::sleep(LAST_HEAD));
                (is_watched, is_closing) = (true, true);
            }
            () = patience.as_mut(), if is_watched => {
                let is_waited_for = if is_closing { requests.are_open() } else { requests.have_begun() };
                if !is_waited_for {
                    return;
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
