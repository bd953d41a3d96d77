//! A policy that is not in force: what is wrong with it, and what it would have made of the last requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use http::Request;
use serde::Serialize;
use tidegate::{ConfigError, Name, Policy};
use tidegate_config::{Diagnostic, Format, Loaded, Report as PolicyReport};
use tidegate_replay::report::{Change, KeyReport, RuleReport};
use tidegate_replay::{Replay, Report};
use tokio::sync::OwnedSemaphorePermit;

use crate::screen::recent_requests::Recording;
use crate::screen::{MAX_PLAYERS, Screen};
use crate::wire::app::App;
use crate::wire::http::body;
use crate::wire::http::problem::Problem;
use crate::wire::http::reply::Reply;

/// How long a trial decides; it ends there.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Keys that each policy of a trial has room for, of each request and in all; further ones share.
const KEYS_PER_REQUEST: usize = 4;
const MAX_KEYS: usize = 400_000;

/// Rules that are told.
const MAX_RULES: usize = 256;

#[derive(Serialize)]
pub(super) struct Validated {
    valid: bool,
    errors: Vec<DiagnosticDocument>,
}

impl Validated {
    pub(super) const VALID: Validated = Validated { valid: true, errors: Vec::new() };

    fn invalid(report: &PolicyReport) -> Validated {
        Validated { valid: false, errors: report.diagnostics().iter().map(DiagnosticDocument::from).collect() }
    }
}

#[derive(Serialize)]
struct DiagnosticDocument {
    message: String,
    line: Option<usize>,
    column: Option<usize>,
    help: Option<String>,
    /// As `tidegate validate` draws it.
    text: String,
}

impl From<&Diagnostic> for DiagnosticDocument {
    fn from(diagnostic: &Diagnostic) -> DiagnosticDocument {
        let place = diagnostic.place();
        DiagnosticDocument {
            message: diagnostic.problem().to_string(),
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            help: diagnostic.help().map(str::to_owned),
            text: diagnostic.to_string(),
        }
    }
}

/// A policy as it comes: text of one format or the other.
pub(super) async fn policy_text(app: &App, request: Request<Body>) -> Result<(Format, String), Problem> {
    let expected = "application/toml, application/yaml or application/json";
    let format = match body::content_type(request.headers()) {
        Some("application/toml" | "text/x-toml") => Format::Toml,
        // JSON is YAML, too.
        Some("application/yaml" | "application/x-yaml" | "text/yaml" | "application/json") => Format::Yaml,
        _ => return Err(Problem::ContentType { expected }),
    };
    let bytes = body::read(request, app).await?;
    let text = String::from_utf8(bytes.into()).map_err(|_| Problem::NotText)?;
    Ok((format, text))
}

/// A place for long work, of a few.
pub(super) fn place(screen: &Screen) -> Result<OwnedSemaphorePermit, Problem> {
    let busy = Problem::TooManyPlayers { bound: MAX_PLAYERS };
    Arc::clone(&screen.shown.players).try_acquire_owned().map_err(|_| busy)
}

/// The place for a policy that is put.
pub(super) fn place_to_put(screen: &Screen) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(&screen.shown.puts).try_acquire_owned().map_err(|_| Problem::PutRunning)
}

/// Works on a policy that came by a wire. It may take long, so no thread that serves does it.
pub(super) async fn beside<T: Send + 'static>(
    app: &Arc<App>,
    place: OwnedSemaphorePermit,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    let done = tokio::task::spawn_blocking(move || {
        let done = work(&app);
        drop(place);
        done
    });
    done.await.map_err(|_| Problem::Leaving)
}

pub(super) async fn validate(State(screen): State<Screen>, request: Request<Body>) -> Result<Reply, Problem> {
    let (format, text) = policy_text(&screen.app, request).await?;
    let found = beside(&screen.app, place(&screen)?, move |app| app.engine.validate(&text, format)).await?;
    Ok(Reply::json(&found.map_or_else(|report| Validated::invalid(&report), |()| Validated::VALID)))
}

/// What two policies make of the same requests.
#[derive(Serialize)]
struct Trial {
    requests: u64,
    seconds: f64,
    complete: bool,
    admitted_before: u64,
    refused_before: u64,
    refused_after: u64,
    /// Requests that lack what a policy needs to decide them.
    undecided_before: u64,
    undecided_after: u64,
    rules: Vec<TrialRule>,
    newly_refused: Vec<TrialKey>,
    newly_admitted: Vec<TrialKey>,
}

#[derive(Serialize)]
struct TrialRule {
    rule: String,
    refused_before: u64,
    refused_after: u64,
}

#[derive(Serialize)]
struct TrialKey {
    rule: String,
    key: String,
    requests: u64,
    attributes: BTreeMap<String, String>,
}

/// Decides the last requests by the policy in force and by the one that is sent, each from an empty state.
pub(super) async fn trial(State(screen): State<Screen>, request: Request<Body>) -> Result<Reply, Problem> {
    let (format, text) = policy_text(&screen.app, request).await?;
    let shown = Arc::clone(&screen.shown);
    beside(&screen.app, place(&screen)?, move |app| match app.engine.read_policy(&text, format) {
        Ok(Loaded { policy, .. }) => {
            let recent = shown.recent_requests.as_ref().ok_or(Problem::NoRequestsKept)?;
            Ok(Reply::json(&decide(app.engine.limiter.policy(), policy, &recent.recording())?))
        }
        Err(report) => Ok(Reply::json(&Validated::invalid(&report))),
    })
    .await?
}

fn decide(before: Policy, after: Policy, recording: &Recording) -> Result<Trial, ConfigError> {
    let began = Instant::now();
    let names = before.rules().chain(after.rules()).map(|rule| rule.name().clone()).collect::<BTreeSet<Name>>();
    let requests = recording.requests();
    let count = requests.len() as u64;
    let max_keys = (recording.len() * KEYS_PER_REQUEST).clamp(1, MAX_KEYS);
    let in_time = requests.into_iter().take_while(|_| began.elapsed() < MAX_TIME);
    let report = Replay::new(after).against(before).max_keys(max_keys).run_recorded(in_time)?;
    let seconds = recording.span().map_or(Duration::ZERO, |(from, to)| to.saturating_since(from).to_duration());
    let against = report.against.as_ref();
    Ok(Trial {
        requests: report.lines,
        seconds: seconds.as_secs_f64(),
        complete: recording.complete && report.lines == count,
        admitted_before: against.map_or(0, |before| before.admitted),
        refused_before: against.map_or(0, |before| before.refused),
        refused_after: report.refused,
        undecided_before: against.map_or(0, |before| before.undecided),
        undecided_after: report.undecided,
        rules: rules(&names, &report),
        newly_refused: against.map(|before| keys(&before.newly_refused)).unwrap_or_default(),
        newly_admitted: against.map(|before| keys(&before.newly_admitted)).unwrap_or_default(),
    })
}

/// The rules of either policy, the most changed first.
fn rules(names: &BTreeSet<Name>, report: &Report) -> Vec<TrialRule> {
    let mut refused: BTreeMap<&str, (u64, u64)> = names.iter().map(|name| (name.as_str(), (0, 0))).collect();
    for RuleReport { rule, refused: count } in report.against.iter().flat_map(|before| &before.rules) {
        refused.entry(rule).or_default().0 = *count;
    }
    for RuleReport { rule, refused: count } in &report.rules {
        refused.entry(rule).or_default().1 = *count;
    }
    let mut rules: Vec<TrialRule> = refused
        .into_iter()
        .map(|(rule, (refused_before, refused_after))| TrialRule {
            rule: rule.to_owned(),
            refused_before,
            refused_after,
        })
        .collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.refused_before.abs_diff(rule.refused_after)));
    rules.truncate(MAX_RULES);
    rules
}

/// Whom a change concerns most.
fn keys(change: &Change) -> Vec<TrialKey> {
    let key = |KeyReport { rule, key, count, attributes, .. }: &KeyReport| TrialKey {
        rule: rule.clone(),
        key: key.clone(),
        requests: *count,
        attributes: attributes.clone(),
    };
    change.keys.iter().map(key).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::FutureExt;
    use http::StatusCode;
    use tidegate::MemoryStore;
    use tower::ServiceExt;

    use super::*;
    use crate::{Server, Settings};

    /// All that a policy comes by.
    const ROUTES: [(&str, &str); 3] =
        [("POST", "/admin/v1/policy/validate"), ("POST", "/admin/v1/policy/trial"), ("PUT", "/admin/v1/policy")];

    fn request((method, path): (&str, &str)) -> Request<Body> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let policy = Body::from("[rules.all]\nlimit = \"1/s\"\n");
        request.header("content-type", "application/toml").body(policy).unwrap()
    }

    #[tokio::test]
    async fn simulations_leave_a_place_for_a_policy_that_is_put() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let (shown, router) = (&server.screen().shown, server.routes());
        let _simulations = shown.players.acquire_many(MAX_PLAYERS as u32).await.unwrap();
        let put = router.oneshot(request(("PUT", "/admin/v1/policy"))).await.unwrap();
        assert_eq!(put.status(), StatusCode::OK);
    }

    /// The one thread for such work is busy; the thread of the test is one that serves.
    #[test]
    fn policies_are_read_beside_the_threads_that_serve_and_few_at_a_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let settings = Settings { http: Vec::new(), ..Settings::default() };
            let server = Server::start(settings, MemoryStore::default()).await.unwrap();
            let (shown, router) = (&server.screen().shown, server.routes());
            for route in ROUTES {
                let (release, released) = channel::<()>();
                let busy = tokio::task::spawn_blocking(move || released.recv().unwrap());
                let mut answer = Box::pin(router.clone().oneshot(request(route)));
                assert!(answer.as_mut().now_or_never().is_none(), "{route:?} is answered by the thread that serves");
                release.send(()).unwrap();
                busy.await.unwrap();
                assert_eq!(answer.await.unwrap().status(), StatusCode::OK, "{route:?}");
                let places = shown.players.acquire_many(MAX_PLAYERS as u32).await.unwrap();
                let put = shown.puts.acquire().await.unwrap();
                let refused = router.clone().oneshot(request(route)).await.unwrap();
                assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{route:?}");
                drop((places, put));
            }
        });
    }
}
