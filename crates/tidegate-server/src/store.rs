//! Whichever store the server was started with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::kernel::Verdict;
use tidegate::{Check, Clock, MemoryStore, Micros, Store, StoreError};
use tidegate_redis::RedisStore;

/// The store of a server. Cheap to clone; clones are one store.
#[derive(Clone)]
pub enum AnyStore {
    /// In this process. It answers at once: see
    /// [`ImmediateStore`](tidegate::ImmediateStore).
    Memory(Arc<MemoryStore>),
    /// On Redis or Valkey.
    Redis(RedisStore),
}

impl AnyStore {
    /// What kind of store it is.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            AnyStore::Memory(_) => "memory",
            AnyStore::Redis(_) => "redis",
        }
    }

    /// Whether it answers, as far as is known; one that was never asked may.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        match self {
            AnyStore::Memory(_) => true,
            AnyStore::Redis(store) => store.statistics().away == 0,
        }
    }
}

impl Store for AnyStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match self {
            AnyStore::Memory(store) => store.decide(checks, verdicts).await,
            AnyStore::Redis(store) => store.decide(checks, verdicts).await,
        }
    }

    fn clock(&self) -> &dyn Clock {
        match self {
            AnyStore::Memory(store) => store.clock(),
            AnyStore::Redis(store) => store.clock(),
        }
    }
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> AnyStore {
        AnyStore::Memory(Arc::new(store))
    }
}

impl From<RedisStore> for AnyStore {
    fn from(store: RedisStore) -> AnyStore {
        AnyStore::Redis(store)
    }
}

/// Counting keys walks through the store, so it is not done for every reader.
const BETWEEN_KEY_COUNTS: Duration = Duration::from_secs(5);

/// How many keys a memory store has, as of a few seconds ago.
#[derive(Debug, Default)]
pub(crate) struct KeyCount(Mutex<Option<(Instant, u64)>>);

impl KeyCount {
    pub(crate) fn of(&self, store: &MemoryStore) -> u64 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((at, known)) if at.elapsed() < BETWEEN_KEY_COUNTS => known,
            Some(_) | None => {
                let counted = store.count_keys() as u64;
                *last = Some((Instant::now(), counted));
                counted
            }
        }
    }
}
