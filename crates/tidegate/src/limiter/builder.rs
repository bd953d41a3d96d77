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
///
/// ```
/// use tidegate::{FailureMode, Limit, Limiter, MemoryStore};
///
/// let limiter = Limiter::builder(Limit::per_second(10))
///     .store(MemoryStore::default())
///     .on_failure(FailureMode::local(4))
///     .build()?;
/// assert!(limiter.allow("alice"));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
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
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let store = MemoryStore::builder().max_keys(1_000).build()?;
    /// let limiter = Limiter::builder(Limit::per_second(10)).store(store).build()?;
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
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
    ///
    /// ```
    /// use tidegate::{FailureMode, Limit, Limiter};
    ///
    /// let limiter = Limiter::builder(Limit::per_second(10)).on_failure(FailureMode::Closed).build()?;
    /// assert!(limiter.allow("alice"), "the store works");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn on_failure(mut self, mode: FailureMode) -> LimiterBuilder<S> {
        self.on_failure = Some(mode);
        self
    }

    /// The store of those limits that fail to [local](FailureMode::Local)
    /// ones, if it should not be one of 100,000 keys that is this limiter's own.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{FailureMode, Limit, Limiter, MemoryStore};
    ///
    /// let local = Arc::new(MemoryStore::builder().max_keys(1_000).build()?);
    /// let mode = FailureMode::local(4);
    /// let limiter = Limiter::builder(Limit::per_second(10)).on_failure(mode).local_store(local).build()?;
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn local_store(mut self, store: impl Into<Arc<MemoryStore>>) -> LimiterBuilder<S> {
        self.local_store = Some(store.into());
        self
    }

    /// Adds an observer, to be told of every decision.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{CountingObserver, Limit, Limiter};
    ///
    /// let counts = Arc::new(CountingObserver::default());
    /// let limiter = Limiter::builder(Limit::per_hour(1)).observer(counts.clone()).build()?;
    /// assert!(limiter.allow("alice") && !limiter.allow("alice"));
    /// assert_eq!((counts.allowed(), counts.refused()), (1, 1));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> LimiterBuilder<S> {
        self.observers.add(observer);
        self
    }

    /// The largest count of a sliding log, which keeps as many entries for a key:
    /// [`Limiter::DEFAULT_MAX_LOG_ENTRIES`] unless set. A policy with a larger one is
    /// refused, when the limiter is built and when its policy is changed.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let log: Limit = "sliding-log 1000/min".parse()?;
    /// assert!(Limiter::builder(log).max_log_entries(100).build().is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn max_log_entries(mut self, entries: u64) -> LimiterBuilder<S> {
        self.max_log_entries = entries;
        self
    }

    /// How many callers may [wait](Limiter::acquire) at a time, over all keys:
    /// [`Limiter::DEFAULT_MAX_WAITERS`] unless set. One more is refused at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{AcquireError, Limit, Limiter};
    ///
    /// let limiter = Limiter::builder(Limit::per_hour(1)).max_waiters(0).build()?;
    /// let waited = limiter.acquire("alice", Duration::from_secs(1));
    /// assert!(matches!(waited, Err(AcquireError::TooManyWaiters { .. })));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn max_waiters(mut self, callers: u64) -> LimiterBuilder<S> {
        self.places = Places::new(callers);
        self
    }

    /// Takes the bounds of another limiter: its
    /// [`max_log_entries`](LimiterBuilder::max_log_entries), and its
    /// [`max_waiters`](LimiterBuilder::max_waiters), which then bounds the callers that
    /// wait for either.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let first = Limiter::builder(Limit::per_second(10)).max_waiters(50).build()?;
    /// let second = Limiter::builder(Limit::per_second(20)).within_bounds_of(&first).build()?;
    /// assert!(second.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn within_bounds_of<T>(mut self, other: &Limiter<T>) -> LimiterBuilder<S> {
        self.max_log_entries = other.inner.policies.max_log_entries;
        self.places = Arc::clone(&other.inner.waiters.places);
        self
    }

    /// Makes the limiter.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    ///
    /// let error = Limiter::builder(Policy::new()).build().map(drop).expect_err("no rules");
    /// println!("{error}");
    /// ```
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
