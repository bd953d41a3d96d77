//! The other end of a connection: its address, and the names in its certificate.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

#[cfg(feature = "certificates")]
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client at this address.
    Tcp(SocketAddr),
    /// A process of this machine.
    Unix,
}

impl Peer {
    /// The address that its connections, its work and its wrong credentials count against. A
    /// network of IPv6 is given out whole, so it counts as one; a process of this machine has none.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        self.ip().map(network_of)
    }

    /// Its own address.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(peer) => Some(peer.ip()),
            Peer::Unix => None,
        }
    }

    /// The peer that sent a request, as its connection has noted it.
    pub(crate) fn of(extensions: &http::Extensions) -> Peer {
        extensions.get::<Link>().map_or(Peer::Unix, |link| link.peer)
    }
}

/// What an address counts as: an address of IPv4, or the first 64 bits of one of IPv6.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

/// What is known of a client before it says anything.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    /// The certificate that the client has shown, and that was verified.
    pub(crate) certificate: Option<Arc<Certificate>>,
}

impl Link {
    pub(crate) fn new(peer: Peer) -> Link {
        Link { peer, certificate: None }
    }

    /// Of a request, as its connection has noted it.
    pub(crate) fn of(extensions: &http::Extensions) -> Link {
        extensions.get::<Link>().cloned().unwrap_or_else(|| Link::new(Peer::Unix))
    }
}

/// The names in a client's certificate.
#[derive(Debug)]
pub(crate) struct Certificate {
    names: Vec<String>,
}

impl Certificate {
    /// Reads the names of a certificate that was verified.
    #[cfg(feature = "certificates")]
    pub(crate) fn read(der: &[u8]) -> Certificate {
        let mut names = Vec::new();
        if let Ok((_, certificate)) = X509Certificate::from_der(der) {
            let alternative = certificate.subject_alternative_name().ok().flatten();
            for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
                match name {
                    GeneralName::URI(uri) => names.push(format!("uri:{uri}")),
                    GeneralName::DNSName(host) => names.push(format!("dns:{host}")),
                    _ => {}
                }
            }
            let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.extend(common.map(|name| format!("cn:{name}")));
        }
        Certificate { names }
    }

    /// Without the feature no client is asked for a certificate.
    #[cfg(not(feature = "certificates"))]
    pub(crate) fn read(_der: &[u8]) -> Certificate {
        Certificate { names: Vec::new() }
    }

    /// Such as `uri:spiffe://corp/gateway`, `dns:gateway.corp`, `cn:gateway`.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_ipv4_or_a_network_of_ipv6() {
        let address = |text: &str| Peer::Tcp(text.parse().unwrap()).address().unwrap().to_string();
        assert_eq!(address("192.0.2.1:7"), "192.0.2.1");
        assert_eq!(address("[::ffff:192.0.2.1]:7"), "192.0.2.1");
        assert_eq!(address("[2001:db8:1:2:3:4:5:6]:7"), "2001:db8:1:2::");
        assert_eq!(Peer::Unix.address(), None);
    }
}
