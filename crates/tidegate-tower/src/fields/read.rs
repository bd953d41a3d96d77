//! Fields as other layers and other servers write them.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};

use super::{RATELIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET, unix_time};

/// What a response says of the tightest limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) remaining: u64,
    /// Seconds until there is more.
    pub(crate) more_in: Option<u64>,
}

impl Report {
    /// Less for a tighter limit: less remains, or as much and for longer.
    pub(super) fn slack(&self) -> impl Ord + use<> {
        (self.remaining, Reverse(self.more_in))
    }
}

/// A reset that is later than this, in seconds, is a Unix time: GitHub's way.
const UNIX_TIMES: u64 = 1_000_000_000;

/// What the fields say, in whichever style; the current draft first.
pub(crate) fn report_of(headers: &HeaderMap) -> Option<Report> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let pair = |remaining, reset| {
        let more_in = number(reset).map(|reset| match reset.checked_sub(UNIX_TIMES) {
            // From the second that has begun: rounded up, as all times are.
            Some(_) => reset.saturating_sub(unix_time().as_secs()),
            None => reset,
        });
        Some(Report { remaining: number(remaining)?, more_in })
    };
    let lines = headers.get_all(RATELIMIT).into_iter().filter_map(report_in);
    lines
        .min_by_key(Report::slack)
        .or_else(|| pair(RATELIMIT_REMAINING, RATELIMIT_RESET))
        .or_else(|| pair(X_RATELIMIT_REMAINING, X_RATELIMIT_RESET))
}

/// What a line of `RateLimit` says.
pub(super) fn report_in(line: &HeaderValue) -> Option<Report> {
    let line = line.to_str().ok()?;
    list(line).or_else(|| dictionary(line))
}

/// The tightest of a list of quoted policies; `None` if it is malformed.
fn list(line: &str) -> Option<Report> {
    let mut tightest: Option<Report> = None;
    let mut rest = line.trim();
    loop {
        rest = after_string(rest)?.trim_start();
        let (mut remaining, mut more_in) = (None, None);
        while let Some(parameter) = rest.strip_prefix(';') {
            let parameter = parameter.trim_start();
            let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
            let name_end = parameter.bytes().position(|byte| !is_of_name(byte)).unwrap_or(parameter.len());
            let (name, after) = parameter.split_at(name_end);
            let Some(value) = after.strip_prefix('=') else {
                // One without a value is true, which no number is.
                if matches!(name, "" | "r" | "t") {
                    return None;
                }
                rest = after.trim_start();
                continue;
            };
            let string = value.strip_prefix('%').unwrap_or(value);
            let value_end = if string.starts_with('"') {
                value.len() - after_string(string)?.len()
            } else {
                value.find([';', ',', ' ', '\t']).unwrap_or(value.len())
            };
            let (value, after) = value.split_at(value_end);
            match name {
                "r" => remaining = Some(integer(value)?),
                "t" => more_in = Some(integer(value)?),
                _ => {}
            }
            rest = after.trim_start();
        }
        let report = Report { remaining: remaining?, more_in };
        if tightest.is_none_or(|tightest| report.slack() < tightest.slack()) {
            tightest = Some(report);
        }
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None => return tightest.filter(|_| rest.is_empty()),
        }
    }
}

/// What follows a quoted string; `None` if there is none.
fn after_string(text: &str) -> Option<&str> {
    let mut escaped = false;
    for (place, byte) in text.strip_prefix('"')?.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return text.get(place + 2..),
            _ => {}
        }
    }
    None
}

/// `limit=100, remaining=50, reset=30`.
fn dictionary(line: &str) -> Option<Report> {
    let value = |wanted: &str| {
        let mut members = line.split(',').filter_map(|member| member.trim().split_once('='));
        members.find(|(name, _)| *name == wanted).and_then(|(_, value)| integer(value))
    };
    Some(Report { remaining: value("remaining")?, more_in: value("reset") })
}

fn integer(text: &str) -> Option<u64> {
    let is_integer = text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_integer)
}

/// How long a response asks to wait: seconds, or a date.
pub(crate) fn retry_after_of(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let in_seconds = integer(value).map(Duration::from_secs);
    in_seconds.or_else(|| Some(httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()))
}
