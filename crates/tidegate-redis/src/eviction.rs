//! Whether servers throw states away when their memory is full.
//!
//! Every state has a time to live, so each policy but `noeviction` takes it for
//! something that can go; and a key that is forgotten has a whole burst again.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::client::Client;
use crate::failure::RedisFailure;
use crate::link::Link;

/// A server that throws keys away when its memory is full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Eviction {
    /// Its `maxmemory`, in bytes.
    pub memory: u64,
    /// Its `maxmemory-policy`.
    pub policy: String,
}

/// The servers that throw keys away, as far as they say so in time.
pub(crate) async fn evictions(client: &Client) -> Vec<Eviction> {
    let links = client.links().await;
    let said = join_all(links.iter().map(|link| timeout(client.deadline(), ask(link)))).await;
    said.into_iter().filter_map(|said| said.ok()?.ok()?).collect()
}

async fn ask(link: &Arc<Link>) -> Result<Option<Eviction>, RedisFailure> {
    let (mut connection, _) = link.connection().await?;
    let said: Result<String, _> = redis::cmd("INFO").arg("memory").query_async(&mut connection).await;
    let said = said.map_err(|error| RedisFailure::Connection { source: Arc::new(error) })?;
    Ok(read(&said))
}

fn read(info: &str) -> Option<Eviction> {
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let memory: u64 = value("maxmemory")?.parse().ok()?;
    let policy = value("maxmemory_policy")?;
    // Without a bound nothing has to go.
    (memory > 0 && policy != "noeviction").then(|| Eviction { memory, policy: policy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bound_with_a_policy_throws_keys_away() {
        let info = |memory: &str, policy: &str| {
            format!(
                "# Memory\r\nused_memory:1\r\nmaxmemory:{memory}\r\nmaxmemory_human:x\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        let eviction = Eviction { memory: 1024, policy: "volatile-lru".into() };
        assert_eq!(read(&info("1024", "volatile-lru")), Some(eviction));
        assert_eq!(read(&info("0", "volatile-lru")), None);
        assert_eq!(read(&info("1024", "noeviction")), None);
        assert_eq!(read("# Server\r\n"), None);
    }
}
