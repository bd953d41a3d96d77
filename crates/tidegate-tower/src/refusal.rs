//! Why a request was not let through, and how that is said.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use tidegate::{CheckError, Decision, Name};

use crate::client_ip::TELL_PEER;
use crate::fields::seconds;

/// A request that was not let through.
#[derive(Debug)]
pub struct Refusal {
    reason: Reason,
}

/// Why a request was not let through.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// A limit is used up: 429.
    OverLimit(Decision),
    /// A rule blocks the key, and waiting does not help: 403.
    Blocked(Decision),
    /// The store failed or is full, and the fallback refuses: 503.
    Degraded(Decision),
    /// There is no answer: 503 if the store [failed](CheckError::is_unavailable)
    /// and no failure mode answers. Otherwise 422: the request lacks a key
    /// attribute, or has an `ip` that is not an address; its cost can never pass; its
    /// [id](crate::RateLimitLayer::id) belongs to another request; or the policy
    /// was changed, and no longer has the layer's [rule](crate::RateLimitLayer::rule).
    NoAnswer(CheckError),
    /// This rule counts by the client's address, and the server did not tell the
    /// layer the peer's: 500.
    NoPeer(Name),
    /// The request has no key: as [`Keyless`](crate::Keyless) says.
    Keyless(StatusCode),
}

/// The problem types of the draft.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// Ours, as the server has them: no waiting helps.
const URN: &str = "urn:problem-type:tidegate:";

/// What callers are told to wait for an answer.
const NO_ANSWER_WAIT: Duration = Duration::from_secs(1);

impl From<CheckError> for Refusal {
    fn from(error: CheckError) -> Refusal {
        Refusal::new(Reason::NoAnswer(error))
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason) -> Refusal {
        Refusal { reason }
    }

    /// What a decision that is no admission means: for servers that are no tower services.
    #[must_use]
    pub fn by(decision: Decision) -> Refusal {
        Refusal::new(if decision.is_blocked() {
            Reason::Blocked(decision)
        } else if decision.is_degraded() {
            Reason::Degraded(decision)
        } else {
            Reason::OverLimit(decision)
        })
    }

    /// The same refusal, unless an attribute is missing for no other reason than
    /// that the server did not tell the peer's address: then the server is to blame.
    pub(crate) fn or_no_peer(self, lacks_only_peer: impl FnMut(&str) -> bool) -> Refusal {
        match self.reason {
            // The attribute, or several of which one would do.
            Reason::NoAnswer(CheckError::MissingAttribute { rule, attribute })
                if attribute.split(" or ").any(lacks_only_peer) =>
            {
                Refusal::new(Reason::NoPeer(rule))
            }
            reason => Refusal::new(reason),
        }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The decision, where there was one.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.reason {
            Reason::OverLimit(decision) | Reason::Blocked(decision) | Reason::Degraded(decision) => Some(decision),
            Reason::NoAnswer(_) | Reason::NoPeer(_) | Reason::Keyless(_) => None,
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason {
            Reason::OverLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::Blocked(_) => StatusCode::FORBIDDEN,
            Reason::NoAnswer(ref error) if !error.is_unavailable() => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::Degraded(_) | Reason::NoAnswer(_) => StatusCode::SERVICE_UNAVAILABLE,
            Reason::NoPeer(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::Keyless(status) => status,
        }
    }

    /// How long to wait, if that helps: whole seconds, rounded up, at least one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.wait().map(|wait| seconds(wait).max(1))
    }

    /// The exact wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match &self.reason {
            Reason::OverLimit(decision) | Reason::Degraded(decision) => decision.retry_after(),
            Reason::NoAnswer(error) => error.is_unavailable().then_some(NO_ANSWER_WAIT),
            Reason::Blocked(_) | Reason::NoPeer(_) | Reason::Keyless(_) => None,
        }
    }

    /// One sentence for people.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self.reason {
            Reason::OverLimit(_) => "Request cannot be satisfied as assigned quota has been exceeded",
            Reason::Degraded(_) => "Request cannot be satisfied due to temporary server capacity constraints",
            Reason::NoAnswer(CheckError::Unsatisfiable { .. }) => "Request costs more than its limit can ever allow",
            Reason::NoAnswer(CheckError::MissingAttribute { .. }) => {
                "Request lacks an attribute that its limit counts by"
            }
            Reason::NoAnswer(CheckError::NotAnAddress { .. }) => "Request has an address that is not an IP address",
            Reason::NoAnswer(CheckError::UnknownRule { .. }) => "Request is limited by a rule that does not exist",
            Reason::NoAnswer(CheckError::IdReused { .. }) => "Request id belongs to another request",
            Reason::NoAnswer(_) => "Request cannot be satisfied due to temporary server capacity constraints",
            Reason::Blocked(_) | Reason::NoPeer(_) | Reason::Keyless(_) => {
                self.status().canonical_reason().unwrap_or("Refused")
            }
        }
    }

    /// The refusal as `application/problem+json` (RFC 9457).
    #[must_use]
    pub fn problem(&self) -> String {
        let (kind, detail) = match &self.reason {
            Reason::OverLimit(_) => (QUOTA_EXCEEDED, None),
            Reason::Degraded(_) => (REDUCED_CAPACITY, None),
            Reason::NoAnswer(error) if !error.is_unavailable() => (URN, Some(error.to_string())),
            Reason::NoAnswer(_) => (REDUCED_CAPACITY, None),
            Reason::Blocked(_) => ("about:blank", None),
            Reason::NoPeer(rule) => {
                ("about:blank", Some(format!("rule {rule:?}: the client's address is unknown: {TELL_PEER}")))
            }
            Reason::Keyless(_) => {
                let detail = format!("the request has no key; if that is the client's address, {TELL_PEER}");
                ("about:blank", Some(detail))
            }
        };
        let mut json = String::with_capacity(256);
        json.push_str("{\"type\":\"");
        json.push_str(kind);
        if let (URN, Reason::NoAnswer(error)) = (kind, &self.reason) {
            json.push_str(error.reason());
        }
        json.push_str("\",\"title\":\"");
        json.push_str(self.title());
        json.push_str("\",\"status\":");
        json.push_str(self.status().as_str());
        if let Some(detail) = detail {
            json.push_str(",\"detail\":");
            write_json_string(&mut json, &detail);
        }
        if let Reason::OverLimit(decision) = &self.reason {
            json.push_str(",\"violated-policies\":[");
            write_json_string(&mut json, decision.rule().as_str());
            json.push(']');
        }
        json.push('}');
        json
    }

    /// The response that a caller gets, unless the user makes another.
    pub(crate) fn response(&self) -> Response<String> {
        let mut response = Response::new(self.problem());
        *response.status_mut() = self.status();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }

    /// Says when to come back, unless the response says so itself.
    pub(crate) fn tell_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after() {
            headers.entry(RETRY_AFTER).or_insert_with(|| seconds.into());
        }
    }
}

fn write_json_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => json.push(other),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Name, Policy, Request, Rule, Setting};

    use super::*;

    fn refused_by(rule: Rule) -> Refusal {
        let store =
            MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().expect("valid settings");
        let limiter = Limiter::with_store(Policy::new().rule(rule), store).expect("a valid policy");
        let decisions = limiter.check_many(["alice"; 2]).expect("an answer");
        Refusal::by(decisions.last().expect("two decisions").clone())
    }

    #[test]
    fn a_limit_that_is_used_up_is_the_drafts_problem() {
        let name = Name::from("a \"day\"\n\\ü");
        let refusal = refused_by(Rule::new(name, Limit::per_hour(1)));
        let problem: serde_json::Value = serde_json::from_str(&refusal.problem()).expect("JSON");
        assert_eq!(
            problem,
            serde_json::json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Request cannot be satisfied as assigned quota has been exceeded",
                "status": 429,
                "violated-policies": ["a \"day\"\n\\ü"],
            })
        );
        assert_eq!(refusal.retry_after(), Some(3_600), "rounded up");
        let soon = refused_by(Rule::new("soon", Limit::per_second(100).burst(1)));
        assert_eq!(soon.retry_after(), Some(1), "at least one");
    }

    #[test]
    fn no_retry_after_where_waiting_does_not_help() {
        let blocked = refused_by(Rule::with_setting("nothing", Setting::Blocked));
        assert_eq!((blocked.status(), blocked.retry_after()), (StatusCode::FORBIDDEN, None));
        let limiter = Limiter::new(Limit::per_hour(10));
        let error = limiter.check(Request::new("alice").cost(11)).expect_err("too much");
        let too_much = Refusal::new(Reason::NoAnswer(error));
        assert_eq!((too_much.status(), too_much.retry_after()), (StatusCode::UNPROCESSABLE_ENTITY, None));
        let problem: serde_json::Value = serde_json::from_str(&too_much.problem()).expect("JSON");
        assert_eq!(problem["type"], "urn:problem-type:tidegate:unsatisfiable");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with("a cost of 11 can never fit")));
        for refusal in [blocked, Refusal::new(Reason::Keyless(StatusCode::UNAUTHORIZED))] {
            let problem: serde_json::Value = serde_json::from_str(&refusal.problem()).expect("JSON");
            assert_eq!(problem["status"], refusal.status().as_u16());
            let mut headers = HeaderMap::new();
            refusal.tell_retry_after(&mut headers);
            assert!(headers.is_empty());
        }
    }
}
