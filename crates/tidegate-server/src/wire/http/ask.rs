//! The requests of `/v1`: wire to library and back.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response};
use tidegate::Decision;
use tidegate::store::Check;
use tidegate_tower::fields::rate_limit_fields;

use super::answer::{self, Item};
use super::body::{self, ReadableBody};
use super::problem::Problem;
use super::reply::{Fields, Reply};
use super::request::{self, OneOrBatch};
use crate::access::audit::AuditOutcome;
use crate::ask::call::Call;
use crate::ask::store::AnyStore;
use crate::run::admission::TURN;
use crate::run::peer::Peer;
use crate::run::protocol::Protocol;
use crate::wire::app::App;

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// One decision of the store, or a batch of them.
    Call(Call),
    /// To wait until it may pass.
    Acquire,
    /// What every rule says.
    Explain,
}

/// Answers a request of `/v1`.
pub(crate) async fn ask<B: ReadableBody>(app: Arc<App>, task: Task, request: Request<B>) -> Response<Body> {
    let (began, peer) = (Instant::now(), Peer::of(request.extensions()));
    let answered = match body::read(request, &app).await {
        Err(problem) => Err(problem),
        // On the heap, so that a wait is not as large as the largest of them.
        Ok(body) => match task {
            Task::Call(call) => Box::pin(decide(&app, peer, call, &body)).await,
            Task::Acquire => Box::pin(acquire(&app, &body)).await,
            Task::Explain => Box::pin(explain(&app, &body)).await,
        },
    };
    // A wait says nothing of how fast the server is.
    if task != Task::Acquire {
        app.records.metrics.answered(Protocol::Http, began.elapsed());
    }
    answered.unwrap_or_else(Reply::from).response()
}

pub(crate) async fn decide(app: &App, peer: Peer, call: Call, body: &[u8]) -> Result<Reply, Problem> {
    match request::read(call, body, app.settings.max_batch)? {
        OneOrBatch::One(ask) => {
            let inline = ask.inline(&app.engine)?;
            let (inline, mut fields) = (inline.as_deref(), Fields::new());
            let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
            let decision = app.decide_with_limits(call.verb(), &ask, inline, tell).await?;
            Ok(answer::reply(call, &decision, fields))
        }
        OneOrBatch::Batch(asks) => {
            let _admitted = app.guards.admission.enter(peer.address(), asks.len())?;
            // All are understood before any is decided.
            let inline = asks.iter().map(|ask| ask.inline(&app.engine)).collect::<Result<Vec<_>, _>>()?;
            let asked = asks.iter().zip(&inline);
            let answers = asked.map(|(ask, inline)| app.decide(call.verb(), ask, inline.as_deref()));
            let answers = match app.engine.store() {
                // Side by side, so that a store that is far away is asked all at once.
                AnyStore::Redis(_) | AnyStore::Bounded(_) => join_all(answers).await,
                AnyStore::Memory(_) => in_turns(answers).await,
            };
            let outcomes = answers.iter().map(|answered| AuditOutcome::of(answered.is_ok())).collect();
            let items: Vec<Item> =
                answers.into_iter().map(|answered| Item::of(call, answered.map_err(Problem::from))).collect();
            Ok(Reply { outcomes, ..Reply::json(&items) })
        }
    }
}

/// One after the other; the thread's other connections have their turns in between.
async fn in_turns<T>(answers: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut answered = Vec::new();
    for answer in answers {
        if !answered.is_empty() && answered.len() % TURN == 0 {
            tokio::task::yield_now().await;
        }
        answered.push(answer.await);
    }
    answered
}

async fn acquire(app: &App, body: &[u8]) -> Result<Reply, Problem> {
    let (ask, timeout) = request::read_waiting(Call::Check, body)?;
    let inline = ask.inline(&app.engine)?;
    let limiter = app.engine.limiter_for(inline.as_deref());
    let mut fields = Fields::new();
    let mut tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
    let acquired = tokio::select! {
        acquired = limiter.acquire_with_limits_async(&ask, timeout, &mut tell) => acquired,
        // Who waits has been charged nothing, and can wait elsewhere.
        () = app.guards.drain.closing() => return Err(Problem::Leaving),
    };
    let decision = match acquired {
        Ok(decision) => decision,
        Err(error) => match Problem::of_acquire(error) {
            Some(problem) => {
                if let Problem::Check(error) = &problem {
                    app.records.metrics.failed(error);
                }
                return Err(problem);
            }
            // The last try: it says when to come back.
            None => Box::pin(app.decide_with_limits(Call::Check.verb(), &ask, inline.as_deref(), &mut tell)).await?,
        },
    };
    Ok(answer::reply(Call::Check, &decision, fields))
}

pub(crate) async fn explain(app: &App, body: &[u8]) -> Result<Reply, Problem> {
    let ask = request::read_one(Call::Check, body)?;
    let inline = ask.inline(&app.engine)?;
    Ok(answer::explanation(&app.explain(&ask, inline.as_deref()).await?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;

    use http::StatusCode;
    use tidegate::{Limit, MemoryStore, Policy};
    use tidegate_testkit::MeddlingClock;

    use super::*;
    use crate::{Server, Settings};

    fn batch(length: usize) -> String {
        format!("[{}]", vec![r#"{"key":"a","limit":"1000000/s"}"#; length].join(","))
    }

    const SINGLE: &[u8] = br#"{"key":"a","limit":"1000000/s"}"#;

    async fn start() -> Server {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        Server::start(settings, MemoryStore::default()).await.unwrap()
    }

    /// A refusal stands though the policy changes meanwhile: it is told by the one that refused.
    #[tokio::test]
    async fn all_limits_that_are_told_are_of_the_policy_that_decided() {
        let clock = MeddlingClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, store).await.unwrap();
        let app = server.app();
        app.engine
            .limiter
            .set_policy(Policy::new().limit("api", Limit::per_hour(1)).limit("day", Limit::per_day(5)))
            .unwrap();
        let ask = async || decide(app, Peer::Unix, Call::Check, br#"{"key":"a"}"#).await.unwrap();
        assert!(ask().await.fields.contains(&("ratelimit", "\"api\";r=0;t=3600".to_owned())));
        let limiter = app.engine.limiter.clone();
        clock.first(move || limiter.set_policy(Policy::new().limit("week", Limit::per_day(9))).unwrap());
        let refused = ask().await;
        assert!(clock.is_done() && refused.status == StatusCode::TOO_MANY_REQUESTS);
        let told = "\"api\";q=1;w=3600, \"day\";q=5;w=86400".to_owned();
        assert!(refused.fields.contains(&("ratelimit-policy", told)), "{:?}", refused.fields);
    }

    /// On one thread, by the order of the answers.
    #[tokio::test]
    async fn a_check_is_answered_before_a_batch_that_was_begun_before_it() {
        let server = start().await;
        let (app, order) = (server.app(), RefCell::new(Vec::new()));
        let ask = async |name, body: &[u8]| {
            let reply = decide(app, Peer::Unix, Call::Check, body).await.unwrap();
            assert_eq!(reply.status, StatusCode::OK);
            order.borrow_mut().push(name);
        };
        let batch = batch(1_000);
        tokio::join!(ask("batch", batch.as_bytes()), ask("check", SINGLE));
        assert_eq!(*order.borrow(), ["check", "batch"]);
    }

    #[tokio::test]
    async fn an_address_that_has_its_share_in_flight_gets_503_for_batches_and_answers_to_checks() {
        let server = start().await;
        let app = server.app();
        let [one, other] = ["192.0.2.1:7", "192.0.2.2:7"].map(|text| Peer::Tcp(text.parse().unwrap()));
        let ask = async |peer, body: &[u8]| decide(app, peer, Call::Check, body).await.unwrap_or_else(Reply::from);
        let held = app.guards.admission.enter(one.address(), 8 * app.settings.max_batch).unwrap();
        let refused = ask(one, batch(17).as_bytes()).await;
        let detail = String::from_utf8(refused.body).unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{detail}");
        assert!(refused.fields.contains(&("retry-after", "1".to_owned())) && detail.contains("8000"), "{detail}");
        for (peer, body) in [(one, SINGLE), (one, batch(16).as_bytes()), (other, batch(1_000).as_bytes())] {
            assert_eq!(ask(peer, body).await.status, StatusCode::OK);
        }
        let text = app.records.metrics.text();
        assert!(text.contains("tidegate_requests_shed_total{reason=\"in-flight\"} 1\n"), "{text}");
        drop(held);
        assert_eq!(ask(one, batch(17).as_bytes()).await.status, StatusCode::OK);
    }
}
