//! HTTP: JSON in, JSON out, mistakes as problems (RFC 9457).

mod connection;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;

pub(crate) use self::connection::serve_connection;
use crate::app::App;
use crate::listen::Listener;
use crate::metrics::Protocol;

/// Serves HTTP on a listener until the server closes.
pub(crate) async fn serve(listener: Listener, app: Arc<App>) {
    let router = router(Arc::clone(&app));
    let serve = move |stream, app| serve_connection(stream, app, router.clone());
    listener.serve_each(app, Protocol::Http, serve).await;
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(app)
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.drain.is_leaving() {
        return (StatusCode::SERVICE_UNAVAILABLE, "leaving\n");
    }
    (StatusCode::OK, "ready\n")
}

async fn metrics(State(app): State<Arc<App>>) -> ([(http::HeaderName, &'static str); 1], String) {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(http::header::CONTENT_TYPE, kind)], app.metrics.text())
}
