//! One connection of HTTP, of either version, for any service: bounded in
//! time, and finished when the server closes.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tower::{Service, ServiceExt};
use tracing::debug;

use crate::app::App;
use crate::listen::Stream;

/// Requests that one connection of HTTP/2 may have open.
const MOST_STREAMS: u32 = 200;

/// The longest head of a request.
const LONGEST_HEAD: usize = 16 << 10;

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
    let drain = app.drain.clone();
    let leaving = drain.clone();
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&has_begun);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        begins.store(true, Ordering::Relaxed);
        let (service, leaving) = (service.clone(), leaving.clone());
        async move {
            let is_http1 = request.version() < http::Version::HTTP_2;
            let mut response = service.oneshot(request).await?;
            if is_http1 && leaving.is_leaving() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Before its first bytes hyper does not know which HTTP it is, and waits
    // for them without an end.
    let mut beginning = pin!(tokio::time::sleep(app.settings.idle()));
    let mut is_watched = true;
    let served = loop {
        tokio::select! {
            served = connection.as_mut() => break served,
            () = drain.closing() => {
                connection.as_mut().graceful_shutdown();
                break connection.await;
            }
            () = beginning.as_mut(), if is_watched => {
                if !has_begun.load(Ordering::Relaxed) {
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
