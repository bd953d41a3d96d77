//! `tidegate check` and `tidegate ready`: one question from a shell.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate::{CheckError, ConfigError, Limit, Limiter, Meter, Request};
use tidegate_redis::{ConnectError, RedisStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::complain;
use crate::inline::INLINE_RULE;
use crate::listen::Address;

/// How long to wait for a server's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer of a server that is read.
const LONGEST_ANSWER: usize = 1 << 16;

const REFUSED: u8 = 1;

#[derive(Args)]
pub(super) struct Arguments {
    /// Who asks
    key: String,
    /// The limit, in words such as "100/min burst 20"; without it, the server's policy applies
    #[arg(long)]
    limit: Option<Limit>,
    /// What it costs
    #[arg(long, default_value_t = 1)]
    cost: u64,
    /// The server to ask: host:port or unix:/path, without TLS
    #[arg(long, env = "TIDEGATE_SERVER", value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    server: Address,
    /// Ask this store instead of a server: a URL such as redis://127.0.0.1
    #[arg(long, value_name = "URL", requires = "limit")]
    store: Option<String>,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    #[error("cannot reach a server at {address}: start one by `tidegate serve`")]
    Unreachable { address: Address, source: io::Error },
    #[error("the server did not answer in time")]
    TooLate,
    #[error("the server did not answer")]
    Http(#[from] hyper::Error),
    #[error("the server's answer cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{detail}")]
    Problem { detail: String },
    #[error(transparent)]
    Store(#[from] ConnectError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// What was decided, whoever did.
struct Answer {
    allowed: bool,
    remaining: Option<u64>,
    retry_after: Option<Duration>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime.map_err(Failure::Runtime).and_then(|runtime| runtime.block_on(ask(arguments)));
    match answer {
        Err(failure) => complain(&failure),
        Ok(Answer { allowed: true, remaining, .. }) => {
            println!("allowed, {} left", remaining.map_or("any number".into(), |number| number.to_string()));
            ExitCode::SUCCESS
        }
        Ok(Answer { retry_after, .. }) => {
            match retry_after {
                Some(time) => println!("refused, retry after {time:?}"),
                None => println!("refused for good"),
            }
            ExitCode::from(REFUSED)
        }
    }
}

/// Whether a server is ready: for those who watch over containers.
pub(super) fn ready(server: &Address) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime
        .map_err(Failure::Runtime)
        .and_then(|runtime| runtime.block_on(exchange(server, request(Method::GET, "/readyz", String::new()))));
    match answer {
        Err(failure) => complain(&failure),
        Ok((status, body)) => {
            print!("{}", String::from_utf8_lossy(&body));
            if status.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

async fn ask(arguments: &Arguments) -> Result<Answer, Failure> {
    match (&arguments.store, arguments.limit) {
        (Some(url), Some(limit)) => ask_store(arguments, url, limit).await,
        (None, _) | (Some(_), None) => ask_server(arguments).await,
    }
}

async fn ask_store(arguments: &Arguments, url: &str, limit: Limit) -> Result<Answer, Failure> {
    let store = RedisStore::connect(url).await?;
    let limiter = Limiter::with_store(Meter::new(INLINE_RULE, limit), store)?;
    let decision = limiter.check_async(Request::new(arguments.key.as_str()).cost(arguments.cost)).await?;
    let (remaining, retry_after) = (Some(decision.remaining()), Some(decision.retry_after()));
    Ok(Answer { allowed: decision.is_allowed(), remaining, retry_after })
}

async fn ask_server(arguments: &Arguments) -> Result<Answer, Failure> {
    let Arguments { key, limit, cost, server, .. } = arguments;
    let question = json!({ "key": key, "cost": cost, "limit": limit.map(|limit| limit.to_string()) });
    let request = request(Method::POST, "/v1/check", question.to_string());
    let (_, body) = exchange(server, request).await?;
    let answer: Value = serde_json::from_slice(&body).map_err(|error| Failure::Unreadable(error.into()))?;
    match answer["allowed"].as_bool() {
        Some(allowed) => Ok(Answer {
            allowed,
            remaining: answer["remaining"].as_u64(),
            retry_after: answer["retry_after_us"].as_u64().map(Duration::from_micros),
        }),
        None => {
            let detail = answer["detail"].as_str().unwrap_or("the server's answer is none of tidegate's").to_owned();
            Err(Failure::Problem { detail })
        }
    }
}

fn request(method: Method, path: &'static str, body: String) -> http::Request<Full<Bytes>> {
    let mut request = http::Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = http::Uri::from_static(path);
    request.headers_mut().insert(HOST, http::HeaderValue::from_static("tidegate"));
    request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    request
}

/// One request and its answer, in time.
async fn exchange(address: &Address, request: http::Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Failure> {
    let unreachable = |source| Failure::Unreachable { address: address.clone(), source };
    let exchange = async {
        match address {
            Address::Tcp(text) => send(TcpStream::connect(text).await.map_err(unreachable)?, request).await,
            Address::Unix(path) => send(UnixStream::connect(path).await.map_err(unreachable)?, request).await,
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| Failure::TooLate)?
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Failure> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the process; what goes wrong shows in the answer.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await.map_err(Failure::Unreadable)?;
    Ok((status, body.to_bytes()))
}
