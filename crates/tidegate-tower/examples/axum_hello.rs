//! An axum server with a limit for each client, and a client that meets it.
//!
//! ```text
//! cargo run -p tidegate-tower --example axum_hello
//! ```

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tidegate::{Limit, Limiter};
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(Limit::per_minute(60).burst(3));
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(limiter));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    // The layer needs to know who asks: axum tells it with the connect info.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });

    let client = reqwest::Client::builder().no_proxy().build()?;
    for _ in 0..4 {
        let response = client.get(&url).send().await?;
        println!("{}", response.status());
        for name in ["ratelimit-policy", "ratelimit", "retry-after"] {
            if let Some(value) = response.headers().get(name) {
                println!("  {name}: {}", value.to_str()?);
            }
        }
        println!("  {}", response.text().await?.trim_end());
    }
    Ok(())
}
