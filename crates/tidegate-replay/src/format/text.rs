//! The text formats of Apache, nginx and Envoy, split in place.

use memchr::memchr;

use super::{Format, UnknownField};
use crate::batch::Batch;
use crate::draft::{Draft, Fault};
use crate::mapping::{Plan, Slot};
use crate::when;

/// A field: where it is kept while a line is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Time,
    Ip,
    User,
    Request,
    Status,
    Bytes,
    Referer,
    Agent,
    Flags,
    Received,
    Duration,
    UpstreamTime,
    Id,
    Host,
    Upstream,
}

const FIELDS: usize = 15;

/// The fields of a format, by the names that it and others give them; the first
/// is the one that is told.
const COMBINED: &[(Field, &[&str])] = &[
    (Field::Ip, &["ip", "remote_addr", "remote_host"]),
    (Field::User, &["user", "remote_user"]),
    (Field::Time, &["time", "time_local"]),
    (Field::Request, &["request"]),
    (Field::Status, &["status"]),
    (Field::Bytes, &["bytes", "body_bytes_sent", "bytes_sent"]),
    (Field::Referer, &["referer", "http_referer"]),
    (Field::Agent, &["agent", "http_user_agent", "user_agent"]),
    (Field::Duration, &["duration", "request_time"]),
];

const ENVOY: &[(Field, &[&str])] = &[
    (Field::Time, &["start_time"]),
    (Field::Request, &["request"]),
    (Field::Status, &["status", "response_code"]),
    (Field::Flags, &["flags", "response_flags"]),
    (Field::Received, &["received", "bytes_received"]),
    (Field::Bytes, &["bytes", "bytes_sent"]),
    (Field::Duration, &["duration"]),
    (Field::UpstreamTime, &["upstream_time", "upstream_service_time"]),
    (Field::Ip, &["ip", "x_forwarded_for"]),
    (Field::Agent, &["agent", "user_agent"]),
    (Field::Id, &["id", "request_id", "x_request_id"]),
    (Field::Host, &["host", "authority"]),
    (Field::Upstream, &["upstream", "upstream_host"]),
];

fn fields(format: Format) -> &'static [(Field, &'static [&'static str])] {
    match format {
        Format::Envoy => ENVOY,
        Format::Combined | Format::Json | Format::Csv => COMBINED,
    }
}

type Values<'l> = [&'l [u8]; FIELDS];

pub(crate) struct Text {
    format: Format,
    /// With the rank of the name that it is known by.
    wanted: Vec<(Field, (Slot, u8))>,
}

impl Text {
    pub(super) fn new(format: Format, plan: &Plan) -> Result<Text, UnknownField> {
        let known = fields(format);
        let field = |name: &str| known.iter().find(|(_, names)| names.contains(&name)).map(|(field, _)| *field);
        let mut wanted = Vec::new();
        for (slot, names) in plan.names.iter().enumerate() {
            match names.iter().zip(0..).find_map(|(name, rank)| Some((field(name)?, (slot, rank)))) {
                Some(found) => wanted.push(found),
                None => {
                    if let Some(name) = names.first().filter(|_| plan.chosen[slot]) {
                        let known: Vec<&str> = known.iter().map(|(_, names)| names[0]).collect();
                        return Err(UnknownField { format, field: name.clone(), known: known.join(", ") });
                    }
                }
            }
        }
        Ok(Text { format, wanted })
    }

    #[inline]
    pub(super) fn offer(&self, line: &[u8], draft: &mut Draft, batch: &mut Batch) -> Result<(), Fault> {
        let values = split(self.format, line)?;
        for (field, slot) in &self.wanted {
            draft.offer(batch, *slot, values[*field as usize]);
        }
        Ok(())
    }
}

fn split(format: Format, line: &[u8]) -> Result<Values<'_>, Fault> {
    match format {
        Format::Envoy => envoy(line),
        Format::Combined | Format::Json | Format::Csv => combined(line),
    }
}

/// Whether a line is of a text format, its time included.
pub(super) fn looks_like(format: Format, line: &[u8]) -> bool {
    split(format, line).is_ok_and(|values| when::parse(values[Field::Time as usize]).is_ok())
}

/// `ip ident user [time] "request" status bytes "referer" "agent"`, and often how long it took:
/// the first number that follows, alone or as in `rt=0.25`.
fn combined(line: &[u8]) -> Result<Values<'_>, Fault> {
    let lacks = |expected| Fault::Shape { format: "the combined log format", expected };
    let mut values: Values<'_> = [b""; FIELDS];
    let (ip, rest) = until(b' ', line).ok_or_else(|| lacks("the address"))?;
    let (_, rest) = until(b' ', rest).ok_or_else(|| lacks("the user"))?;
    // A user's name may have spaces in it.
    let (user, rest) = until(b'[', rest).ok_or_else(|| lacks("[the time]"))?;
    let (time, rest) = until(b']', rest).ok_or_else(|| lacks("[the time]"))?;
    let rest = rest.strip_prefix(b" \"").ok_or_else(|| lacks("\"the request\""))?;
    let (request, rest) = quoted(rest).ok_or_else(|| lacks("\"the request\""))?;
    let mut words = Words(rest);
    let (status, bytes) = (words.next().unwrap_or(b""), words.next().unwrap_or(b""));
    let (referer, agent) = (words.next().unwrap_or(b""), words.next().unwrap_or(b""));
    let value = |word| memchr(b'=', word).map_or(word, |equals| &word[equals + 1..]);
    let duration = words.map(value).find(|word| is_number(word)).unwrap_or(b"");
    for (field, value) in [
        (Field::Ip, ip),
        (Field::User, user.trim_ascii_end()),
        (Field::Time, time),
        (Field::Request, request),
        (Field::Status, status),
        (Field::Bytes, bytes),
        (Field::Referer, referer),
        (Field::Agent, agent),
        (Field::Duration, duration),
    ] {
        values[field as usize] = value;
    }
    Ok(values)
}

/// `[time] "request" status flags .. received bytes duration time "forwarded for"
/// "agent" "id" "authority" "upstream"`: Istio has three words more.
fn envoy(line: &[u8]) -> Result<Values<'_>, Fault> {
    let lacks = |expected| Fault::Shape { format: "Envoy's text format", expected };
    let mut values: Values<'_> = [b""; FIELDS];
    let rest = line.strip_prefix(b"[").ok_or_else(|| lacks("[the time]"))?;
    let (time, rest) = until(b']', rest).ok_or_else(|| lacks("[the time]"))?;
    let rest = rest.strip_prefix(b" \"").ok_or_else(|| lacks("\"the request\""))?;
    let (request, rest) = quoted(rest).ok_or_else(|| lacks("\"the request\""))?;
    values[Field::Time as usize] = time;
    values[Field::Request as usize] = request;
    let mut words = Words(rest);
    for field in [Field::Status, Field::Flags] {
        values[field as usize] = words.next().ok_or_else(|| lacks("the response code"))?;
    }
    // Istio's details are a word, Envoy's received bytes a number.
    let mut next = words.next().unwrap_or(b"");
    if !next.iter().all(u8::is_ascii_digit) || next.is_empty() {
        next = words.nth(2).unwrap_or(b"");
    }
    values[Field::Received as usize] = next;
    for field in [
        Field::Bytes,
        Field::Duration,
        Field::UpstreamTime,
        Field::Ip,
        Field::Agent,
        Field::Id,
        Field::Host,
        Field::Upstream,
    ] {
        values[field as usize] = words.next().unwrap_or(b"");
    }
    Ok(values)
}

fn until(byte: u8, text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// What stands before the next quote that has no backslash before it, and what
/// comes after.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr(b'"', &text[from..])?;
        let escapes = text[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
        from = at + 1;
    }
}

/// Whether this is digits with at most one point among them: an address has more.
fn is_number(word: &[u8]) -> bool {
    let rest = word.iter().filter(|byte| !byte.is_ascii_digit());
    word.len() > rest.clone().count() && rest.clone().all(|byte| *byte == b'.') && rest.count() <= 1
}

/// Words between spaces, or between quotes.
struct Words<'l>(&'l [u8]);

impl<'l> Iterator for Words<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        let text = self.0.trim_ascii_start();
        let (word, rest) = match text {
            [] => return None,
            [b'"', text @ ..] => quoted(text).unwrap_or((text, b"")),
            _ => until(b' ', text).unwrap_or((text, b"")),
        };
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(format: Format, line: &str) -> Result<Vec<(Field, String)>, Fault> {
        let values = split(format, line.as_bytes())?;
        let known = fields(format).iter().map(|(field, _)| *field);
        Ok(known.map(|field| (field, String::from_utf8_lossy(values[field as usize]).into_owned())).collect())
    }

    fn expect(format: Format, line: &str, expected: &[(Field, &str)]) {
        let values = values(format, line).unwrap_or_else(|fault| panic!("{line}: {fault}"));
        for (field, value) in expected {
            let found = values.iter().find(|(known, _)| known == field).map(|(_, value)| value.as_str());
            assert_eq!(found, Some(*value), "{field:?} of {line}");
        }
        assert!(looks_like(format, line.as_bytes()), "{line}");
    }

    #[test]
    fn common_and_combined_lines_are_split() {
        let line = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326"#;
        let common = [
            (Field::Ip, "127.0.0.1"),
            (Field::User, "frank"),
            (Field::Time, "10/Oct/2000:13:55:36 -0700"),
            (Field::Request, "GET /a.gif HTTP/1.0"),
            (Field::Status, "200"),
            (Field::Bytes, "2326"),
        ];
        expect(Format::Combined, line, &common);
        let line = format!(r#"{line} "http://x/" "Mozilla \"5.0\" (X; Y)" "more" "" . 10.0.0.1 rt=0.003 12"#);
        expect(Format::Combined, &line, &common);
        expect(Format::Combined, &line, &[(Field::Duration, "0.003")]);
        expect(Format::Combined, &line, &[(Field::Referer, "http://x/"), (Field::Agent, r#"Mozilla \"5.0\" (X; Y)"#)]);
    }

    #[test]
    fn users_with_spaces_and_requests_that_are_junk_are_taken_as_they_are() {
        let line = r#"::1 - A B [10/Oct/2000:13:55:36 -0700] "\x16\x03\"" 400 -"#;
        expect(Format::Combined, line, &[(Field::User, "A B"), (Field::Request, r#"\x16\x03\""#), (Field::Bytes, "-")]);
        let line = r#"h - - [10/Oct/2000:13:55:36 -0700] "" 400 0 "-" "-""#;
        expect(Format::Combined, line, &[(Field::Request, ""), (Field::User, "-")]);
    }

    #[test]
    fn lines_of_envoy_and_of_istio_are_split() {
        let common = [
            (Field::Time, "2016-04-15T20:17:00.310Z"),
            (Field::Request, "POST /api/v1/locations HTTP/2"),
            (Field::Status, "204"),
            (Field::Received, "154"),
            (Field::Bytes, "0"),
            (Field::Duration, "226"),
            (Field::UpstreamTime, "100"),
            (Field::Ip, "10.0.35.28"),
            (Field::Agent, "nsq2http"),
            (Field::Id, "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"),
            (Field::Host, "locations"),
            (Field::Upstream, "tcp://10.0.2.1:80"),
        ];
        let head = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 -"#;
        let tail = r#"154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
        expect(Format::Envoy, &format!("{head} {tail}"), &common);
        expect(
            Format::Envoy,
            &format!(r#"{head} via_upstream - "-" {tail} inbound|80|| 127.0.0.6:1 - default"#),
            &common,
        );
        expect(Format::Envoy, &format!(r#"{head} - - "-" {tail}"#), &common);
    }

    #[test]
    fn a_line_that_lacks_a_part_says_which() {
        for (format, line, part) in [
            (Format::Combined, "x", "the address"),
            (Format::Combined, "x - - 10/Oct", "[the time]"),
            (Format::Combined, "x - - [10/Oct", "[the time]"),
            (Format::Combined, "x - - [10/Oct] GET", "\"the request\""),
            (Format::Combined, "x - - [10/Oct] \"GET \\\"", "\"the request\""),
            (Format::Envoy, "x", "[the time]"),
            (Format::Envoy, "[t] \"r\" 200", "the response code"),
        ] {
            let fault = values(format, line).expect_err("it is broken").to_string();
            assert!(fault.contains(part), "{line}: {fault}");
        }
    }
}
