//! An answer before it is on the wire: by hyper, or [plainly](super::plain).

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::access::audit::AuditOutcome;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Said with every answer: a body is what its content type says.
pub(crate) const NOSNIFF: &str = "nosniff";

/// Fields of a head; names in small letters.
pub(crate) type Fields = Vec<(&'static str, String)>;

/// An answer that is known whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    /// What else its head says.
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    /// What came of each request of a list, for the audit log.
    pub(crate) outcomes: Vec<AuditOutcome>,
}

impl Reply {
    /// A value as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Reply {
        // Our own types have text for names, so they are always JSON.
        Reply::written(serde_json::to_vec(value).unwrap_or_default())
    }

    /// JSON that is written already.
    pub(crate) fn written(body: Vec<u8>) -> Reply {
        Reply { status: StatusCode::OK, kind: JSON, fields: Vec::new(), body, outcomes: Vec::new() }
    }

    pub(crate) fn response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        if self.status != StatusCode::NO_CONTENT {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        }
        for (name, value) in self.fields {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        if !self.outcomes.is_empty() {
            response.extensions_mut().insert(self.outcomes);
        }
        response
    }

    /// Writes it as HTTP/1.1 has it, on a connection that stays open.
    pub(crate) fn write(&self, date: &str, bytes: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        bytes.extend_from_slice(b"HTTP/1.1 ");
        bytes.extend_from_slice(self.status.as_str().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(self.status.canonical_reason().unwrap_or_default().as_bytes());
        let mut field = |name: &str, value: &str| {
            for part in ["\r\n", name, ": ", value] {
                bytes.extend_from_slice(part.as_bytes());
            }
        };
        let has_body = self.status != StatusCode::NO_CONTENT;
        if has_body {
            field("content-type", self.kind);
        }
        for (name, value) in &self.fields {
            field(name, value);
        }
        if has_body {
            field("content-length", number.format(self.body.len()));
        }
        field(X_CONTENT_TYPE_OPTIONS.as_str(), NOSNIFF);
        field("date", date);
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(&self.body);
    }
}

/// A response that no cache keeps.
pub(crate) fn uncached(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response<Body> {
        self.response()
    }
}
