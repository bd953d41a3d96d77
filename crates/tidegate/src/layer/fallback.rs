//! Answers when the store cannot.
//!
//! A charge or a peek that the store could not decide is answered by the
//! [`FailureMode`] of each limit, and the verdict says so: it is degraded. A
//! slice is still all or nothing. Refunds and resets have no fallback: alone
//! they are an error, beside others they are left out.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use crate::kernel::{Verb, Verdict};
use crate::store::memory::MemoryStore;
use crate::store::{Check, FailureMode, Former, ImmediateStore, Meter, Store, StoreError};
use crate::time::{Clock, Micros};

/// A store that is answered for when it fails.
///
/// A limit without a [failure mode](Meter::on_failure) of its own has that of
/// the layer; where neither says anything, the error stays an error.
///
/// ```
/// use tidegate::layer::Fallback;
/// use tidegate::{FailureMode, Limit, Limiter, MemoryStore};
///
/// let store = Fallback::new(MemoryStore::default()).on_failure(FailureMode::Closed);
/// assert!(Limiter::with_store(Limit::per_hour(1), store)?.allow("alice"));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Fallback<S> {
    store: S,
    mode: Option<FailureMode>,
    /// Keeps the local shares; made when first needed.
    local: OnceLock<Arc<MemoryStore>>,
}

/// Keys that local shares are kept for unless another store is given; more
/// keys share a state.
pub const DEFAULT_LOCAL_KEYS: usize = 100_000;

impl<S> Fallback<S> {
    /// A store whose limits have no failure mode but their own.
    pub fn new(store: S) -> Fallback<S> {
        Fallback { store, mode: None, local: OnceLock::new() }
    }

    /// Sets the failure mode of limits that have none of their own.
    #[must_use]
    pub fn on_failure(mut self, mode: impl Into<Option<FailureMode>>) -> Fallback<S> {
        self.mode = mode.into();
        self
    }

    /// Keeps [local](FailureMode::Local) shares in this store, in place of one of
    /// 100,000 keys.
    ///
    /// ```
    /// use tidegate::layer::Fallback;
    /// use tidegate::{FailureMode, MemoryStore};
    ///
    /// let local = MemoryStore::builder().max_keys(1_000).build()?;
    /// let store = Fallback::new(MemoryStore::default()).on_failure(FailureMode::local(4)).local_store(local);
    /// # let _ = store;
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn local_store(mut self, store: impl Into<Arc<MemoryStore>>) -> Fallback<S> {
        self.local = OnceLock::from(store.into());
        self
    }

    /// The store that is answered for.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Whether limits without a failure mode of their own have one.
    #[inline]
    pub(crate) fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether a limit has an answer when the store fails.
    pub(crate) fn answers_for(&self, meter: &Meter) -> bool {
        meter.failure_mode().or(self.mode).is_some()
    }

    /// Answers in place of a store that failed with `error`.
    #[cold]
    fn answer_by_mode(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        error: StoreError,
    ) -> Result<Micros, StoreError> {
        let is_askable = |check: &Check<'_>| matches!(check.verb(), Verb::Charge | Verb::Peek);
        // What was charged in the store is corrected there, or not at all.
        let is_correction = checks.iter().any(Check::is_correction);
        let modes: Option<Vec<FailureMode>> =
            checks.iter().map(|check| check.meter().failure_mode().or(self.mode)).collect();
        let modes = match (modes, &error) {
            (Some(modes), StoreError::Failed { .. }) if checks.iter().any(is_askable) && !is_correction => modes,
            _ => return Err(error),
        };
        let shares: Vec<Option<Share<'_>>> =
            checks.iter().zip(&modes).map(|(check, mode)| Share::new(check, *mode)).collect();
        let mut refused = false;
        for ((check, mode), (share, verdict)) in checks.iter().zip(&modes).zip(shares.iter().zip(&mut *verdicts)) {
            // More than the share can ever hold: the store must be back first.
            let too_much = share.as_ref().is_some_and(|share| check.cost() > share.meter.largest_cost());
            let refuses = is_askable(check) && (*mode == FailureMode::Closed || too_much);
            refused |= refuses;
            *verdict = Verdict { allowed: !refuses, degraded: true, ..Verdict::default() };
            match (refuses, mode) {
                (true, _) => verdict.retry_after = FailureMode::RETRY_AFTER,
                (false, FailureMode::Open) => {
                    verdict.remaining = check.meter().capacity().saturating_sub(check.meter().floor());
                }
                (false, FailureMode::Closed | FailureMode::Local { .. }) => {}
            }
        }
        let formers: Vec<Vec<Former<'_>>> = shares.iter().flatten().map(Share::former).collect();
        let mut asked: Vec<Check<'_>> = Vec::with_capacity(formers.len());
        let mut places = Vec::with_capacity(formers.len());
        for ((place, share), former) in
            shares.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?))).zip(&formers)
        {
            let check = &checks[place];
            let (verb, cost) = if is_askable(check) { (check.verb(), check.cost()) } else { (Verb::Peek, 0) };
            if let Ok(local) = Check::new(&share.meter, check.key(), verb, cost) {
                let local = local.with_former(former);
                let local = if refused { local.as_peek() } else { local };
                asked.push(check.id().filter(|_| is_askable(check)).map_or(local, |id| local.with_id(id)));
                places.push(place);
            }
        }
        let mut answers = vec![Verdict::default(); asked.len()];
        let now = self.local().decide_now(&asked, &mut answers)?;
        for (place, answer) in places.into_iter().zip(answers) {
            verdicts[place] = Verdict { degraded: true, ..answer };
        }
        Ok(now)
    }

    fn local(&self) -> &MemoryStore {
        self.local.get_or_init(|| {
            MemoryStore::builder()
                .max_keys(DEFAULT_LOCAL_KEYS)
                .build()
                .unwrap_or_else(|_| MemoryStore::default())
                .into()
        })
    }
}

/// The part of a limit that one process keeps by itself, and of those that
/// the limit replaced.
struct Share<'c> {
    meter: Meter,
    former: Vec<(Meter, &'c Former<'c>)>,
}

impl<'c> Share<'c> {
    fn new(check: &Check<'c>, mode: FailureMode) -> Option<Share<'c>> {
        let FailureMode::Local { processes } = mode else { return None };
        let former = check.former().iter().map(|former| (former.meter.share(processes), former));
        Some(Share { meter: check.meter().share(processes), former: former.collect() })
    }

    fn former(&self) -> Vec<Former<'_>> {
        self.former.iter().map(|(meter, former)| Former { meter, until: former.until }).collect()
    }
}

impl<S: Store> Store for Fallback<S> {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match self.store.decide(checks, verdicts).await {
            Ok(at) => Ok(at),
            Err(error) => self.answer_by_mode(checks, verdicts, error),
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.store.in_background(task);
    }
}

impl<S: ImmediateStore> ImmediateStore for Fallback<S> {}

#[cfg(test)]
mod tests;
