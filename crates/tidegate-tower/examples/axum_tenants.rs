//! Tenants with plans, on Redis: two servers that share every limit.
//!
//! ```text
//! cargo run -p tidegate-tower --example axum_tenants -- redis://127.0.0.1
//! ```
//!
//! Without an address it starts a redis-server of its own; without one of
//! those, each server counts for itself in memory, and says so.
//!
//! The tenant and its plan come from the API key, which a layer around the limit
//! looks up: a plan that the caller wrote into a header would be its own choice.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use tidegate::{Condition, FailureMode, Limit, Limiter, Policy, Rule};
use tidegate_redis::{RedisStore, Servers};
use tidegate_testkit::servers::Server;
use tidegate_tower::{ClientIp, Keyless, RateLimitLayer, by};
use tokio::net::TcpListener;

fn policy() -> Policy {
    Policy::new()
        .rule(Rule::new("tenant", Limit::per_minute(6)).key(["tenant"]).tier("plan", "pro", Limit::per_minute(12)))
        .rule(
            Rule::new("orders", Limit::per_minute(2)).key(["tenant"]).when("method", Condition::Equals("POST".into())),
        )
}

/// What is known of a caller once its API key was found.
#[derive(Clone)]
struct Account {
    tenant: &'static str,
    plan: &'static str,
}

/// Looks up the API key; a caller without a known one has no account.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let account = match request.headers().get("x-api-key").map(axum::http::HeaderValue::as_bytes) {
        Some(b"key-of-acme") => Some(Account { tenant: "acme", plan: "free" }),
        Some(b"key-of-big") => Some(Account { tenant: "big", plan: "pro" }),
        _ => None,
    };
    if let Some(account) = account {
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

/// The same layer for a limiter on any store: what is known of a request, and
/// what becomes of one without an account.
fn app(layer: RateLimitLayer) -> Router {
    let layer = layer
        .client_ip(ClientIp::behind_any_of(["10.0.0.0/8".parse().expect("a network")]))
        .key(by::extension(|account: &Account| account.tenant.into()))
        .keyless(Keyless::Refuse(StatusCode::UNAUTHORIZED))
        .http_attributes()
        .attribute("tenant", by::extension(|account: &Account| account.tenant.into()))
        .attribute("plan", by::extension(|account: &Account| account.plan.into()));
    Router::new()
        .route("/orders", get(|| async { "orders" }))
        .route("/orders", post(|| async { "ordered" }))
        .layer(layer)
        .layer(from_fn(authenticate))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let has_redis = || Command::new("redis-server").arg("--version").output().is_ok();
    let mut server = None;
    let url = match std::env::args().nth(1) {
        Some(url) => Some(url),
        None if has_redis() => Some(server.insert(Server::start()).url()),
        None => None,
    };
    let mut sites = Vec::new();
    for _ in 0..2 {
        let layer = match &url {
            Some(url) => {
                // Fifty milliseconds are the default, and enough in production.
                let store = RedisStore::builder(Servers::parse(url)?).deadline(Duration::from_secs(1)).build()?;
                let limiter = Limiter::builder(policy()).store(store).on_failure(FailureMode::local(2)).build()?;
                RateLimitLayer::new(limiter)
            }
            None => {
                println!("there is no redis-server here: this server counts for itself, in memory");
                RateLimitLayer::new(Limiter::new(policy()))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        sites.push(format!("http://{}/orders", listener.local_addr()?));
        let service = app(layer).into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
    }

    let client = reqwest::Client::builder().no_proxy().build()?;
    for (tenant, count) in [("acme", 5), ("big", 5), ("acme", 4)] {
        for number in 0..count {
            let (site, is_order) = (number % sites.len(), number % 3 == 0);
            let request = if is_order { client.post(&sites[site]) } else { client.get(&sites[site]) };
            let response = request.header("x-api-key", format!("key-of-{tenant}")).send().await?;
            let method = if is_order { "POST" } else { "GET " };
            let standing = response.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap_or(""));
            println!("{tenant:5} {method} on server {site}: {} {standing}", response.status().as_u16());
        }
    }
    println!("without an API key: {}", client.get(&sites[0]).send().await?.status());
    Ok(())
}
