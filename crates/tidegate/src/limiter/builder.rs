//! The settings of a limiter, and its bounds.

use std::sync::Arc;

use super::acquire::{Places, Waiters};
use super::current::Policies;
use super::{Inner, Limiter};
use crate::error::ConfigError;
use crate::layer::Fallback;
use crate::observe::{Observer, Observers};
use crate::policy::Policy;
use crate::store::memory::MemoryStore;
use crate::store::{FailureMode, Store};

/// Settings of a [`Limiter`].
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<S = MemoryStore> {
    policy: Policy,
    /// Makes the store when the limiter is made, so that a default one is not
    /// made and replaced.
    store: Box<dyn FnOnce() -> S + Send>,
    observers: Observers,
    on_failure: Option<FailureMode>,
    local_store: Option<Arc<MemoryStore>>,
    max_log_entries: u64,
    places: Arc<Places>,
}

impl<S: Store> LimiterBuilder<S> {
    pub(super) fn of(policy: Policy, store: impl FnOnce() -> S + Send + 'static) -> LimiterBuilder<S> {
        LimiterBuilder {
            policy,
            store: Box::new(store),
            observers: Observers::default(),
            on_failure: None,
            local_store: None,
            max_log_entries: Limiter::DEFAULT_MAX_LOG_ENTRIES,
            places: Places::new(Limiter::DEFAULT_MAX_WAITERS),
        }
    }

    /// Where the states are kept.
    pub fn store<T: Store>(self, store: T) -> LimiterBuilder<T> {
        let LimiterBuilder { policy, store: _, observers, on_failure, local_store, max_log_entries, places } = self;
        LimiterBuilder {
            policy,
            store: Box::new(|| store),
            observers,
            on_failure,
            local_store,
            max_log_entries,
            places,
        }
    }

    /// Who answers when the store cannot, for every limit that does not say
    /// so [itself](crate::store::Meter::on_failure). Without this, the caller gets the error.
    pub fn on_failure(mut self, mode: FailureMode) -> LimiterBuilder<S> {
        self.on_failure = Some(mode);
        self
    }

    /// The store of those limits that fail to [local](FailureMode::Local)
    /// ones, if it should not be one of 100,000 keys that is this limiter's own.
    pub fn local_store(mut self, store: impl Into<Arc<MemoryStore>>) -> LimiterBuilder<S> {
        self.local_store = Some(store.into());
        self
    }

    /// Adds an observer, to be told of every decision.
    pub fn observer(mut self, observer: impl Observer) -> LimiterBuilder<S> {
        self.observers.add(observer);
        self
    }

    /// The largest count of a sliding log, which keeps as many entries for a key:
    /// [`Limiter::DEFAULT_MAX_LOG_ENTRIES`] unless set. A policy with a larger one is
    /// refused, when the limiter is built and when its policy is changed.
    pub fn max_log_entries(mut self, entries: u64) -> LimiterBuilder<S> {
        self.max_log_entries = entries;
        self
    }

    /// How many callers may [wait](Limiter::acquire) at a time, over all keys:
    /// [`Limiter::DEFAULT_MAX_WAITERS`] unless set. One more is refused at once.
    pub fn max_waiters(mut self, callers: u64) -> LimiterBuilder<S> {
        self.places = Places::new(callers);
        self
    }

    /// Takes the bounds of another limiter: its
    /// [`max_log_entries`](LimiterBuilder::max_log_entries), and its
    /// [`max_waiters`](LimiterBuilder::max_waiters), which then bounds the callers that
    /// wait for either.
    pub fn within_bounds_of<T>(mut self, other: &Limiter<T>) -> LimiterBuilder<S> {
        self.max_log_entries = other.inner.policies.max_log_entries();
        self.places = other.inner.waiters.places();
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    /// If the policy is empty, has two rules of one name, or a sliding log of
    /// more than [`max_log_entries`](LimiterBuilder::max_log_entries).
    pub fn build(self) -> Result<Limiter<S>, ConfigError> {
        let LimiterBuilder { policy, store, observers, on_failure, local_store, max_log_entries, places } = self;
        let store = Fallback::new(store()).on_failure(on_failure);
        let store = match local_store {
            Some(local) => store.local_store(local),
            None => store,
        };
        let is_quiet = observers.is_empty() && !store.has_mode();
        let policies = Policies::new(policy, max_log_entries, is_quiet)?;
        let inner = Inner { policies, store, observers, waiters: Waiters::new(places) };
        Ok(Limiter { inner: Arc::new(inner) })
    }
}
