//! The questions without their wire, for the fuzzer.

use axum::body::Body;
use http::Response;
use http_body_util::BodyExt;
use tidegate::kernel::Verb;

use super::ask;
use super::problem::Problem;
use crate::app::App;

/// What a body is answered as a question with this verb: a status and JSON.
pub async fn answer(app: &App, verb: Verb, body: &[u8]) -> (u16, Vec<u8>) {
    read(ask::decide(app, verb, body).await).await
}

/// What a body is answered as a question why.
pub async fn explain(app: &App, body: &[u8]) -> (u16, Vec<u8>) {
    read(ask::explain(app, body).await).await
}

async fn read(answer: Result<Response<Body>, Problem>) -> (u16, Vec<u8>) {
    let response = answer.unwrap_or_else(|problem| problem.response());
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map(|body| body.to_bytes().to_vec());
    (status, body.unwrap_or_default())
}
