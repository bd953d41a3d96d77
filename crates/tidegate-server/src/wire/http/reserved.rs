//! Connections that come when all places of HTTP are taken.
//!
//! A few are let in all the same, for a moment: operators must see a server that is full. Only
//! health, metrics and administration are served; any other request is told to retry.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::{Next, from_fn};
use http::{Request, Response};

use super::connection::{Terms, serve_connection_on};
use super::problem::Problem;
use crate::run::listen::Stream;
use crate::wire::app::App;

/// The time for the head of the request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for all of it: what has no end, as the stream of the dashboard, ends then.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// The same routes, of which only a few are served.
pub(super) fn router(router: Router) -> Router {
    router.layer(from_fn(essential))
}

async fn essential(request: Request<Body>, next: Next) -> Response<Body> {
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/readyz" | "/healthcheck" | "/metrics") || path.starts_with("/admin/") {
        return next.run(request).await;
    }
    Problem::NoPlace.response()
}

/// Serves one request of a connection.
pub(crate) async fn serve(stream: Stream, app: Arc<App>, router: Router) {
    let terms = Terms { head_timeout: HEAD_TIMEOUT, keep_alive: false };
    let _ = tokio::time::timeout(MAX_DURATION, serve_connection_on(terms, stream, app, router)).await;
}
