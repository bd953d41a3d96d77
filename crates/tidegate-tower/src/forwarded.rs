//! The addresses that proxies report: `Forwarded` and the older fields.
//!
//! Every proxy adds to the right of what it was sent, so everything is read
//! from the right, one entry at a time: whatever a client wrote stays on the
//! left and is never reached, however it is quoted or broken. Nothing here
//! says whom to believe; that is [`ClientIp`](crate::ClientIp)'s affair.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderName};

/// A header in which proxies tell the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// `Forwarded`, as in RFC 7239: `for="[2001:db8::17]:4711";proto=https`.
    Forwarded,
    /// `X-Forwarded-For`: a list of addresses.
    #[default]
    XForwardedFor,
    /// `X-Real-IP`: one address, which a proxy has put in place of any other.
    XRealIp,
    /// `CF-Connecting-IP`: the same, by Cloudflare.
    CfConnectingIp,
}

impl ForwardingHeader {
    pub(crate) fn name(self) -> HeaderName {
        match self {
            ForwardingHeader::Forwarded => FORWARDED,
            ForwardingHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ForwardingHeader::XRealIp => HeaderName::from_static("x-real-ip"),
            ForwardingHeader::CfConnectingIp => HeaderName::from_static("cf-connecting-ip"),
        }
    }

    /// Whether it is written anew instead of being added to.
    pub(crate) fn is_single(self) -> bool {
        match self {
            ForwardingHeader::Forwarded | ForwardingHeader::XForwardedFor => false,
            ForwardingHeader::XRealIp | ForwardingHeader::CfConnectingIp => true,
        }
    }

    /// The entries of all lines of this header, from the right: an address, or
    /// `None` where a proxy does not say it.
    pub(crate) fn read_from_right<'h>(
        self,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    ) -> impl Iterator<Item = Option<IpAddr>> {
        lines.rev().flat_map(move |line| {
            let entries = Entries { rest: Some(line), quotes: self == ForwardingHeader::Forwarded };
            entries.map(move |entry| match self {
                ForwardingHeader::Forwarded => node_of(entry),
                ForwardingHeader::XForwardedFor | ForwardingHeader::XRealIp | ForwardingHeader::CfConnectingIp => {
                    address(entry)
                }
            })
        })
    }
}

/// The elements of a list, from the right, without those that are empty.
struct Entries<'h> {
    rest: Option<&'h [u8]>,
    /// Whether commas within quotes belong to an entry.
    quotes: bool,
}

impl<'h> Iterator for Entries<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        loop {
            let rest = self.rest?;
            let entry = match last_outside_quotes(rest, b',', self.quotes) {
                Some(comma) => {
                    self.rest = Some(&rest[..comma]);
                    &rest[comma + 1..]
                }
                None => {
                    self.rest = None;
                    rest
                }
            };
            let entry = entry.trim_ascii();
            if !entry.is_empty() {
                return Some(entry);
            }
        }
    }
}

/// The last `wanted` that is not within quotes, as seen from the right: a
/// quote that was left open further left does not reach this far.
fn last_outside_quotes(text: &[u8], wanted: u8, quotes: bool) -> Option<usize> {
    let mut quoted = false;
    for (place, byte) in text.iter().enumerate().rev() {
        if quotes && *byte == b'"' && !is_escaped(&text[..place]) {
            quoted = !quoted;
        } else if *byte == wanted && !quoted {
            return Some(place);
        }
    }
    None
}

fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address of the `for` in an element of `Forwarded`.
fn node_of(element: &[u8]) -> Option<IpAddr> {
    let mut rest = Some(element);
    while let Some(text) = rest {
        let pair = match last_outside_quotes(text, b';', true) {
            Some(semicolon) => {
                rest = Some(&text[..semicolon]);
                &text[semicolon + 1..]
            }
            None => {
                rest = None;
                text
            }
        };
        let pair = pair.trim_ascii();
        if let Some((name, value)) = pair.split_at_checked(3)
            && name.eq_ignore_ascii_case(b"for")
            && let Some(node) = value.trim_ascii_start().strip_prefix(b"=")
        {
            return address(node.trim_ascii());
        }
    }
    None
}

/// An address as it is written in such headers: with or without a port,
/// brackets or quotes. `unknown`, `_hidden` and anything else is none.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
    let text = std::str::from_utf8(text).ok()?;
    let address = match text.strip_prefix('[') {
        // A port may be hidden as well: `[::1]:_gazonk`.
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']')?;
            let is_port = port.is_empty() || port.starts_with(':');
            address.parse().ok().map(IpAddr::V6).filter(|_| is_port)
        }
        None => text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip())).or_else(|| {
            let (address, port) = text.split_once(':')?;
            address.parse().ok().map(IpAddr::V4).filter(|_| port.starts_with('_'))
        }),
    };
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: ForwardingHeader, lines: &[&[u8]]) -> Vec<String> {
        let entries = header.read_from_right(lines.iter().copied());
        entries.map(|entry| entry.map_or("-".into(), |address| address.to_string())).collect()
    }

    #[test]
    fn addresses_come_from_the_right_over_all_lines() {
        let read = |lines: &[&[u8]]| read(ForwardingHeader::XForwardedFor, lines);
        assert_eq!(read(&[b"192.0.2.1, 192.0.2.2", b"192.0.2.3"]), ["192.0.2.3", "192.0.2.2", "192.0.2.1"]);
        assert_eq!(read(&[]), [""; 0]);
        assert_eq!(read(&[b"", b" , ,"]), [""; 0]);
    }

    #[test]
    fn every_way_to_write_an_address() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("\"192.0.2.1:4711\"", "192.0.2.1"),
            ("192.0.2.1:_port", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("\"[2001:DB8::1]:_port\"", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ] {
            assert_eq!(read(ForwardingHeader::XForwardedFor, &[text.as_bytes()]), [address], "{text}");
            let line = format!("proto=http;For={text};by=203.0.113.1");
            assert_eq!(read(ForwardingHeader::Forwarded, &[line.as_bytes()]), [address], "{line}");
        }
    }

    #[test]
    fn an_entry_without_an_address_still_counts() {
        for text in
            ["unknown", "_hidden", "\"_SEVKISEK\"", "localhost", "192.0.2", "192.0.2.1.5", "[::1", "[::1]x", "1"]
        {
            assert_eq!(read(ForwardingHeader::XForwardedFor, &[text.as_bytes()]), ["-"], "{text}");
            assert_eq!(read(ForwardingHeader::Forwarded, &[format!("for={text}").as_bytes()]), ["-"], "{text}");
        }
        assert_eq!(read(ForwardingHeader::XForwardedFor, &[b"\xff\xfe, 192.0.2.1"]), ["192.0.2.1", "-"]);
        assert_eq!(read(ForwardingHeader::Forwarded, &[b"proto=https, by=192.0.2.1;host=a"]), ["-", "-"]);
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let read = |line: &str| read(ForwardingHeader::Forwarded, &[line.as_bytes()]);
        assert_eq!(read("for=\"_gazonk\""), ["-"]);
        assert_eq!(read("For=\"[2001:db8:cafe::17]:4711\""), ["2001:db8:cafe::17"]);
        assert_eq!(read("for=192.0.2.60;proto=http;by=203.0.113.43"), ["192.0.2.60"]);
        assert_eq!(read("for=192.0.2.43, for=198.51.100.17"), ["198.51.100.17", "192.0.2.43"]);
        assert_eq!(read("for=_hidden, for=_SEVKISEK"), ["-", "-"]);
    }

    #[test]
    fn an_unclosed_quote_of_a_client_does_not_hide_the_proxys_entry() {
        let read = |line: &str| read(ForwardingHeader::Forwarded, &[line.as_bytes()]);
        for forged in ["for=\"", "for=\"a, for=b", "for=\"\\", "host=\"a\\\"b", ";;;\"", "for=\"1.2.3.4\";x=\""] {
            for (added, address) in [
                ("for=192.0.2.7", "192.0.2.7"),
                ("for=\"[2001:db8::7]:1\"", "2001:db8::7"),
                ("by=\"a,b;c\";for=192.0.2.7", "192.0.2.7"),
            ] {
                let line = format!("{forged}, {added}");
                assert_eq!(read(&line)[0], address, "{line}");
            }
        }
    }
}
