//! The policy in force, and how another one takes its place.
//!
//! A limiter whose policy was never changed reads it where it is: one load
//! says so. From the first change on it is swapped whole behind a pointer. If it has
//! one limit, or a few by the key of the request, and nothing else, these are read [faster](super::fast).
//!
//! A decision by a policy that is no longer in force does not know what the limits
//! in force have admitted since. So a charge looks again before it
//! answers, and if there was a change it is given back and asked anew. A
//! decision is thus made by one policy, while that was in force.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::Limiter;
use super::fast::{FEW_LIMITS, FastLimit, FastLimits};
use crate::error::ConfigError;
use crate::policy::{Compiled, Direct, History, Policy};
use crate::store::{Meter, Store};
use crate::time::{Clock, Micros};

/// A policy made ready, and what goes with it.
pub(super) struct Current {
    pub(super) policy: Compiled,
    /// The limits that apply to every request, if that is all.
    pub(super) direct: Option<Direct>,
    /// Whether no limit has a failure mode of its own.
    pub(super) is_quiet: bool,
    /// Until when anything of its history matters.
    settles_at: Option<Micros>,
    source: Policy,
    history: History,
}

impl Current {
    fn new(source: Policy, history: History, max_log_entries: u64) -> Result<Current, ConfigError> {
        let policy = Compiled::new(&source, &history)?;
        policy.meters().iter().try_for_each(|meter| meter.check_log_entries(max_log_entries))?;
        let (direct, settles_at) = (policy.direct(), history.until());
        let is_quiet = policy.meters().iter().all(|meter| meter.failure_mode().is_none());
        Ok(Current { policy, direct, is_quiet, settles_at, source, history })
    }

    /// The same policy, when nothing of its history matters any more.
    fn settled(&self) -> Current {
        let policy = self.policy.without_former();
        let (direct, source, history) = (policy.direct(), self.source.clone(), self.history.clone());
        Current { policy, direct, is_quiet: self.is_quiet, settles_at: None, source, history }
    }

    /// The only limit, if every request is asked about nothing else, by its own key.
    #[inline]
    pub(super) fn only(&self) -> Option<&Meter> {
        let (meter, attribute) = self.direct.as_ref()?.only()?;
        attribute.is_none().then_some(meter)
    }

    /// The limits that take the fast path, if they may.
    fn fast(&self, is_fast: bool) -> Option<FastLimit> {
        let direct = self.direct.as_ref().filter(|_| is_fast && self.is_quiet)?;
        match direct.only() {
            Some((meter, attribute)) => Some(FastLimit::new(meter.clone(), attribute)),
            None => FastLimit::of_keys(direct.by_key(FEW_LIMITS)?),
        }
    }
}

/// The policy in force now, and that of the beginning.
pub(super) struct Policies {
    first: Current,
    fast: FastLimits,
    /// Whether limits without a failure mode may take the fast path.
    is_fast: bool,
    changed: OnceLock<ArcSwap<Current>>,
    /// Held while the policy is changed.
    changing: Mutex<()>,
    /// The largest count of a sliding log.
    pub(super) max_log_entries: u64,
}

impl Policies {
    /// The policy of a new limiter. Its limits may take the fast path if
    /// `is_fast` says so: no observer, and no failure mode.
    pub(super) fn new(policy: Policy, max_log_entries: u64, is_fast: bool) -> Result<Policies, ConfigError> {
        let history = History::new(&policy);
        let first = Current::new(policy, history, max_log_entries)?;
        let fast = FastLimits::new(first.fast(is_fast));
        let (changed, changing) = (OnceLock::new(), Mutex::new(()));
        Ok(Policies { first, fast, is_fast, changed, changing, max_log_entries })
    }

    /// The limits that take the fast path, if there are any.
    #[inline(always)]
    pub(super) fn fast(&self) -> &FastLimits {
        &self.fast
    }

    /// The policy in force, for a moment.
    #[inline]
    pub(super) fn current(&self) -> InForce<'_> {
        match self.changed.get() {
            None => InForce::First(&self.first),
            Some(changed) => InForce::Lent(changed.load()),
        }
    }

    /// The policy in force, for as long as an answer may take.
    pub(super) fn current_for_long(&self) -> InForce<'_> {
        match self.changed.get() {
            None => InForce::First(&self.first),
            Some(changed) => InForce::Shared(changed.load_full()),
        }
    }

    /// Whether a policy is in force still.
    pub(super) fn is_current(&self, policy: &Current) -> bool {
        std::ptr::eq(policy, &*self.current())
    }

    fn change(&self, policy: Policy, now: Micros) -> Result<(), ConfigError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current_for_long();
        if policy == current.source {
            return Ok(());
        }
        let history = current.history.changed(&current.source, &policy, now)?;
        self.swap(Current::new(policy, history, self.max_log_entries)?);
        Ok(())
    }

    /// Lets go of predecessors that no longer matter, so that checks need not
    /// look for them: by the clock that the policy was changed by, which need
    /// not be the one that decides.
    #[inline]
    pub(super) fn settle(&self, policy: &Current, clock: &dyn Clock) {
        if policy.settles_at.is_some_and(|settles_at| settles_at <= clock.now()) {
            self.settle_now(policy);
        }
    }

    #[cold]
    fn settle_now(&self, policy: &Current) {
        // A policy change in progress makes this unnecessary.
        if let Ok(_changing) = self.changing.try_lock() {
            if self.is_current(policy) {
                self.swap(policy.settled());
            }
        }
    }

    /// Puts a policy in force. One thread at a time does so.
    fn swap(&self, next: Current) {
        let next = Arc::new(next);
        let fast = next.fast(self.is_fast);
        self.fast.replace(fast, || match self.changed.get() {
            Some(changed) => changed.store(next),
            None => {
                let _ = self.changed.set(ArcSwap::new(next));
            }
        });
    }
}

/// A policy, for as long as a decision uses it.
pub(super) enum InForce<'a> {
    First(&'a Current),
    Lent(Guard<Arc<Current>>),
    Shared(Arc<Current>),
}

impl Deref for InForce<'_> {
    type Target = Current;

    fn deref(&self) -> &Current {
        match self {
            InForce::First(policy) => policy,
            InForce::Lent(policy) => policy,
            InForce::Shared(policy) => policy,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Puts another policy in the place of the one in force, for all clones
    /// and at once, while checks go on.
    ///
    /// What was used counts on, by the limit that admitted it: a request is admitted if
    /// what its key has used of the limit, what it has used of the limits that stood in its
    /// place before, in the rule of the same name, and the cost are at most the capacity.
    /// Lowering a limit takes effect at once, raising one gives what is more of it and
    /// nothing else, and a limit lowered and raised again forgives nothing. What was used of
    /// a slow limit goes on draining slowly; a [reset](Limiter::reset) forgets it. The same
    /// policy again changes nothing.
    ///
    /// A rule of another name, or one whose keys are made of other attributes,
    /// begins anew.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_day(10));
    /// for _ in 0..8 {
    ///     assert!(limiter.allow("alice"));
    /// }
    /// limiter.set_policy(Limit::per_day(20))?;
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(12));
    /// limiter.set_policy(Limit::per_day(5))?;
    /// assert!(!limiter.allow("alice"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the policy is no good; if it has a sliding log that is [too
    /// long](ConfigError::TooManyLogEntries); or if a limit of a rule was
    /// [changed too often](ConfigError::TooManyChanges) within too short a
    /// time. Then the one in force stays.
    pub fn set_policy(&self, policy: impl Into<Policy>) -> Result<(), ConfigError> {
        self.inner.policies.change(policy.into(), self.inner.store.clock().now())?;
        self.inner.waiters.wake_all_first();
        Ok(())
    }

    /// The policy in force.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let limiter = Limiter::new(Policy::new().limit("orders", Limit::per_hour(10)));
    /// assert_eq!(limiter.policy().rules().next().map(|rule| rule.in_words()).as_deref(), Some("10/h"));
    /// ```
    pub fn policy(&self) -> Policy {
        self.inner.policies.current().source.clone()
    }
}
