//! A line as its values are found: what is wanted is copied to the batch, and
//! what follows from it is worked out when all of it is there.

use std::net::{IpAddr, Ipv6Addr};

use memchr::{memchr, memchr2, memrchr};
use tidegate::Micros;

use crate::batch::{Batch, Head, Span};
use crate::mapping::{Plan, Slot, slot};
use crate::when::{self, TimeError};

/// Why a line is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the line has more than {} bytes", crate::MAX_LINE_BYTES)]
    TooLong,
    #[error("the source broke off in the middle of the line")]
    CutOff,
    #[error("not {format}: {expected} is missing")]
    Shape { format: &'static str, expected: &'static str },
    #[error("not a JSON object: {reason}")]
    Json { reason: String },
    #[error("there is no time: name its field by --map time=FIELD")]
    NoTime,
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error("the cost {text:?} is not a whole number")]
    Cost { text: String },
    #[error(
        "the duration {text:?} is not a number from 0 to 49 days: name a field of seconds by --map duration=FIELD, or \
         of another unit by duration_ms, duration_us or duration_ns"
    )]
    Duration { text: String },
}

/// The values of one line, as far as they are found.
pub(crate) struct Draft {
    found: Vec<(Span, u8)>,
    from: usize,
}

const NOTHING: (Span, u8) = (Span::ABSENT, u8::MAX);

impl Draft {
    pub(crate) fn new(plan: &Plan) -> Draft {
        Draft { found: vec![NOTHING; plan.slots()], from: 0 }
    }

    pub(crate) fn begin(&mut self, batch: &Batch) {
        self.found.fill(NOTHING);
        self.from = batch.bytes.len();
    }

    /// A value for a slot, unless there is a better one. Nothing, and a dash,
    /// are what logs write where there is no value.
    #[inline]
    pub(crate) fn offer(&mut self, batch: &mut Batch, (slot, rank): (Slot, u8), value: &[u8]) {
        if rank < self.found[slot].1 && !value.is_empty() && value != b"-" {
            self.found[slot] = (batch.value(value), rank);
        }
    }

    /// The line is over, and was broken.
    pub(crate) fn discard(&self, batch: &mut Batch) {
        batch.bytes.truncate(self.from);
    }

    /// The line is over: works out what follows, and adds it to the batch.
    pub(crate) fn finish(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        (source, line): (u32, u64),
    ) -> Result<Micros, Fault> {
        let time = when::parse(self.get(slot::TIME, batch).ok_or(Fault::NoTime)?)?;
        let number = |text| cost(text).ok_or_else(|| Fault::Cost { text: shown(text) });
        let cost = self.get(slot::COST, batch).map_or(Ok(1), number)?;
        let actual = self.get(slot::ACTUAL, batch).filter(|_| plan.chosen[slot::ACTUAL]).map(number).transpose()?;
        let lasts = match (plan.duration, self.get(slot::DURATION, batch)) {
            (Some(unit), Some(text)) => {
                Some(duration(text, unit).ok_or_else(|| Fault::Duration { text: shown(text) })?)
            }
            (Some(_), None) | (None, _) => None,
        };
        let is_start = plan.is_start(self.found[slot::TIME].1);
        let at = if is_start { time } else { time.saturating_since(lasts.unwrap_or_default()) };
        self.clean_address(batch);
        self.split_request(batch);
        self.split_path(batch);
        self.join_endpoint(batch, plan);
        self.choose_key(batch);
        let head = Head { at, cost, lasts, actual, source, line, first: 0 };
        batch.push(head, plan.kept().map(|slot| self.found[slot].0));
        Ok(time)
    }

    fn get<'b>(&self, slot: Slot, batch: &'b Batch) -> Option<&'b [u8]> {
        self.found[slot].0.of(&batch.bytes)
    }

    /// Sets what was not found by itself.
    fn derive(&mut self, slot: Slot, start: u32, length: usize) {
        if self.found[slot].0.is_absent() && length > 0 {
            self.found[slot] = (Span { start, length: length as u32 }, u8::MAX);
        }
    }

    /// An address without its port; of a list that proxies have written, the
    /// last, which no client can have made up.
    fn clean_address(&mut self, batch: &Batch) {
        let Some(text) = self.get(slot::IP, batch) else { return };
        let from = memrchr(b',', text).map_or(0, |comma| comma + 1);
        let blank = text[from..].iter().take_while(|byte| **byte == b' ').count();
        let (from, text) = (from + blank, text[from + blank..].trim_ascii_end());
        let (skip, length) = match text {
            [b'[', rest @ ..] => (1, memchr(b']', rest).unwrap_or(rest.len())),
            _ => match memchr(b':', text) {
                Some(colon) if memchr(b':', &text[colon + 1..]).is_none() => (0, colon),
                _ => (0, text.len()),
            },
        };
        let start = self.found[slot::IP].0.start + (from + skip) as u32;
        self.found[slot::IP].0 = if length == 0 { Span::ABSENT } else { Span { start, length: length as u32 } };
    }

    /// The key of a line that has none: its address, by its network, or its user.
    fn choose_key(&mut self, batch: &mut Batch) {
        if !self.found[slot::KEY].0.is_absent() {
            return;
        }
        self.found[slot::KEY] = match self.get(slot::IP, batch).map(network) {
            None => self.found[slot::USER],
            Some(None) => self.found[slot::IP],
            Some(Some(network)) => (batch.value(network.to_string().as_bytes()), u8::MAX),
        };
    }

    /// `GET /path?query HTTP/1.1`: the method, the path, the query, and the first
    /// two together, as they stand.
    fn split_request(&mut self, batch: &Batch) {
        let Some(text) = self.get(slot::REQUEST, batch) else { return };
        let start = self.found[slot::REQUEST].0.start;
        let Some(space) = memchr(b' ', text) else { return };
        let target = &text[space + 1..];
        let target = memrchr(b' ', target).map_or(target, |space| &target[..space]);
        let path = memchr2(b'?', b'#', target).unwrap_or(target.len());
        self.derive(slot::METHOD, start, space);
        self.derive(slot::PATH, start + space as u32 + 1, path);
        self.derive(slot::QUERY, start + (space + path) as u32 + 2, target.len().saturating_sub(path + 1));
        if target.starts_with(b"/") {
            self.derive(slot::ENDPOINT, start, space + 1 + path);
        }
    }

    /// A path without its query, and without the host of a whole URL.
    fn split_path(&mut self, batch: &Batch) {
        let Some(text) = self.get(slot::PATH, batch) else { return };
        let start = self.found[slot::PATH].0.start;
        let host = match memchr::memmem::find(text, b"://") {
            Some(scheme) if memchr(b'/', text) == Some(scheme + 1) => {
                let host = scheme + 3;
                memchr2(b'/', b'?', &text[host..]).map_or(text.len(), |length| host + length)
            }
            _ => 0,
        };
        let rest = &text[host..];
        let path = memchr2(b'?', b'#', rest).unwrap_or(rest.len());
        self.derive(slot::QUERY, start + (host + path) as u32 + 1, rest.len().saturating_sub(path + 1));
        let span = Span { start: start + host as u32, length: path as u32 };
        self.found[slot::PATH].0 = if path == 0 { Span::ABSENT } else { span };
    }

    /// `GET /path`, where the two were found apart.
    fn join_endpoint(&mut self, batch: &mut Batch, plan: &Plan) {
        let is_wanted = !plan.names[slot::ENDPOINT].is_empty();
        let [method, path] = [slot::METHOD, slot::PATH].map(|slot| self.found[slot].0);
        if !is_wanted || !self.found[slot::ENDPOINT].0.is_absent() || method.is_absent() || path.is_absent() {
            return;
        }
        let start = batch.bytes.len();
        for (span, separator) in [(method, &b" "[..]), (path, b"")] {
            let value = span.start as usize..(span.start + span.length) as usize;
            batch.bytes.extend_from_within(value);
            batch.bytes.extend_from_slice(separator);
        }
        self.derive(slot::ENDPOINT, start as u32, batch.bytes.len() - start);
    }
}

/// What an address of IPv6 is known by, as in the tower layer; one of IPv4 is
/// known by its text.
fn network(address: &[u8]) -> Option<IpAddr> {
    memchr(b':', address)?;
    let address: Ipv6Addr = std::str::from_utf8(address).ok()?.parse().ok()?;
    Some(match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    })
}

/// A whole number; a fraction is rounded up, against the caller.
fn cost(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let more = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    if is_digits(whole) && is_digits(fraction) { whole.parse::<u64>().ok()?.checked_add(more) } else { None }
}

/// A time in units of so many nanoseconds.
fn duration(text: &[u8], unit: f64) -> Option<Micros> {
    /// As long as a reservation can be made for.
    const MAX_MICROS: f64 = 49.0 * 86_400e6;
    let number: f64 = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    let micros = number * unit / 1_000.0;
    (0.0..=MAX_MICROS).contains(&micros).then(|| Micros::new(micros.round() as u64))
}

/// The beginning of some bytes, such as can be shown anywhere.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 160;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SHOWN)]);
    let visible = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    let mut text: String = text.chars().map(visible).collect();
    if bytes.len() > MAX_SHOWN {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mapping::Mapping;

    const ALL: [&str; 7] = ["ip", "user", "method", "path", "query", "endpoint", "request"];

    fn values(offers: &[(Slot, &str)]) -> Vec<(String, String)> {
        let plan = Plan::new(&Mapping::default(), &ALL.map(str::to_owned).into());
        let (mut batch, mut draft) = (Batch::new(&plan, 0), Draft::new(&plan));
        draft.begin(&batch);
        for (slot, value) in offers.iter().chain(&[(slot::TIME, "1")]) {
            draft.offer(&mut batch, (*slot, 0), value.as_bytes());
        }
        draft.finish(&mut batch, &plan, (0, 1)).expect("there is a time");
        let mut found = Vec::new();
        batch.decide_all(|record| {
            let names = plan.attributes.iter().map(|(name, _)| name.as_str()).chain(["key"]);
            for (number, name) in names.enumerate() {
                if let Some(value) = record.value(number).filter(|_| name != "request") {
                    found.push((name.to_owned(), String::from_utf8_lossy(value).into_owned()));
                }
            }
        });
        found.sort();
        found
    }

    fn expect(offers: &[(Slot, &str)], expected: &[(&str, &str)]) {
        let expected: BTreeSet<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(values(offers).into_iter().collect::<BTreeSet<_>>(), expected, "{offers:?}");
    }

    #[test]
    fn a_request_is_its_method_path_query_and_endpoint() {
        let whole = [("method", "GET"), ("path", "/a b"), ("query", "x=1?y"), ("endpoint", "GET /a b")];
        expect(&[(slot::REQUEST, "GET /a b?x=1?y HTTP/1.1")], &whole);
        expect(&[(slot::REQUEST, "GET /a HTTP/1.1")], &[("method", "GET"), ("path", "/a"), ("endpoint", "GET /a")]);
        expect(&[(slot::REQUEST, "GET /a? HTTP/1.1")], &[("method", "GET"), ("path", "/a"), ("endpoint", "GET /a")]);
        expect(
            &[(slot::REQUEST, "GET http://host:80/a?q HTTP/1.1")],
            &[("method", "GET"), ("path", "/a"), ("query", "q"), ("endpoint", "GET /a")],
        );
        expect(&[(slot::REQUEST, "\\x16\\x03")], &[]);
        expect(&[(slot::REQUEST, "-")], &[]);
    }

    #[test]
    fn parts_that_were_found_apart_are_joined() {
        let offers = [(slot::METHOD, "POST"), (slot::PATH, "https://host/orders?id=7")];
        expect(&offers, &[("method", "POST"), ("path", "/orders"), ("query", "id=7"), ("endpoint", "POST /orders")]);
        expect(&[(slot::PATH, "https://host")], &[]);
    }

    #[test]
    fn an_address_is_the_last_of_a_list_without_its_port() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:443", "192.0.2.1"),
            ("6.6.6.6, 192.0.2.1", "192.0.2.1"),
            ("unknown", "unknown"),
        ] {
            expect(&[(slot::IP, text)], &[("ip", address), ("key", address)]);
        }
        for text in ["2001:db8::1", "[2001:db8::1]:443", "6.6.6.6,[2001:db8::1]:1 "] {
            expect(&[(slot::IP, text)], &[("ip", "2001:db8::1"), ("key", "2001:db8::")]);
        }
        expect(&[(slot::IP, "::ffff:192.0.2.1")], &[("ip", "::ffff:192.0.2.1"), ("key", "192.0.2.1")]);
        expect(&[(slot::IP, "1.2.3.4, "), (slot::USER, "alice")], &[("user", "alice"), ("key", "alice")]);
    }

    #[test]
    fn a_cost_is_a_whole_number_rounded_up() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("1.0", Some(1)),
            ("1.01", Some(2)),
            (".5", None),
            ("-1", None),
            ("1e3", None),
            ("x", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(cost(text.as_bytes()), expected, "{text}");
        }
    }
}
