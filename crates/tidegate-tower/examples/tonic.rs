//! A tonic server with a limit for each client, and a client that meets it.
//!
//! ```text
//! cargo run -p tidegate-tower --example tonic --features tonic
//! ```

use tidegate::{Limit, Limiter};
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(Limit::per_minute(2));
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(RateLimitLayer::new(limiter).grpc()).add_service(health);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut client = HealthClient::new(Channel::from_shared(url)?.connect().await?);
    for _ in 0..3 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(response) => println!("ok: {:?}", response.metadata().get("ratelimit")),
            Err(status) => {
                let details = status.get_error_details();
                let wait = details.retry_info().and_then(|info| info.retry_delay);
                println!("{:?}: {}, retry after {wait:?}", status.code(), status.message());
            }
        }
    }
    Ok(())
}
