//! The shop on `127.0.0.1:3000`, or `SHOP_ADDRESS`; its counts on Redis if there is a `SHOP_REDIS`.
//!
//! ```text
//! cargo run -p tidegate-example-shop
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let address = variable("SHOP_ADDRESS").unwrap_or_else(|| "127.0.0.1:3000".into());
    let redis = variable("SHOP_REDIS");
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("policy.toml");
    let policy = variable("SHOP_POLICY").map_or(beside, PathBuf::from);

    let shop = tidegate_example_shop::serve(&policy, redis.as_deref())?;
    let listener = TcpListener::bind(&address).await?;
    println!("http://{}/products, counts {}", listener.local_addr()?, redis.as_deref().unwrap_or("in memory"));
    // The limits by address need the peer's.
    axum::serve(listener, shop.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
