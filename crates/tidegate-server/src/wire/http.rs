//! HTTP: JSON in, JSON out, errors as problem documents (RFC 9457).

mod answer;
pub(crate) mod ask;
pub mod bare;
pub(crate) mod body;
mod connection;
pub(crate) mod counted;
mod example;
mod forward;
pub(crate) mod guard;
mod heads;
mod metrics;
mod plain;
pub(crate) mod problem;
pub(crate) mod reply;
mod request;
mod reserved;
mod terms;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Extension, Router};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use tokio::io::AsyncWriteExt;
use tracing::debug;

use self::ask::Task;
pub(crate) use self::connection::serve_connection;
use self::counted::Static;
pub(crate) use self::example::example;
use self::forward::FORWARD_AUTH;
pub(crate) use self::guard::{guarded, identity_of};
pub(crate) use self::metrics::metrics;
use self::plain::Then;
use self::problem::Problem;
pub(crate) use self::reserved::serve as serve_reserved;
use crate::access::audit::Action;
use crate::ask::call::Call;
use crate::ask::store::Health;
use crate::run::connections::Admitted;
use crate::run::listen::{Listener, Stream};
use crate::run::protocol::Protocol;
use crate::settings::rights::Right;
use crate::wire::app::App;

/// The document that says what there is: written by hand, held to be true by
/// a tester that reads it.
const OPENAPI: &str = include_str!("http/openapi.json");

const CHECK: &str = "/v1/check";

/// Serves these routes on a listener until the server closes.
pub(crate) async fn serve(listener: Listener, app: Arc<App>, router: Router) {
    let reserved = reserved::router(router.clone());
    let connections = Arc::clone(&app.guards.connections);
    let serve = move |stream, admitted| {
        let (app, router, reserved) = (Arc::clone(&app), router.clone(), reserved.clone());
        async move {
            match admitted {
                Admitted::Pool => serve_all(stream, app, router).await,
                Admitted::Reserve => serve_reserved(stream, app, reserved).await,
            }
        }
    };
    listener.serve_each(connections, Protocol::Http, serve).await;
}

/// Serves a connection: plain requests first, and by hyper from anything else on. Only there are heads read for spans.
async fn serve_all(mut stream: Stream, app: Arc<App>, router: Router) {
    if app.records.metrics.tracer.is_on() {
        return serve_connection(stream, app, router).await;
    }
    match plain::answer_all(&mut stream, &app).await {
        Ok(Then::Hyper) => serve_connection(stream, app, router).await,
        Ok(Then::End) => drop(stream.shutdown().await),
        Err(error) => debug!(%error, "a connection ended badly"),
    }
}

/// All that is served over HTTP, with the routes of others beside its own.
pub(crate) fn router(app: Arc<App>, beside: Router<Arc<App>>) -> Router {
    let checks = Router::new()
        .route(CHECK, asks(Task::Call(Call::Check)))
        .route("/v1/peek", asks(Task::Call(Call::Peek)))
        .route("/v1/report", asks(Task::Call(Call::Report)))
        .route("/v1/reserve", asks(Task::Call(Call::Reserve)))
        .route("/v1/settle", asks(Task::Call(Call::Settle)))
        .route("/v1/renew", asks(Task::Call(Call::Renew)))
        .route("/v1/release", asks(Task::Call(Call::Release)))
        .route("/v1/acquire", asks(Task::Acquire));
    let forward = |State(app): State<Arc<App>>, request| forward::forward(app, request);
    let forwards = Router::new().route(FORWARD_AUTH, any(forward));
    let refunds = Router::new().route("/v1/refund", asks(Task::Call(Call::Refund)));
    let resets = Router::new().route("/v1/reset", asks(Task::Call(Call::Reset)));
    let manages = Router::new()
        .route("/v1/explain", asks(Task::Explain))
        .merge(guard::audited(refunds, &app, Action::Refund))
        .merge(guard::audited(resets, &app, Action::Reset));
    let metrics = Router::new().route("/metrics", reads(get(metrics)));
    let router = Router::new()
        .merge(guarded(checks, &app, Right::Check))
        .merge(guard::guarded_for_proxies(forwards, &app))
        .merge(guarded(manages, &app, Right::Manage))
        .merge(guarded(metrics, &app, Right::Metrics))
        .route("/healthz", reads(get(|| async { "alive\n" })))
        .route("/readyz", reads(get(ready)))
        .route("/openapi.json", reads(get(openapi)))
        .merge(beside);
    let nothing =
        |request: Request<Body>| async move { Problem::NotFound { path: request.uri().path().to_owned() }.response() };
    router.fallback(nothing).with_state(app)
}

async fn openapi() -> impl IntoResponse {
    (Extension(Static), [(CONTENT_TYPE, "application/json")], OPENAPI)
}

/// A path that requests are posted to.
fn asks(task: Task) -> MethodRouter<Arc<App>> {
    let answer = move |State(app): State<Arc<App>>, request| ask::ask(app, task, request);
    post(answer).fallback(|request: Request<Body>| async move { wrong_method(&request, "POST") })
}

/// The whole body of a request, or what to answer in its place.
pub(crate) async fn read_body(request: Request<Body>, app: &App) -> Result<Bytes, Response<Body>> {
    body::read(request, app).await.map_err(|problem| problem.response())
}

/// A path that can only be read.
pub(crate) fn reads<S: Clone + Send + Sync + 'static>(router: MethodRouter<S>) -> MethodRouter<S> {
    router.fallback(|request: Request<Body>| async move { wrong_method(&request, "GET, HEAD") })
}

pub(crate) fn wrong_method(request: &Request<Body>, allowed: &'static str) -> Response<Body> {
    let (path, method) = (request.uri().path().to_owned(), request.method().to_string());
    Problem::Method { path, method, allowed }.response()
}

/// Whether requests should be sent here. A server whose failure mode answers is
/// ready: with the store down for all instances, none of them may be taken out.
async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.guards.drain.is_leaving() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    // Without requests, nothing else would find out that it is well again.
    if app.engine.store().health() != Health::Good {
        app.engine.store().probe().await;
    }
    let (degraded, unavailable) = match app.engine.store().health() {
        Health::Good => return (StatusCode::OK, "ready\n"),
        Health::Unreachable => (
            "degraded: the store is unreachable, and the failure mode answers\n",
            "the store is unreachable, and no failure mode is set: see --on-failure\n",
        ),
        Health::Refusing => (
            "degraded: the store refuses commands, and the failure mode answers: see the log\n",
            "the store refuses commands, and no failure mode is set: see the log\n",
        ),
    };
    match app.engine.has_failure_mode() {
        true => (StatusCode::OK, degraded),
        false => (StatusCode::SERVICE_UNAVAILABLE, unavailable),
    }
}
