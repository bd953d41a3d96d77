//! Repeats refusals without asking, until the request could pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Micros};

use super::refusals::Refusals;

/// A store whose refusals are remembered.
///
/// A request with an id, and one that is not all charges, is always decided by
/// the store.
pub struct RefusalCache<S> {
    store: S,
    refusals: Option<Refusals>,
    repeated: AtomicU64,
}

impl<S> RefusalCache<S> {
    /// A store whose refusals are remembered there; with `None`, they are not.
    pub fn new(store: S, refusals: impl Into<Option<Refusals>>) -> RefusalCache<S> {
        RefusalCache { store, refusals: refusals.into(), repeated: AtomicU64::new(0) }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Refusals that were repeated without asking the store.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }
}

impl<S: Store> Store for RefusalCache<S> {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let Some(refusals) = &self.refusals else { return self.store.decide(checks, verdicts).await };
        let _given_back = refusals.given_back_by(checks);
        let Some(lookup) = refusals.lookup(checks, self.clock().now()) else {
            return self.store.decide(checks, verdicts).await;
        };
        if let Some(at) = refusals.answer(&lookup, verdicts) {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return Ok(at);
        }
        let at = self.store.decide(checks, verdicts).await?;
        refusals.remember(lookup, verdicts, at, self.clock().now());
        Ok(at)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.store.in_background(task);
    }
}
