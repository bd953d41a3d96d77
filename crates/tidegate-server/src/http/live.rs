//! What happens now: a picture of the server, or one a second.
//!
//! The stream is lines of JSON, not server-sent events: an `EventSource` cannot
//! send the token in a header, and an address is no place for one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Extensions, Response};

use super::problem::Problem;
use crate::app::App;
use crate::listen::Peer;
use crate::live;

/// One picture.
pub(super) async fn picture(State(app): State<Arc<App>>) -> Response<Body> {
    respond("application/json", Body::from(live::picture(&app).await))
}

/// A picture each second, until the server closes.
pub(super) async fn stream(State(app): State<Arc<App>>, extensions: Extensions) -> Response<Body> {
    let watcher = match app.live.watch(&app, Peer::of(&extensions).address()) {
        Ok(watcher) => watcher,
        Err(bound) => return Problem::TooManyWatchers { bound }.response(),
    };
    let pictures = unfold(watcher, |mut watcher| async {
        let picture = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(picture), watcher))
    });
    respond("application/x-ndjson", Body::from_stream(pictures))
}

fn respond(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
