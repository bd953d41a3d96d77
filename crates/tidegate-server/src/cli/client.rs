//! A client of a server, for commands that ask one.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::run::tls::{self, TlsError};
use crate::settings::Secret;
use crate::settings::address::{Address, AddressError};

/// How long to wait for a server's answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer of a server that is read.
const MAX_ANSWER: usize = 64 << 20;

/// Which server to ask, and with which token.
#[derive(Args, Clone, Debug)]
pub(super) struct Target {
    /// The server: host:port, https://host:port or unix:/path
    #[arg(long, env = "TIDEGATE_SERVER", value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(super) server: ServerAddress,
    /// The token, if the server asks for one
    #[arg(long, alias = "admin-token", env = "TIDEGATE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) token: Option<Secret>,
    /// The authorities that may sign the certificate of an https:// server, in PEM format; the system's unless set
    #[arg(long, env = "TIDEGATE_SERVER_TLS_CA", value_name = "FILE")]
    server_tls_ca: Option<PathBuf>,
}

/// Where a server is, and whether it speaks TLS there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    address: Address,
    tls: bool,
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<ServerAddress, AddressError> {
        let (tls, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let rest = if rest.len() < text.len() { rest.trim_end_matches('/') } else { rest };
        let has_port = rest.parse::<Address>().is_ok();
        let port = if tls { ":443" } else { ":80" };
        let rest = if has_port || rest.len() == text.len() { rest.to_owned() } else { format!("{rest}{port}") };
        Ok(ServerAddress { address: rest.parse()?, tls })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tls { "https://" } else { "" }, self.address)
    }
}

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("cannot reach a server at {server}: start one by `tidegate serve`, or name another by --server")]
    Unreachable { server: ServerAddress, source: io::Error },
    #[error("no TLS with {server}: check the certificate of the server, and --server-tls-ca")]
    Handshake { server: ServerAddress, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the token cannot stand in a header: give the one that `tidegate token` printed")]
    Token,
    #[error("the server did not answer in time")]
    TooLate,
    #[error("the server did not answer")]
    Http(#[source] hyper::Error),
    #[error("what answers there is no HTTP: if it is TLS, write --server https://HOST:PORT")]
    NoHttp(#[source] hyper::Error),
    #[error("the server's answer cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<hyper::Error> for NoAnswer {
    fn from(error: hyper::Error) -> NoAnswer {
        if error.is_parse() { NoAnswer::NoHttp(error) } else { NoAnswer::Http(error) }
    }
}

impl Target {
    /// One request with a body of JSON, and its answer, in time.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &'static str,
        body: String,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = http::Uri::from_static(path);
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(self.host()).unwrap_or(HeaderValue::from_static("localhost")));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            let token = HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| NoAnswer::Token)?;
            headers.insert(AUTHORIZATION, token);
        }
        tokio::time::timeout(TIMEOUT, self.exchange(request)).await.map_err(|_| NoAnswer::TooLate)?
    }

    /// The name by which a server with TLS is asked for; without TLS, one that every server takes.
    fn host(&self) -> String {
        match (&self.server.address, self.server.tls) {
            (Address::Tcp(text), true) => text.clone(),
            (Address::Tcp(_) | Address::Unix(_), _) => "localhost".to_owned(),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), NoAnswer> {
        let server = || self.server.clone();
        let unreachable = |source| NoAnswer::Unreachable { server: server(), source };
        match &self.server.address {
            Address::Unix(path) => send(UnixStream::connect(path).await.map_err(unreachable)?, request).await,
            Address::Tcp(text) => {
                let stream = TcpStream::connect(text).await.map_err(unreachable)?;
                if !self.server.tls {
                    return send(stream, request).await;
                }
                let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host).trim_matches(['[', ']']);
                let handshake = |source| NoAnswer::Handshake { server: server(), source };
                let name = ServerName::try_from(host.to_owned()).map_err(|error| handshake(io::Error::other(error)))?;
                let connector = tls::connector(self.server_tls_ca.as_deref())?;
                send(connector.connect(name, stream).await.map_err(handshake)?, request).await
            }
        }
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the process; what goes wrong shows in the answer.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(NoAnswer::Unreadable)?;
    Ok((status, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_address_or_url() {
        for (text, expected) in [
            ("127.0.0.1:7400", Some("127.0.0.1:7400")),
            ("http://localhost:7400/", Some("localhost:7400")),
            ("http://localhost", Some("localhost:80")),
            ("https://limits.example.com", Some("https://limits.example.com:443")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("unix:/run/tidegate.sock", Some("unix:/run/tidegate.sock")),
            ("localhost", None),
            ("https://", None),
        ] {
            let address = text.parse::<ServerAddress>().ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
    }
}
