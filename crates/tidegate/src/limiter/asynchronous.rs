//! The verbs of a limiter on any store, and what it tells of its limits.

use super::ask::ignore_limits;
use super::{LimitOf, Limiter, Policies};
use crate::decision::{Balance, Decision};
use crate::kernel::{Verb, Verdict};
use crate::policy::{Applied, Explanation, PendingExplanation, RuleExplanation};
use crate::request::Request;
use crate::store::{Check, CheckError, Meter, Store};
use crate::time::Micros;

impl<S: Store> Limiter<S> {
    /// Charges the request if every limit lets it pass; otherwise none of
    /// them is charged.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// if limiter.check_async("alice").await?.is_allowed() {
    ///     println!("serve the request");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost can never pass;
    /// [`CheckError::MissingAttribute`], [`CheckError::NotAnAddress`] or
    /// [`CheckError::UnknownRule`] if the request does not fit the policy; or
    /// whatever kept the store from answering.
    pub async fn check_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Charge, &request.into(), ignore_limits).await
    }

    /// [`peek`](Limiter::peek) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// println!("{:?} left", limiter.peek_async("alice").await?.remaining());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn peek_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Peek, &request.into(), ignore_limits).await
    }

    /// [`report`](Limiter::report) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let _ = limiter.report_async("alice").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async), except for the cost.
    pub async fn report_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::Report, &request.into(), ignore_limits).await
    }

    /// [`refund`](Limiter::refund) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// limiter.refund_async("alice").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn refund_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.decide_async(Verb::Refund, request).await.map(Balance)
    }

    /// [`reset`](Limiter::reset) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// limiter.reset_async("alice").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn reset_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Balance, CheckError> {
        self.decide_async(Verb::Reset, request).await.map(Balance)
    }

    /// The limits that a request has to pass, and what it costs of each, by the policy in force;
    /// none if a rule or a list lets nothing pass. The store is not asked, and observers are not told.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let policy = Policy::new().limit("burst", Limit::per_second(5)).limit("daily", Limit::per_day(100));
    /// let limiter = Limiter::new(policy);
    /// let limits = limiter.limits_of("alice")?.expect("nothing blocks it");
    /// assert_eq!(limits.iter().map(|limit| limit.meter.name().as_str()).collect::<Vec<_>>(), ["burst", "daily"]);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::MissingAttribute`], [`CheckError::NotAnAddress`] or [`CheckError::UnknownRule`]
    /// if the request does not fit the policy.
    pub fn limits_of<'a>(&self, request: impl Into<Request<'a>>) -> Result<Option<Vec<LimitOf>>, CheckError> {
        let request = request.into();
        let current = self.inner.policies.current_for_long();
        let resolution = current.policy.resolve(&request);
        let limit = |of: Applied<'_, '_>| LimitOf { meter: of.meter.clone(), key: of.key.into_owned(), cost: of.cost };
        match (resolution.problem, resolution.blocked_by) {
            (Some(problem), _) => Err(*problem),
            (None, Some(_)) => Ok(None),
            (None, None) => Ok(Some(resolution.enforced.into_iter().map(limit).collect())),
        }
    }

    /// [`check_all`](Limiter::check_all) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let both = [Request::new("alice").cost(3), Request::new("bob").cost(4)];
    /// let all_admitted = limiter.check_all_async(&both).await?.iter().all(|decision| decision.is_allowed());
    /// # let _ = all_admitted;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub async fn check_all_async(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let asked: Vec<_> = requests.iter().map(|request| (Verb::Charge, request)).collect();
        self.ask_all(&asked, Policies::current_for_long, ignore_limits).await?.into_iter().collect()
    }

    /// Several requests of any verb, all or nothing: if a charge or a peek is
    /// refused, or a request has an error, nothing is charged, given back or
    /// reset, and the others say what they would have answered.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// use tidegate::kernel::Verb;
    ///
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let requests = [(Verb::Charge, Request::new("alice")), (Verb::Peek, Request::new("bob"))];
    /// for decision in limiter.decide_all_async(&requests).await? {
    ///     println!("{}", decision?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer. What is wrong with a request is its own
    /// answer.
    pub async fn decide_all_async(
        &self,
        requests: &[(Verb, Request<'_>)],
    ) -> Result<Vec<Result<Decision, CheckError>>, CheckError> {
        let asked: Vec<_> = requests.iter().map(|(verb, request)| (*verb, request)).collect();
        let decisions = self.ask_all(&asked, Policies::current_for_long, ignore_limits).await?;
        for (verb, request) in asked {
            if verb.may_give_back() {
                self.wake_first(request);
            }
        }
        Ok(decisions.into_vec())
    }

    /// A request of any verb, for protocols that read the verb from a wire.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// use tidegate::kernel::Verb;
    ///
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let decision = limiter.decide_async(Verb::Peek, "alice").await?;
    /// # let _ = decision;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub fn decide_async<'a>(
        &self,
        verb: Verb,
        request: impl Into<Request<'a>>,
    ) -> impl Future<Output = Result<Decision, CheckError>> + Send {
        self.decide_with_limits_async(verb, request, ignore_limits)
    }

    /// The same, and the limits that made the decision: `tell` gets it with the check of each limit that
    /// the request had to pass, in the policy's order. For response headers that list them, by
    /// the very policy that decided. A decision that is unlimited is not told.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Policy};
    /// use tidegate::kernel::Verb;
    ///
    /// # tidegate_testkit::block_on(async {
    /// let policy = Policy::new().limit("burst", Limit::per_second(5)).limit("daily", Limit::per_day(100));
    /// let (limiter, mut names) = (Limiter::new(policy), Vec::new());
    /// let decided = limiter.decide_with_limits_async(Verb::Charge, "alice", |_, limits| {
    ///     names = limits.iter().map(|limit| limit.meter().name().to_string()).collect();
    /// });
    /// assert!(decided.await?.is_allowed());
    /// assert_eq!(names, ["burst", "daily"]);
    /// # Ok::<(), tidegate::CheckError>(())
    /// # })?;
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// As [`check_async`](Limiter::check_async).
    pub fn decide_with_limits_async<'a>(
        &self,
        verb: Verb,
        request: impl Into<Request<'a>>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> impl Future<Output = Result<Decision, CheckError>> + Send {
        let request = request.into();
        // A block, not a function: a function would keep its arguments twice.
        async move {
            let decision = self.ask(verb, &request, tell).await?;
            if verb.may_give_back() {
                self.wake_first(&request);
            }
            Ok(decision)
        }
    }

    /// Whether the policy has a rule of this name, for a request to
    /// [ask](Request::rule) for.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let limiter = Limiter::new(Policy::new().limit("orders", Limit::per_hour(10)));
    /// assert!(limiter.has_rule("orders") && !limiter.has_rule("searches"));
    /// ```
    pub fn has_rule(&self, name: &str) -> bool {
        self.inner.policies.current().policy.has_rule(name)
    }

    /// Shows the one limit that every request has to pass, if there is no other.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert_eq!(limiter.with_only_meter(|meter| meter.capacity()), Some(10));
    /// ```
    #[inline]
    pub fn with_only_meter<R>(&self, show: impl FnOnce(&Meter) -> R) -> Option<R> {
        self.inner.policies.current().only().map(show)
    }

    /// What every rule says of a request, and why, without charging anything
    /// or telling observers.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// println!("{}", limiter.explain_async("alice").await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Whatever kept the store from answering.
    pub async fn explain_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Explanation, CheckError> {
        let request = request.into();
        let inner = &*self.inner;
        let current = inner.policies.current_for_long();
        let mut rules = Vec::new();
        for PendingExplanation { rule, shadow, finding, chosen_by, class } in
            current.policy.pending_explanations(&request)?
        {
            let mut below_floor = false;
            let finding = match finding {
                Err(finding) => finding,
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
            rules.push(RuleExplanation { rule, finding, chosen_by, class, below_floor, shadow, binds: false });
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
