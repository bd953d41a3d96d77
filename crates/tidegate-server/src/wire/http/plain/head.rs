//! Plain requests as they arrive: which they are, where they end, and what their heads say of the caller.

use super::super::CHECK;
use super::super::forward::{FORWARD_AUTH, Head};
use super::super::guard::FETCH_SITE;
use crate::access::Page;
use crate::run::peer::Peer;
use crate::wire::app::App;

/// Fields of a head; a request with more is hyper's.
pub(super) const MAX_FIELDS: usize = 32;

/// A plain request.
pub(super) struct Plain<'a> {
    pub(super) asks: Asks<'a>,
    /// Of all of it.
    pub(super) length: usize,
    pub(super) facts: Facts<'a>,
}

/// What it asks for.
pub(super) enum Asks<'a> {
    /// A check, by its body.
    Check(&'a [u8]),
    /// A check of a proxy, by its head.
    Forward(Head<'a>),
}

/// What a head says of who asks.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts<'a> {
    pub(super) authorization: Option<&'a [u8]>,
    pub(super) page: Page<'a>,
}

impl<'a> Facts<'a> {
    pub(super) fn fields(self) -> [Option<&'a [u8]>; 5] {
        let Page { host, origin, fetch_site, content_type, .. } = self.page;
        [self.authorization, host, origin, fetch_site, content_type]
    }
}

/// The plain request that comes first, if that is what comes first.
pub(super) fn first<'a>(arrived: &'a [u8], peer: Peer, app: &App) -> Option<Plain<'a>> {
    // Its answer has to say that the connection will close.
    if app.guards.drain.is_leaving() {
        return None;
    }
    if let Some(rest) = arrived.strip_prefix(b"POST ").and_then(|rest| rest.strip_prefix(CHECK.as_bytes())) {
        return check(arrived, rest, app.settings.max_body);
    }
    forward(arrived, peer, app.settings.tls_certificate.is_some())
}

/// A check, from the end of its path on.
pub(super) fn check<'a>(arrived: &'a [u8], rest: &'a [u8], max_body: usize) -> Option<Plain<'a>> {
    let head = rest.strip_prefix(b" HTTP/1.1\r\n")?;
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Fields { length, body_length, mut facts, .. } = read(head, &mut fields)?;
    facts.page.writes = true;
    let body_length = body_length.filter(|length| *length <= max_body)?;
    let body = head.get(length..length + body_length)?;
    Some(Plain { asks: Asks::Check(body), length: arrived.len() - head.len() + length + body_length, facts })
}

/// A request of a proxy, without a body.
fn forward(arrived: &[u8], peer: Peer, is_tls: bool) -> Option<Plain<'_>> {
    // The answer to HEAD has no body, which hyper knows.
    const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let method = METHODS.into_iter().find(|method| arrived.starts_with(method.as_bytes()))?;
    let rest = arrived[method.len()..].strip_prefix(b" ")?.strip_prefix(FORWARD_AUTH.as_bytes())?;
    let (query, rest) = match rest.strip_prefix(b"?") {
        Some(rest) => rest.split_at(rest.iter().position(|byte| !is_plain_in_query(*byte))?),
        None => rest.split_at(0),
    };
    let head = rest.strip_prefix(b" HTTP/1.1\r\n")?;
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Fields { length, body_length, facts, count } = read(head, &mut fields)?;
    if body_length.is_some_and(|length| length > 0) {
        return None;
    }
    let fields = fields[..count].to_vec();
    let query = std::str::from_utf8(query).ok()?;
    let request = Head { peer, is_tls, method, path: FORWARD_AUTH, query, host: facts.page.host, fields };
    let asks = Asks::Forward(request);
    Some(Plain { asks, length: arrived.len() - head.len() + length, facts })
}

/// Whether a byte of a query means the same to every reader of URLs.
fn is_plain_in_query(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%&=+,:;/?@!$'()*".contains(&byte)
}

/// The fields of a head.
struct Fields<'a> {
    /// Of all of them, with the line that ends the head.
    length: usize,
    count: usize,
    body_length: Option<usize>,
    facts: Facts<'a>,
}

/// Reads the fields of a head, if no other rule of HTTP is needed to understand it.
fn read<'a>(head: &'a [u8], fields: &mut [httparse::Header<'a>; MAX_FIELDS]) -> Option<Fields<'a>> {
    let Ok(httparse::Status::Complete((length, fields))) = httparse::parse_headers(head, fields) else {
        return None;
    };
    // A carriage return stands only at the end of a line: one for each field, and one for the end.
    let lines = head[..length].iter().filter(|byte| **byte == b'\r').count();
    if lines != fields.len() + 1 {
        return None;
    }
    let (mut body_length, mut facts) = (None, Facts::default());
    let page = &mut facts.page;
    for field in fields {
        let fact = match meaning(field.name) {
            Meaning::Length if body_length.is_none() => {
                body_length = Some(whole_number(field.value)?);
                continue;
            }
            Meaning::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            Meaning::None => continue,
            Meaning::Length | Meaning::Connection | Meaning::Other => return None,
            Meaning::Authorization => &mut facts.authorization,
            Meaning::Host => &mut page.host,
            Meaning::Origin => &mut page.origin,
            Meaning::FetchSite => &mut page.fetch_site,
            Meaning::ContentType => &mut page.content_type,
        };
        // What is said twice is for hyper.
        if fact.replace(field.value).is_some() {
            return None;
        }
    }
    facts.page.host?;
    Some(Fields { length, count: fields.len(), body_length, facts })
}

/// What a field means for how a request is read.
enum Meaning {
    Length,
    Connection,
    /// Something that only hyper knows.
    Other,
    Authorization,
    Host,
    Origin,
    FetchSite,
    ContentType,
    None,
}

fn meaning(name: &str) -> Meaning {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match name.len() {
        14 if is("content-length") => Meaning::Length,
        10 if is("connection") => Meaning::Connection,
        17 if is("transfer-encoding") => Meaning::Other,
        6 if is("expect") => Meaning::Other,
        7 if is("upgrade") => Meaning::Other,
        4 if is("host") => Meaning::Host,
        12 if is("content-type") => Meaning::ContentType,
        13 if is("authorization") => Meaning::Authorization,
        6 if is("origin") => Meaning::Origin,
        14 if is(FETCH_SITE) => Meaning::FetchSite,
        _ => Meaning::None,
    }
}

/// A number in digits only, and few enough of them.
fn whole_number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
