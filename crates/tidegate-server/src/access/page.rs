//! What a request of HTTP says of the page that may have sent it.
//!
//! An anonymous caller is permitted by nothing but its address, and a browser on
//! this machine has the same address. A page of another site can make it send
//! requests (`no-cors`), and by DNS rebinding its own name can lead to this server.
//! Neither gets past these three: the host, the origin, and a type of body that no
//! page can send to another origin without asking first.

use std::net::IpAddr;

use super::Denied;
use crate::settings::Settings;
use crate::settings::address::Address;

/// What a browser says of a request. A field that is there twice is empty, and so wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page<'a> {
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) fetch_site: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    /// Whether the method is one that brings a body: POST or PUT.
    pub(crate) writes: bool,
}

impl Page<'_> {
    /// # Errors
    /// If a page of another origin has sent it.
    pub(super) fn is_of_no_other_site(&self) -> Result<(), Denied> {
        let is_own_site = self.fetch_site.is_none_or(|site| matches!(site, b"same-origin" | b"none"));
        let is_own_origin = |origin: &[u8]| {
            let end = origin.windows(3).position(|bytes| bytes == b"://");
            let authority = end.map(|end| &origin[end + 3..]);
            authority.is_some_and(|authority| self.host.is_some_and(|host| host.eq_ignore_ascii_case(authority)))
        };
        let is_own = is_own_site && self.origin.is_none_or(is_own_origin);
        if is_own { Ok(()) } else { Err(Denied::CrossSite) }
    }

    /// # Errors
    /// If it is for another host, or of a type that pages can send unasked.
    pub(super) fn is_meant_for(&self, hosts: &Hosts) -> Result<(), Denied> {
        if !hosts.contain(self.host.unwrap_or_default()) {
            const MAX_SHOWN: usize = 100;
            let host = self.host.unwrap_or(b"a request without a Host");
            let host = String::from_utf8_lossy(&host[..host.len().min(MAX_SHOWN)]).into_owned();
            return Err(Denied::ForeignHost { host });
        }
        if self.writes && !self.content_type.is_some_and(is_never_sent_unasked) {
            return Err(Denied::ContentType);
        }
        Ok(())
    }
}

/// Whether a body is of a type that a browser asks for first (CORS) before it sends it elsewhere.
fn is_never_sent_unasked(kind: &[u8]) -> bool {
    const TYPES: [&[u8]; 6] = [
        b"application/json",
        b"application/toml",
        b"text/x-toml",
        b"application/yaml",
        b"application/x-yaml",
        b"text/yaml",
    ];
    let name = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    is_grpc(kind) || TYPES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a content type is that of gRPC.
pub(crate) fn is_grpc(kind: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    kind.get(..GRPC.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(GRPC))
        && !kind.get(GRPC.len()).is_some_and(u8::is_ascii_alphanumeric)
}

/// The hosts that requests may be for.
pub(super) struct Hosts {
    /// Whether all are.
    any: bool,
    /// Whether any address is: the server listens on all of its machine, and no name leads to an address
    /// that is written as one.
    any_address: bool,
    addresses: Vec<IpAddr>,
    names: Vec<Vec<u8>>,
}

impl Hosts {
    pub(super) fn of(settings: &Settings) -> Hosts {
        let listened =
            settings.http.iter().chain(&settings.grpc).chain(&settings.debug).filter_map(|address| match address {
                Address::Tcp(text) => Some(text.as_str()),
                Address::Unix(_) => None,
            });
        let known = listened.chain(settings.allowed_host.iter().map(String::as_str)).chain(["localhost"]);
        let (mut addresses, mut names) = (Vec::new(), Vec::new());
        for host in known.map(|host| without_port(host.as_bytes())) {
            match address(host) {
                Some(address) => addresses.push(address),
                None => names.push(host.to_vec()),
            }
        }
        Hosts {
            any: settings.insecure_no_auth && settings.allowed_host.is_empty(),
            any_address: addresses.iter().any(IpAddr::is_unspecified),
            addresses,
            names,
        }
    }

    fn contain(&self, host: &[u8]) -> bool {
        let host = without_port(host);
        self.any
            || match address(host) {
                Some(address) => self.any_address || address.is_loopback() || self.addresses.contains(&address),
                None => self.names.iter().any(|name| name.eq_ignore_ascii_case(host)),
            }
    }
}

/// The host of `host:port`, `[address]:port` or a host alone, without the dot at the end of a full name.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let host = match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if !host.ends_with(b"]") && host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    };
    host.strip_suffix(b".").unwrap_or(host)
}

fn address(host: &[u8]) -> Option<IpAddr> {
    let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    std::str::from_utf8(host).ok()?.parse().ok()
}
