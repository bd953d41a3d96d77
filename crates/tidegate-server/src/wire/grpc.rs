//! gRPC: Envoy's rate limit service and rate limit quota service, version 3, and limitador's, with health and reflection.
//!
//! Two things can decide a request, by its domain. Where a descriptor file is
//! about the domain (`--envoy-config`), it decides, with the meaning that the
//! reference service gives it. For every other domain the server's own policy
//! does, if it was given one beside the files, or no files: each descriptor
//! becomes a request whose attributes are its entries, and `domain`. What neither
//! knows passes without a limit.
//!
//! Unlike in the reference service, a request that is refused charges no
//! descriptor, and a descriptor with zero hits asks whether one more would pass;
//! `docs/book/src/reference/envoy.md` has the whole list. As there, a request that can never pass is
//! `OVER_LIMIT`, never an error: Envoy lets pass what the service has no answer for.

mod answer;
pub mod bare;
mod bounds;
pub(crate) mod debug;
mod headers;
mod json;
mod kuadrant;
mod messages;
mod metadata;
mod outcome;
mod problem;
mod quota;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::middleware::{Next, from_fn};
use axum::routing::any_service;
use http::{Request, Response};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tower::Service;

use self::answer::{Client, Purpose};
use self::bounds::{Bounds, MAX_SMALL_MESSAGE};
use self::kuadrant::Kuadrant;
use self::messages::kuadrant_service_server::RateLimitServiceServer as KuadrantServer;
use self::messages::rate_limit_quota_service_server::RateLimitQuotaServiceServer;
use self::messages::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use self::messages::{RateLimitRequest, RateLimitResponse};
use self::problem::Problem;
use self::quota::Quota;
use crate::run::connections::Drain;
use crate::run::listen::Listener;
use crate::run::protocol::Protocol;
use crate::settings::rights::Right;
use crate::wire::app::App;
use crate::wire::http::{guarded, serve_connection};

/// Serves gRPC on a listener until the server closes.
pub(crate) async fn serve(listener: Listener, app: Arc<App>) {
    let router = router::<()>(&app)
        .fallback(|| async { Status::new(Code::Unimplemented, "no such service").into_http::<Body>() });
    let connections = Arc::clone(&app.guards.connections);
    let serve = move |stream, _| serve_connection(stream, Arc::clone(&app), router.clone());
    listener.serve_each(connections, Protocol::Grpc, serve).await;
}

/// The routes of all services and their JSON, for a listener of HTTP.
pub(crate) fn http_routes<S: Clone + Send + Sync + 'static>(app: &Arc<App>) -> Router<S> {
    router(app).merge(json::router(app))
}

fn router<S: Clone + Send + Sync + 'static>(app: &Arc<App>) -> Router<S> {
    let (reporter, health) = health_reporter();
    app.guards.connections.spawn(report_health(reporter, app.guards.drain.clone()));
    let limits = RateLimitServiceServer::new(Limits(Arc::clone(app)));
    let timeout = app.settings.body_timeout();
    let whole = |max_message: usize| {
        let bounds = Bounds { max_message, timeout, streams: Arc::clone(&app.guards.health_watches) };
        from_fn(move |request: Request<Body>, next: Next| bounds::in_one_message(bounds.clone(), request, next))
    };
    let max_body = app.settings.max_body;
    let kuadrant = KuadrantServer::new(Kuadrant(Arc::clone(app))).max_decoding_message_size(max_body);
    let limits = with(with(Router::new(), limits.max_decoding_message_size(max_body)), kuadrant);
    let limits = guarded(limits.layer(whole(max_body)), app, Right::Check);
    let health = with(Router::new(), health).layer(whole(MAX_SMALL_MESSAGE));
    let quotas = RateLimitQuotaServiceServer::new(Quota(Arc::clone(app))).max_decoding_message_size(quota::MAX_REPORTS);
    let quotas = guarded(with(Router::new(), quotas), app, Right::Check);
    let router = limits.merge(quotas).merge(health);
    if app.settings.grpc_reflection { router.merge(reflection(app)) } else { router }
}

/// What there is, for clients that ask.
fn reflection<S: Clone + Send + Sync + 'static>(app: &App) -> Router<S> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(messages::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut router = Router::new();
    // Our own descriptors are valid, which a test sees.
    if let (Ok(new), Ok(old)) = (reflection().build_v1(), reflection().build_v1alpha()) {
        router = with(router, new.max_decoding_message_size(MAX_SMALL_MESSAGE));
        router = with(router, old.max_decoding_message_size(MAX_SMALL_MESSAGE));
    }
    let (timeout, streams) = (app.settings.body_timeout(), Arc::clone(&app.guards.reflections));
    let bounds = Bounds { max_message: MAX_SMALL_MESSAGE, timeout, streams };
    let in_time = move |request: Request<Body>, next: Next| bounds::in_time(bounds.clone(), request, next);
    router.layer(from_fn(in_time))
}

/// Says that the server is there, until it leaves.
async fn report_health(mut reporter: HealthReporter, drain: Drain) {
    // The empty name is the whole server, and the last is what the reference service goes by.
    let (quotas, kuadrant) = (RateLimitQuotaServiceServer::<Quota>::NAME, KuadrantServer::<Kuadrant>::NAME);
    let names = ["", RateLimitServiceServer::<Limits>::NAME, quotas, kuadrant, "ratelimit"];
    for name in names {
        reporter.set_service_status(name, ServingStatus::Serving).await;
    }
    drain.leaving().await;
    for name in names {
        reporter.set_service_status(name, ServingStatus::NotServing).await;
    }
    drain.closing().await;
    for name in names {
        // Ends the watch streams: they would never end by themselves.
        reporter.clear_service_status(name).await;
    }
}

/// Adds a service under its name.
fn with<R, S, B>(router: Router<R>, service: S) -> Router<R>
where
    R: Clone + Send + Sync + 'static,
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    router.route(&format!("/{}/{{method}}", S::NAME), any_service(service))
}

struct Limits(Arc<App>);

#[tonic::async_trait]
impl RateLimitService for Limits {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let began = Instant::now();
        let client = Client::of(request.extensions());
        let answered = answer::answer_to_the_end(&self.0, &client, request.into_inner(), Purpose::Decide).await;
        self.0.records.metrics.answered(Protocol::Grpc, began.elapsed());
        answered.map(tonic::Response::new).map_err(Status::from)
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        let outcome = problem.outcome();
        Status::new(outcome.code(), outcome.words(&problem))
    }
}
