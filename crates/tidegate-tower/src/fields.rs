//! What responses tell of limits: the RateLimit fields, and their elders.
//!
//! Written as draft-ietf-httpapi-ratelimit-headers-10 says, what remains
//! rounded down and times rounded up: whoever believes a field is never
//! refused for it. Read as well, from other layers and other servers; what is
//! malformed is as if it were not there.

mod read;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::{AlgorithmKind, Decision, Limit, Meter};

use crate::line::{Line, Padding};
pub(crate) use read::{Report, report_of, retry_after_of};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// How responses tell of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// The current draft: `RateLimit: "api";r=50;t=30` and
    /// `RateLimit-Policy: "api";q=100;w=60`, where the policies of all limits
    /// are that the request had to pass.
    Draft10,
    /// `RateLimit: limit=100, remaining=50, reset=30`, and
    /// `RateLimit-Policy: 100;w=60`.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, and
    /// `RateLimit-Policy: 100;w=60`.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset` in
    /// seconds from now.
    XRateLimit,
    /// The same, with `X-RateLimit-Reset` as a Unix time, as GitHub has it.
    XRateLimitUnix,
}

/// What a caller is told of the limit that binds.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) decision: Decision,
    /// The limit that binds, unless its kernel is the user's own.
    pub(crate) limit: Option<Limit>,
    /// `RateLimit-Policy` of the current draft.
    pub(crate) policies: Option<HeaderValue>,
    /// The hash of the key, if it is to be told.
    pub(crate) partition: Option<[u8; 8]>,
}

impl Standing {
    /// Seconds until there is more: until the next unit of a bucket, until
    /// the window of anything else has passed. `None` if nothing was used.
    fn more_in(&self) -> Option<u64> {
        let decision = &self.decision;
        if !decision.is_allowed() {
            return Some(seconds(decision.retry_after()));
        }
        let whole = decision.reset_after();
        if whole.is_zero() {
            return None;
        }
        let wait = match self.limit {
            // A stand-in counts by a share of the limit.
            Some(limit) if is_bucket(&limit) && !decision.is_degraded() => {
                // Units that are still to come after the next one.
                let later = limit.capacity().saturating_sub(decision.remaining()).saturating_sub(1);
                let each = limit.period().as_micros();
                let later = u128::from(later) * each / u128::from(limit.count());
                whole.saturating_sub(Duration::from_micros(u64::try_from(later).unwrap_or(u64::MAX)))
            }
            Some(_) | None => whole,
        };
        Some(seconds(wait).max(1))
    }

    fn reset_in(&self) -> u64 {
        self.more_in().unwrap_or(0)
    }

    /// Adds what a response has to say, in each of the styles. One that has
    /// fields already keeps those of the tighter limit.
    pub(crate) fn tell(&self, styles: &[HeaderStyle], headers: &mut HeaderMap) {
        if self.decision.is_unlimited() || self.decision.is_blocked() || styles.is_empty() {
            return;
        }
        let there = (!headers.is_empty()).then(|| report_of(headers)).flatten();
        let tighter = there.is_none_or(|there| self.decision.remaining() < there.remaining);
        for style in styles {
            self.tell_in(*style, headers, tighter);
        }
    }

    fn tell_in(&self, style: HeaderStyle, headers: &mut HeaderMap, tighter: bool) {
        let decision = &self.decision;
        let mut insert = |name: HeaderName, line: &Line| {
            if let Some(value) = line.to_header().filter(|_| tighter || !headers.contains_key(&name)) {
                headers.insert(name, value);
            }
        };
        let number = |number: u64| {
            let mut line = Line::new();
            line.number(number);
            line
        };
        match style {
            HeaderStyle::Draft10 => {
                let mut line = Line::new();
                let name = decision.rule().as_str();
                match self.policies.as_ref().and_then(|policies| quoted_in(policies.as_bytes(), name)) {
                    Some(quoted) => line.bytes(quoted),
                    None => line.quoted(name),
                };
                line.text(";r=").number(decision.remaining());
                if let Some(seconds) = self.more_in() {
                    line.text(";t=").number(seconds);
                }
                self.write_partition(&mut line);
                insert(RATELIMIT, &line);
                if let Some(policies) = &self.policies {
                    // All of them, whichever is the tightest.
                    headers.append(RATELIMIT_POLICY, policies.clone());
                }
            }
            HeaderStyle::Draft7 => {
                let mut line = Line::new();
                line.text("limit=").number(decision.limit()).text(", remaining=").number(decision.remaining());
                line.text(", reset=").number(self.reset_in());
                insert(RATELIMIT, &line);
                insert(RATELIMIT_POLICY, &self.old_policy());
            }
            HeaderStyle::Draft6 => {
                insert(RATELIMIT_LIMIT, &number(decision.limit()));
                insert(RATELIMIT_REMAINING, &number(decision.remaining()));
                insert(RATELIMIT_RESET, &number(self.reset_in()));
                insert(RATELIMIT_POLICY, &self.old_policy());
            }
            HeaderStyle::XRateLimit | HeaderStyle::XRateLimitUnix => {
                let since = if style == HeaderStyle::XRateLimitUnix { unix_time() } else { 0 };
                insert(X_RATELIMIT_LIMIT, &number(decision.limit()));
                insert(X_RATELIMIT_REMAINING, &number(decision.remaining()));
                insert(X_RATELIMIT_RESET, &number(self.reset_in().saturating_add(since)));
            }
        }
    }

    fn write_partition(&self, line: &mut Line) {
        if let Some(partition) = &self.partition {
            line.text(";pk=:").base64(partition, Padding::Equals).text(":");
        }
    }

    fn old_policy(&self) -> Line {
        let mut line = Line::new();
        line.number(self.decision.limit());
        if let Some(limit) = &self.limit {
            line.text(";w=").number(window(limit));
        }
        line
    }
}

/// Adds a policy to the list of a `RateLimit-Policy`.
pub(crate) fn write_policy(line: &mut Line, meter: &Meter, partition: Option<&[u8; 8]>) {
    if !line.as_bytes().is_empty() {
        line.text(", ");
    }
    line.quoted(meter.name().as_str()).text(";q=").number(meter.capacity());
    if let Some(limit) = meter.limit() {
        line.text(";w=").number(window(&limit));
    }
    if let Some(partition) = partition {
        line.text(";pk=:").base64(partition, Padding::Equals).text(":");
    }
}

/// A name as it stands at the beginning of a list of policies: most need no
/// second look at each of their letters.
fn quoted_in<'f>(policies: &'f [u8], name: &str) -> Option<&'f [u8]> {
    let (quoted, rest) = policies.split_at_checked(name.len() + 2)?;
    let inside = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (inside == name.as_bytes() && rest.starts_with(b";")).then_some(quoted)
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The seconds in which the quota comes round: the window, or the time in
/// which an empty bucket is full again; at least one.
fn window(limit: &Limit) -> u64 {
    let micros = if is_bucket(limit) {
        (limit.period().as_micros() * u128::from(limit.capacity())).div_ceil(u128::from(limit.count()))
    } else {
        limit.period().as_micros()
    };
    u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

fn is_bucket(limit: &Limit) -> bool {
    match limit.algorithm() {
        AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => true,
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingLog | AlgorithmKind::SlidingCounter => false,
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, seconds)
}

#[cfg(test)]
mod tests;
