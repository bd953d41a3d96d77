//! What Envoy is asked to tell the client: headers, and the body of a refusal.

use std::time::Duration;

use super::messages::{HeaderValue, RateLimitResponse};
use tidegate_tower::fields::{MAX_INTEGER, quoted, seconds};

use super::outcome::{EnvoyOutcome, Line, ShownLimit};
use crate::ask::outcome::Outcome;
use crate::settings::{HeaderNames, HeaderStyle, Settings};

/// Adds to the response what the settings ask for.
pub(super) fn add(settings: &Settings, outcome: &EnvoyOutcome, response: &mut RateLimitResponse) {
    let headers = &mut response.response_headers_to_add;
    let mut header = |key: &str, value: String| {
        headers.push(HeaderValue { key: key.to_owned(), value, raw_value: Vec::new() });
    };
    let is_ours = matches!(settings.envoy_headers, HeaderStyle::Draft3 | HeaderStyle::Draft8);
    if let (Some((line, limit)), true) = (binding(outcome), is_ours) {
        match settings.envoy_headers {
            HeaderStyle::None | HeaderStyle::Reference => {}
            HeaderStyle::Draft3 => {
                let (capacity, window) = (number(limit.capacity), window(limit));
                header("RateLimit-Limit", format!("{capacity}, {capacity}{window}"));
                header("RateLimit-Remaining", number(line.remaining).to_string());
                if let Some(more) = line.until_more() {
                    header("RateLimit-Reset", seconds(more).to_string());
                }
            }
            HeaderStyle::Draft8 => {
                let policies = limits(outcome).map(|limit| {
                    let (name, capacity, window) = (quoted(limit.name()), number(limit.capacity), window(limit));
                    format!("{name};q={capacity}{window}")
                });
                header("RateLimit-Policy", policies.collect::<Vec<_>>().join(", "));
                let more = line.until_more().map(|more| format!(";t={}", seconds(more))).unwrap_or_default();
                header("RateLimit", format!("{};r={}{more}", quoted(limit.name()), number(line.remaining)));
            }
        }
        let wait = outcome.lines.iter().filter_map(|line| line.retry_after).max();
        if let Some(wait) = wait.filter(|_| !outcome.allowed) {
            header("Retry-After", seconds(wait).max(1).to_string());
        }
    }
    if let (Some((line, limit)), HeaderStyle::Reference) = (binding_there(outcome), settings.envoy_headers) {
        let HeaderNames { limit: name, remaining, reset } = &settings.envoy_header_names;
        header(name, limit.capacity.to_string());
        header(remaining, line.remaining.to_string());
        header(reset, line.until_more().map_or(0, seconds).to_string());
    }
    if settings.envoy_problem && !outcome.allowed {
        header("Content-Type", "application/problem+json".into());
        response.raw_body = problem(outcome);
    }
}

/// The descriptor that says most: the one with the longest wait if refused,
/// else the one with the least left.
fn binding(outcome: &EnvoyOutcome) -> Option<(&Line, &ShownLimit)> {
    let limited = outcome.lines.iter().filter_map(|line| Some((line, line.limit.as_ref()?)));
    if outcome.allowed {
        return limited.min_by_key(|(line, _)| line.remaining);
    }
    // A refusal that no wait helps is more than any wait.
    let refusing = limited.filter(|(line, _)| !line.allowed);
    refusing.max_by_key(|(line, _)| line.retry_after.unwrap_or(Duration::MAX))
}

/// The same in the reference service: the last that is over and no quota, else the first with the least left.
fn binding_there(outcome: &EnvoyOutcome) -> Option<(&Line, &ShownLimit)> {
    let limited = outcome.lines.iter().filter_map(|line| Some((line, line.limit.as_ref()?)));
    let over = limited.clone().rfind(|(line, _)| !line.allowed && !line.quota);
    over.or_else(|| limited.min_by_key(|(line, _)| line.remaining))
}

fn limits(outcome: &EnvoyOutcome) -> impl Iterator<Item = &ShownLimit> {
    outcome.lines.iter().filter_map(|line| line.limit.as_ref())
}

/// The body of a refusal (RFC 9457).
fn problem(outcome: &EnvoyOutcome) -> Vec<u8> {
    let refusing = outcome.lines.iter().filter(|line| !line.allowed);
    let violated: Vec<&str> = refusing.filter_map(|line| line.limit.as_ref()).map(ShownLimit::name).collect();
    let problem = serde_json::json!({
        "type": Outcome::Refused.problem_type(),
        "title": Outcome::Refused.title(),
        "status": Outcome::Refused.status().as_u16(),
        "violated-policies": violated,
    });
    problem.to_string().into_bytes()
}

fn number(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}

fn window(limit: &ShownLimit) -> String {
    limit.period.map(|period| format!(";w={}", seconds(period).max(1))).unwrap_or_default()
}
