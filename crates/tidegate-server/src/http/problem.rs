//! Mistakes and failures, as problem documents (RFC 9457).
//!
//! Every variant says what to do about it; a status and a type let programs
//! tell them apart.

use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use serde::Serialize;
use tidegate::{AcquireError, CheckError, ConfigError};
use tidegate_simulate::{ScenarioError, TrafficError};

use super::reply::{PROBLEM_JSON, Reply};
use crate::causes::in_full;
use crate::json::JsonError;
use crate::policy::PolicyError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
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
    #[error("the body did not arrive within {patience:?}")]
    TooSlow { patience: Duration },
    #[error("the connection ended before the whole body arrived")]
    BrokenOff,
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("the batch has {found} requests: send at most {bound} at a time")]
    BatchTooLong { bound: usize, found: usize },
    #[error("this path takes one request, not a batch")]
    NoBatch,
    #[error("{what} has {found} bytes: send at most {bound}")]
    TextTooLong { what: &'static str, found: usize, bound: usize },
    #[error("the request has {found} attributes: send at most {bound}")]
    TooManyAttributes { bound: usize, found: usize },
    #[error(
        "a limit that comes with the request replaces the policy and goes by the key alone: send \"key\" beside \"limit\", \
         and neither \"attributes\" nor \"rule\""
    )]
    InlineByKeyOnly,
    #[error(
        "the request has neither a key nor attributes: send \"attributes\", such as {{\"user\": \"alice\"}}, or \"key\""
    )]
    NoKey,
    #[error("key is empty: send the key that the request counts against, or leave it out")]
    EmptyKey,
    #[error("patience_ms is how long to wait, and only /v1/acquire waits: leave it out")]
    PatienceWithoutWait,
    #[error("patience_ms is missing: send how long to wait at most, from 0 to {bound} milliseconds")]
    NoPatience { bound: u64 },
    #[error(transparent)]
    Limit(#[from] ConfigError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("{bound} callers are waiting already: retry later")]
    TooManyWaiters { bound: u64 },
    #[error("{bound} clients are watching already: close another dashboard, or retry later")]
    TooManyWatchers { bound: usize },
    #[error("{bound} simulations are running already: retry in a moment")]
    TooManyPlayers { bound: usize },
    #[error("duration is {found:?}: give a time up to {longest}, such as 30s or 5min")]
    PlayTime { found: String, longest: &'static str },
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("the server is shutting down: retry on another instance")]
    Leaving,
    #[error("the admin API needs its token: send Authorization: Bearer TOKEN")]
    Unauthorized,
    #[error("the content type is missing or not supported: send {expected}")]
    ContentType { expected: &'static str },
    #[error("the query must be top=N, with N from 1 to {bound}, not {found:?}")]
    Query { found: String, bound: usize },
    #[error("the policy is not UTF-8 text")]
    NotText,
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policy comes from {path}, which the server follows: change the file")]
    PolicyFromFile { path: String },
}

impl Problem {
    pub(super) fn of_acquire(error: AcquireError) -> Option<Problem> {
        match error {
            AcquireError::Check(error) => Some(Problem::Check(error)),
            AcquireError::TooManyWaiters { bound } => Some(Problem::TooManyWaiters { bound }),
            // The one way to end without admission and without a problem.
            AcquireError::OutOfPatience { .. } | _ => None,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Problem::NotFound { .. } => StatusCode::NOT_FOUND,
            Problem::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Problem::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Problem::Unauthorized => StatusCode::UNAUTHORIZED,
            Problem::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Problem::PolicyFromFile { .. } => StatusCode::CONFLICT,
            Problem::Check(error) if !error.is_unavailable() => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Policy(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Check(_)
            | Problem::TooManyWaiters { .. }
            | Problem::TooManyWatchers { .. }
            | Problem::TooManyPlayers { .. }
            | Problem::Leaving => StatusCode::SERVICE_UNAVAILABLE,
            Problem::BareLf
            | Problem::Hosts { .. }
            | Problem::BrokenOff
            | Problem::Json(_)
            | Problem::BatchTooLong { .. }
            | Problem::NoBatch
            | Problem::TextTooLong { .. }
            | Problem::TooManyAttributes { .. }
            | Problem::InlineByKeyOnly
            | Problem::NoKey
            | Problem::EmptyKey
            | Problem::PatienceWithoutWait
            | Problem::NoPatience { .. }
            | Problem::Limit(_)
            | Problem::PlayTime { .. }
            | Problem::Traffic(_)
            | Problem::Scenario(_)
            | Problem::Query { .. }
            | Problem::NotText => StatusCode::BAD_REQUEST,
        }
    }

    /// The type and the title: what is the same for all problems of a kind.
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Problem::Check(error) => of_check(error),
            Problem::Policy(_) => ("urn:problem-type:tidegate:invalid-policy", "The policy is not valid"),
            other if other.status() == StatusCode::BAD_REQUEST => {
                ("urn:problem-type:tidegate:invalid-request", "The request is not valid")
            }
            other => ("about:blank", other.status().canonical_reason().unwrap_or("Problem")),
        }
    }

    pub(super) fn document(&self) -> Document {
        let (kind, title) = self.kind();
        Document { r#type: kind, title, status: self.status().as_u16(), detail: in_full(self) }
    }

    /// The field by which HTTP says what to do, where it has one.
    fn remedy(&self) -> Option<(&'static str, &'static str)> {
        if let Problem::Method { allowed, .. } = self {
            return Some(("allow", allowed));
        }
        match self.status() {
            StatusCode::UNAUTHORIZED => Some(("www-authenticate", "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE => Some(("retry-after", "1")),
            _ => None,
        }
    }

    pub(super) fn reply(&self) -> Reply {
        let fields = self.remedy().into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        Reply { status: self.status(), kind: PROBLEM_JSON, fields, ..Reply::json(&self.document()) }
    }

    pub(super) fn response(&self) -> Response<Body> {
        self.reply().response()
    }
}

fn of_check(error: &CheckError) -> (&'static str, &'static str) {
    match error {
        CheckError::Unsatisfiable { .. } => {
            ("urn:problem-type:tidegate:unsatisfiable", "The cost is above what the limit can ever admit")
        }
        CheckError::MissingAttribute { .. } => {
            ("urn:problem-type:tidegate:missing-attribute", "A key attribute is missing from the request")
        }
        CheckError::NotAnAddress { .. } => {
            ("urn:problem-type:tidegate:not-an-address", "An address attribute is not an IP address")
        }
        CheckError::UnknownRule { .. } => ("urn:problem-type:tidegate:unknown-rule", "The policy has no such rule"),
        CheckError::IdReused { .. } => ("urn:problem-type:tidegate:id-reused", "The id belongs to another request"),
        _ => ("urn:problem-type:tidegate:unavailable", "The store gave no answer"),
    }
}

/// A problem on the wire.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
}
