//! What is seen of a request, and what is made of it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{Extensions, HeaderMap, Method, Uri};
use tidegate::{Key, KeyPart};

use crate::client_ip::ClientIp;

/// A request without its body: what keys, attributes and costs are made of.
#[derive(Clone, Copy, Debug)]
pub struct Head<'r> {
    method: &'r Method,
    uri: &'r Uri,
    headers: &'r HeaderMap,
    extensions: &'r Extensions,
    client_ip: &'r ClientIp,
}

impl<'r> Head<'r> {
    pub(crate) fn of<B>(request: &'r http::Request<B>, client_ip: &'r ClientIp) -> Head<'r> {
        Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            client_ip,
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'r Method {
        self.method
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &'r Uri {
        self.uri
    }

    /// All headers.
    #[must_use]
    pub fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// The first header of that name, if it is text and not empty.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'r str> {
        self.headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
    }

    /// What an outer layer has put there, such as the user it has recognised.
    #[must_use]
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'r T> {
        self.extensions.get()
    }

    /// The client's address, by the layer's [`ClientIp`].
    #[must_use]
    #[inline]
    pub fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip.of(self.headers, self.extensions)
    }

    /// The size of the request's body, if its headers tell.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }
}

/// Part of a request, by which it is known: text, bytes, a number, an
/// address, or several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'r> {
    /// Text or any other bytes.
    Bytes(Cow<'r, [u8]>),
    /// A number: the same as its decimal text.
    Number(u64),
    /// An address: in a key, one of IPv6 counts by its network.
    Address(IpAddr),
    /// Several, of which none is ever taken for another.
    All(Vec<Value<'r>>),
}

impl<'v> Value<'v> {
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Bytes(bytes) => Value::Bytes(bytes.into_owned().into()),
            Value::Number(number) => Value::Number(number),
            Value::Address(address) => Value::Address(address),
            Value::All(values) => Value::All(values.into_iter().map(Value::into_owned).collect()),
        }
    }

    /// The text that this is; several values make none.
    pub(crate) fn into_text(self) -> Option<Cow<'v, str>> {
        match self {
            Value::Bytes(Cow::Borrowed(bytes)) => Some(match str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => bytes.escape_ascii().to_string().into(),
            }),
            Value::Bytes(Cow::Owned(bytes)) => Some(match String::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(error) => error.as_bytes().escape_ascii().to_string().into(),
            }),
            Value::Number(number) => Some(number.to_string().into()),
            Value::Address(address) => Some(address.to_string().into()),
            Value::All(_) => None,
        }
    }

    /// The key that this is, addresses of IPv6 taken by their first bits. The
    /// text of one of IPv4 is written to `text`.
    #[inline(always)]
    pub(crate) fn to_key<'k>(&'k self, ipv6_bits: u8, text: &'k mut Text) -> Key<'k> {
        match self {
            Value::Bytes(bytes) => Key::from(&**bytes),
            Value::Number(number) => Key::from(*number),
            Value::Address(IpAddr::V4(address)) => Key::from(text.write(address.octets())),
            Value::Address(address) => Key::from(network_of(*address, ipv6_bits)),
            Value::All(_) => self.to_composite_key(ipv6_bits),
        }
    }

    #[inline(never)]
    fn to_composite_key(&self, ipv6_bits: u8) -> Key<'static> {
        let mut parts = Vec::new();
        self.collect_parts(ipv6_bits, &mut parts);
        Key::of(parts)
    }

    fn collect_parts<'k>(&'k self, ipv6_bits: u8, parts: &mut Vec<KeyPart<'k>>) {
        match self {
            Value::Bytes(bytes) => parts.push(KeyPart::from(&**bytes)),
            Value::Number(number) => parts.push(KeyPart::from(*number)),
            Value::Address(address) => parts.push(KeyPart::from(network_of(*address, ipv6_bits))),
            Value::All(values) => values.iter().for_each(|value| value.collect_parts(ipv6_bits, parts)),
        }
    }

    /// The attribute that this is; several values make none.
    pub(crate) fn to_attribute(&self) -> Option<KeyPart<'_>> {
        match self {
            Value::Bytes(bytes) => Some(KeyPart::from(&**bytes)),
            Value::Number(number) => Some(KeyPart::from(*number)),
            Value::Address(address) => Some(KeyPart::from(*address)),
            Value::All(_) => None,
        }
    }
}

/// Room for the text of an IPv4 address, and for what is written past its end.
#[derive(Default)]
pub(crate) struct Text([u8; 16]);

impl Text {
    /// The same text as the address prints, in a tenth of the time.
    #[inline]
    fn write(&mut self, octets: [u8; 4]) -> &[u8] {
        let Text(text) = self;
        let mut end = 0;
        for octet in octets {
            let Decimal { text: digits, length } = &DECIMALS[usize::from(octet)];
            text[end..end + 4].copy_from_slice(digits);
            end += usize::from(*length);
        }
        // Without the last point.
        &text[..end - 1]
    }
}

/// A number, as it stands in an address, and a point after it.
struct Decimal {
    text: [u8; 4],
    length: u8,
}

static DECIMALS: [Decimal; 256] = {
    let mut decimals = [const { Decimal { text: [0; 4], length: 0 } }; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [b'0' + (octet / 100) as u8, b'0' + (octet / 10 % 10) as u8, b'0' + (octet % 10) as u8];
        decimals[octet] = match octet {
            0..10 => Decimal { text: [digits[2], b'.', 0, 0], length: 2 },
            10..100 => Decimal { text: [digits[1], digits[2], b'.', 0], length: 3 },
            _ => Decimal { text: [digits[0], digits[1], digits[2], b'.'], length: 4 },
        };
        octet += 1;
    }
    decimals
};

fn network_of(address: IpAddr, ipv6_bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

impl<'r> From<&'r str> for Value<'r> {
    fn from(text: &'r str) -> Value<'r> {
        Value::Bytes(text.as_bytes().into())
    }
}
impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Bytes(text.into_bytes().into())
    }
}
impl<'r> From<&'r String> for Value<'r> {
    fn from(text: &'r String) -> Value<'r> {
        Value::Bytes(text.as_bytes().into())
    }
}
impl<'r> From<&'r [u8]> for Value<'r> {
    fn from(bytes: &'r [u8]) -> Value<'r> {
        Value::Bytes(bytes.into())
    }
}
impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}
impl From<IpAddr> for Value<'_> {
    fn from(address: IpAddr) -> Self {
        Value::Address(address.to_canonical())
    }
}
impl From<Ipv4Addr> for Value<'_> {
    fn from(address: Ipv4Addr) -> Self {
        Value::Address(address.into())
    }
}
impl From<Ipv6Addr> for Value<'_> {
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::from(address).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &Value<'_>, ipv6_bits: u8) -> Key<'static> {
        value.to_key(ipv6_bits, &mut Text::default()).into_owned()
    }

    #[test]
    fn an_address_of_ipv6_is_its_network_in_a_key_and_itself_as_an_attribute() {
        let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().expect("an address");
        let value = Value::from(address);
        assert_eq!(key(&value, 64), Key::from("2001:db8:1:2::"));
        assert_eq!(key(&value, 56), Key::from("2001:db8:1::"));
        assert_eq!(key(&value, 0), Key::from("::"));
        assert_eq!(value.to_attribute(), Some(KeyPart::from(address)));
        assert_eq!(
            key(&Value::from("::ffff:192.0.2.1".parse::<IpAddr>().expect("an address")), 64),
            Key::from("192.0.2.1")
        );
    }

    #[test]
    fn ipv4_mapped_addresses_share_the_ipv4_key() {
        let mapped = Value::Address("::ffff:192.0.2.1".parse().expect("an address"));
        assert_eq!(key(&mapped, 64), Key::from("192.0.2.1"), "and not the network of all of them");
        assert_eq!(key(&Value::All(vec![mapped]), 64), Key::from(("192.0.2.1",)));
    }

    #[test]
    fn an_address_of_ipv4_is_the_key_that_the_library_makes_of_it() {
        for octet in 0..=255 {
            for octets in [[octet, 0, 1, 2], [9, octet, 10, 255], [99, 100, octet, 0], [255, 255, 255, octet]] {
                assert_eq!(key(&Value::from(Ipv4Addr::from(octets)), 64), Key::from(Ipv4Addr::from(octets)));
            }
        }
    }

    #[test]
    fn several_values_are_a_key_of_as_many_parts() {
        let both = Value::All(vec!["a:b".into(), Value::All(vec![7_u64.into(), "c".into()])]);
        assert_eq!(key(&both, 64), Key::from(("a:b", 7_u64, "c")));
        assert_eq!(key(&both.clone().into_owned(), 64), key(&both, 64));
        assert_ne!(key(&both, 64), key(&Value::All(vec!["a".into(), "b:7".into(), "c".into()]), 64));
    }
}
