//! A client of a server, for commands that ask one.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;

/// How long to wait for a server's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer of a server that is read.
const LONGEST_ANSWER: usize = 64 << 20;

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("cannot reach a server at {address}: start one by `tidegate serve`")]
    Unreachable { address: Address, source: io::Error },
    #[error("the server did not answer in time")]
    TooLate,
    #[error("the server did not answer")]
    Http(#[source] hyper::Error),
    #[error("what answers there is no HTTP: perhaps TLS, which this command does not speak")]
    NoHttp(#[source] hyper::Error),
    #[error("the server's answer cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<hyper::Error> for NoAnswer {
    fn from(error: hyper::Error) -> NoAnswer {
        if error.is_parse() { NoAnswer::NoHttp(error) } else { NoAnswer::Http(error) }
    }
}

pub(super) type Request = http::Request<Full<Bytes>>;

pub(super) fn request(method: Method, path: &'static str, body: String) -> Request {
    let mut request = http::Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = http::Uri::from_static(path);
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// The same request of somebody who knows the token.
pub(super) fn with_token(mut request: Request, token: &HeaderValue) -> Request {
    request.headers_mut().insert(AUTHORIZATION, token.clone());
    request
}

/// One request and its answer, in time.
pub(super) async fn exchange(address: &Address, request: Request) -> Result<(StatusCode, Bytes), NoAnswer> {
    let unreachable = |source| NoAnswer::Unreachable { address: address.clone(), source };
    let exchange = async {
        match address {
            Address::Tcp(text) => send(TcpStream::connect(text).await.map_err(unreachable)?, request).await,
            Address::Unix(path) => send(UnixStream::connect(path).await.map_err(unreachable)?, request).await,
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| NoAnswer::TooLate)?
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the process; what goes wrong shows in the answer.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await.map_err(NoAnswer::Unreadable)?;
    Ok((status, body.to_bytes()))
}
