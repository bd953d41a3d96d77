//! The limiter: a policy, a store, and the verbs that decide requests.

mod acquire;
mod ask;
mod asynchronous;
mod builder;
mod current;
mod fast;
mod many;
mod quick;
mod reserve;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use smallvec::SmallVec;

pub use acquire::AcquireError;
pub use builder::LimiterBuilder;
pub use reserve::{Reservation, ReserveOutcome};

use self::acquire::Waiters;
use self::ask::ignore_limits;
use self::current::Policies;
use self::fast::{By, FEW_LIMITS, FastLimit, Version};
use crate::blocking;
use crate::decision::{Balance, Decision};
use crate::error::ConfigError;
use crate::kernel::{Verb, Verdict};
use crate::layer::Fallback;
use crate::observe::Observers;
use crate::policy::{Explanation, Policy};
use crate::request::{Key, Request};
use crate::store::memory::MemoryStore;
use crate::store::{Check, CheckError, ImmediateStore, Meter, Store};

/// Decides whether requests may pass. Cheap to clone; clones are one limiter.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_hour(2));
/// assert!(limiter.check("alice")?.is_allowed());
/// assert_eq!(limiter.check("alice")?.remaining(), Some(0));
/// let refusal = limiter.check("alice")?;
/// assert!(!refusal.is_allowed() && refusal.retry_after().is_some_and(|wait| !wait.is_zero()));
/// assert!(limiter.allow("bob"));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
pub struct Limiter<S = MemoryStore> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    policies: Policies,
    store: Fallback<S>,
    observers: Observers,
    waiters: Waiters,
}

/// A limit that a request has to pass: see [`Limiter::limits_of`].
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_hour(10));
/// let limits = limiter.limits_of("alice")?.expect("nothing blocks it");
/// assert_eq!((limits[0].meter.capacity(), limits[0].cost), (10, 1));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitOf {
    /// The limit, by its rule.
    pub meter: Meter,
    /// Whose limit.
    pub key: Key<'static>,
    /// What the request costs of it.
    pub cost: u64,
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Limiter { inner: Arc::clone(&self.inner) }
    }
}

impl Limiter {
    /// The largest count of a sliding log unless set: at 16 to 32 bytes for an
    /// entry, a key has 3 MB at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let log = Limit::sliding_log(Limiter::DEFAULT_MAX_LOG_ENTRIES + 1, Duration::from_secs(60));
    /// assert!(Limiter::builder(log).build().is_err());
    /// ```
    pub const DEFAULT_MAX_LOG_ENTRIES: u64 = 100_000;

    /// How many callers may wait at a time unless set: with the bytes of each (see
    /// [`Limiter::acquire_async`]), about 75 MB.
    ///
    /// ```
    /// assert_eq!(tidegate::Limiter::DEFAULT_MAX_WAITERS, 100_000);
    /// ```
    pub const DEFAULT_MAX_WAITERS: u64 = 100_000;

    /// A limiter with a memory store of its own and the default settings.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let one_limit = Limiter::new(Limit::per_second(10));
    /// let policy = Policy::new().limit("burst", Limit::per_second(10)).limit("daily", Limit::per_day(1_000));
    /// let policy = Limiter::new(policy);
    /// assert!(one_limit.allow("alice") && policy.allow("alice"));
    /// ```
    ///
    /// # Panics
    /// If the policy is empty, has two rules of one name, or a sliding log of
    /// more than [`Limiter::DEFAULT_MAX_LOG_ENTRIES`]. For a policy that is not written in
    /// the program, use [`with_store`](Limiter::with_store) or the
    /// [builder](Limiter::builder).
    pub fn new(policy: impl Into<Policy>) -> Limiter {
        match Limiter::with_store(policy, MemoryStore::default()) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins a limiter with other settings than the default ones.
    ///
    /// ```
    /// use tidegate::{FailureMode, Limit, Limiter};
    ///
    /// let limiter = Limiter::builder(Limit::per_second(10)).on_failure(FailureMode::Open).max_waiters(100).build()?;
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn builder(policy: impl Into<Policy>) -> LimiterBuilder<MemoryStore> {
        LimiterBuilder::of(policy.into(), MemoryStore::default)
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter on a store of your choice.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let store = MemoryStore::builder().max_keys(1_000).build()?;
    /// let limiter = Limiter::with_store(Limit::per_second(10), store)?;
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// As [`LimiterBuilder::build`].
    pub fn with_store(policy: impl Into<Policy>, store: S) -> Result<Limiter<S>, ConfigError> {
        LimiterBuilder::of(policy.into(), || store).build()
    }

    /// The store.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow("alice"));
    /// assert_eq!(limiter.store().count_keys(), 1);
    /// ```
    pub fn store(&self) -> &S {
        self.inner.store.inner()
    }
}

impl<S: ImmediateStore> Limiter<S> {
    /// Charges the request if every limit lets it pass; otherwise none of
    /// them is charged.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let decision = limiter.check(Request::new("alice").cost(4))?;
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.remaining(), Some(6));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost can never pass; or whatever
    /// kept the store from answering.
    #[inline]
    pub fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        // As in `allow`, the request need not be in memory on the fast path.
        match self.inner.policies.fast().get() {
            Some((limit @ FastLimit { by: By::Key, .. }, version)) => {
                let request = request.into();
                if !request.is_plain() {
                    return self.check_again(None, request);
                }
                let request = ManuallyDrop::new(request);
                let mut verdict = Verdict::default();
                let checked = Check::new(&limit.meter, &request.key, Verb::Charge, request.cost)
                    .and_then(|check| Ok(self.store().decide_one_now(check, &mut verdict)?));
                if verdict.allowed && !self.inner.policies.fast().is(version) {
                    return self.check_again(Some(limit), ManuallyDrop::into_inner(request));
                }
                if request.is_on_heap() {
                    drop(ManuallyDrop::into_inner(request));
                }
                checked.map(|_| limit.meter.decision(verdict))
            }
            Some(_) | None => self.decide_now(Verb::Charge, &request.into(), ignore_limits),
        }
    }

    /// [`check`](Limiter::check), and the limits that made the decision: see
    /// [`decide_with_limits_async`](Limiter::decide_with_limits_async).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let (limiter, mut told) = (Limiter::new(Limit::per_hour(10)), Vec::new());
    /// let _ = limiter.check_with_limits("alice", |decision, limits| {
    ///     told.extend(limits.iter().map(|limit| format!("{} for {}", limit.meter().meaning(), limit.key())));
    ///     assert_eq!(decision.remaining(), Some(9));
    /// })?;
    /// assert_eq!(told, ["10/h for alice"]);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    #[inline]
    pub fn check_with_limits<'a>(
        &self,
        request: impl Into<Request<'a>>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        self.decide_now(Verb::Charge, &request.into(), tell)
    }

    /// Gives back what was charged by a limit that was no longer in force, and asks the policy.
    #[cold]
    #[inline(never)]
    #[expect(clippy::needless_pass_by_value, reason = "what is moved need not be in memory where it comes from")]
    fn check_again(&self, charged: Option<&FastLimit>, request: Request<'_>) -> Result<Decision, CheckError> {
        self.give_back_of(charged, &request);
        self.decide_now(Verb::Charge, &request, ignore_limits)
    }

    /// Charges several requests, all or none: if one is refused, or can never be
    /// admitted, none is charged. The decisions are those of the requests, in
    /// their order; all are admitted if [each](Decision::is_allowed) is. The
    /// [id](Request::id) of the first that has one is that of all.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let transfer = [Request::new("alice").cost(3), Request::new("bob").cost(11)];
    /// assert!(limiter.check_all(&transfer).is_err());
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(10));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Limiter::check), for any of them.
    pub fn check_all(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        blocking::now(self.check_all_async(requests))
    }

    /// The bool that people ask for first: whether the request was admitted.
    /// No answer, and a cost that can never pass, count as refused.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(1));
    /// assert!(limiter.allow("alice"));
    /// assert!(!limiter.allow("alice"));
    /// ```
    #[inline]
    pub fn allow<'a>(&self, request: impl Into<Request<'a>>) -> bool {
        // The request is made where it is needed: on the fast path it need not be in memory.
        match self.inner.policies.fast().get() {
            Some((limit @ FastLimit { by: By::Key, .. }, version)) => {
                let request = request.into();
                if !request.is_plain() {
                    return self.allow_again(None, request);
                }
                // Nor is it for the sake of its drop, where that has nothing to do.
                let request = ManuallyDrop::new(request);
                if request.is_bare() {
                    return self.allow_without_key(limit, version, request.cost);
                }
                match self.admit_fast(limit, version, &request.key, request.cost) {
                    Some(is_admitted) => {
                        if request.is_on_heap() {
                            drop(ManuallyDrop::into_inner(request));
                        }
                        is_admitted
                    }
                    None => self.allow_again(Some(limit), ManuallyDrop::into_inner(request)),
                }
            }
            Some((limit @ FastLimit { by: By::User, .. }, version)) => {
                let request = request.into();
                if !request.is_of_user() {
                    return self.allow_again(None, request);
                }
                match self.admit_fast(limit, version, &request.key, request.cost) {
                    Some(is_admitted) => is_admitted,
                    None => self.allow_again(Some(limit), request),
                }
            }
            Some((FastLimit { by: By::Keys(limits), .. }, version)) => {
                let request = ManuallyDrop::new(request.into());
                let is_admitted = self.allow_by_all(limits, version, &request);
                let owns_memory = request.is_on_heap();
                if owns_memory {
                    drop(ManuallyDrop::into_inner(request));
                }
                is_admitted
            }
            Some((FastLimit { by: By::Attribute(_), .. }, _)) | None => self.allow_owned(request.into()),
        }
    }

    /// Whether limits by the key of the request all admit it.
    #[inline(never)]
    fn allow_by_all(&self, limits: &[Meter], version: Version, request: &Request<'_>) -> bool {
        if !request.is_plain() {
            return self.allow_by_policy(request);
        }
        let mut checks: SmallVec<[Check<'_>; FEW_LIMITS]> = SmallVec::new();
        for meter in limits {
            if request.cost > meter.largest_cost() {
                return false;
            }
            checks.push(Check::capped(meter, &request.key, Verb::Charge, request.cost));
        }
        let is_admitted = self.store().admits_all_now(&checks).unwrap_or(false);
        if is_admitted && !self.inner.policies.fast().is(version) {
            self.give_back_all(&checks);
            return self.allow_by_policy(request);
        }
        is_admitted
    }

    /// Whether the only limit admits a cost; nothing if it was replaced meanwhile.
    #[inline(always)]
    fn admit_fast(&self, limit: &FastLimit, version: Version, key: &Key<'_>, cost: u64) -> Option<bool> {
        // The error that it is for others would be made and dropped.
        if cost > limit.meter.largest_cost() {
            return Some(false);
        }
        let check = Check::capped(&limit.meter, key, Verb::Charge, cost);
        let is_admitted = self.store().admits_now(check).unwrap_or(false);
        (!is_admitted || self.inner.policies.fast().is(version)).then_some(is_admitted)
    }

    /// [`allow`](Limiter::allow) for a request of which nothing but the cost matters.
    #[inline(never)]
    fn allow_without_key(&self, limit: &FastLimit, version: Version, cost: u64) -> bool {
        let is_admitted = self.admit_fast(limit, version, &Key::EMPTY, cost);
        is_admitted.unwrap_or_else(|| self.allow_again(Some(limit), Request::new(()).cost(cost)))
    }

    /// Gives back what was charged by a limit that was no longer in force, and asks the policy.
    #[cold]
    #[inline(never)]
    #[expect(clippy::needless_pass_by_value, reason = "what is moved need not be in memory where it comes from")]
    fn allow_again(&self, charged: Option<&FastLimit>, request: Request<'_>) -> bool {
        self.give_back_of(charged, &request);
        self.allow_by_policy(&request)
    }

    #[inline(never)]
    #[expect(clippy::needless_pass_by_value, reason = "what is moved need not be in memory where it comes from")]
    fn allow_owned(&self, request: Request<'_>) -> bool {
        self.allow_by_policy(&request)
    }

    #[inline(never)]
    fn allow_by_policy(&self, request: &Request<'_>) -> bool {
        if let Some((limit, Some(key), version)) = self.inner.policies.fast().of(request) {
            match self.admit_fast(limit, version, &key, request.cost) {
                Some(is_admitted) => return is_admitted,
                None => self.give_back_of(Some(limit), request),
            }
        }
        match self.try_admit_direct(request) {
            Ok(Some(is_admitted)) => is_admitted,
            Ok(None) => self.ask_now(Verb::Charge, request, ignore_limits).is_ok_and(|decision| decision.is_allowed()),
            Err(_) => false,
        }
    }

    /// Gives back what a request was charged by a limit that was no longer in force.
    #[cold]
    fn give_back_of(&self, charged: Option<&FastLimit>, request: &Request<'_>) {
        let Some(limit) = charged else { return };
        if let Some(key) = limit.key_of(request) {
            let key = key.as_ref().unwrap_or(&request.key);
            self.give_back_now(Check::capped(&limit.meter, key, Verb::Charge, request.cost));
        }
    }

    /// What [`check`](Limiter::check) would answer now, without charging. The
    /// remaining and reset times are those of the moment.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(10));
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(10), "nothing was charged");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    pub fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(Verb::Peek, &request.into(), ignore_limits)
    }

    /// Charges what has been spent already, whatever is left: tokens that a model
    /// has produced, bytes that were sent. It is never refused.
    ///
    /// A key that owes has nothing remaining, and its waits are exact, until time has
    /// paid the debt. A key owes at most one capacity more than the limit, or what
    /// [`Limit::debt`](crate::Limit::debt) says; [`Decision::unrecorded`] is what was
    /// reported beyond that.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(1_000));
    /// let reported = limiter.report(Request::new("alice").cost(1_500))?;
    /// assert_eq!((reported.remaining(), reported.unrecorded()), (Some(0), 0));
    /// assert!(!limiter.allow("alice"));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Limiter::check), except that any cost is recorded.
    pub fn report<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(Verb::Report, &request.into(), ignore_limits)
    }

    /// Gives back what the request was charged: the latest cost that is still
    /// counted, as far as there is any.
    ///
    /// Refunding what was charged last is as if it had never been asked for.
    /// Refunding something older lets that much more pass than the bound says.
    /// A refund of more than a limit holds gives back all of it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow(Request::new("alice").cost(4)));
    /// let balance = limiter.refund(Request::new("alice").cost(3))?;
    /// assert_eq!(balance.remaining(), Some(9));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// Whatever the store says.
    pub fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.give_now(Verb::Refund, &request.into())
    }

    /// Forgets all that the key was charged: by every rule that applies, or by
    /// the [one](Request::rule) that the request names.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow(Request::new("alice").cost(10)));
    /// limiter.reset("alice")?;
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(10));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.give_now(Verb::Reset, &request.into())
    }

    fn give_now(&self, verb: Verb, request: &Request<'_>) -> Result<Balance, CheckError> {
        let given = self.decide_now(verb, request, ignore_limits)?;
        self.wake_first(request);
        Ok(Balance(given))
    }

    /// What every rule says of a request, and why, without charging anything.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Policy, Request, Rule};
    ///
    /// let orders = Rule::new("orders", Limit::per_minute(10)).when("method", Condition::Equals("POST".into()));
    /// let limiter = Limiter::new(Policy::new().rule(orders).limit("all", Limit::per_minute(100)));
    /// let explanation = limiter.explain(Request::user("alice").with("method", "GET"))?;
    /// assert_eq!(explanation.to_string(), "\
    /// allowed: 100 left by \"all\"
    ///   orders: does not apply: method is \"GET\", and the rule asks that it is \"POST\"
    ///   all: 100/min for \"alice\" allows a cost of 1, 100 left  <- binds
    /// ");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub fn explain<'a>(&self, request: impl Into<Request<'a>>) -> Result<Explanation, CheckError> {
        blocking::now(self.explain_async(request))
    }

    #[inline]
    fn decide_now(
        &self,
        verb: Verb,
        request: &Request<'_>,
        mut tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        let inner = &*self.inner;
        let fast = inner.policies.fast();
        if let Some((limit, key, version)) = fast.of(request) {
            let key = key.as_ref().unwrap_or(&request.key);
            let check = Check::new(&limit.meter, key, verb, request.cost)?;
            let mut verdict = Verdict::default();
            self.store().decide_one_now(check, &mut verdict)?;
            let is_charge = verb == Verb::Charge;
            if fast.is(version) || verb.is_final() || (is_charge && !verdict.allowed) {
                let decision = check.decision(verdict);
                tell(&decision, &[check]);
                return Ok(decision);
            }
            if is_charge {
                self.give_back_now(check);
            }
        }
        match self.try_decide_direct(verb, request, &mut tell)? {
            Some(decision) => Ok(decision),
            None => self.ask_now(verb, request, tell).map(Decision::field_by_field),
        }
    }

    /// Whether only the limits of the policy may have something to say.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.inner.observers.is_empty() && !self.inner.store.has_mode()
    }

    /// Gives back what was charged by a policy that was no longer in force. If
    /// it cannot be, it was charged in vain: against the caller.
    #[cold]
    fn give_back_now(&self, check: Check<'_>) {
        let _ = self.store().decide_one_now(check.as_refund(), &mut Verdict::default());
    }
}

impl<S> std::fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}
