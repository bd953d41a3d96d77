//! What responses tell of limits: the RateLimit fields, and their older forms.
//!
//! They are written as draft-ietf-httpapi-ratelimit-headers-10 says. What remains is
//! rounded down and times are rounded up, so a caller that keeps to a field is not
//! refused for it. The layer writes them in every [`HeaderStyle`]; a server without the
//! layer writes those of the current draft by [`rate_limit_fields`]. The layer also reads fields,
//! from other layers and other servers; a malformed one is ignored.

mod read;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::store::{Check, Meter};
use tidegate::{Decision, Limit};

pub use crate::line::MAX_INTEGER;
use crate::line::{HeaderLine, Padding};
use read::report_in;
pub(crate) use read::{Report, report_of, retry_after_of};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// How responses tell of a limit. Where two styles would write the same field,
/// it is that of the current draft.
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

/// The fields of the current draft for one response, by the limits that made the decision:
/// `RateLimit-Policy`, `RateLimit` and, if the request is refused, `Retry-After`. Names are in lower
/// case. There are none if the decision is unlimited or blocked.
///
/// ```
/// use tidegate::{Limit, Limiter, Policy};
/// use tidegate_tower::fields::rate_limit_fields;
///
/// let limiter = Limiter::new(Policy::new().limit("api", Limit::per_minute(100)));
/// let mut fields = Vec::new();
/// let _ = limiter.check_with_limits("alice", |decision, limits| fields = rate_limit_fields(decision, limits))?;
/// let [policy, status] = [r#""api";q=100;w=60"#, r#""api";r=99;t=1"#].map(str::to_owned);
/// assert_eq!(fields, [("ratelimit-policy", policy), ("ratelimit", status)]);
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[must_use]
pub fn rate_limit_fields(decision: &Decision, limits: &[Check<'_>]) -> Vec<(&'static str, String)> {
    if decision.is_unlimited() || decision.is_blocked() {
        return Vec::new();
    }
    let (mut pairs, mut policies) = (Vec::with_capacity(3), HeaderLine::new());
    if !decision.is_allowed() {
        pairs.push(("retry-after", retry_after(decision).to_string()));
    }
    limits.iter().for_each(|limit| write_policy(&mut policies, limit.meter(), None));
    if !limits.is_empty() {
        pairs.push(("ratelimit-policy", policies.to_text()));
    }
    let status = QuotaStatus { decision, name: None, policies: None, partition: None };
    pairs.push(("ratelimit", status.line().to_text()));
    pairs
}

/// Whether a decision speaks of the limit of a meter.
pub(crate) fn binds(meter: &Meter, decision: &Decision) -> bool {
    meter.name() == decision.rule() && Some(meter.capacity()) == decision.capacity()
}

/// What a caller is told of the limit that binds.
#[derive(Clone, Debug)]
pub(crate) struct QuotaStatus<'s> {
    pub(crate) decision: &'s Decision,
    /// The rule's name as it stands in a field, if it was written down before.
    pub(crate) name: Option<&'s [u8]>,
    /// `RateLimit-Policy` of the current draft.
    pub(crate) policies: Option<HeaderValue>,
    /// The hash of the key, if it is to be told.
    pub(crate) partition: Option<[u8; 8]>,
}

impl QuotaStatus<'_> {
    /// Seconds until there is more: until the next unit of a bucket, until
    /// the window of anything else has passed. `None` if nothing was used.
    #[inline]
    fn more_in(&self) -> Option<u64> {
        let decision = self.decision;
        if !decision.is_allowed() {
            return Some(retry_after(decision));
        }
        let whole = decision.reset_after().filter(|whole| !whole.is_zero())?;
        // Nothing is told to be sooner than that.
        if whole <= Duration::from_secs(1) {
            return Some(1);
        }
        Some(seconds(decision.limit().map_or(whole, |limit| limit.more_after(decision))).max(1))
    }

    /// Nothing is told of what has no limit.
    fn capacity(&self) -> u64 {
        self.decision.capacity().unwrap_or(MAX_INTEGER)
    }

    fn remaining(&self) -> u64 {
        self.decision.remaining().unwrap_or(MAX_INTEGER)
    }

    fn reset_in(&self) -> u64 {
        self.more_in().unwrap_or(0)
    }

    /// What a response has to say, in each of the styles.
    #[inline]
    pub(crate) fn fields(self, styles: &[HeaderStyle]) -> Fields {
        match styles {
            [HeaderStyle::Draft10] => Fields { status: self.current(), policies: self.policies, elder: None },
            _ => self.fields_in_all(styles),
        }
    }

    #[inline(never)]
    fn fields_in_all(self, styles: &[HeaderStyle]) -> Fields {
        let mut elder = Elder::new();
        styles.iter().for_each(|style| self.write_elder(*style, &mut elder));
        if !styles.contains(&HeaderStyle::Draft10) {
            return Fields { status: None, policies: None, elder: Some(Box::new(elder)) };
        }
        elder.retain(|(name, _)| *name != RATELIMIT && *name != RATELIMIT_POLICY);
        Fields { status: self.current(), policies: self.policies, elder: Some(Box::new(elder)) }
    }

    /// `RateLimit` of the current draft.
    #[inline]
    fn current(&self) -> Option<HeaderValue> {
        self.line().to_header()
    }

    #[inline]
    fn line(&self) -> HeaderLine {
        let mut line = HeaderLine::new();
        match self.name {
            Some(name) => line.bytes(name),
            None => line.quoted(self.decision.rule().as_str()),
        };
        line.text(";r=").number(self.remaining());
        if let Some(seconds) = self.more_in() {
            line.text(";t=").number(seconds);
        }
        if let Some(partition) = &self.partition {
            write_partition(&mut line, partition);
        }
        line
    }

    /// What the older styles have to say.
    fn write_elder(&self, style: HeaderStyle, fields: &mut Elder) {
        let (limit, remaining) = (self.capacity().min(MAX_INTEGER), self.remaining().min(MAX_INTEGER));
        let mut add = |name: HeaderName, value: HeaderValue| fields.push((name, value));
        match style {
            HeaderStyle::Draft10 => {}
            HeaderStyle::Draft7 => {
                let mut line = HeaderLine::new();
                line.text("limit=").number(limit).text(", remaining=").number(remaining);
                line.text(", reset=").number(self.reset_in());
                line.to_header().into_iter().for_each(|line| add(RATELIMIT, line));
                self.old_policy().into_iter().for_each(|policy| add(RATELIMIT_POLICY, policy));
            }
            HeaderStyle::Draft6 => {
                add(RATELIMIT_LIMIT, limit.into());
                add(RATELIMIT_REMAINING, remaining.into());
                add(RATELIMIT_RESET, self.reset_in().min(MAX_INTEGER).into());
                self.old_policy().into_iter().for_each(|policy| add(RATELIMIT_POLICY, policy));
            }
            HeaderStyle::XRateLimit | HeaderStyle::XRateLimitUnix => {
                let since = if style == HeaderStyle::XRateLimitUnix { seconds(unix_time()) } else { 0 };
                add(X_RATELIMIT_LIMIT, limit.into());
                add(X_RATELIMIT_REMAINING, remaining.into());
                add(X_RATELIMIT_RESET, self.reset_in().saturating_add(since).min(MAX_INTEGER).into());
            }
        }
    }

    fn old_policy(&self) -> Option<HeaderValue> {
        let mut line = HeaderLine::new();
        line.number(self.capacity());
        if let Some(limit) = self.decision.limit().filter(|limit| !limit.is_in_flight() && !limit.is_by_calendar()) {
            line.text(";w=").number(window(&limit));
        }
        line.to_header()
    }
}

/// Fields that wait for the response whose they are.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    /// `RateLimit` and `RateLimit-Policy` of the current draft.
    status: Option<HeaderValue>,
    policies: Option<HeaderValue>,
    /// Those of its elders.
    elder: Option<Box<Elder>>,
}

type Elder = Vec<(HeaderName, HeaderValue)>;

impl Fields {
    /// Adds them to a response. One that has fields already keeps those of the
    /// tighter limit; policies are all listed.
    #[inline]
    pub(crate) fn tell(&mut self, headers: &mut HeaderMap) {
        match self.elder.take() {
            None => {
                if let Some(status) = self.status.take() {
                    tell_status(status, headers);
                }
            }
            Some(elder) => tell_all(self.status.take(), *elder, headers),
        }
        if let Some(policies) = self.policies.take() {
            // No response has as many fields as would be too many.
            let _ = headers.try_append(RATELIMIT_POLICY, policies);
        }
    }
}

#[inline]
fn tell_status(status: HeaderValue, headers: &mut HeaderMap) {
    // Mostly there is none yet, and one look finds the place for it.
    if let Ok(Entry::Vacant(place)) = headers.try_entry(RATELIMIT) {
        let _ = place.try_insert(status);
    } else if is_tighter(report_in(&status), headers) {
        let _ = headers.try_insert(RATELIMIT, status);
    }
}

#[cold]
fn tell_all(status: Option<HeaderValue>, elder: Elder, headers: &mut HeaderMap) {
    let own: HeaderMap = elder.into_iter().chain(status.map(|status| (RATELIMIT, status))).collect();
    let is_tighter = is_tighter(report_of(&own), headers);
    for (name, value) in &own {
        if is_tighter || !headers.contains_key(name) {
            let _ = headers.try_insert(name, value.clone());
        }
    }
}

/// Whether a limit is tighter than the one that a response tells of.
#[cold]
fn is_tighter(own: Option<Report>, headers: &HeaderMap) -> bool {
    match (own, report_of(headers)) {
        (Some(own), Some(there)) => own.slack() < there.slack(),
        (_, None) => true,
        (None, Some(_)) => false,
    }
}

/// Adds a policy to the list of a `RateLimit-Policy`.
pub(crate) fn write_policy(line: &mut HeaderLine, meter: &Meter, partition: Option<&[u8; 8]>) {
    if !line.as_bytes().is_empty() {
        line.text(", ");
    }
    line.quoted(meter.name().as_str()).text(";q=").number(meter.capacity());
    let is_in_flight = meter.is_in_flight();
    if let Some(unit) = if is_in_flight { Some("concurrent-requests") } else { meter.unit() } {
        // The draft has a name of its own for bytes.
        line.text(";qu=").quoted(if unit == "bytes" { "content-bytes" } else { unit });
    }
    match meter.limit() {
        // A permit is held until it is given back: there is no window.
        Some(_) if is_in_flight => {}
        // Periods of the calendar differ in length.
        Some(limit) if limit.is_by_calendar() => {}
        Some(limit) => {
            line.text(";w=").number(window(&limit));
        }
        None => {}
    }
    if let Some(partition) = partition {
        write_partition(line, partition);
    }
}

fn write_partition(line: &mut HeaderLine, partition: &[u8; 8]) {
    line.text(";pk=:").base64(partition, Padding::Equals).text(":");
}

/// Whole seconds, rounded up; at most [`MAX_INTEGER`].
#[must_use]
pub fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).min(MAX_INTEGER)
}

/// `Retry-After` of a refusal: at least one second.
fn retry_after(decision: &Decision) -> u64 {
    decision.retry_after().map_or(MAX_INTEGER, seconds).max(1)
}

/// A name as a string of a structured field. Characters that such strings cannot have are
/// percent-encoded.
#[must_use]
pub fn quoted(name: &str) -> String {
    HeaderLine::new().quoted(name).to_text()
}

/// The seconds in which the quota comes round; at least one.
fn window(limit: &Limit) -> u64 {
    seconds(limit.refill_time()).max(1)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests;
