//! Tenants with plans, on Redis: two servers that share every limit.
//!
//! ```text
//! cargo run -p tidegate-tower --example axum_tenants -- redis://127.0.0.1
//! ```
//!
//! Without an address it starts a redis-server of its own; without one of
//! those, each server counts for itself in memory, and says so.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use axum::Router;
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

/// The same layer for a limiter on any store: what is known of a request, and
/// what of one that says nothing.
fn app(layer: RateLimitLayer) -> Router {
    let layer = layer
        .client_ip(ClientIp::behind_any_of(["10.0.0.0/8".parse().expect("a network")]))
        .key(by::header("x-tenant"))
        .keyless(Keyless::Refuse(StatusCode::UNAUTHORIZED))
        .http_attributes()
        .attribute("tenant", by::header("x-tenant"))
        .attribute("plan", by::header("x-plan"));
    Router::new()
        .route("/orders", get(|| async { "orders" }))
        .route("/orders", post(|| async { "ordered" }))
        .layer(layer)
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
    let requests = [("acme", "free", 5), ("big", "pro", 5), ("acme", "free", 4)];
    for (tenant, plan, count) in requests {
        for number in 0..count {
            let (site, is_order) = (number % sites.len(), number % 3 == 0);
            let request = if is_order { client.post(&sites[site]) } else { client.get(&sites[site]) };
            let response = request.header("x-tenant", tenant).header("x-plan", plan).send().await?;
            let method = if is_order { "POST" } else { "GET " };
            let standing = response.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap_or(""));
            println!("{tenant:5} {method} on server {site}: {} {standing}", response.status().as_u16());
        }
    }
    println!("nobody: {}", client.get(&sites[0]).send().await?.status());
    Ok(())
}
