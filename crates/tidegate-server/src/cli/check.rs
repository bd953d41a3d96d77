//! `tidegate check`, `tidegate explain` and `tidegate ready`: one request from a shell.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidegate::store::Meter;
use tidegate::{CheckError, ConfigError, Limit, Limiter};
use tidegate_redis::{ConnectError, RedisStore, Servers};

use super::asked::{Words, WordsError};
use super::client::{NoAnswer, ServerAddress, Target};
use super::{NO, NO_ANSWER, complain, say, warn};
use crate::ask::inline::INLINE_RULE;
use crate::ask::request_document::RequestDocument;
use crate::settings::STORE_DEADLINE_MS;

/// Asks whether a request is admitted, and charges it.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    words: Words,
    /// The limit of the key, such as "100/min burst 20"; without it, the server's policy applies
    #[arg(long)]
    limit: Option<Limit>,
    #[command(flatten)]
    target: Target,
    /// Ask this store instead of a server: a URL such as redis://127.0.0.1
    #[arg(long, value_name = "URL", requires = "limit")]
    store: Option<String>,
    /// Milliseconds that the store may take for an answer
    #[arg(long, env = "TIDEGATE_STORE_DEADLINE_MS", value_name = "MS", default_value_t = STORE_DEADLINE_MS)]
    store_deadline_ms: u64,
}

/// Asks what every rule says of a request, and charges nothing.
#[derive(Args)]
pub(super) struct ExplainArguments {
    #[command(flatten)]
    words: Words,
    /// Explain by this policy file, for keys that were never used; no server is asked
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Words(#[from] WordsError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("{detail}")]
    Problem { detail: String },
    #[error("{server} is not a tidegate server: it answers GET /readyz by {status}")]
    NotTidegate { server: ServerAddress, status: StatusCode },
    #[error("{0}")]
    Policy(Box<tidegate_config::Report>),
    #[error(transparent)]
    Store(#[from] ConnectError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// What was decided, by a server or by a store.
struct Answer {
    allowed: bool,
    remaining: Option<u64>,
    retry_after: Option<Duration>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match wait_for(ask(arguments)) {
        Err(failure) => complain(&failure),
        Ok(Answer { allowed: true, remaining, .. }) => {
            let remaining = remaining.map_or("any number".into(), |number| number.to_string());
            say(&format!("allowed, {remaining} left"));
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

pub(super) fn explain(arguments: &ExplainArguments) -> ExitCode {
    let explained = match &arguments.policy {
        Some(path) => explain_by_file(&arguments.words, path),
        None => wait_for(explain_by_server(arguments)),
    };
    match explained {
        // Errors in a file are shown as `tidegate validate` shows them.
        Err(Failure::Policy(report)) => {
            warn(&report);
            ExitCode::from(NO_ANSWER)
        }
        Err(failure) => complain(&failure),
        Ok((allowed, text)) => {
            say(text.trim_end());
            if allowed { ExitCode::SUCCESS } else { ExitCode::from(NO) }
        }
    }
}

/// Whether a server is ready: for the health checks of containers.
pub(super) fn ready(target: &Target) -> ExitCode {
    let answer = wait_for(async { Ok(target.ask(Method::GET, "/readyz", String::new()).await?) });
    match answer {
        Err(failure) => complain(&failure),
        Ok((status @ (StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE), body)) => {
            say(String::from_utf8_lossy(&body).trim_end());
            if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(NO) }
        }
        Ok((status, _)) => complain(&Failure::NotTidegate { server: target.server.clone(), status }),
    }
}

fn wait_for<T>(answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?.block_on(answer)
}

async fn ask(arguments: &Arguments) -> Result<Answer, Failure> {
    let asked = arguments.words.read()?;
    match (&arguments.store, arguments.limit) {
        (Some(url), Some(limit)) => ask_store(arguments, &asked, url, limit).await,
        (None, _) | (Some(_), None) => ask_server(arguments, asked).await,
    }
}

async fn ask_store(arguments: &Arguments, asked: &RequestDocument, url: &str, limit: Limit) -> Result<Answer, Failure> {
    let deadline = Duration::from_millis(arguments.store_deadline_ms);
    let store = RedisStore::builder(Servers::parse(url)?).deadline(deadline).build()?;
    let limiter = Limiter::with_store(Meter::new(INLINE_RULE, limit), store)?;
    let decision = limiter.check_async(asked.request()).await?;
    Ok(Answer { allowed: decision.is_allowed(), remaining: decision.remaining(), retry_after: decision.retry_after() })
}

async fn ask_server(arguments: &Arguments, asked: RequestDocument) -> Result<Answer, Failure> {
    let asked = RequestDocument { limit: arguments.limit.map(|limit| limit.to_string()), ..asked };
    let answer = answer_of(&arguments.target, "/v1/check", json!(asked)).await?;
    match answer["allowed"].as_bool() {
        Some(allowed) => Ok(Answer {
            allowed,
            remaining: answer["remaining"].as_u64(),
            retry_after: answer["retry_after_us"].as_u64().map(Duration::from_micros),
        }),
        None => Err(problem(&answer)),
    }
}

async fn explain_by_server(arguments: &ExplainArguments) -> Result<(bool, String), Failure> {
    let answer = answer_of(&arguments.target, "/v1/explain", json!(arguments.words.read()?)).await?;
    match (answer["decision"]["allowed"].as_bool(), answer["text"].as_str()) {
        (Some(allowed), Some(text)) => Ok((allowed, text.to_owned())),
        (_, _) => Err(problem(&answer)),
    }
}

fn explain_by_file(words: &Words, path: &std::path::Path) -> Result<(bool, String), Failure> {
    let asked = words.read()?;
    let policy = tidegate_config::load(path).map_err(|report| Failure::Policy(Box::new(report)))?;
    let explanation = Limiter::builder(policy).build()?.explain(asked.request())?;
    Ok((explanation.decision.is_allowed(), explanation.to_string()))
}

async fn answer_of(target: &Target, path: &'static str, body: Value) -> Result<Value, Failure> {
    let (_, body) = target.ask(Method::POST, path, body.to_string()).await?;
    Ok(serde_json::from_slice(&body).map_err(|error| NoAnswer::Unreadable(error.into()))?)
}

fn problem(answer: &Value) -> Failure {
    Failure::Problem { detail: answer["detail"].as_str().unwrap_or("the answer is not one of tidegate's").to_owned() }
}
