//! The answer: may it pass, and what the caller should know.

mod refill;

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::kernel::Verdict;
use crate::limit::Limit;
use crate::name::Name;
use crate::time::Micros;

/// What the limiter answers. A refusal is a value, not an error.
///
/// Where several limits apply, it speaks of the one that binds: the one with
/// the longest wait if refused, the one with the least remaining if allowed,
/// and of several with as much the one that takes longest to reset.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_hour(2));
/// let decision = limiter.check("alice")?;
/// assert!(decision.is_allowed());
/// assert_eq!((decision.rule().as_str(), decision.remaining()), ("2/h", Some(1)));
/// assert_eq!(decision.to_string(), "allowed, 1 left");
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision limits nothing unless it is looked at"]
pub struct Decision {
    rule: Name,
    limit: Option<Limit>,
    capacity: u64,
    /// Units that the class of the request leaves to others.
    floor: u64,
    verdict: Verdict,
}

/// What is left after a refund or a reset: a [`Decision`] that need not be
/// looked at.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_hour(2));
/// assert!(limiter.allow("alice"));
/// let balance = limiter.refund("alice")?;
/// assert_eq!(balance.remaining(), Some(2));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance(pub(crate) Decision);

impl From<Balance> for Decision {
    fn from(balance: Balance) -> Decision {
        balance.0
    }
}

impl Deref for Balance {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

impl Decision {
    #[inline]
    pub(crate) fn new(rule: Name, limit: Option<Limit>, capacity: u64, floor: u64, verdict: Verdict) -> Decision {
        Decision { rule, limit, capacity, floor, verdict }
    }

    /// The same limit with another verdict.
    #[inline(always)]
    pub(crate) fn saying(&self, verdict: Verdict) -> Decision {
        Decision { rule: self.rule.clone(), limit: self.limit, capacity: self.capacity, floor: self.floor, verdict }
    }

    /// No rule has anything to say.
    pub(crate) fn unlimited() -> Decision {
        let verdict = Verdict { allowed: true, remaining: u64::MAX, ..Verdict::default() };
        Decision { rule: Name::literal("unlimited"), limit: None, capacity: u64::MAX, floor: 0, verdict }
    }

    /// A rule lets nothing pass, however long one waits.
    pub(crate) fn blocked(rule: Name) -> Decision {
        let verdict = Verdict { retry_after: Micros::MAX, reset_after: Micros::MAX, ..Verdict::default() };
        Decision { rule, limit: None, capacity: 0, floor: 0, verdict }
    }

    /// See [`Verdict::field_by_field`].
    #[inline(always)]
    pub(crate) fn field_by_field(self) -> Decision {
        let Decision { rule, limit, capacity, floor, verdict } = self;
        Decision { rule, limit, capacity, floor, verdict: verdict.field_by_field() }
    }

    /// Whether the request may pass.
    ///
    /// An allowed request is charged already, unless it was a peek.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// assert!(limiter.check("alice")?.is_allowed());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.verdict.allowed
    }

    /// The limit that binds; none if the request is unlimited or blocked, or if
    /// the limit is a custom kernel or [warms up](crate::store::Meter::warm_up).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// assert_eq!(limiter.check("alice")?.limit(), Some(Limit::per_hour(2)));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// The most that could ever be admitted at once under the binding limit, of a class that
    /// leaves nothing to others; none if no rule limits the request.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// assert_eq!(limiter.check("alice")?.capacity(), Some(2));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> Option<u64> {
        self.limited(self.capacity)
    }

    /// How many more requests of cost 1 would pass at this instant: rounded
    /// down, the least of all limits; none if no rule limits the request. A rule that charges [several
    /// times](crate::Rule::cost_multiplier) the cost, or [always](crate::Rule::fixed_cost) the
    /// same, counts what it charges: so many times fewer pass.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// assert_eq!(limiter.check("alice")?.remaining(), Some(1));
    /// assert_eq!(limiter.check("alice")?.remaining(), Some(0));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.limited(self.verdict.remaining)
    }

    /// How many units of the binding limit the [class](crate::PriorityClasses) of the request leaves
    /// to others: it is admitted while more than that is left.
    ///
    /// ```
    /// use tidegate::{Floor, Limit, Limiter, PriorityClasses, Request, Rule};
    ///
    /// let classes = PriorityClasses::by("class").class("batch", Floor::Percent(50));
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_hour(10)).priority(classes));
    /// assert_eq!(limiter.check(Request::new("alice").with("class", "batch"))?.floor(), 5);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    fn limited(&self, number: u64) -> Option<u64> {
        (!self.is_unlimited()).then_some(number)
    }

    /// How long a refused caller has to wait: exact to the microsecond for
    /// one who is alone on the key, zero if allowed; none if no waiting will help.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy, Request, Rule, Setting};
    ///
    /// let limiter = Limiter::new(Rule::new("api", Limit::per_minute(1)).key(["user"]).override_exactly(
    ///     "user",
    ///     "mallory",
    ///     Setting::Blocked,
    /// ));
    /// for _ in 0..2 {
    ///     for user in ["alice", "mallory"] {
    ///         match limiter.check(Request::user(user))?.retry_after() {
    ///             Some(wait) => println!("{user}: in {wait:?}"),
    ///             None => println!("{user}: never"),
    ///         }
    ///     }
    /// }
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn retry_after(&self) -> Option<Duration> {
        (!self.is_blocked()).then(|| self.verdict.retry_after.to_duration())
    }

    /// Whether no rule limits the request: it is allowed, and has no capacity
    /// and nothing that remains of it.
    ///
    /// ```
    /// use tidegate::{Limiter, Rule, Setting};
    ///
    /// let limiter = Limiter::new(Rule::with_setting("internal", Setting::Unlimited));
    /// let decision = limiter.check("alice")?;
    /// assert!(decision.is_unlimited() && decision.remaining().is_none());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.capacity == u64::MAX
    }

    /// Whether the request is refused for good: no waiting will help.
    ///
    /// ```
    /// use tidegate::{Limiter, Rule, Setting};
    ///
    /// let limiter = Limiter::new(Rule::with_setting("closed", Setting::Blocked));
    /// let decision = limiter.check("alice")?;
    /// assert!(decision.is_blocked() && decision.retry_after().is_none());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.capacity == 0
    }

    /// How long until the key is as if it had never been used; none if it is
    /// blocked.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// let reset_after = limiter.check("alice")?.reset_after();
    /// assert!(reset_after.is_some_and(|time| time.as_secs() <= 1_800));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn reset_after(&self) -> Option<Duration> {
        (!self.is_blocked()).then(|| self.verdict.reset_after.to_duration())
    }

    /// How long to hold an allowed request back so that requests leave at an
    /// even pace; only a leaky bucket asks for it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limit: Limit = "leaky 1/min queue 2".parse()?;
    /// let decisions = Limiter::new(limit).check_many(["printer"; 2])?;
    /// assert!(decisions[0].delay().is_zero() && decisions[1].delay().as_secs() >= 59);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn delay(&self) -> Duration {
        self.verdict.delay.to_duration()
    }

    /// The name of the rule that binds.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let policy = Policy::new().limit("burst", Limit::per_second(5)).limit("daily", Limit::per_day(3));
    /// let limiter = Limiter::new(policy);
    /// assert_eq!(limiter.check("alice")?.rule().as_str(), "daily");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn rule(&self) -> &Name {
        &self.rule
    }

    /// Whether a fallback answered in place of the limit: a store that was
    /// full or away.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// assert!(!limiter.check("alice")?.is_degraded());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn is_degraded(&self) -> bool {
        self.verdict.degraded
    }

    /// Whether this is the answer that a request of the same
    /// [id](crate::Request::id) was given before; nothing was charged this time.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(2));
    /// let order = Request::new("alice").id("order-17");
    /// assert!(!limiter.check(order.clone())?.is_repeated());
    /// assert!(limiter.check(order)?.is_repeated());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn is_repeated(&self) -> bool {
        self.verdict.repeated
    }

    /// What a [report](crate::Limiter::report) could not record, because the key owes all
    /// that it [may](crate::Limit::debt): of several limits, the most. Zero for every
    /// other request.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert_eq!(limiter.report(Request::new("alice").cost(25))?.unrecorded(), 5);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn unrecorded(&self) -> u64 {
        self.verdict.unrecorded
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(crate) fn wait(&self) -> Micros {
        self.verdict.retry_after
    }

    /// The decision of `self` and `other` together: both must allow.
    pub(crate) fn and(self, other: Decision) -> Decision {
        let (verdict, other_binds) = self.verdict.and(other.verdict);
        let binding = if other_binds { other } else { self };
        Decision { verdict, ..binding }
    }
}

/// In words: `allowed, 7 left`, or `refused, retry after 1.5s`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_allowed(), self.remaining(), self.retry_after()) {
            (true, Some(remaining), _) => write!(f, "allowed, {remaining} left"),
            (true, None, _) => f.write_str("allowed, no limit"),
            (false, _, Some(wait)) => write!(f, "refused, retry after {wait:?}"),
            (false, _, None) => f.write_str("refused for good"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(rule: &'static str, verdict: Verdict) -> Decision {
        Decision::new(Name::literal(rule), None, 10, 0, verdict)
    }

    fn allowed(remaining: u64, delay: u64) -> Verdict {
        Verdict { allowed: true, remaining, delay: Micros::new(delay), ..Verdict::default() }
    }

    fn used_for(reset_after: u64) -> Verdict {
        Verdict { reset_after: Micros::new(reset_after), ..allowed(2, 0) }
    }

    fn refused(retry_after: u64) -> Verdict {
        Verdict { retry_after: Micros::new(retry_after), ..Verdict::default() }
    }

    #[test]
    fn of_two_decisions_the_one_that_binds_speaks_and_of_equals_the_first() {
        let cases = [
            (allowed(3, 0), allowed(2, 0), "second"),
            (allowed(2, 0), allowed(2, 0), "first"),
            (used_for(60), used_for(3_600), "second"),
            (used_for(3_600), used_for(60), "first"),
            (used_for(60), used_for(60), "first"),
            (used_for(60), allowed(1, 0), "second"),
            (allowed(2, 0), refused(1), "second"),
            (refused(1), allowed(0, 0), "first"),
            (refused(1), refused(2), "second"),
            (refused(2), refused(2), "first"),
        ];
        for (first, second, binds) in cases {
            let both = decision("first", first).and(decision("second", second));
            assert_eq!(both.rule(), binds, "{first:?} and {second:?}");
            assert_eq!(both.is_allowed(), first.allowed && second.allowed);
            assert_eq!(both.wait(), first.retry_after.max(second.retry_after));
            assert_eq!(both.remaining(), Some(first.remaining.min(second.remaining)));
        }
    }

    #[test]
    fn the_longest_delay_applies_if_allowed_and_none_if_refused() {
        let both = |first, second| decision("first", first).and(decision("second", second)).delay().as_micros();
        assert_eq!((both(allowed(1, 5), allowed(2, 7)), both(allowed(1, 7), allowed(2, 5))), (7, 7));
        assert_eq!((both(allowed(1, 5), refused(1)), both(refused(1), allowed(1, 5))), (0, 0));
    }

    #[test]
    fn a_fallback_is_told_whichever_limit_it_answered_for() {
        let fallback = Verdict { degraded: true, ..allowed(5, 0) };
        for (first, second) in [(fallback, allowed(1, 0)), (allowed(1, 0), fallback)] {
            assert!(decision("first", first).and(decision("second", second)).is_degraded());
        }
        assert!(!decision("first", allowed(1, 0)).and(decision("second", allowed(1, 0))).is_degraded());
    }

    #[test]
    fn only_what_no_rule_limits_is_unlimited_and_only_what_is_denied_blocked() {
        let usual = decision("rule", allowed(1, 0));
        assert!(!usual.is_unlimited() && !usual.is_blocked());
        assert!(Decision::unlimited().is_unlimited() && !Decision::unlimited().is_blocked());
        let blocked = Decision::blocked(Name::literal("rule"));
        assert!(blocked.is_blocked() && !blocked.is_unlimited());
        let told = |decision: &Decision| (decision.capacity(), decision.remaining());
        assert_eq!(
            [&usual, &Decision::unlimited(), &blocked].map(told),
            [(Some(10), Some(1)), (None, None), (Some(0), Some(0))]
        );
        let waits = |decision: &Decision| (decision.retry_after(), decision.reset_after());
        let said = [usual.clone(), Decision::unlimited(), decision("rule", refused(1_500)), blocked.clone()];
        let words = ["allowed, 1 left", "allowed, no limit", "refused, retry after 1.5ms", "refused for good"];
        assert_eq!(said.map(|decision| decision.to_string()), words);
        let zero = Some(Duration::ZERO);
        assert_eq!([&usual, &Decision::unlimited(), &blocked].map(waits), [(zero, zero), (zero, zero), (None, None)]);
    }
}
