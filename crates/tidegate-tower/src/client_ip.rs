//! The client's address, so that no client can claim another's.
//!
//! The peer of the connection is known for sure. Addresses before it come from
//! headers, which are believed as far as the proxies that wrote them are
//! trusted: a number of proxies, or the networks that they are in.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderValue};
use tidegate::Network;

use crate::forwarded::ForwardingHeader;

/// Whose address a client's is: the peer's, unless there are proxies.
///
/// ```
/// use tidegate_tower::{ClientIp, ForwardingHeader};
///
/// let direct = ClientIp::peer();
/// let behind_a_load_balancer = ClientIp::behind(1);
/// let behind_cloudflare = ClientIp::behind_any_of(["173.245.48.0/20".parse()?, "2400:cb00::/32".parse()?])
///     .header(ForwardingHeader::CfConnectingIp);
/// # let _ = (direct, behind_a_load_balancer, behind_cloudflare);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
///
/// | | the client is | no address if |
/// |---|---|---|
/// | [`peer`](ClientIp::peer) | the peer | the service does not know the peer |
/// | [`behind(n)`](ClientIp::behind) | the `n`th entry from the right | there are fewer entries, or the proxy hid it |
/// | [`behind_any_of`](ClientIp::behind_any_of) | the peer if it is no proxy; else the first from the right that is none; else the leftmost | there is no entry, or a proxy hid it |
///
/// What happens without an address is up to [`Keyless`](crate::Keyless).
#[derive(Clone, Default)]
pub struct ClientIp {
    trust: Trust,
    header: ForwardingHeader,
    peer: Option<PeerFn>,
}

/// What lets the layer know the peer's address.
pub(crate) const TELL_PEER: &str = "serve an axum app with into_make_service_with_connect_info::<SocketAddr>(); any other \
     server puts the peer's SocketAddr into the request's extensions";

type PeerFn = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

#[derive(Clone, Debug, Default)]
enum Trust {
    #[default]
    NoProxy,
    Hops(usize),
    Networks(Arc<[Network]>),
}

impl ClientIp {
    /// The peer of the connection; no header is ever looked at.
    #[must_use]
    pub fn peer() -> ClientIp {
        ClientIp::default()
    }

    /// The client of so many proxies, one behind the other, through all of
    /// which every request comes: each of them adds to `X-Forwarded-For`, or
    /// to [another header](ClientIp::header). None is the same as
    /// [`peer`](ClientIp::peer).
    ///
    /// A client that can reach the server past the proxies can claim any address:
    /// where that is possible, name the proxies'
    /// [networks](ClientIp::behind_any_of).
    #[must_use]
    pub fn behind(proxies: usize) -> ClientIp {
        let trust = if proxies == 0 { Trust::NoProxy } else { Trust::Hops(proxies) };
        ClientIp { trust, ..ClientIp::default() }
    }

    /// The client of proxies that are in these networks.
    #[must_use]
    pub fn behind_any_of(networks: impl IntoIterator<Item = Network>) -> ClientIp {
        ClientIp { trust: Trust::Networks(networks.into_iter().collect()), ..ClientIp::default() }
    }

    /// The header that the proxies write, and that no other may be trusted in.
    #[must_use]
    pub fn header(mut self, header: ForwardingHeader) -> ClientIp {
        self.header = header;
        self
    }

    /// Where the peer's address is, if not in one of the usual extensions of a
    /// request: axum's `ConnectInfo<SocketAddr>` or its mock, tonic's
    /// `TcpConnectInfo`, a `SocketAddr` or an `IpAddr`.
    #[must_use]
    pub fn peer_from(mut self, peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> ClientIp {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// The client's address, if there is one to be relied on.
    #[inline]
    #[must_use]
    pub fn of(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        match &self.trust {
            Trust::NoProxy => self.peer_of(extensions),
            Trust::Hops(_) | Trust::Networks(_) => {
                let lines = headers.get_all(self.header.name()).into_iter().map(HeaderValue::as_bytes);
                self.of_lines(self.peer_of(extensions), lines)
            }
        }
    }

    /// The same for servers that read requests by other means: from the peer's address, and the lines of the
    /// [header](ClientIp::header) in the order in which they came.
    ///
    /// ```
    /// use tidegate_tower::ClientIp;
    ///
    /// let behind = ClientIp::behind_any_of(["10.0.0.0/8".parse()?]);
    /// let lines = ["6.6.6.6, 192.0.2.1", "10.0.0.7"].map(str::as_bytes);
    /// assert_eq!(behind.of_lines(Some([10, 0, 0, 9].into()), lines.into_iter()), Some([192, 0, 2, 1].into()));
    /// assert_eq!(behind.of_lines(Some([203, 0, 113, 5].into()), lines.into_iter()), Some([203, 0, 113, 5].into()));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn of_lines<'h>(
        &self,
        peer: Option<IpAddr>,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    ) -> Option<IpAddr> {
        let mut entries = self.header.read_from_right(lines);
        match &self.trust {
            Trust::NoProxy => peer.map(|peer| peer.to_canonical()),
            // A header that each proxy writes anew has one entry, however many they are.
            Trust::Hops(_) if self.header.is_single() => entries.next()?,
            Trust::Hops(hops) => entries.nth(hops - 1)?,
            Trust::Networks(_) => {
                let peer = peer?.to_canonical();
                if !self.trusts(peer) {
                    return Some(peer);
                }
                let mut furthest = None;
                for entry in entries {
                    let address = entry?;
                    furthest = Some(address);
                    if !self.trusts(address) || self.header.is_single() {
                        break;
                    }
                }
                furthest
            }
        }
    }

    /// Whether forwarding headers from this peer are believed: always behind a number of proxies, never behind none.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trust {
            Trust::NoProxy => false,
            Trust::Hops(_) => true,
            Trust::Networks(networks) => networks.iter().any(|network| network.contains(peer)),
        }
    }

    #[inline]
    fn peer_of(&self, extensions: &Extensions) -> Option<IpAddr> {
        let address = match &self.peer {
            Some(peer) => peer(extensions)?,
            None => usual_peer(extensions)?,
        };
        Some(address.to_canonical())
    }
}

#[inline]
fn usual_peer(extensions: &Extensions) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(peer.ip());
        }
        if let Some(MockConnectInfo(peer)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(peer.ip());
        }
    }
    #[cfg(feature = "tonic")]
    if let Some(info) = extensions.get::<tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr().map(|peer| peer.ip());
    }
    extensions.get::<SocketAddr>().map(SocketAddr::ip).or_else(|| extensions.get().copied())
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientIp { trust, header, peer: _ } = self;
        f.debug_struct("ClientIp").field("trust", trust).field("header", header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.9";

    fn client(client_ip: &ClientIp, peer: &str, lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(*name, HeaderValue::from_str(line).expect("a header value"));
        }
        let mut extensions = Extensions::new();
        extensions.insert(SocketAddr::new(peer.parse().expect("an address"), 4711));
        client_ip.of(&headers, &extensions).map_or("-".into(), |address| address.to_string())
    }

    fn networks() -> ClientIp {
        ClientIp::behind_any_of(["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a network")))
    }

    #[test]
    fn without_proxies_no_header_is_looked_at() {
        let lines = [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("x-real-ip", "192.0.2.1"),
            ("cf-connecting-ip", "192.0.2.1"),
        ];
        for peer in [ClientIp::peer(), ClientIp::behind(0)] {
            assert_eq!(client(&peer, "203.0.113.5", &lines), "203.0.113.5");
            assert_eq!(client(&peer, "::ffff:203.0.113.5", &lines), "203.0.113.5");
        }
        assert_eq!(client(&networks(), "203.0.113.5", &lines), "203.0.113.5", "a peer that is no proxy");
    }

    #[test]
    fn trusted_proxies_are_counted_from_the_right() {
        let line = [("x-forwarded-for", "1.1.1.1, 192.0.2.1, 10.0.0.1")];
        for (hops, address) in [(1, "10.0.0.1"), (2, "192.0.2.1"), (3, "1.1.1.1"), (4, "-")] {
            assert_eq!(client(&ClientIp::behind(hops), PROXY, &line), address);
        }
        assert_eq!(client(&ClientIp::behind(1), PROXY, &[]), "-");
        assert_eq!(client(&ClientIp::behind(1), PROXY, &[("x-forwarded-for", "192.0.2.1, unknown")]), "-");
        let two_lines = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(client(&ClientIp::behind(1), PROXY, &two_lines), "192.0.2.1");
    }

    #[test]
    fn the_first_that_is_no_proxy_is_the_client() {
        for (line, address) in [
            ("192.0.2.1", "192.0.2.1"),
            ("1.1.1.1, 192.0.2.1", "192.0.2.1"),
            ("1.1.1.1, 192.0.2.1, 10.0.0.1, fd00::1", "192.0.2.1"),
            ("10.9.9.9, 192.0.2.1", "192.0.2.1"),
            ("10.0.0.7, 10.0.0.8", "10.0.0.7"),
            ("192.0.2.1, _hidden", "-"),
            ("192.0.2.1, unknown, 10.0.0.8", "-"),
            ("garbage, 192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(client(&networks(), PROXY, &[("x-forwarded-for", line)]), address, "{line}");
        }
        assert_eq!(client(&networks(), PROXY, &[]), "-", "a proxy that says nothing is not the client");
    }

    #[test]
    fn only_the_chosen_header_counts() {
        let lines = [
            ("x-forwarded-for", "1.1.1.1"),
            ("forwarded", "for=\"[2001:db8::1]:99\""),
            ("x-real-ip", "3.3.3.3"),
            ("cf-connecting-ip", "4.4.4.4"),
        ];
        for (header, address) in [
            (ForwardingHeader::XForwardedFor, "1.1.1.1"),
            (ForwardingHeader::Forwarded, "2001:db8::1"),
            (ForwardingHeader::XRealIp, "3.3.3.3"),
            (ForwardingHeader::CfConnectingIp, "4.4.4.4"),
        ] {
            for behind in [ClientIp::behind(1), networks()] {
                assert_eq!(client(&behind.header(header), PROXY, &lines), address);
            }
            assert_eq!(client(&networks().header(header), "203.0.113.5", &lines), "203.0.113.5");
        }
        let forged_first = [("x-real-ip", "6.6.6.6"), ("x-real-ip", "192.0.2.1")];
        assert_eq!(client(&networks().header(ForwardingHeader::XRealIp), PROXY, &forged_first), "192.0.2.1");
        let twice = ClientIp::behind(2).header(ForwardingHeader::XRealIp);
        assert_eq!(client(&twice, PROXY, &forged_first), "192.0.2.1", "one header, however many proxies");
    }

    #[test]
    fn the_peer_can_be_anywhere() {
        let told = ClientIp::peer().peer_from(|extensions| extensions.get::<String>()?.parse().ok());
        let mut extensions = Extensions::new();
        assert_eq!(told.of(&HeaderMap::new(), &extensions), None);
        extensions.insert(String::from("192.0.2.1"));
        assert_eq!(told.of(&HeaderMap::new(), &extensions), Some([192, 0, 2, 1].into()));
        assert_eq!(ClientIp::peer().of(&HeaderMap::new(), &extensions), None);
        extensions.insert(IpAddr::from([192, 0, 2, 2]));
        assert_eq!(ClientIp::peer().of(&HeaderMap::new(), &extensions), Some([192, 0, 2, 2].into()));
    }
}
