//! Where events are sent, and where they may not be.
//!
//! The address is looked up for every attempt, checked, and connected to: a name cannot mean
//! another one in between. Redirects are not followed, and answers are not read.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::warn;

use crate::run::tls::{self, TlsError};

/// How long an attempt may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a URL cannot be called.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is not a URL of a webhook.
    #[error("--webhook {url:?} is not a URL that can be called: write https://host/path, without a user or a password")]
    Url {
        /// What was given, without a password.
        url: String,
    },
    /// It names an address that is not public.
    #[error(
        "--webhook may not call {address}, which is not a public address: give another URL, or start with \
         --webhook-allow-private"
    )]
    NotPublic {
        /// The address.
        address: IpAddr,
    },
    /// There is no TLS to call it by.
    #[error("--webhook cannot call https")]
    Tls(#[from] TlsError),
}

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    Delivered,
    /// The receiver wants no more events.
    Gone,
    Failed {
        reason: String,
    },
}

pub(super) struct Target {
    host: String,
    port: u16,
    path: Uri,
    authority: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    allows_private: bool,
}

impl Target {
    /// The receiver that a URL names, if it may be called.
    pub(super) async fn open(url: &str, allows_private: bool) -> Result<Target, TargetError> {
        let target = Target::parse(url, allows_private)?;
        match target.addresses().await {
            Ok(_) => {}
            Err(Refused::NotPublic(address)) => return Err(TargetError::NotPublic { address }),
            // It is looked up again for each attempt.
            Err(Refused::Unknown(error)) => {
                warn!(%error, host = target.host, "the host of the webhook is not known yet");
            }
        }
        Ok(target)
    }

    fn parse(url: &str, allows_private: bool) -> Result<Target, TargetError> {
        let shown = url.rsplit('@').next().unwrap_or_default();
        let wrong = || TargetError::Url { url: shown.into() };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let usual = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err(wrong()),
        };
        let tls = match usual {
            443 => Some((tls::connector(None)?, ServerName::try_from(host.clone()).map_err(|_| wrong())?)),
            _ => None,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(|_| wrong())?;
        let (port, authority) = (authority.port_u16().unwrap_or(usual), authority.as_str());
        let authority = HeaderValue::try_from(authority).map_err(|_| wrong())?;
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Target { host, port, path, authority, tls, allows_private })
    }

    /// The addresses of the host, if all of them may be called.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, Refused> {
        let found = lookup_host((self.host.as_str(), self.port)).await.map_err(Refused::Unknown)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let private = addresses.iter().map(SocketAddr::ip).find(|address| !is_public(*address));
        match private.filter(|_| !self.allows_private) {
            Some(address) => Err(Refused::NotPublic(address)),
            None if addresses.is_empty() => Err(Refused::Unknown(io::ErrorKind::NotFound.into())),
            None => Ok(addresses),
        }
    }

    /// One attempt.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> Attempt {
        *request.uri_mut() = self.path.clone();
        request.headers_mut().insert(HOST, self.authority.clone());
        let status = match timeout(TIMEOUT, self.status(request)).await {
            Ok(Ok(status)) => status,
            Ok(Err(reason)) => return Attempt::Failed { reason },
            Err(_) => return Attempt::Failed { reason: "no answer in time".into() },
        };
        match status {
            StatusCode::GONE => Attempt::Gone,
            status if status.is_success() => Attempt::Delivered,
            status => Attempt::Failed { reason: status.to_string() },
        }
    }

    async fn status(&self, request: Request<Full<Bytes>>) -> Result<StatusCode, String> {
        let addresses = self.addresses().await.map_err(|refused| match refused {
            Refused::NotPublic(address) => format!("{address} is not a public address"),
            Refused::Unknown(error) => error.to_string(),
        })?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
                exchange(stream, request).await
            }
        }
    }
}

enum Refused {
    NotPublic(IpAddr),
    Unknown(io::Error),
}

/// Sends a request, and takes nothing of the answer but its status.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut response = pin!(sender.send_request(request));
    let answered = tokio::select! {
        biased;
        answered = &mut response => answered,
        // The receiver may close the connection with its answer.
        _ = connection => response.await,
    };
    answered.map(|response| response.status()).map_err(|error| error.to_string())
}

/// Whether an address can only be that of a host on the internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && b & 0xc0 == 64;
    let is_special = a == 0 || a >= 224 || (a, b, c) == (192, 0, 0) || (a == 198 && b & 0xfe == 18);
    let is_near = address.is_loopback() || address.is_private() || address.is_link_local();
    !(is_near || is_shared || is_special || address.is_documentation())
}

/// Only global unicast, without what has an IPv4 address in it and what is for documents.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    first & 0xe000 == 0x2000 && first != 0x2002 && (first, second) != (0x2001, 0) && (first, second) != (0x2001, 0xdb8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in ["8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "198.17.0.1", "2606:4700::1111"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        let private = [
            "127.0.0.1",
            "127.8.8.8",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "0.1.2.3",
            "192.0.0.8",
            "198.18.0.1",
            "198.19.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "203.0.113.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001:0:a00:1::1",
            "2001:db8::1",
        ];
        for private in private {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[tokio::test]
    async fn a_url_that_may_not_be_called_is_refused() {
        let open = async |url: &'static str, allows| Target::open(url, allows).await.map(drop);
        for wrong in ["", "nothing", "ftp://example.com/", "https://user:s3cret@example.com/", "http:///path", "/path"]
        {
            let error = open(wrong, true).await.unwrap_err();
            assert!(
                matches!(error, TargetError::Url { .. }) && !error.to_string().contains("s3cret"),
                "{wrong}: {error}"
            );
        }
        for private in ["http://127.0.0.1:9/a", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://localhost:1/"] {
            assert!(matches!(open(private, false).await, Err(TargetError::NotPublic { .. })), "{private}");
            assert!(open(private, true).await.is_ok(), "{private}");
        }
        let target = Target::parse("http://example.com:81/a?b=c", false).unwrap();
        let seen = (target.host.as_str(), target.port, target.path.to_string(), target.authority.to_str().unwrap());
        assert_eq!(seen, ("example.com", 81, "/a?b=c".to_owned(), "example.com:81"));
    }
}
