//! The service without its wire, for the fuzzer.

use std::sync::Arc;

use prost::Message;

use super::answer::Client;
#[doc(hidden)]
pub use super::messages::{RateLimitRequest, RateLimitResponse, rate_limit_response};
use super::{answer, json};
use crate::access::Identity;
use crate::run::peer::Peer;
use crate::settings::rights::Rights;
use crate::wire::app::App;

fn client() -> Client {
    Client { peer: Peer::Unix, identity: Identity::anonymous(Rights::ALL) }
}

/// What a message is answered, if it has an answer.
pub async fn answer(app: &App, message: &[u8]) -> Option<Vec<u8>> {
    let request = RateLimitRequest::decode(message).ok()?;
    let response = answer::answer(app, &client(), &request, answer::Purpose::Decide).await.ok()?;
    Some(response.encode_to_vec())
}

/// What a message in JSON is answered: a status and a body.
pub async fn answer_json(app: &Arc<App>, message: &[u8]) -> (u16, String) {
    let (status, body) = json::answer(app, &client(), message).await;
    (status.as_u16(), body)
}
