//! A client that keeps to a limit of its own, and to what the server says.
//!
//! ```text
//! cargo run -p tidegate-tower --example reqwest_client
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use http::{Request, Response};
use tidegate::{Limit, Limiter};
use tidegate_tower::RateLimitLayer;
use tidegate_tower::client::{AcquireLayer, BoxError, HonourLayer};
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let host = start_server().await?;
    let http = reqwest::Client::builder().no_proxy().build()?;

    let mut client = ServiceBuilder::new()
        .layer(AcquireLayer::new(Limiter::new(Limit::per_second(10).burst(1))).timeout(Duration::from_secs(5)))
        .layer(HonourLayer::new().timeout(Duration::from_secs(5)))
        .service_fn(move |request: Request<String>| {
            let http = http.clone();
            async move {
                let response = http.execute(request.try_into()?).await?;
                Ok::<Response<reqwest::Body>, BoxError>(response.into())
            }
        });

    let started = Instant::now();
    for _ in 0..6 {
        let request = Request::get(format!("http://{host}/")).body(String::new())?;
        let response = client.ready().await?.call(request).await?;
        let standing = response.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap_or(""));
        println!("after {:4} ms: {} {standing}", started.elapsed().as_millis(), response.status());
    }
    println!("ten a second by our own limit, then the server's: no request was refused");
    Ok(())
}

/// Lets four requests pass at once, and four a second.
async fn start_server() -> Result<String, BoxError> {
    let layer = RateLimitLayer::new(Limiter::new(Limit::per_second(4)));
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let host = listener.local_addr()?.to_string();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(host)
}
