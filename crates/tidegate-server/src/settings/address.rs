//! Addresses that a server listens on, and that commands connect to.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where to listen: `host:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host, by name or address, and a port; port 0 is one that is free.
    Tcp(String),
    /// The path of a socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(text) => {
                let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host);
                let host = host.trim_matches(['[', ']']);
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// Why a text is not an address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not an address: write host:port, such as 127.0.0.1:7400, or unix:/path")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError { text: text.into() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Address::Tcp(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(text) => f.pad(text),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for text in ["127.0.0.1:7400", "[::1]:0", "localhost:80", "unix:/run/tidegate.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "7400", ":7400", "localhost:http", "unix:", "a:70000"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_this_machine_reaches_loopback_and_unix_sockets() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(local("127.0.0.1:1") && local("127.9.9.9:1") && local("[::1]:1") && local("localhost:1"));
        assert!(local("unix:/tmp/x"));
        assert!(!local("0.0.0.0:1") && !local("[::]:1") && !local("192.0.2.1:1") && !local("example.com:1"));
    }
}
