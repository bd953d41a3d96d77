//! The head of a request that a proxy sends: what it says of the request of the proxy's client.
//!
//! A head is believed as far as its peer is. Of a trusted proxy, the forwarding headers say what the client asked
//! for, and what they do not say is missing. Of any other peer the head is the request itself, and its forwarding
//! headers are ignored.
//!
//! A proxy may pass on what its client wrote, beside what it writes itself and under another name. So all spellings
//! and all lines of a value have to agree: a client that adds one gets an error, not another limit.

use std::borrow::Cow;
use std::net::IpAddr;

use tidegate::KeyPart;
use tidegate_tower::ClientIp;

use crate::access::without_port;
use crate::ask::attributes::{Attribute, Source};
use crate::ask::request::MAX_TEXT;
use crate::run::peer::Peer;
use crate::wire::http::problem::Problem;

/// A head, and the connection that it came by.
#[derive(Debug)]
pub(in crate::wire::http) struct Head<'a> {
    pub(in crate::wire::http) peer: Peer,
    pub(in crate::wire::http) is_tls: bool,
    pub(in crate::wire::http) method: &'a str,
    /// Without its query.
    pub(in crate::wire::http) path: &'a str,
    /// What the operator of the proxy has written, if the proxy does not put its client's query there.
    pub(in crate::wire::http) query: &'a str,
    pub(in crate::wire::http) host: Option<&'a [u8]>,
    pub(in crate::wire::http) fields: Vec<httparse::Header<'a>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Address(IpAddr),
    Text(Cow<'a, [u8]>),
}

impl Value<'_> {
    pub(super) fn part(&self) -> KeyPart<'_> {
        match self {
            Value::Address(address) => KeyPart::from(*address),
            Value::Text(text) => KeyPart::from(&**text),
        }
    }
}

impl<'a> Head<'a> {
    /// The lines of a field, in their order.
    pub(super) fn lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// Whether it comes from a proxy whose headers are believed.
    pub(super) fn is_trusted(&self, proxies: &ClientIp) -> bool {
        self.peer.ip().is_some_and(|peer| proxies.trusts(peer))
    }

    /// Whether the query is that of the client's request: some proxies keep it unless they are told otherwise.
    pub(super) fn has_query_of_client(&self) -> bool {
        let query = |uri: &'a [u8]| uri.iter().position(|byte| *byte == b'?').map(|mark| &uri[mark + 1..]);
        let is_own = |uri| query(uri).is_some_and(|query| query == self.query.as_bytes());
        !self.query.is_empty() && self.lines("x-forwarded-uri").any(is_own)
    }

    /// The address of the client, if it is known.
    pub(super) fn address(&self, proxies: &ClientIp) -> Option<IpAddr> {
        proxies.of_lines(self.peer.ip(), self.lines("x-forwarded-for"))
    }

    /// The value of an attribute, if there is one.
    pub(super) fn value(&self, attribute: &Attribute, proxies: &ClientIp) -> Result<Option<Value<'a>>, Problem> {
        let text = match attribute.source {
            Source::Ip => return Ok(self.address(proxies).map(Value::Address)),
            Source::Header => agreed(attribute, self.lines(attribute.header()).map(Cow::Borrowed)),
            Source::Method | Source::Scheme | Source::Host | Source::Path if !self.is_trusted(proxies) => {
                agreed(attribute, self.own(attribute.source).into_iter())
            }
            Source::Method => {
                let lines = self.lines("x-forwarded-method").chain(self.lines("x-original-method"));
                agreed(attribute, lines.map(Cow::Borrowed))
            }
            Source::Scheme => {
                let original = self.lines("x-original-url").filter_map(|url| Url::read(url).scheme);
                let schemes = self.lines("x-forwarded-proto").map(last_entry).chain(original);
                agreed(attribute, schemes.map(Cow::Borrowed))
            }
            Source::Host => {
                let original = self.lines("x-original-url").filter_map(|url| Url::read(url).authority);
                let hosts = self.lines("x-forwarded-host").map(last_entry).chain(original);
                agreed(attribute, hosts.map(host))
            }
            Source::Path => {
                let original = self.lines("x-original-uri").chain(self.lines("x-original-url"));
                let urls = self.lines("x-forwarded-uri").chain(original);
                agreed(attribute, urls.map(|url| Cow::Borrowed(Url::read(url).path)))
            }
        };
        Ok(text?.map(Value::Text))
    }

    /// What the request itself is, for a peer that is no proxy.
    fn own(&self, source: Source) -> Option<Cow<'a, [u8]>> {
        match source {
            Source::Method => Some(self.method.as_bytes().into()),
            Source::Scheme => Some(if self.is_tls { "https" } else { "http" }.as_bytes().into()),
            Source::Host => self.host.map(host),
            Source::Path => Some(self.path.as_bytes().into()),
            Source::Ip | Source::Header => None,
        }
    }
}

/// The one value that is given, however often; an empty one is none.
fn agreed<'a>(
    attribute: &Attribute,
    given: impl Iterator<Item = Cow<'a, [u8]>>,
) -> Result<Option<Cow<'a, [u8]>>, Problem> {
    let mut given = given.filter(|value| !value.is_empty());
    let Some(value) = given.next() else { return Ok(None) };
    if given.any(|other| other != value) {
        return Err(Problem::Ambiguous { attribute: attribute.name().to_owned() });
    }
    match value.len() {
        found if found > MAX_TEXT => {
            Err(Problem::TextTooLong { what: "the value of an attribute", found, bound: MAX_TEXT })
        }
        _ => Ok(Some(value)),
    }
}

/// Proxies add to the right of a list.
fn last_entry(list: &[u8]) -> &[u8] {
    list.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii()
}

fn host(text: &[u8]) -> Cow<'_, [u8]> {
    let host = without_port(text);
    if host.iter().any(u8::is_ascii_uppercase) { host.to_ascii_lowercase().into() } else { host.into() }
}

/// A URL, or only the path of one, without its query.
struct Url<'a> {
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: &'a [u8],
}

impl<'a> Url<'a> {
    fn read(text: &'a [u8]) -> Url<'a> {
        let end = text.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(text.len());
        let text = &text[..end];
        match text.windows(3).position(|bytes| bytes == b"://") {
            Some(end) if !text.starts_with(b"/") => {
                let rest = &text[end + 3..];
                let (authority, path) = rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()));
                let path = if path.is_empty() { b"/" } else { path };
                Url { scheme: Some(&text[..end]), authority: Some(authority), path }
            }
            _ => Url { scheme: None, authority: None, path: text },
        }
    }
}
