//! An origin of the web, as browsers write it: a scheme, a host, and a port unless it is the usual one.

use std::fmt;
use std::str::FromStr;

/// Dashboards of other servers that one server lists.
pub(crate) const MAX_INSTANCES: usize = 64;

/// Where a server can be reached by a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    text: String,
    /// Bytes of the scheme and what is between it and the host.
    host: usize,
}

impl Origin {
    /// As in the header `Origin`.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// As in the header `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.text[self.host..]
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not an origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "{text:?} is not an origin: write http:// or https://, a host name or IPv4 address, a port if there is one, and \
     nothing after, such as https://limiter-b.example:7400"
)]
pub struct OriginError {
    text: String,
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Origin, OriginError> {
        parse(&text.to_ascii_lowercase()).ok_or_else(|| OriginError { text: text.into() })
    }
}

fn parse(text: &str) -> Option<Origin> {
    let (scheme, authority) = text.split_once("://")?;
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (name, port) = match authority.split_once(':') {
        None => (authority, None),
        Some((name, port)) => (name, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?)),
    };
    // It stands in the Content-Security-Policy of the page, which has no IPv6 addresses.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let port = port.filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
    Some(Origin { text: format!("{scheme}://{name}{port}"), host: scheme.len() + 3 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port_as_browsers_write_it() {
        for (given, expected) in [
            ("https://limiter-b.example:7400", "https://limiter-b.example:7400"),
            ("HTTPS://Limiter.Example:443", "https://limiter.example"),
            ("http://192.0.2.1:80", "http://192.0.2.1"),
            ("http://localhost:443", "http://localhost:443"),
        ] {
            assert_eq!(given.parse::<Origin>().ok().as_ref().map(Origin::as_str), Some(expected));
        }
        for wrong in [
            "",
            "*",
            "limiter.example",
            "ftp://limiter.example",
            "https://",
            "https://*.example",
            "https://limiter.example/",
            "https://limiter.example/admin",
            "https://limiter.example?a",
            "https://user@limiter.example",
            "https://limiter.example:",
            "https://limiter.example:0",
            "https://limiter.example:65536",
            "https://[::1]:7400",
            "https://a; script-src *",
            "https://a 'self'",
        ] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
    }
}
