//! The questions of `/v1`: wire to library and back.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response};
use tidegate::kernel::Verb;
use tidegate::{CheckError, Decision, Limiter};

use super::answer::{self, Item};
use super::body::{self, ReadableBody};
use super::fields::Met;
use super::problem::Problem;
use super::question::{Question, Questions};
use super::reply::Reply;
use crate::app::App;
use crate::inline::Inline;
use crate::metrics::Protocol;
use crate::store::AnyStore;

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// One decision of the store, or a batch of them.
    Verb(Verb),
    /// To wait until it may pass.
    Acquire,
    /// What every rule says.
    Explain,
}

/// Answers a request of `/v1`.
pub(super) async fn ask<B: ReadableBody>(app: Arc<App>, ask: Ask, request: Request<B>) -> Response<Body> {
    let began = Instant::now();
    let answered = match body::read(request, &app).await {
        Err(problem) => Err(problem),
        // On the heap, so that a wait is not as large as the largest of them.
        Ok(body) => match ask {
            Ask::Verb(verb) => Box::pin(decide(&app, verb, &body)).await,
            Ask::Acquire => Box::pin(acquire(&app, &body)).await,
            Ask::Explain => Box::pin(explain(&app, &body)).await,
        },
    };
    // A wait says nothing of how fast the server is.
    if ask != Ask::Acquire {
        app.metrics.answered(Protocol::Http, began.elapsed());
    }
    Reply::of(answered).response()
}

pub(super) async fn decide(app: &App, verb: Verb, body: &[u8]) -> Result<Reply, Problem> {
    match Questions::parse(body, app)? {
        Questions::One(question) => {
            question.without_patience()?;
            let inline = question.inline(app)?;
            let decision = decision(app, verb, &question, inline.as_deref()).await?;
            let met = met(app, &question, inline.as_deref(), &decision);
            Ok(match verb {
                Verb::Charge => answer::admission(&decision, met),
                Verb::Peek | Verb::Refund | Verb::Reset => answer::reading(&decision, met),
            })
        }
        Questions::Batch(questions) => {
            let mut asked = Vec::with_capacity(questions.len());
            // All are understood before any is decided.
            for question in &questions {
                question.without_patience()?;
                asked.push((question, question.inline(app)?));
            }
            // Side by side, so that a store that is far away is asked all at once.
            let answers = asked.iter().map(|(question, inline)| decision(app, verb, question, inline.as_deref()));
            let items: Vec<Item> =
                join_all(answers).await.into_iter().map(|answered| Item::of(verb, answered)).collect();
            Ok(Reply::json(&items))
        }
    }
}

async fn decision(
    app: &App,
    verb: Verb,
    question: &Question<'_>,
    inline: Option<&Inline>,
) -> Result<Decision, Problem> {
    let limiter = limiter(app, inline);
    let request = question.request();
    let decided = match verb {
        Verb::Charge => limiter.check_async(request).await,
        Verb::Peek => limiter.peek_async(request).await,
        Verb::Refund => limiter.refund_async(request).await,
        Verb::Reset => limiter.reset_async(request).await,
    };
    decided.map_err(|error| failed(app, error))
}

async fn acquire(app: &App, body: &[u8]) -> Result<Reply, Problem> {
    let question = Questions::one(body)?;
    let patience = question.patience()?;
    let inline = question.inline(app)?;
    let limiter = limiter(app, inline.as_deref());
    let acquired = tokio::select! {
        acquired = limiter.acquire(question.request(), patience) => acquired,
        // Who waits has been charged nothing, and can wait elsewhere.
        () = app.drain.closing() => return Err(Problem::Leaving),
    };
    let decision = match acquired {
        Ok(decision) => decision,
        Err(error) => match Problem::of_acquire(error) {
            Some(problem) => {
                if let Problem::Check(error) = &problem {
                    app.metrics.failed(error);
                }
                return Err(problem);
            }
            // The last try: it says when to come back.
            None => Box::pin(limiter.check_async(question.request())).await.map_err(|error| failed(app, error))?,
        },
    };
    let met = met(app, &question, inline.as_deref(), &decision);
    Ok(answer::admission(&decision, met))
}

/// Who decides.
fn limiter<'a>(app: &'a App, inline: Option<&'a Inline>) -> &'a Limiter<AnyStore> {
    inline.map_or(&app.limiter, |inline| &inline.limiter)
}

/// The limits that the question has met: the one that came with it, or those
/// that the policy has for it.
fn met(app: &App, question: &Question<'_>, inline: Option<&Inline>, decision: &Decision) -> Met {
    let mut met = Met::default();
    if decision.is_unlimited() || decision.is_blocked() {
        return met;
    }
    match inline {
        Some(inline) => met.add(decision.rule(), inline.limit.capacity(), Some(inline.limit), decision),
        None => app.limiter.for_each_meter(question.request(), |meter| {
            met.add(meter.name(), meter.capacity(), meter.limit(), decision);
        }),
    }
    met
}

pub(super) async fn explain(app: &App, body: &[u8]) -> Result<Reply, Problem> {
    let question = Questions::one(body)?;
    question.without_patience()?;
    let inline = question.inline(app)?;
    let explained = limiter(app, inline.as_deref()).explain_async(question.request()).await;
    Ok(answer::explanation(&explained.map_err(|error| failed(app, error))?))
}

/// Forgets all that a question's keys were charged.
pub(super) async fn reset(app: &App, body: &[u8]) -> Result<Reply, Problem> {
    decide(app, Verb::Reset, body).await
}

fn failed(app: &App, error: CheckError) -> Problem {
    app.metrics.failed(&error);
    Problem::Check(error)
}
