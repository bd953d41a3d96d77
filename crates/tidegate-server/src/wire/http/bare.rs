//! The requests without their wire, for the fuzzer.

use super::ask;
use super::problem::Problem;
use super::reply::Reply;
use crate::ask::call::Call;
use crate::run::peer::Peer;
use crate::wire::app::App;

/// What a body is answered as a request of this call: a status and JSON.
pub async fn answer(app: &App, call: Call, body: &[u8]) -> (u16, Vec<u8>) {
    read(ask::decide(app, Peer::Unix, call, body).await)
}

/// What a body is answered as a request why.
pub async fn explain(app: &App, body: &[u8]) -> (u16, Vec<u8>) {
    read(ask::explain(app, body).await)
}

fn read(answer: Result<Reply, Problem>) -> (u16, Vec<u8>) {
    let reply = answer.unwrap_or_else(Reply::from);
    (reply.status.as_u16(), reply.body)
}
