//! Bodies, within their bounds of size and time.

use axum::BoxError;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::problem::Problem;
use crate::app::App;

/// A body of a request, as hyper or as axum has it.
pub(super) trait ReadableBody: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>>> ReadableBody for B {}

/// The whole body.
pub(super) async fn read<B: ReadableBody>(request: Request<B>, app: &App) -> Result<Bytes, Problem> {
    let bound = app.settings.max_body;
    let body = request.into_body();
    // Who says beforehand that it is too long need not send it.
    if body.size_hint().lower() > bound as u64 {
        return Err(Problem::TooLong { bound });
    }
    let patience = app.settings.body_patience();
    let body = tokio::time::timeout(patience, Limited::new(body, bound).collect()).await;
    match body.map_err(|_| Problem::TooSlow { patience })? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::TooLong { bound }),
        Err(_) => Err(Problem::BrokenOff),
    }
}
