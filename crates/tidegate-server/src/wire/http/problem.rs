//! Errors and failures, as problem documents (RFC 9457).
//!
//! Every variant says what to do about it; a status and a type let programs
//! tell them apart.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use http::{Response, StatusCode};
use serde::Serialize;
use tidegate::{AcquireError, CheckError, ConfigError};
use tidegate_simulate::{ScenarioError, TrafficError};
use tidegate_tower::fields;

use super::reply::{PROBLEM_JSON, Reply};
use super::terms::TermsError;
use crate::access::Denied;
use crate::ask::inline::InlineError;
use crate::ask::outcome::Outcome;
use crate::ask::policy::PolicyError;
use crate::ask::request::AskError;
use crate::run::admission::Shed;
use crate::run::buffered::OverBudget;
use crate::wire::json::JsonError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("nothing is at {path}: /openapi.json lists the paths")]
    NotFound { path: String },
    #[error("{path} does not take {method}: it takes {allowed}")]
    Method { path: String, method: String, allowed: &'static str },
    #[error("a line of the head ends in LF without CR: end each line in CRLF")]
    BareLf,
    #[error("the request has {found} Host fields: send exactly one")]
    Hosts { found: usize },
    #[error("the body is longer than {bound} bytes: send less at a time, or start the server with a larger --max-body")]
    TooLong { bound: usize },
    #[error("the body did not arrive within {timeout:?}")]
    TooSlow { timeout: Duration },
    #[error("the connection ended before the whole body arrived")]
    BrokenOff,
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("this path takes one request, not a batch")]
    NoBatch,
    #[error("{what} has {found} bytes: send at most {bound}")]
    TextTooLong { what: &'static str, found: usize, bound: usize },
    #[error("the request has no {attribute}, which the query names in key: have the proxy send it")]
    NoKeyAttribute { attribute: String },
    #[error(
        "the headers of the request disagree on {attribute}: have the proxy set each forwarding header itself, and remove \
         those that its clients send"
    )]
    Ambiguous { attribute: String },
    #[error(
        "the query is that of the client's request: have the proxy write its own (Caddy: end uri in a question mark)"
    )]
    QueryOfClient,
    #[error(transparent)]
    Terms(#[from] TermsError),
    #[error("timeout_ms is how long to wait, and only /v1/acquire waits: leave it out")]
    TimeoutWithoutWait,
    #[error("timeout_ms is missing: send how long to wait at most, from 0 to {bound} milliseconds")]
    NoTimeout { bound: u64 },
    #[error(transparent)]
    Limit(#[from] InlineError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("{bound} callers are waiting already: retry later")]
    TooManyWaiters { bound: u64 },
    #[error("{bound} clients are watching already: close another dashboard, or retry later")]
    TooManyWatchers { bound: usize },
    #[error("all connections that the server may have are taken: retry in a moment, or on another instance")]
    NoPlace,
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error(transparent)]
    Shed(#[from] Shed),
    #[error("{bound} simulations, or policies that are read or tried, are running already: retry in a moment")]
    TooManyPlayers { bound: usize },
    #[error("another policy is being put: retry in a moment")]
    PutRunning,
    #[error("the server keeps no requests to try a policy on: start it with --keep-requests above 0")]
    NoRequestsKept,
    #[error("the traffic has {found} classes: send at most {bound} different floors")]
    TooManyClasses { found: usize, bound: usize },
    #[error("duration is {found:?}: give a time up to {longest}, such as 30s or 5min")]
    PlayTime { found: String, longest: &'static str },
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("the server is shutting down: retry on another instance")]
    Leaving,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("the content type is missing or not supported: send {expected}")]
    ContentType { expected: &'static str },
    #[error("the query must be top=N, with N from 1 to {bound}, not {found:?}")]
    Query { found: String, bound: usize },
    #[error(
        "the query {found:?} is not understood: send range=5m, 15m, 1h or 24h, and if wanted rule=NAME and format=json or csv"
    )]
    HistoryQuery { found: String },
    #[error("the policy is not UTF-8 text")]
    NotText,
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policy comes from {path}, which the server follows: change the file")]
    PolicyFromFile { path: String },
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Problem {
        Problem::Limit(error.into())
    }
}

impl Problem {
    pub(crate) fn of_acquire(error: AcquireError) -> Option<Problem> {
        match error {
            AcquireError::Check(error) => Some(Problem::Check(error)),
            AcquireError::TooManyWaiters { bound } => Some(Problem::TooManyWaiters { bound }),
            // The one way to end without admission and without a problem.
            AcquireError::Timeout { .. } | _ => None,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Problem::NotFound { .. } => Outcome::NotFound,
            Problem::Method { .. } => Outcome::WrongMethod,
            Problem::TooLong { .. } => Outcome::TooLong,
            Problem::TooSlow { .. } => Outcome::TooSlow,
            Problem::Denied(denied) => denied.into(),
            Problem::ContentType { .. } => Outcome::ContentType,
            Problem::PolicyFromFile { .. } | Problem::NoRequestsKept => Outcome::Conflict,
            Problem::Check(error) => error.into(),
            Problem::Policy(_) => Outcome::InvalidPolicy,
            Problem::NoKeyAttribute { .. } => Outcome::MissingAttribute,
            Problem::TooManyWaiters { .. }
            | Problem::TooManyWatchers { .. }
            | Problem::NoPlace
            | Problem::OverBudget(_)
            | Problem::Shed(_)
            | Problem::TooManyPlayers { .. }
            | Problem::PutRunning => Outcome::Overloaded,
            Problem::Leaving => Outcome::ShuttingDown,
            Problem::BareLf
            | Problem::Hosts { .. }
            | Problem::BrokenOff
            | Problem::Json(_)
            | Problem::Ask(_)
            | Problem::NoBatch
            | Problem::TextTooLong { .. }
            | Problem::Ambiguous { .. }
            | Problem::QueryOfClient
            | Problem::Terms(_)
            | Problem::TimeoutWithoutWait
            | Problem::NoTimeout { .. }
            | Problem::Limit(_)
            | Problem::PlayTime { .. }
            | Problem::TooManyClasses { .. }
            | Problem::Traffic(_)
            | Problem::Scenario(_)
            | Problem::Query { .. }
            | Problem::HistoryQuery { .. }
            | Problem::NotText => Outcome::Invalid,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.outcome().status()
    }

    pub(crate) fn document(&self) -> Document {
        let (outcome, status) = (self.outcome(), self.status());
        let title = outcome.title().or(status.canonical_reason()).unwrap_or("Problem");
        Document { r#type: outcome.problem_type(), title, status: status.as_u16(), detail: outcome.words(self) }
    }

    /// The field by which HTTP says what to do, where it has one.
    fn remedy(&self) -> Option<(&'static str, String)> {
        match self {
            Problem::Method { allowed, .. } => Some(("allow", (*allowed).to_owned())),
            Problem::Denied(Denied::TooManyFailures { retry_after }) => {
                Some(("retry-after", fields::seconds(*retry_after).to_string()))
            }
            _ if self.status() == StatusCode::UNAUTHORIZED => Some(("www-authenticate", "Bearer".to_owned())),
            _ if self.status() == StatusCode::SERVICE_UNAVAILABLE => Some(("retry-after", "1".to_owned())),
            _ => None,
        }
    }

    pub(crate) fn reply(&self) -> Reply {
        let fields = self.remedy().into_iter().collect();
        Reply { status: self.status(), kind: PROBLEM_JSON, fields, ..Reply::json(&self.document()) }
    }

    pub(crate) fn response(&self) -> Response<Body> {
        self.reply().response()
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Reply {
        problem.reply()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        self.response()
    }
}

/// A problem on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    r#type: Cow<'static, str>,
    title: &'static str,
    status: u16,
    pub(crate) detail: String,
}
