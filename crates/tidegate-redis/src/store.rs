//! The public store: the layers over the servers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Micros};

use crate::counters::Statistics;
use crate::eviction::{self, Eviction};
use crate::layer::{Lease, Leased, RefusalCache};
use crate::remote::Remote;
use crate::runtime::run;

/// Keeps the states of every key on Redis or Valkey, where all processes that
/// use the same servers and prefix share them. Cheap to clone; clones are one
/// store.
#[derive(Clone)]
pub struct RedisStore {
    layers: Arc<Layers>,
}

/// Refusals are remembered above the leases. Below them, the refusal of a chunk
/// would be remembered, and with it what was left then; and a slice that meets
/// a rule with a lease would no longer be asked about as a whole.
pub(crate) type Layers = RefusalCache<Leased<Remote>>;

impl RedisStore {
    pub(crate) fn over(layers: Layers) -> RedisStore {
        RedisStore { layers: Arc::new(layers) }
    }

    fn leased(&self) -> &Leased<Remote> {
        self.layers.inner()
    }

    fn remote(&self) -> &Remote {
        self.leased().inner()
    }

    /// Waits for the first connection, but not for long.
    pub(crate) async fn open(&self) {
        run(self.remote().runtime().handle(), self.remote().client().open()).await;
    }

    /// The lease of a rule, if it has one: its [`excess`](Lease::excess) is
    /// what the bound of this store's decisions is exceeded by at most.
    #[must_use]
    pub fn lease(&self, rule: &str) -> Option<Lease> {
        self.leased().leases().of_rule(rule)
    }

    /// Gives back all that is on lease, one key after another: for the end of a process.
    pub async fn close(&self) {
        self.leased().close().await;
    }

    /// The servers that throw keys away when their memory is full, and with
    /// them what was used of a limit: give those `maxmemory-policy noeviction`.
    /// One that does not answer, or not to us (`INFO` needs a permission), is
    /// taken for one that does not.
    pub async fn evictions(&self) -> Vec<Eviction> {
        run(self.remote().runtime().handle(), eviction::evictions(self.remote().client())).await
    }

    /// What has happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            leased: self.leased().answered(),
            repeated: self.layers.repeated(),
            units_on_lease: self.leased().units(),
            ..self.remote().client().statistics()
        }
    }
}

impl Store for RedisStore {
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
        self.layers.decide(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        self.layers.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.layers.in_background(task);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.remote().prefix()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tidegate::kernel::Verb;
    use tidegate::store::Meter;
    use tidegate::{Key, Limit, Name};

    use super::*;
    use crate::servers::Servers;

    /// A server holds one in the task of each connection.
    #[test]
    fn the_future_of_a_decision_is_small() {
        let servers = Servers::parse("redis://127.0.0.1:1").expect("a URL");
        let store = RedisStore::builder(servers).build().expect("valid settings");
        let (meter, key) = (Meter::new(Name::literal("rule"), Limit::per_second(1)), Key::from("alice"));
        let checks = [Check::new(&meter, &key, Verb::Charge, 1).expect("a cost of one")];
        let mut verdicts = [Verdict::default()];
        let size = size_of_val(&store.decide(&checks, &mut verdicts));
        assert!(size < 1_024, "{size} bytes");
    }
}
