//! Two limiters, as in two processes, that share a limit on Redis.
//!
//! ```text
//! cargo run -p tidegate-redis --example shared -- redis://127.0.0.1
//! ```
//!
//! Without a server each of them decides by itself, and says so.

use std::time::Duration;

use tidegate::{FailureMode, Limit, Limiter};
use tidegate_redis::RedisStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".into());
    let limit = Limit::sliding_log(6, Duration::from_secs(2));
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&url).await?;
        limiters.push(Limiter::builder(limit).store(store).on_failure(FailureMode::local(2)).build()?);
    }
    for request in 0..8 {
        let process = request % 2;
        let decision = limiters[process].check_async("alice").await?;
        let by = if decision.is_degraded() { " (decided here: no server)" } else { "" };
        println!("process {process}: {decision}{by}");
    }
    Ok(())
}
