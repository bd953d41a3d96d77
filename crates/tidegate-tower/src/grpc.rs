//! Refusals as gRPC has them: a status in the headers, no body.
//!
//! The details (`google.rpc.RetryInfo`, `google.rpc.QuotaFailure`) are a few
//! bytes of Protocol Buffers, written here by hand.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::line::{HeaderLine, Padding};
use crate::refusal::{Reason, Refusal};

/// The codes of gRPC that refusals have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    InvalidArgument = 3,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Whether a request is one of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc")).is_some_and(|rest| {
        // gRPC-Web has its own way to say how a call ended.
        matches!(rest.first(), None | Some(b'+' | b';'))
    })
}

/// The response, with a body that is empty.
pub(crate) fn response<B: Default>(refusal: &Refusal) -> Response<B> {
    let mut response = Response::new(B::default());
    let code = code_of(refusal);
    let mut insert = |name: HeaderName, line: &HeaderLine| {
        if let Some(value) = line.to_header() {
            response.headers_mut().insert(name, value);
        }
    };
    insert(HeaderName::from_static("grpc-status"), HeaderLine::new().number(code as u64));
    insert(HeaderName::from_static("grpc-message"), HeaderLine::new().percent_encoded(refusal.title()));
    let details = status(code, refusal);
    insert(HeaderName::from_static("grpc-status-details-bin"), HeaderLine::new().base64(&details, Padding::None));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn code_of(refusal: &Refusal) -> Code {
    match refusal.reason() {
        Reason::OverLimit(_) => Code::ResourceExhausted,
        Reason::Blocked(_) => Code::PermissionDenied,
        Reason::NoAnswer(error) if !error.is_unavailable() => Code::InvalidArgument,
        Reason::Degraded(_) | Reason::NoAnswer(_) => Code::Unavailable,
        Reason::Keyless(StatusCode::UNAUTHORIZED) => Code::Unauthenticated,
        Reason::Keyless(StatusCode::FORBIDDEN) => Code::PermissionDenied,
        Reason::Keyless(status) if status.is_client_error() => Code::InvalidArgument,
        Reason::NoPeer(_) | Reason::Keyless(_) => Code::Internal,
    }
}

/// `google.rpc.Status`.
fn status(code: Code, refusal: &Refusal) -> Vec<u8> {
    let mut status = Vec::with_capacity(192);
    varint_field(&mut status, 1, code as u64);
    bytes_field(&mut status, 2, refusal.title().as_bytes());
    if let Some(wait) = refusal.wait() {
        let mut info = Vec::new();
        bytes_field(&mut info, 1, &duration(wait));
        bytes_field(&mut status, 3, &any("type.googleapis.com/google.rpc.RetryInfo", &info));
    }
    if let Reason::OverLimit(decision) = refusal.reason() {
        let (mut violation, mut failure) = (Vec::new(), Vec::new());
        bytes_field(&mut violation, 1, decision.rule().as_str().as_bytes());
        bytes_field(&mut violation, 2, refusal.title().as_bytes());
        bytes_field(&mut failure, 1, &violation);
        bytes_field(&mut status, 3, &any("type.googleapis.com/google.rpc.QuotaFailure", &failure));
    }
    status
}

fn any(kind: &str, message: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    bytes_field(&mut any, 1, kind.as_bytes());
    bytes_field(&mut any, 2, message);
    any
}

fn duration(wait: Duration) -> Vec<u8> {
    let mut message = Vec::new();
    varint_field(&mut message, 1, wait.as_secs());
    varint_field(&mut message, 2, wait.subsec_nanos().into());
    message
}

fn bytes_field(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(message, number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn varint_field(message: &mut Vec<u8>, number: u64, value: u64) {
    varint(message, number << 3);
    varint(message, value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use tidegate::{Limit, Limiter};
    use tonic_types::StatusExt;

    use super::*;

    #[test]
    fn the_details_are_those_that_tonic_reads() {
        let limiter = Limiter::new(Limit::per_hour(1));
        let decision = &limiter.check_many(["alice"; 2]).expect("an answer")[1];
        let response: Response<String> = response(&Refusal::by(decision.clone()));
        let status = tonic::Status::from_header_map(response.headers()).expect("a status");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(status.message(), "Request cannot be satisfied as assigned quota has been exceeded");
        let details = status.get_error_details();
        assert_eq!(details.retry_info().and_then(|info| info.retry_delay), decision.retry_after());
        let violations = &details.quota_failure().expect("a violation").violations;
        assert_eq!(violations[0].subject, "1/h");
    }

    #[test]
    fn requests_of_grpc_are_known_by_their_content() {
        for (kind, known) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=x", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(kind))].into_iter().collect();
            assert_eq!(is_grpc(&headers), known, "{kind}");
        }
    }
}
