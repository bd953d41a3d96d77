//! A shop with limits: tiers by plan, orders by user, login throttling.
//!
//! Who a caller is comes from its session, which a layer around the limits looks
//! up: a plan that the caller wrote into a header would be its own choice.

use std::path::Path;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Form, Router};
use serde::Deserialize;
use tidegate::store::Store;
use tidegate::{FailureMode, Limiter};
use tidegate_redis::{RedisStore, Servers};
use tidegate_tower::{RateLimitLayer, Refusal, by};

/// How long Redis may take for an answer.
const DEADLINE: Duration = Duration::from_millis(100);

/// What is known of a caller with a session.
#[derive(Clone)]
struct Account {
    user: &'static str,
    plan: &'static str,
}

/// The sessions of the shop: a database in a real one.
fn account(session: &str) -> Option<Account> {
    match session {
        "Bearer session-of-alice" => Some(Account { user: "alice", plan: "basic" }),
        "Bearer session-of-bob" => Some(Account { user: "bob", plan: "pro" }),
        _ => None,
    }
}

/// The shop, with limits on any store.
pub fn shop<S: Store>(limiter: Limiter<S>) -> Router {
    let layer = RateLimitLayer::new(limiter.clone())
        .http_attributes()
        .attribute("user", by::extension(|account: &Account| account.user.into()))
        .attribute("plan", by::extension(|account: &Account| account.plan.into()));
    Router::new()
        .route("/products", get(async || "apples, pears\n"))
        .route("/orders", post(order))
        .route("/login", post(move |form| login(limiter.clone(), form)))
        .layer(layer)
        // Outside of the limits: they need to know the account.
        .layer(from_fn(authenticate))
}

/// Puts the account of the session into the request.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let session = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(account) = session.and_then(account) {
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

async fn order(account: Option<Extension<Account>>) -> Response {
    match account {
        Some(Extension(account)) => format!("ordered for {}\n", account.user).into_response(),
        None => (StatusCode::UNAUTHORIZED, "log in first\n").into_response(),
    }
}

#[derive(Deserialize)]
struct Login {
    user: String,
    password: String,
}

/// Charges the attempt before the password is verified, so that many attempts at
/// once do not all pass, and gives it back if the password was right.
async fn login<S: Store>(limiter: Limiter<S>, Form(login): Form<Login>) -> Response {
    let attempt = tidegate::Request::without_key().with("login", login.user.as_str()).rule("login-account");
    let refusal = match limiter.check_async(attempt.clone()).await {
        Ok(decision) if decision.is_allowed() => None,
        Ok(decision) => Some(Refusal::by(decision)),
        Err(error) => Some(Refusal::from(error)),
    };
    if let Some(refusal) = refusal {
        return refused(&refusal);
    }
    if login.password != "correct horse" {
        return (StatusCode::UNAUTHORIZED, "wrong name or password\n").into_response();
    }
    // If the store is away by now, the attempt stays charged.
    _ = limiter.refund_async(attempt).await;
    "welcome\n".into_response()
}

/// The answer of the layer, for a limit that the handler asked.
fn refused(refusal: &Refusal) -> Response {
    let head = [(CONTENT_TYPE, "application/problem+json")];
    let mut response = (refusal.status(), head, refusal.problem()).into_response();
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The shop as it runs: by a policy file that it follows, on Redis or in memory.
///
/// # Errors
/// The file has errors, or the address of Redis is invalid.
pub fn serve(policy: &Path, redis: Option<&str>) -> Result<Router, Box<dyn std::error::Error>> {
    let rules = tidegate_config::load(policy)?;
    match redis {
        Some(url) => {
            let store = RedisStore::builder(Servers::parse(url)?).deadline(DEADLINE).build()?;
            // While Redis is away, this process grants each limit by itself, as one of two.
            let limiter = Limiter::builder(rules).store(store).on_failure(FailureMode::local(2)).build()?;
            follow(policy, &limiter)?;
            Ok(shop(limiter))
        }
        None => {
            let limiter = Limiter::new(rules);
            follow(policy, &limiter)?;
            Ok(shop(limiter))
        }
    }
}

/// Applies the file again whenever it changes, for as long as the process runs.
fn follow<S: Store>(policy: &Path, limiter: &Limiter<S>) -> Result<(), Box<dyn std::error::Error>> {
    let changed = limiter.clone();
    let watch = tidegate_config::watch(policy, move |policy| changed.set_policy(policy))
        .report_to(|outcome| eprintln!("{outcome}"))
        .start()?;
    std::mem::forget(watch);
    Ok(())
}
