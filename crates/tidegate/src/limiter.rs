//! The front door: a policy, a store, and the questions one asks of them.

mod acquire;

use std::sync::Arc;

pub use acquire::AcquireError;

use self::acquire::Waiters;
use crate::decision::Decision;
use crate::failure::{FailureMode, StandIns};
use crate::few::Few;
use crate::kernel::{Verb, Verdict};
use crate::limit::ConfigError;
use crate::observe::{Event, Observer, Observers};
use crate::policy::{Applied, Compiled, Draft, Explanation, Policy, Resolution, RuleExplanation};
use crate::request::Request;
use crate::store::memory::MemoryStore;
use crate::store::{Check, CheckError, ImmediateStore, Meter, Store, StoreError};
use crate::time::Micros;

/// Decides whether requests may pass. Cheap to clone; clones are one limiter.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_second(2));
/// assert!(limiter.check("alice")?.is_allowed());
/// assert_eq!(limiter.check("alice")?.remaining(), 0);
/// let refusal = limiter.check("alice")?;
/// assert!(!refusal.is_allowed() && !refusal.retry_after().is_zero());
/// assert!(limiter.is_allowed("bob"));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
pub struct Limiter<S = MemoryStore> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    policy: Compiled,
    /// The only limit, if every request is asked about nothing else.
    only: Option<Meter>,
    /// The same, if there is nobody to be told and nobody to stand in.
    plain: Option<Meter>,
    store: S,
    observers: Observers,
    stand_ins: Option<Box<StandIns>>,
    waiters: Waiters,
}

impl<S> Inner<S> {
    /// What the store decided of the limits that a request meets.
    fn decided_of(
        &self,
        resolution: &Resolution<'_, '_>,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        decided: Result<Micros, StoreError>,
    ) -> Result<Micros, StoreError> {
        if decided.is_ok() {
            return decided;
        }
        let numbers: Vec<usize> = resolution.enforced.iter().map(|applied| applied.number).collect();
        self.decided(checks, &numbers, verdicts, decided)
    }

    /// What the store decided, or whoever stands in for it.
    fn decided(
        &self,
        checks: &[Check<'_>],
        numbers: &[usize],
        verdicts: &mut [Verdict],
        decided: Result<Micros, StoreError>,
    ) -> Result<Micros, StoreError> {
        match (decided, &self.stand_ins) {
            (Err(error), Some(stand_ins)) => stand_ins.decide(checks, numbers, verdicts, error),
            (decided, _) => decided,
        }
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Limiter { inner: Arc::clone(&self.inner) }
    }
}

/// Settings of a [`Limiter`].
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<S = MemoryStore> {
    policy: Policy,
    /// Makes the store when the limiter is made: whoever brings one has no
    /// other made in vain.
    store: Box<dyn FnOnce() -> S + Send>,
    observers: Observers,
    on_failure: Option<FailureMode>,
    local_store: Option<MemoryStore>,
}

impl Limiter {
    /// A limiter with a memory store of its own and the default settings.
    ///
    /// # Panics
    /// If the policy is empty or has two rules of one name. For a policy that
    /// is not written in the program, use [`with_store`](Limiter::with_store)
    /// or the [builder](Limiter::builder).
    pub fn new(policy: impl Into<Policy>) -> Limiter {
        match Limiter::with_store(policy, MemoryStore::default()) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins a limiter with other settings than the default ones.
    pub fn builder(policy: impl Into<Policy>) -> Builder<MemoryStore> {
        Builder::new(policy.into(), MemoryStore::default)
    }
}

impl<S: Store> Builder<S> {
    fn new(policy: Policy, store: impl FnOnce() -> S + Send + 'static) -> Builder<S> {
        Builder { policy, store: Box::new(store), observers: Observers::default(), on_failure: None, local_store: None }
    }

    /// Where the states are kept.
    pub fn store<T: Store>(self, store: T) -> Builder<T> {
        let Builder { policy, store: _, observers, on_failure, local_store } = self;
        Builder { policy, store: Box::new(|| store), observers, on_failure, local_store }
    }

    /// Who answers when the store cannot, for every limit that does not say
    /// so [itself](Meter::on_failure). Without this, the caller gets the error.
    pub fn on_failure(mut self, mode: FailureMode) -> Builder<S> {
        self.on_failure = Some(mode);
        self
    }

    /// The store of those limits that fail to [local](FailureMode::Local)
    /// ones, if it should not be one of 100,000 keys.
    pub fn local_store(mut self, store: MemoryStore) -> Builder<S> {
        self.local_store = Some(store);
        self
    }

    /// Adds an observer, to be told of every decision.
    pub fn observer(mut self, observer: impl Observer) -> Builder<S> {
        self.observers.add(observer);
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    /// If the policy is empty or has two rules of one name.
    pub fn build(self) -> Result<Limiter<S>, ConfigError> {
        let Builder { policy, store, observers, on_failure, local_store } = self;
        let policy = Compiled::new(&policy)?;
        let stand_ins = StandIns::new(policy.meters(), on_failure, local_store);
        let only = policy.only_meter().cloned();
        let plain = only.clone().filter(|_| observers.is_empty() && stand_ins.is_none());
        let inner = Inner { policy, only, plain, store: store(), observers, stand_ins, waiters: Waiters::default() };
        Ok(Limiter { inner: Arc::new(inner) })
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter on a store of your choice.
    ///
    /// # Errors
    /// If the policy is empty or has two rules of one name.
    pub fn with_store(policy: impl Into<Policy>, store: S) -> Result<Limiter<S>, ConfigError> {
        Builder::new(policy.into(), || store).build()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// Charges the request if every limit lets it pass; otherwise none of
    /// them is charged.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost can never pass; or whatever
    /// kept the store from answering.
    pub async fn check_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_async(Verb::Charge, &request.into()).await
    }

    /// [`peek`](Limiter::peek) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn peek_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_async(Verb::Peek, &request.into()).await
    }

    /// [`refund`](Limiter::refund) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn refund_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_async(Verb::Refund, &request.into()).await
    }

    /// [`reset`](Limiter::reset) on any store.
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn reset_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_async(Verb::Reset, &request.into()).await
    }

    async fn ask_async(&self, verb: Verb, request: &Request<'_>) -> Result<Decision, CheckError> {
        let inner = &*self.inner;
        if let Some(meter) = &inner.only {
            let checks = [Check::new(meter, &request.key, verb, request.cost)?];
            let mut verdicts = [Verdict::default()];
            let decided = inner.store.decide(&checks, &mut verdicts).await;
            let at = inner.decided(&checks, &[0], &mut verdicts, decided)?;
            return Ok(self.told(verb, request, checks[0].decision(verdicts[0]), at));
        }
        let resolution = inner.policy.resolve(request);
        let mut question = Question::new(&resolution, verb)?;
        let mut decided = None;
        if let Some(checks) = &question.checks {
            let answer = inner.store.decide(checks.as_slice(), question.verdicts.as_mut_slice()).await;
            decided =
                Some(inner.decided_of(&resolution, checks.as_slice(), question.verdicts.as_mut_slice(), answer)?);
        }
        let decision = self.tell_of(&question, decided, verb, request);
        for (shadow, check) in shadows(&resolution, verb, decision) {
            let mut verdicts = [Verdict::default()];
            if let Ok(at) = inner.store.decide(&[check], &mut verdicts).await {
                self.tell_shadow(shadow, verb, check.decision(verdicts[0]), at);
            }
        }
        Ok(decision)
    }

    /// What every rule says of a request, and why, without charging anything
    /// or telling observers.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn explain_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Explanation, CheckError> {
        let request = request.into();
        let inner = &*self.inner;
        let mut rules = Vec::new();
        for Draft { rule, shadow, say } in inner.policy.drafts(&request) {
            let say = match say {
                Err(say) => say,
                Ok(applied) => match applied.check(Verb::Peek) {
                    Err(_) => applied.unsatisfiable(),
                    Ok(check) => {
                        let mut verdicts = [Verdict::default()];
                        inner.store.decide(&[check], &mut verdicts).await?;
                        applied.answers(check.decision(verdicts[0]))
                    }
                },
            };
            rules.push(RuleExplanation { rule, say, shadow, binds: false });
        }
        let blocked_by = inner.policy.resolve(&request).blocked_by;
        Ok(Explanation::new(blocked_by, rules))
    }

    /// What came of a question, of which the observers have been told.
    fn tell_of(&self, question: &Question<'_>, decided: Option<Micros>, verb: Verb, request: &Request<'_>) -> Decision {
        let decision = question.decision();
        match decided {
            Some(at) => self.told(verb, request, decision, at),
            // Nobody needed the store: the observers get its time all the same.
            None if self.inner.observers.is_empty() => decision,
            None => self.told(verb, request, decision, self.inner.store.clock().now()),
        }
    }

    fn tell_shadow(&self, shadow: &Applied<'_, '_>, verb: Verb, decision: Decision, at: Micros) {
        let observers = &self.inner.observers;
        if !observers.is_empty() {
            let Applied { key, cost, .. } = shadow;
            observers.tell(&Event { rule: decision.rule(), key, verb, cost: *cost, decision, at, shadow: true });
        }
    }

    /// The decision, of which the observers have been told.
    #[inline]
    fn told(&self, verb: Verb, request: &Request<'_>, decision: Decision, at: Micros) -> Decision {
        let observers = &self.inner.observers;
        if !observers.is_empty() {
            let Request { key, cost, .. } = request;
            observers.tell(&Event { rule: decision.rule(), key, verb, cost: *cost, decision, at, shadow: false });
        }
        decision
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
        self.ask_now(Verb::Charge, &request.into())
    }

    /// The bool that people ask for first: whether the request was admitted.
    /// No answer, and a cost that can never pass, count as refused.
    #[inline]
    pub fn is_allowed<'a>(&self, request: impl Into<Request<'a>>) -> bool {
        let request = request.into();
        let inner = &*self.inner;
        if let Some(meter) = &inner.plain {
            let check = Check::new(meter, &request.key, Verb::Charge, request.cost);
            return check.is_ok_and(|check| inner.store.admits_now(check).unwrap_or(false));
        }
        self.ask_several_now(Verb::Charge, &request).is_ok_and(|decision| decision.is_allowed())
    }

    /// What [`check`](Limiter::check) would answer now, without charging. The
    /// remaining and reset times are those of the moment.
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    pub fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_now(Verb::Peek, &request.into())
    }

    /// Gives back what the request was charged: the latest cost that is still
    /// counted, as far as there is any.
    ///
    /// Refunding what was charged last is as if it had never been asked for.
    /// Refunding something older lets that much more pass than the bound says.
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    pub fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_now(Verb::Refund, &request.into())
    }

    /// Forgets all that the key was charged.
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask_now(Verb::Reset, &request.into())
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
        // A store that answers at once never leaves a future pending.
        acquire::block_on(self.explain_async(request))
    }

    /// Decides a batch of requests, each for itself and 32 at a time at one
    /// reading of the clock: for 16 and more about twice as fast as one by one.
    /// Where the policy has several limits, each request is decided as by
    /// [`check`](Limiter::check).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(1));
    /// let decisions = limiter.check_many(["alice", "bob", "alice"])?;
    /// assert_eq!(decisions.iter().map(|d| d.is_allowed()).collect::<Vec<_>>(), [true, true, false]);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost of any can never pass: then
    /// none is charged. Or whatever kept the store from answering.
    pub fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<Vec<Decision>, CheckError> {
        let requests: Vec<Request<'a>> = requests.into_iter().map(Into::into).collect();
        let Some(meter) = &self.inner.only else {
            for request in &requests {
                Question::new(&self.inner.policy.resolve(request), Verb::Charge)?;
            }
            return requests.iter().map(|request| self.ask_now(Verb::Charge, request)).collect();
        };
        let mut checks = Vec::with_capacity(requests.len());
        for request in &requests {
            checks.push(Check::new(meter, &request.key, Verb::Charge, request.cost)?);
        }
        let mut decisions = Vec::with_capacity(requests.len());
        let mut verdicts = [Verdict::default(); BATCH];
        for (requests, checks) in requests.chunks(BATCH).zip(checks.chunks(BATCH)) {
            let verdicts = &mut verdicts[..checks.len()];
            let at = self.inner.store.decide_each_now(checks, verdicts)?;
            let decided = requests.iter().zip(checks.iter().zip(verdicts));
            decisions.extend(
                decided
                    .map(|(request, (check, verdict))| self.told(Verb::Charge, request, check.decision(*verdict), at)),
            );
        }
        Ok(decisions)
    }

    #[inline]
    fn ask_now(&self, verb: Verb, request: &Request<'_>) -> Result<Decision, CheckError> {
        let inner = &*self.inner;
        if let Some(meter) = &inner.plain {
            let check = Check::new(meter, &request.key, verb, request.cost)?;
            let mut verdict = Verdict::default();
            inner.store.decide_one_now(check, &mut verdict)?;
            return Ok(check.decision(verdict));
        }
        self.ask_several_now(verb, request).map(Decision::field_by_field)
    }

    #[inline(never)]
    fn ask_several_now(&self, verb: Verb, request: &Request<'_>) -> Result<Decision, CheckError> {
        let inner = &*self.inner;
        let resolution = inner.policy.resolve(request);
        let mut question = Question::new(&resolution, verb)?;
        let mut decided = None;
        if let Some(checks) = &question.checks {
            let answer = inner.store.decide_now(checks.as_slice(), question.verdicts.as_mut_slice());
            decided =
                Some(inner.decided_of(&resolution, checks.as_slice(), question.verdicts.as_mut_slice(), answer)?);
        }
        let decision = self.tell_of(&question, decided, verb, request);
        for (shadow, check) in shadows(&resolution, verb, decision) {
            let mut verdict = Verdict::default();
            if let Ok(at) = inner.store.decide_one_now(check, &mut verdict) {
                self.tell_shadow(shadow, verb, check.decision(verdict), at);
            }
        }
        Ok(decision)
    }
}

/// Requests of a batch that a store is asked about at a time.
const BATCH: usize = 32;

/// A request as checks, and room for their verdicts.
struct Question<'a> {
    resolution: &'a Resolution<'a, 'a>,
    /// None if nobody needs to be asked.
    checks: Option<Few<Check<'a>>>,
    verdicts: Few<Verdict>,
}

impl<'a> Question<'a> {
    fn new(resolution: &'a Resolution<'a, 'a>, verb: Verb) -> Result<Question<'a>, CheckError> {
        let enforced = if resolution.blocked_by.is_some() { &[] } else { &*resolution.enforced };
        let verdicts = Few::filled(Verdict::default(), enforced.len());
        let Some(first) = enforced.first() else { return Ok(Question { resolution, checks: None, verdicts }) };
        let mut checks = Few::filled(first.check(verb)?, enforced.len());
        for (check, applied) in checks.as_mut_slice().iter_mut().zip(enforced).skip(1) {
            *check = applied.check(verb)?;
        }
        Ok(Question { resolution, checks: Some(checks), verdicts })
    }

    fn checks(&self) -> &[Check<'a>] {
        self.checks.as_ref().map_or(&[], Few::as_slice)
    }

    /// The decision of the limit that binds.
    fn decision(&self) -> Decision {
        if let Some(rule) = self.resolution.blocked_by {
            return Decision::blocked(rule);
        }
        let decisions = self.checks().iter().zip(self.verdicts.as_slice());
        let decisions = decisions.map(|(check, verdict)| check.decision(*verdict));
        decisions.reduce(Decision::and).unwrap_or_else(Decision::unlimited)
    }
}

/// What those limits are asked that only watch: a refused request is charged
/// to none of them either.
fn shadows<'q>(
    resolution: &'q Resolution<'_, 'q>,
    verb: Verb,
    decision: Decision,
) -> impl Iterator<Item = (&'q Applied<'q, 'q>, Check<'q>)> {
    let verb = if verb == Verb::Charge && !decision.is_allowed() { Verb::Peek } else { verb };
    // A cost that can never pass is refused by a shadow, too: there is nothing to ask.
    resolution.shadows.iter().filter_map(move |shadow| Some((shadow, shadow.check(verb).ok()?)))
}

impl<S> std::fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}
