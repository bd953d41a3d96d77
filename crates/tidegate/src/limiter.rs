//! The limiter: a policy, a store, and the verbs that decide requests.

mod acquire;
mod ask;
mod builder;
mod current;
mod fast;
mod many;
mod quick;
mod reserve;

use std::sync::Arc;

pub use acquire::AcquireError;
pub use builder::LimiterBuilder;
pub use reserve::{Reservation, ReserveError};

use self::acquire::Waiters;
use self::current::Policies;
use self::fast::{FastLimit, Version};
use crate::blocking;
use crate::decision::{Balance, Decision};
use crate::error::ConfigError;
use crate::kernel::{Verb, Verdict};
use crate::layer::Fallback;
use crate::observe::Observers;
use crate::policy::{Applied, Draft, Explanation, Policy, RuleExplanation};
use crate::request::{Key, Request};
use crate::store::memory::MemoryStore;
use crate::store::{Check, CheckError, ImmediateStore, Meter, Store};
use crate::time::Micros;

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

impl LimitOf {
    fn new(applied: Applied<'_, '_>) -> LimitOf {
        LimitOf { meter: applied.meter.clone(), key: applied.key.into_owned(), cost: applied.cost }
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Limiter { inner: Arc::clone(&self.inner) }
    }
}

impl Limiter {
    /// The largest count of a sliding log unless set: at 16 to 32 bytes for an
    /// entry, a key has 3 MB at most.
    pub const DEFAULT_MAX_LOG_ENTRIES: u64 = 100_000;

    /// How many callers may wait at a time unless set: with the bytes of each (see
    /// [`Limiter::acquire`]), about 75 MB.
    pub const DEFAULT_MAX_WAITERS: u64 = 100_000;

    /// A limiter with a memory store of its own and the default settings.
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
    pub fn builder(policy: impl Into<Policy>) -> LimiterBuilder<MemoryStore> {
        LimiterBuilder::of(policy.into(), MemoryStore::default)
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter on a store of your choice.
    ///
    /// # Errors
    /// As [`LimiterBuilder::build`].
    pub fn with_store(policy: impl Into<Policy>, store: S) -> Result<Limiter<S>, ConfigError> {
        LimiterBuilder::of(policy.into(), || store).build()
    }

    /// The store.
    pub fn store(&self) -> &S {
        self.inner.store.inner()
    }

    /// Charges the request if every limit lets it pass; otherwise none of
    /// them is charged.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost can never pass;
    /// [`CheckError::MissingAttribute`], [`CheckError::NotAnAddress`] or
    /// [`CheckError::UnknownRule`] if the request does not fit the policy; or
    /// whatever kept the store from answering.
    pub async fn check_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Charge, &request.into()).await
    }

    /// [`peek`](Limiter::peek) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn peek_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Peek, &request.into()).await
    }

    /// [`report`](Limiter::report) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async), except for the cost.
    pub async fn report_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Report, &request.into()).await
    }

    /// [`refund`](Limiter::refund) on any store.
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn refund_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.decide_async(Verb::Refund, request).await.map(Balance::new)
    }

    /// [`reset`](Limiter::reset) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn reset_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.decide_async(Verb::Reset, request).await.map(Balance::new)
    }

    /// The limits that a request has to pass, and what it costs of each, by the policy in force;
    /// none if a rule or a list lets nothing pass. The store is not asked, and observers are not told.
    ///
    /// # Errors
    /// [`CheckError::MissingAttribute`], [`CheckError::NotAnAddress`] or [`CheckError::UnknownRule`]
    /// if the request does not fit the policy.
    pub fn limits_of<'a>(&self, request: impl Into<Request<'a>>) -> Result<Option<Vec<LimitOf>>, CheckError> {
        let request = request.into();
        let current = self.inner.policies.current_for_long();
        let resolution = current.policy.resolve(&request);
        match (resolution.problem, resolution.blocked_by) {
            (Some(problem), _) => Err(*problem),
            (None, Some(_)) => Ok(None),
            (None, None) => Ok(Some(resolution.enforced.into_iter().map(LimitOf::new).collect())),
        }
    }

    /// [`check_all`](Limiter::check_all) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn check_all_async(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let asked: Vec<_> = requests.iter().map(|request| (Verb::Charge, request)).collect();
        self.ask_all(&asked, Policies::current_for_long).await?.into_iter().collect()
    }

    /// Several requests of any verb, all or nothing: if a charge or a peek is
    /// refused, or a request has an error, nothing is charged, given back or
    /// reset, and the others say what they would have answered.
    ///
    /// # Errors
    /// If the store did not answer. What is wrong with a request is its own
    /// answer.
    pub async fn decide_all_async(
        &self,
        requests: &[(Verb, Request<'_>)],
    ) -> Result<Vec<Result<Decision, CheckError>>, CheckError> {
        let asked: Vec<_> = requests.iter().map(|(verb, request)| (*verb, request)).collect();
        let decisions = self.ask_all(&asked, Policies::current_for_long).await?;
        for (verb, request) in asked {
            if verb.may_give_back() {
                self.wake_first(request);
            }
        }
        Ok(decisions.into_vec())
    }

    /// A request of any verb, for protocols that read the verb from a wire.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub fn decide_async<'a>(
        &self,
        verb: Verb,
        request: impl Into<Request<'a>>,
    ) -> impl Future<Output = Result<Decision, CheckError>> + Send {
        let request = request.into();
        // A block, not a function: a function would keep its arguments twice.
        async move {
            let decision = self.ask(verb, &request).await?;
            if verb.may_give_back() {
                self.wake_first(&request);
            }
            Ok(decision)
        }
    }

    /// Shows each limit that the request has to pass, in the policy's order,
    /// without asking any of them: for response headers that name the limits.
    pub fn for_each_meter<'a>(&self, request: impl Into<Request<'a>>, mut show: impl FnMut(&Meter)) {
        self.for_each_limit(request, |meter, _| show(meter));
    }

    /// The same, and whose limit each of them is.
    pub fn for_each_limit<'a>(&self, request: impl Into<Request<'a>>, mut show: impl FnMut(&Meter, &Key<'_>)) {
        let request = request.into();
        if !request.is_plain() || self.with_only_meter(|meter| show(meter, &request.key)).is_none() {
            let current = self.inner.policies.current();
            let resolution = current.policy.resolve(&request);
            resolution.enforced.iter().for_each(|applied| show(applied.meter, &applied.key));
        }
    }

    /// Whether the policy has a rule of this name, for a request to
    /// [ask](Request::rule) for.
    pub fn has_rule(&self, name: &str) -> bool {
        self.inner.policies.current().policy.has_rule(name)
    }

    /// Shows the one limit that every request has to pass, if there is no other.
    #[inline]
    pub fn with_only_meter<R>(&self, show: impl FnOnce(&Meter) -> R) -> Option<R> {
        self.inner.policies.current().only().map(show)
    }

    /// What every rule says of a request, and why, without charging anything
    /// or telling observers.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn explain_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Explanation, CheckError> {
        let request = request.into();
        let inner = &*self.inner;
        let current = inner.policies.current_for_long();
        let mut rules = Vec::new();
        for Draft { rule, shadow, say, chosen_by, class } in current.policy.drafts(&request)? {
            let mut below_floor = false;
            let say = match say {
                Err(say) => say,
                Ok(applied) => match applied.check(Verb::Peek) {
                    Err(_) => applied.unsatisfiable(),
                    Ok(check) => {
                        let (answer, at) = self.answer(check).await?;
                        if answer.floor() > 0 && !answer.is_allowed() {
                            let whole = check.meter().clone().with_floor(0);
                            below_floor = self.answer(check.by(&whole)).await?.0.is_allowed();
                        }
                        // What costs nothing passes a limit of which nothing is left, and none that is in debt.
                        let free = match answer.remaining() {
                            Some(0) => Some(self.answer(check.with_cost(0)).await?.0),
                            Some(_) | None => None,
                        };
                        let debt = free.filter(|free| !free.is_allowed()).map(|free| free.wait().to_duration());
                        applied.answers(answer, debt, at)
                    }
                },
            };
            rules.push(RuleExplanation { rule, say, chosen_by, class, below_floor, shadow, binds: false });
        }
        let blocked_by = current.policy.resolve(&request).blocked_by;
        Ok(Explanation::new(blocked_by, rules))
    }

    /// What one limit says, and when.
    async fn answer(&self, check: Check<'_>) -> Result<(Decision, Micros), CheckError> {
        let mut verdicts = [Verdict::default()];
        let at = self.inner.store.decide(&[check], &mut verdicts).await?;
        Ok((check.decision(verdicts[0]), at))
    }
}

impl<S: ImmediateStore> Limiter<S> {
    /// Charges the request if every limit lets it pass; otherwise none of
    /// them is charged.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost can never pass; or whatever
    /// kept the store from answering.
    #[inline]
    pub fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        // As in `allow`, the request need not be in memory on the fast path.
        match self.inner.policies.fast().get() {
            Some((limit, version)) if limit.attribute.is_none() => {
                let request = request.into();
                if !request.is_plain() {
                    return self.check_moved(None, request);
                }
                let check = Check::new(&limit.meter, &request.key, Verb::Charge, request.cost)?;
                let mut verdict = Verdict::default();
                self.store().decide_one_now(check, &mut verdict)?;
                if !verdict.allowed || self.inner.policies.fast().is(version) {
                    return Ok(check.decision(verdict));
                }
                self.check_moved(Some(limit), request)
            }
            Some(_) | None => self.decide_now(Verb::Charge, &request.into()),
        }
    }

    /// Gives back what was charged by a limit that was no longer in force, and asks the policy.
    #[cold]
    #[inline(never)]
    #[expect(clippy::needless_pass_by_value, reason = "what is moved need not be in memory where it comes from")]
    fn check_moved(&self, charged: Option<&FastLimit>, request: Request<'_>) -> Result<Decision, CheckError> {
        self.give_back_of(charged, &request);
        self.decide_now(Verb::Charge, &request)
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
    #[inline]
    pub fn allow<'a>(&self, request: impl Into<Request<'a>>) -> bool {
        // The request is made where it is needed: on the fast path it need not be in memory.
        match self.inner.policies.fast().get() {
            Some((limit, version)) if limit.attribute.is_none() => {
                let request = request.into();
                if !request.is_plain() {
                    return self.allow_moved(None, request);
                }
                match self.admit_fast(limit, version, &request.key, request.cost) {
                    Some(is_admitted) => is_admitted,
                    None => self.allow_moved(Some(limit), request),
                }
            }
            Some((limit, version)) => {
                let request = request.into();
                match limit.key_of(&request).flatten() {
                    Some(key) => match self.admit_fast(limit, version, &key, request.cost) {
                        Some(is_admitted) => is_admitted,
                        None => {
                            self.give_back_of(Some(limit), &request);
                            self.allow_slowly(&request)
                        }
                    },
                    None => self.allow_slowly(&request),
                }
            }
            None => self.allow_slowly(&request.into()),
        }
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

    /// Gives back what was charged by a limit that was no longer in force, and asks the policy.
    #[cold]
    #[inline(never)]
    #[expect(clippy::needless_pass_by_value, reason = "what is moved need not be in memory where it comes from")]
    fn allow_moved(&self, charged: Option<&FastLimit>, request: Request<'_>) -> bool {
        self.give_back_of(charged, &request);
        self.allow_slowly(&request)
    }

    #[inline(never)]
    fn allow_slowly(&self, request: &Request<'_>) -> bool {
        match self.admit_quickly(request) {
            Ok(Some(is_admitted)) => is_admitted,
            Ok(None) => self.ask_now(Verb::Charge, request).is_ok_and(|decision| decision.is_allowed()),
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
    /// # Errors
    /// As [`check`](Limiter::check).
    pub fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(Verb::Peek, &request.into())
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
        self.decide_now(Verb::Report, &request.into())
    }

    /// Gives back what the request was charged: the latest cost that is still
    /// counted, as far as there is any.
    ///
    /// Refunding what was charged last is as if it had never been asked for.
    /// Refunding something older lets that much more pass than the bound says.
    /// A refund of more than a limit holds gives back all of it.
    ///
    /// # Errors
    /// Whatever the store says.
    pub fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.give_now(Verb::Refund, &request.into())
    }

    /// Forgets all that the key was charged: by every rule that applies, or by
    /// the [one](Request::rule) that the request names.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.give_now(Verb::Reset, &request.into())
    }

    fn give_now(&self, verb: Verb, request: &Request<'_>) -> Result<Balance, CheckError> {
        let given = self.decide_now(verb, request)?;
        self.wake_first(request);
        Ok(Balance::new(given))
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
    fn decide_now(&self, verb: Verb, request: &Request<'_>) -> Result<Decision, CheckError> {
        let inner = &*self.inner;
        let fast = inner.policies.fast();
        if let Some((limit, key, version)) = fast.of(request) {
            let key = key.as_ref().unwrap_or(&request.key);
            let check = Check::new(&limit.meter, key, verb, request.cost)?;
            let mut verdict = Verdict::default();
            self.store().decide_one_now(check, &mut verdict)?;
            if fast.is(version) || verb.is_final() {
                return Ok(check.decision(verdict));
            }
            if verb == Verb::Charge {
                if !verdict.allowed {
                    return Ok(check.decision(verdict));
                }
                self.give_back_now(check);
            }
        }
        match self.decide_quickly(verb, request)? {
            Some(decision) => Ok(decision),
            None => self.ask_now(verb, request).map(Decision::field_by_field),
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
