//! Bodies, within their bounds of size and time.

use std::pin::pin;
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;

use super::problem::Problem;
use crate::run::buffered::OverBudget;
use crate::wire::app::App;

/// A body of a request, as hyper or as axum has it.
pub(crate) trait ReadableBody: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>>> ReadableBody for B {}

/// The whole body of a request.
pub(crate) async fn read<B: ReadableBody>(request: Request<B>, app: &App) -> Result<Bytes, Problem> {
    let (bound, timeout) = (app.settings.max_body, app.settings.body_timeout());
    whole(request.into_body(), bound, timeout).await.map_err(|unread| match unread {
        Unread::TooLong => Problem::TooLong { bound },
        Unread::TooSlow => Problem::TooSlow { timeout },
        Unread::BrokenOff => Problem::BrokenOff,
        Unread::OverBudget(over) => Problem::OverBudget(over),
    })
}

/// A body of JSON, which no page of another origin can send unasked.
pub(crate) async fn read_json<B: ReadableBody>(request: Request<B>, app: &App) -> Result<Bytes, Problem> {
    match content_type(request.headers()) {
        Some("application/json") => read(request, app).await,
        _ => Err(Problem::ContentType { expected: "application/json" }),
    }
}

/// The type of a body, without its parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next().map(str::trim)
}

/// Why a body is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unread {
    TooLong,
    TooSlow,
    BrokenOff,
    OverBudget(OverBudget),
}

/// A body in one piece. Memory is taken as bytes arrive, never as they are announced; and however small
/// the pieces are, it takes no more than the bytes do.
pub(crate) async fn whole<B: ReadableBody>(body: B, bound: usize, timeout: Duration) -> Result<Bytes, Unread> {
    // A client that says beforehand that it is too long need not send it.
    if body.size_hint().lower() > bound as u64 {
        return Err(Unread::TooLong);
    }
    let read = async {
        let mut body = pin!(body);
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(&*error.into()))?;
            let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
            if bytes.len() + data.len() > bound {
                return Err(Unread::TooLong);
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes.into())
    };
    tokio::time::timeout(timeout, read).await.unwrap_or(Err(Unread::TooSlow))
}

/// Why a body ended before its end: the budget's refusal comes wrapped.
fn broken(error: &(dyn std::error::Error + 'static)) -> Unread {
    let mut errors = std::iter::successors(Some(error), |error| error.source());
    match errors.find_map(|error| error.downcast_ref::<OverBudget>()) {
        Some(over) => Unread::OverBudget(*over),
        None => Unread::BrokenOff,
    }
}
