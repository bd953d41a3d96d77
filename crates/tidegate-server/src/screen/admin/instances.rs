//! Other servers whose figures one dashboard shows: which they are, and that their pages may read this one (CORS).
//!
//! A page of a listed origin may read what the admin API answers to GET, if it sends a token: what a
//! caller may do is decided as for any other. No cookie or certificate of the browser is taken.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Request, Response, StatusCode};
use serde::Serialize;

use crate::settings::Origin;
use crate::wire::app::App;
use crate::wire::http::guard::host;
use crate::wire::http::reply::Reply;

/// Seconds for which a browser need not ask again.
const MAX_AGE: &str = "600";

#[derive(Serialize)]
struct Instances<'a> {
    instances: Vec<&'a str>,
}

/// The other servers: the same list may be given to all, so the one that is asked is left out.
pub(super) async fn instances(State(app): State<Arc<App>>, request: Request<Body>) -> Reply {
    let own = host(&request).unwrap_or_default();
    let others = app.settings.dashboard_instance.iter();
    let others = others.filter(|origin| !origin.authority().as_bytes().eq_ignore_ascii_case(own));
    Reply::json(&Instances { instances: others.map(Origin::as_str).collect() })
}

/// The routes, whose GET answers pages of the listed origins may read.
pub(super) fn readable<S: Clone + Send + Sync + 'static>(routes: Router<S>, app: &Arc<App>) -> Router<S> {
    match app.settings.dashboard_instance.is_empty() {
        true => routes,
        false => routes.layer(from_fn_with_state(Arc::clone(app), permit)),
    }
}

async fn permit(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response<Body> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_preflight =
        *request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let is_listed = |origin: &&HeaderValue| {
        app.settings.dashboard_instance.iter().any(|listed| listed.as_str().as_bytes() == origin.as_bytes())
    };
    let origin = request.headers().get(ORIGIN).filter(is_listed).filter(|_| is_read || is_preflight).cloned();
    let mut response = match &origin {
        Some(_) if is_preflight => allowed(),
        Some(_) | None => next.run(request).await,
    };
    let headers = response.headers_mut();
    if is_read || is_preflight {
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

/// What a browser is told that asks before it sends a token.
fn allowed() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization"),
        (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
