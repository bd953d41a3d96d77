//! Errors and failures, as problem documents (RFC 9457).
//!
//! Every variant says what to do about it; a status and a type let programs
//! tell them apart.

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
use crate::ask::budget::InlineFull;
use crate::ask::inline::InlineError;
use crate::ask::policy::PolicyError;
use crate::run::admission::Shed;
use crate::run::buffered::OverBudget;
use crate::run::causes::for_clients;
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
    #[error("this path takes one request, not a batch")]
    NoBatch,
    #[error("{what} has {found} bytes: send at most {bound}")]
    TextTooLong { what: &'static str, found: usize, bound: usize },
    #[error("the request has {found} attributes: send at most {bound}")]
    TooManyAttributes { bound: usize, found: usize },
    #[error("the request has {found} amounts: send at most {bound}")]
    TooManyAmounts { bound: usize, found: usize },
    #[error("id is missing: send the id of the reservation, a text of your choice that no other request has")]
    NoId,
    #[error("ttl_ms is how long the id is remembered: send \"id\" beside it, or leave it out")]
    TtlWithoutId,
    #[error(
        "a limit that comes with the request replaces the policy and goes by the key alone: send \"key\" beside \"limit\", \
         and neither \"attributes\" nor \"rule\""
    )]
    InlineByKeyOnly,
    #[error(
        "the request has neither a key nor attributes: send \"attributes\", such as {{\"user\": \"alice\"}}, or \"key\""
    )]
    NoKey,
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
    #[error("key is empty: send the key that the request counts against, or leave it out")]
    EmptyKey,
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

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Problem::NotFound { .. } | Problem::Check(CheckError::NotReserved { .. }) => StatusCode::NOT_FOUND,
            Problem::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Problem::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Problem::Denied(denied) => denied.status(),
            Problem::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Problem::PolicyFromFile { .. } | Problem::NoRequestsKept => StatusCode::CONFLICT,
            Problem::Check(error) if !error.is_unavailable() => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Policy(_) | Problem::NoKeyAttribute { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Check(_)
            | Problem::TooManyWaiters { .. }
            | Problem::TooManyWatchers { .. }
            | Problem::NoPlace
            | Problem::OverBudget(_)
            | Problem::Shed(_)
            | Problem::TooManyPlayers { .. }
            | Problem::PutRunning
            | Problem::Leaving => StatusCode::SERVICE_UNAVAILABLE,
            Problem::BareLf
            | Problem::Hosts { .. }
            | Problem::BrokenOff
            | Problem::Json(_)
            | Problem::NoBatch
            | Problem::TextTooLong { .. }
            | Problem::TooManyAttributes { .. }
            | Problem::TooManyAmounts { .. }
            | Problem::NoId
            | Problem::TtlWithoutId
            | Problem::InlineByKeyOnly
            | Problem::NoKey
            | Problem::EmptyKey
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
            | Problem::NotText => StatusCode::BAD_REQUEST,
        }
    }

    /// The type and the title: what is the same for all problems of a kind.
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Problem::Check(error) => of_check(error),
            Problem::NoKeyAttribute { .. } => MISSING_ATTRIBUTE,
            Problem::Denied(denied) => of_denied(denied),
            Problem::Policy(_) => ("urn:problem-type:tidegate:invalid-policy", "The policy is not valid"),
            other if other.status() == StatusCode::BAD_REQUEST => {
                ("urn:problem-type:tidegate:invalid-request", "The request is not valid")
            }
            other => ("about:blank", other.status().canonical_reason().unwrap_or("Problem")),
        }
    }

    pub(crate) fn document(&self) -> Document {
        let (kind, title) = self.kind();
        Document { r#type: kind, title, status: self.status().as_u16(), detail: for_clients(self) }
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

const MISSING_ATTRIBUTE: (&str, &str) =
    ("urn:problem-type:tidegate:missing-attribute", "A key attribute is missing from the request");

fn of_denied(denied: &Denied) -> (&'static str, &'static str) {
    match denied {
        Denied::Unauthenticated { .. } | Denied::WrongCredential => {
            ("urn:problem-type:tidegate:unauthenticated", "The request has no valid credential")
        }
        Denied::Forbidden { .. } => ("urn:problem-type:tidegate:forbidden", "The caller lacks the right"),
        Denied::ForeignHost { .. } => {
            ("urn:problem-type:tidegate:foreign-host", "The request is for a host that is not this server's")
        }
        Denied::CrossSite => ("urn:problem-type:tidegate:cross-site", "A web page of another origin sent the request"),
        Denied::ContentType => ("about:blank", "Unsupported Media Type"),
        Denied::TooManyFailures { .. } => {
            ("urn:problem-type:tidegate:too-many-failures", "Too many wrong credentials came from this address")
        }
    }
}

fn of_check(error: &CheckError) -> (&'static str, &'static str) {
    match error {
        _ if InlineFull::is_cause_of(error) => {
            ("urn:problem-type:tidegate:inline-full", "There is no room for another key of an inline limit")
        }
        CheckError::Unsatisfiable { .. } => {
            ("urn:problem-type:tidegate:unsatisfiable", "The cost is above what the limit can ever admit")
        }
        CheckError::MissingAttribute { .. } => MISSING_ATTRIBUTE,
        CheckError::NotAnAddress { .. } => {
            ("urn:problem-type:tidegate:not-an-address", "An address attribute is not an IP address")
        }
        CheckError::UnknownRule { .. } => ("urn:problem-type:tidegate:unknown-rule", "The policy has no such rule"),
        CheckError::IdReused { .. } => ("urn:problem-type:tidegate:id-reused", "The id belongs to another request"),
        CheckError::NotReserved { .. } => {
            ("urn:problem-type:tidegate:not-reserved", "There is no such reservation, or its time is over")
        }
        _ => ("urn:problem-type:tidegate:unavailable", "The store gave no answer"),
    }
}

/// A problem on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    pub(crate) detail: String,
}
