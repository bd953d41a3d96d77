//! `tidegate check` and `tidegate ready`: one question from a shell.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tidegate::store::Meter;
use tidegate::{CheckError, ConfigError, Limit, Limiter, Request};
use tidegate_redis::{ConnectError, RedisStore, Servers};

use super::client::{NoAnswer, exchange, request, with_token};
use super::{NO, complain, say};
use crate::address::Address;
use crate::inline::INLINE_RULE;
use crate::settings::{STORE_DEADLINE_MS, Secret};

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
    /// The token to show to the server, if it asks for one
    #[arg(long, env = "TIDEGATE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<Secret>,
    /// Ask this store instead of a server: a URL such as redis://127.0.0.1
    #[arg(long, value_name = "URL", requires = "limit")]
    store: Option<String>,
    /// Milliseconds that the store may take for an answer
    #[arg(long, env = "TIDEGATE_STORE_DEADLINE_MS", value_name = "MS", default_value_t = STORE_DEADLINE_MS)]
    store_deadline_ms: u64,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("the token cannot stand in a header: give the one that `tidegate token` printed")]
    Token,
    #[error("{detail}")]
    Problem { detail: String },
    #[error("{server} is not a tidegate server: it answers GET /readyz by {status}")]
    NotTidegate { server: Address, status: StatusCode },
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
            say(&format!("allowed, {} left", remaining.map_or("any number".into(), |number| number.to_string())));
            ExitCode::SUCCESS
        }
        Ok(Answer { retry_after, .. }) => {
            match retry_after {
                Some(time) => say(&format!("refused, retry after {time:?}")),
                None => say("refused for good"),
            }
            ExitCode::from(NO)
        }
    }
}

/// Whether a server is ready: for the health checks of containers.
pub(super) fn ready(server: &Address) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime
        .map_err(Failure::Runtime)
        .and_then(|runtime| Ok(runtime.block_on(exchange(server, request(Method::GET, "/readyz", String::new())))?));
    match answer {
        Err(failure) => complain(&failure),
        Ok((status @ (StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE), body)) => {
            say(String::from_utf8_lossy(&body).trim_end());
            if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(NO) }
        }
        Ok((status, _)) => complain(&Failure::NotTidegate { server: server.clone(), status }),
    }
}

async fn ask(arguments: &Arguments) -> Result<Answer, Failure> {
    match (&arguments.store, arguments.limit) {
        (Some(url), Some(limit)) => ask_store(arguments, url, limit).await,
        (None, _) | (Some(_), None) => ask_server(arguments).await,
    }
}

async fn ask_store(arguments: &Arguments, url: &str, limit: Limit) -> Result<Answer, Failure> {
    let deadline = Duration::from_millis(arguments.store_deadline_ms);
    let store = RedisStore::builder(Servers::parse(url)?).deadline(deadline).build()?;
    let limiter = Limiter::with_store(Meter::new(INLINE_RULE, limit), store)?;
    let decision = limiter.check_async(Request::new(arguments.key.as_str()).cost(arguments.cost)).await?;
    Ok(Answer { allowed: decision.is_allowed(), remaining: decision.remaining(), retry_after: decision.retry_after() })
}

async fn ask_server(arguments: &Arguments) -> Result<Answer, Failure> {
    let Arguments { key, limit, cost, server, token, .. } = arguments;
    let question = json!({ "key": key, "cost": cost, "limit": limit.map(|limit| limit.to_string()) });
    let mut request = request(Method::POST, "/v1/check", question.to_string());
    if let Some(token) = token {
        let token = HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| Failure::Token)?;
        request = with_token(request, &token);
    }
    let (_, body) = exchange(server, request).await?;
    let answer: Value = serde_json::from_slice(&body).map_err(|error| NoAnswer::Unreadable(error.into()))?;
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
