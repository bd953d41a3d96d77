//! The admin API: reading takes the right `view`, keys take `manage`, the policy and the audit log take `admin`.

mod candidate;
mod history;
mod instances;
mod live;
mod playground;

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post, put};
use http::{Extensions, Request, Response};
use serde::Serialize;
use tidegate::{Rule, Setting};
use tidegate_config::Format;
use tracing::info;

use self::candidate::{Validated, beside, place_to_put, policy_text, trial, validate};
use crate::access::audit::Action;
use crate::ask::call::Call;
use crate::ask::policy::{Change, PolicyText, Version};
use crate::run::peer::Peer;
use crate::screen::Screen;
use crate::screen::live::top_refused;
use crate::settings::rights::Right;
use crate::tell::refused::MAX_REFUSED;
use crate::wire::app::App;
use crate::wire::http::guard::{audited, guarded, identity_of};
use crate::wire::http::problem::Problem;
use crate::wire::http::reply::Reply;
use crate::wire::http::{ask, body, wrong_method};
use crate::wire::json::micros;

pub(super) fn router(screen: &Screen) -> Router<Screen> {
    let app = &screen.app;
    let reads = |request: Request<Body>| async move { wrong_method(&request, "GET, HEAD") };
    let reads_or_puts = |request: Request<Body>| async move { wrong_method(&request, "GET, HEAD, PUT") };
    let posts = |request: Request<Body>| async move { wrong_method(&request, "POST") };
    let resets = Router::new().route("/admin/v1/keys/reset", post(reset).fallback(posts));
    let refunds = Router::new().route("/admin/v1/keys/refund", post(refund).fallback(posts));
    let views = Router::new()
        .route("/admin/v1/session", get(session).fallback(reads))
        .route("/admin/v1/instances", get(instances::instances).fallback(reads))
        .route("/admin/v1/policy", get(policy).fallback(reads_or_puts))
        .route("/admin/v1/policy/versions", get(versions).fallback(reads))
        .route("/admin/v1/policy/schema", get(schema).fallback(reads))
        .route("/admin/v1/policy/limits", get(limits).fallback(reads))
        .route("/admin/v1/policy/validate", post(validate).fallback(posts))
        .route("/admin/v1/policy/trial", post(trial).fallback(posts))
        .route("/admin/v1/history", get(history::history).fallback(reads))
        .route("/admin/v1/live", get(live::picture).fallback(reads))
        .route("/admin/v1/live/stream", get(live::stream).fallback(reads))
        .route("/admin/v1/playground", post(playground::play).fallback(posts))
        .route("/admin/v1/keys/refused", get(refused).fallback(reads));
    let manages = Router::new()
        .route("/admin/v1/keys/inspect", post(inspect).fallback(posts))
        .merge(audited(resets, app, Action::AdminReset))
        .merge(audited(refunds, app, Action::AdminRefund));
    let puts = Router::new().route("/admin/v1/policy", put(put_policy));
    let admins = audited(puts, app, Action::PutPolicy).route("/admin/v1/audit", get(recent_audit).fallback(reads));
    let views = guarded(views, app, Right::View);
    let manages = guarded(manages, app, Right::Manage);
    let admins = guarded(admins, app, Right::Admin);
    instances::readable(views.merge(manages).merge(admins), app)
}

#[derive(Serialize)]
struct Session<'a> {
    /// The name of the token or certificate; null for a caller without a credential.
    identity: Option<&'a str>,
    rights: Vec<Right>,
}

async fn session(extensions: Extensions) -> Reply {
    let identity = identity_of(&extensions);
    let name = (!identity.is_anonymous()).then(|| identity.name());
    Reply::json(&Session { identity: name, rights: identity.rights().iter().collect() })
}

#[derive(Serialize)]
struct PolicyDocument {
    /// The file, unless the policy is built in or was put.
    file: Option<String>,
    format: &'static str,
    text: String,
}

impl From<PolicyText> for PolicyDocument {
    fn from(PolicyText { file, format, text }: PolicyText) -> PolicyDocument {
        PolicyDocument { file: file.map(|path| path.display().to_string()), format: name(format), text }
    }
}

async fn policy(State(app): State<Arc<App>>) -> Reply {
    Reply::json(&PolicyDocument::from(app.engine.policy.text()))
}

/// What `tidegate schema` prints: for editors of policies.
async fn schema() -> Reply {
    Reply::written(tidegate_config::schema().as_bytes().to_vec())
}

/// Exceptions of a rule that are told.
const MAX_EXCEPTIONS: usize = 100;

#[derive(Serialize)]
struct RuleLimits {
    rule: String,
    limit: String,
    /// How many overrides and tiers it has; the first of them follow.
    exceptions_in_all: usize,
    exceptions: Vec<ExceptionDocument>,
}

#[derive(Serialize)]
struct ExceptionDocument {
    attribute: String,
    /// The value, or a pattern for it.
    value: String,
    limit: String,
}

/// The limits of each rule: its own, and those of its overrides and tiers.
async fn limits(State(app): State<Arc<App>>) -> Reply {
    let policy = app.engine.limiter.policy();
    let exception = |(attribute, value, setting): (&str, &str, Setting)| ExceptionDocument {
        attribute: attribute.to_owned(),
        value: value.to_owned(),
        limit: setting.to_string(),
    };
    let document = |rule: &Rule| RuleLimits {
        rule: rule.name().to_string(),
        limit: rule.in_words(),
        exceptions_in_all: rule.exceptions().count(),
        exceptions: rule.exceptions().take(MAX_EXCEPTIONS).map(exception).collect(),
    };
    Reply::json(&policy.rules().map(document).collect::<Vec<_>>())
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Toml => "toml",
        Format::Yaml => "yaml",
    }
}

async fn put_policy(State(screen): State<Screen>, request: Request<Body>) -> Result<Response<Body>, Problem> {
    let by = identity_of(request.extensions());
    let (format, text) = policy_text(&screen.app, request).await?;
    if let Some(path) = screen.app.engine.policy.text().file {
        return Err(Problem::PolicyFromFile { path: path.display().to_string() });
    }
    let change =
        beside(&screen.app, place_to_put(&screen)?, move |app| app.put_policy(text, format, by.name())).await??;
    let (texts, changes) = change.map(|Change { texts, rules }| (texts, rules)).unzip();
    let changes: Vec<String> = changes.unwrap_or_default();
    changes.iter().for_each(|line| info!("the policy: {line}"));
    let mut response = Reply::json(&Applied { validated: Validated::VALID, changes }).response();
    // For the audit log.
    texts.and_then(|texts| response.extensions_mut().insert(texts));
    Ok(response)
}

#[derive(Serialize)]
struct Applied {
    #[serde(flatten)]
    validated: Validated,
    /// A line for each rule that is another than before.
    changes: Vec<String>,
}

/// Keys that are listed unless the query says how many.
const USUAL_TOP: usize = 20;

async fn refused(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Reply, Problem> {
    let query = request.uri().query().filter(|query| !query.is_empty());
    let top = query.map_or(Some(USUAL_TOP), |query| query.strip_prefix("top=")?.parse().ok());
    let Some(top) = top.filter(|top| (1..=MAX_REFUSED).contains(top)) else {
        let found = query.unwrap_or_default().to_owned();
        return Err(Problem::Query { found, bound: MAX_REFUSED });
    };
    Ok(Reply::json(&top_refused(&app, top)))
}

async fn inspect(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Reply, Problem> {
    ask::explain(&app, &body::read_json(request, &app).await?).await
}

async fn reset(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Reply, Problem> {
    let peer = Peer::of(request.extensions());
    ask::decide(&app, peer, Call::Reset, &body::read_json(request, &app).await?).await
}

async fn refund(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Reply, Problem> {
    let peer = Peer::of(request.extensions());
    ask::decide(&app, peer, Call::Refund, &body::read_json(request, &app).await?).await
}

async fn recent_audit(State(app): State<Arc<App>>) -> Reply {
    Reply::written(app.guards.audit.recent())
}

#[derive(Serialize)]
struct VersionDocument {
    generation: u64,
    since_us: u64,
    by: String,
    changes: Vec<String>,
    #[serde(flatten)]
    policy: PolicyDocument,
}

async fn versions(State(app): State<Arc<App>>) -> Reply {
    let document = |Version { generation, since, by, text, changes }| VersionDocument {
        generation,
        since_us: micros(since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        by,
        changes,
        policy: PolicyDocument::from(text),
    };
    Reply::json(&app.engine.policy.versions().into_iter().map(document).collect::<Vec<_>>())
}
