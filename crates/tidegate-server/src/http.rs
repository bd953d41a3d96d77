//! HTTP: JSON in, JSON out, mistakes as problems (RFC 9457).

mod admin;
mod answer;
mod ask;
pub mod bare;
mod body;
mod connection;
mod dashboard;
pub(crate) mod fields;
mod live;
mod playground;
mod problem;
mod question;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::{MethodRouter, get, post};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tidegate::kernel::Verb;
use tower::ServiceExt;

use self::ask::Ask;
pub(crate) use self::connection::serve_connection;
pub(crate) use self::playground::MOST_AT_A_TIME as MOST_PLAYERS;
use self::problem::Problem;
use crate::app::App;
use crate::grpc;
use crate::listen::Listener;
use crate::metrics::Protocol;

/// The document that says what there is: written by hand, held to be true by
/// a tester that reads it.
const OPENAPI: &str = include_str!("http/openapi.json");

const CHECK: &str = "/v1/check";

/// Serves HTTP on a listener until the server closes.
pub(crate) async fn serve(listener: Listener, app: Arc<App>) {
    let router = router(Arc::clone(&app));
    let serve = move |stream, app: Arc<App>| {
        let (router, of_service) = (router.clone(), Arc::clone(&app));
        // What is asked most need not be looked up among all that can be.
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let is_check = request.uri().path() == CHECK && request.method() == Method::POST;
            let (router, app) = (router.clone(), Arc::clone(&of_service));
            async move {
                if is_check {
                    return Ok(ask::ask(app, Ask::Verb(Verb::Charge), request).await);
                }
                router.oneshot(request).await
            }
        });
        serve_connection(stream, app, service)
    };
    listener.serve_each(app, Protocol::Http, serve).await;
}

fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route(CHECK, asks(Ask::Verb(Verb::Charge)))
        .route("/v1/peek", asks(Ask::Verb(Verb::Peek)))
        .route("/v1/refund", asks(Ask::Verb(Verb::Refund)))
        .route("/v1/reset", asks(Ask::Verb(Verb::Reset)))
        .route("/v1/acquire", asks(Ask::Acquire))
        .route("/v1/explain", asks(Ask::Explain))
        .route("/healthz", reads(get(|| async { "alive\n" })))
        .route("/readyz", reads(get(ready)))
        .route("/metrics", reads(get(metrics)))
        .route("/openapi.json", reads(get(|| async { ([(CONTENT_TYPE, "application/json")], OPENAPI) })))
        .merge(dashboard::router())
        .merge(grpc::router(&app))
        .merge(grpc::json_router(&app));
    if !app.settings.no_admin {
        router = router.merge(admin::router(&app));
    }
    let nothing =
        |request: Request<Body>| async move { Problem::NotFound { path: request.uri().path().to_owned() }.response() };
    router.fallback(nothing).with_state(app)
}

/// A path that questions are posted to.
fn asks(ask: Ask) -> MethodRouter<Arc<App>> {
    let answer = move |State(app): State<Arc<App>>, request| ask::ask(app, ask, request);
    post(answer).fallback(|request: Request<Body>| async move { wrong_method(&request, "POST") })
}

/// The whole body of a request, or what to answer in its place.
pub(crate) async fn read_body(request: Request<Body>, app: &App) -> Result<Bytes, Response<Body>> {
    body::read(request, app).await.map_err(|problem| problem.response())
}

/// A path that can only be read.
fn reads(router: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    router.fallback(|request: Request<Body>| async move { wrong_method(&request, "GET, HEAD") })
}

pub(crate) fn wrong_method(request: &Request<Body>, allowed: &'static str) -> Response<Body> {
    let (path, method) = (request.uri().path().to_owned(), request.method().to_string());
    Problem::Method { path, method, allowed }.response()
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.drain.is_leaving() {
        return (StatusCode::SERVICE_UNAVAILABLE, "leaving\n");
    }
    if !app.store().is_reachable() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store is away\n");
    }
    (StatusCode::OK, "ready\n")
}

async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    // Counting keys walks through the store: not where requests wait.
    let text = tokio::task::spawn_blocking(move || app.metrics.text()).await.unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
