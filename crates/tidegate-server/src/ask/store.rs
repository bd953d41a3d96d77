//! Whichever store the server was started with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store, StoreError};
use tidegate::{Clock, Key, Limit, MemoryStore, Micros, Name};
use tidegate_redis::RedisStore;

use crate::ask::budget::Bounded;

/// The store of a server. Cheap to clone; clones are one store.
#[derive(Clone)]
pub enum AnyStore {
    /// In this process. It answers at once: see
    /// [`ImmediateStore`](tidegate::store::ImmediateStore).
    Memory(Arc<MemoryStore>),
    /// On Redis or Valkey.
    Redis(RedisStore),
    /// There, for limits that come with requests.
    #[doc(hidden)]
    Bounded(Arc<Bounded>),
}

/// How a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers, or was never asked.
    Good,
    /// It gives no answer.
    Unreachable,
    /// It answers every command with an error, such as for want of a password or of memory.
    Refusing,
}

impl AnyStore {
    /// What kind of store it is.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            AnyStore::Memory(_) => "memory",
            AnyStore::Redis(_) | AnyStore::Bounded(_) => "redis",
        }
    }

    /// Redis, if it is there.
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match self {
            AnyStore::Memory(_) => None,
            AnyStore::Redis(store) => Some(store),
            AnyStore::Bounded(store) => Some(store.redis()),
        }
    }

    /// Whether it decides, as far as is known; one that was never asked may.
    #[must_use]
    pub fn health(&self) -> Health {
        match self.redis().map(RedisStore::statistics) {
            Some(statistics) if statistics.away > 0 => Health::Unreachable,
            Some(statistics) if statistics.refusing => Health::Refusing,
            Some(_) | None => Health::Good,
        }
    }

    /// Charges a key of its own, to find out whether it decides again: without
    /// requests there is nothing else to find it out by.
    pub(crate) async fn probe(&self) {
        const PROBE: Name = Name::literal("readiness");
        let (meter, key) = (Meter::new(PROBE, Limit::per_second(1_000)), Key::from("probe"));
        if let Ok(check) = Check::new(&meter, &key, Verb::Charge, 1) {
            // What comes of it shows in its health.
            let _ = self.decide(&[check], &mut [Verdict::default()]).await;
        }
    }
}

impl Store for AnyStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match self {
            AnyStore::Memory(store) => store.decide(checks, verdicts).await,
            AnyStore::Redis(store) => store.decide(checks, verdicts).await,
            AnyStore::Bounded(store) => store.decide(checks, verdicts).await,
        }
    }

    fn clock(&self) -> &dyn Clock {
        match self {
            AnyStore::Memory(store) => store.clock(),
            AnyStore::Redis(store) => store.clock(),
            AnyStore::Bounded(store) => store.clock(),
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
    pub(crate) fn of(&self, count: impl FnOnce() -> usize) -> u64 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((at, known)) if at.elapsed() < BETWEEN_KEY_COUNTS => known,
            Some(_) | None => {
                let counted = count() as u64;
                *last = Some((Instant::now(), counted));
                counted
            }
        }
    }
}
