//! Watching decisions: one trait, one event.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::decision::Decision;
use crate::kernel::{Verb, Verdict};
use crate::name::Name;
use crate::request::{Extent, Key, Request};
use crate::store::Check;
use crate::time::Micros;

/// Is told of every decision, after it is made and outside every lock.
///
/// An observer that panics is left out of that one event; the caller gets
/// the decision all the same.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate::{Event, Limit, Limiter, Observer};
///
/// #[derive(Default)]
/// struct Refused(AtomicU64);
///
/// impl Observer for Refused {
///     fn observe(&self, event: &Event<'_>) {
///         self.0.fetch_add(u64::from(!event.decision.is_allowed()), Ordering::Relaxed);
///     }
/// }
///
/// let refused = Arc::new(Refused::default());
/// let limiter = Limiter::builder(Limit::per_hour(1)).observer(refused.clone()).build()?;
/// assert!(limiter.allow("alice") && !limiter.allow("alice"));
/// assert_eq!(refused.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// One decision was made.
    fn observe(&self, event: &Event<'_>);

    /// A request lacked an attribute of a rule's key. What became of it is as the
    /// rule [says](crate::Missing); if that was an error, no decision was made.
    fn missing(&self, rule: &Name, attribute: &str) {
        let _ = (rule, attribute);
    }

    /// A charge crossed a threshold of its rule: told once for each key, threshold and
    /// period, after the decision. Of several that one charge crosses, the lowest is told
    /// first.
    fn crossed(&self, event: &ThresholdEvent<'_>) {
        let _ = event;
    }
}

/// A threshold that a charge crossed.
///
/// It can be crossed again in the next period, and when a refund has left less in use. A
/// charge whose answer is lost tells nothing.
///
/// ```
/// use tidegate::{Event, Observer, ThresholdEvent};
///
/// struct Warn;
///
/// impl Observer for Warn {
///     fn observe(&self, _: &Event<'_>) {}
///
///     fn crossed(&self, event: &ThresholdEvent<'_>) {
///         println!("{} has used {}% of {}", event.key, event.percent, event.rule);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThresholdEvent<'a> {
    /// The rule.
    pub rule: &'a Name,
    /// Whose limit.
    pub key: &'a Key<'a>,
    /// The threshold, in percent of the capacity.
    pub percent: u8,
    /// What was in use after the charge, in units; at least so much, if the limit warms up.
    pub used: u64,
    /// What can be used at once.
    pub capacity: u64,
    /// How long until the key is as if never used, if it is not charged again.
    pub reset_after: Duration,
    /// The store's time when it decided.
    pub at: Micros,
    /// Whether the rule only watches.
    pub shadow: bool,
}

/// A decision, who asked for it, and when.
///
/// ```
/// use tidegate::{Event, Observer};
///
/// struct Log;
///
/// impl Observer for Log {
///     fn observe(&self, event: &Event<'_>) {
///         println!("{} {:?} {}: {}", event.at, event.verb, event.key, event.decision);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The request, with its attributes.
    pub request: &'a Request<'a>,
    /// Whose limit it was: the key of the rule that bound, or the request's
    /// own if none did.
    pub key: &'a Key<'a>,
    /// Whether it was a charge, a peek, a refund or a reset.
    pub verb: Verb,
    /// What the request cost.
    pub cost: u64,
    /// Whether that was asked for [in addition](crate::Request::in_addition) to
    /// what the request was charged before: it is no request of its own.
    pub in_addition: bool,
    /// The answer, with the rule and the limit that bound.
    pub decision: &'a Decision,
    /// The store's time when it decided.
    pub at: Micros,
    /// Whether the rule only watches: the request was decided without it.
    pub shadow: bool,
    /// What became of a reservation by it.
    pub reservation: Option<ReservationEvent<'a>>,
}

/// A step of a reservation.
///
/// ```
/// use tidegate::{Event, Observer};
///
/// struct Reservations;
///
/// impl Observer for Reservations {
///     fn observe(&self, event: &Event<'_>) {
///         if let Some(reservation) = event.reservation {
///             println!("{:?} {}", reservation.step, reservation.id);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservationEvent<'a> {
    /// The id of its request.
    pub id: &'a str,
    /// What was done with it, if the decision is that it was.
    pub step: ReservationStep,
    /// For how long it [lasts](crate::Request::lasts); none if for as long as the store
    /// remembers ids.
    pub lasts: Option<Duration>,
}

/// What is done with a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ReservationStep {
    Reserve,
    Renew,
    Settle,
    Release,
}

impl<'a> ReservationEvent<'a> {
    pub(crate) fn of(verb: Verb, request: &'a Request<'_>) -> Option<ReservationEvent<'a>> {
        let step = match (verb, request.extent) {
            (Verb::Charge, Extent::Estimate) => ReservationStep::Reserve,
            (Verb::Renew(_), _) => ReservationStep::Renew,
            (Verb::Settle(_), Extent::Nothing) => ReservationStep::Release,
            (Verb::Settle(_), _) => ReservationStep::Settle,
            _ => return None,
        };
        let lasts = (request.lasts_ms > 0).then(|| Duration::from_millis(request.lasts_ms.into()));
        Some(ReservationEvent { id: request.id?, step, lasts })
    }
}

/// The observers of a limiter: usually none.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Arc::new(observer));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cold]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        for observer in &self.0 {
            // The panic has been reported by the hook; the
            // caller still gets its decision.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));
        }
    }

    /// Tells which thresholds a check crossed, if any.
    #[inline]
    pub(crate) fn tell_crossed(&self, check: &Check<'_>, verdict: &Verdict, at: Micros, shadow: bool) {
        if verdict.crossed != 0 && !verdict.repeated {
            self.tell_each_crossed(check, verdict, at, shadow);
        }
    }

    #[cold]
    fn tell_each_crossed(&self, check: &Check<'_>, verdict: &Verdict, at: Micros, shadow: bool) {
        let (meter, key) = (check.meter(), check.key());
        let (rule, capacity, reset_after) = (meter.name(), meter.capacity(), verdict.reset_after.to_duration());
        for (index, (percent, units)) in meter.threshold_units().enumerate() {
            if verdict.crossed & 1 << index == 0 {
                continue;
            }
            // Units on lease are in use, and left.
            let used = meter.used_at_least(verdict).max(units);
            let event = ThresholdEvent { rule, key, percent, used, capacity, reset_after, at, shadow };
            for observer in &self.0 {
                let _ = catch_unwind(AssertUnwindSafe(|| observer.crossed(&event)));
            }
        }
    }

    #[cold]
    pub(crate) fn tell_missing(&self, rule: &Name, attribute: &str) {
        for observer in &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| observer.missing(rule, attribute)));
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

impl<O: Observer> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        O::observe(self, event);
    }

    fn missing(&self, rule: &Name, attribute: &str) {
        O::missing(self, rule, attribute);
    }

    fn crossed(&self, event: &ThresholdEvent<'_>) {
        O::crossed(self, event);
    }
}

/// Counts requests by their outcome: what one costs
/// [in addition](crate::Request::in_addition) is not another one.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{CountingObserver, Limit, Limiter};
///
/// let counts = Arc::new(CountingObserver::default());
/// let limiter = Limiter::builder(Limit::per_minute(1)).observer(counts.clone()).build()?;
/// limiter.allow("alice");
/// limiter.allow("alice");
/// assert_eq!((counts.allowed(), counts.refused()), (1, 1));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Debug, Default)]
pub struct CountingObserver {
    allowed: AtomicU64,
    refused: AtomicU64,
    degraded: AtomicU64,
    repeated: AtomicU64,
}

impl CountingObserver {
    /// How many requests passed.
    ///
    /// ```
    /// use tidegate::CountingObserver;
    ///
    /// assert_eq!(CountingObserver::default().allowed(), 0);
    /// ```
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    /// How many did not.
    ///
    /// ```
    /// use tidegate::CountingObserver;
    ///
    /// assert_eq!(CountingObserver::default().refused(), 0);
    /// ```
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many of both were answered by a fallback.
    ///
    /// ```
    /// use tidegate::CountingObserver;
    ///
    /// assert_eq!(CountingObserver::default().degraded(), 0);
    /// ```
    #[must_use]
    pub fn degraded(&self) -> u64 {
        self.degraded.load(Ordering::Relaxed)
    }

    /// Requests that were answered as before, by their ids; they are counted
    /// nowhere else.
    ///
    /// ```
    /// use tidegate::CountingObserver;
    ///
    /// assert_eq!(CountingObserver::default().repeated(), 0);
    /// ```
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }
}

impl Observer for CountingObserver {
    fn observe(&self, event: &Event<'_>) {
        if event.verb != Verb::Charge || event.shadow || event.in_addition {
            return;
        }
        if event.decision.is_repeated() {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let outcome = if event.decision.is_allowed() { &self.allowed } else { &self.refused };
        outcome.fetch_add(1, Ordering::Relaxed);
        if event.decision.is_degraded() {
            self.degraded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Limit, Limiter, ManualClock, MemoryStore, Policy, Request, Rule};

    #[derive(Default)]
    struct Keys(Mutex<Vec<String>>);

    impl Observer for Keys {
        fn observe(&self, event: &Event<'_>) {
            self.0.lock().expect("no test panics with it").push(event.key.to_string());
        }
    }

    #[derive(Default)]
    struct Limits(Mutex<Vec<Option<String>>>);

    impl Observer for Limits {
        fn observe(&self, event: &Event<'_>) {
            let limit = event.decision.limit().map(|limit| limit.to_string());
            self.0.lock().expect("no test panics with it").push(limit);
        }
    }

    #[test]
    fn an_event_tells_the_limit_that_bound() {
        let limits = Arc::new(Limits::default());
        let rule = Rule::new("plans", Limit::per_hour(1)).key(["user"]).tier("plan", "pro", Limit::per_minute(1));
        let rule = rule.candidate(Limit::per_second(3));
        assert_eq!(rule.candidate_limit(), Some(Limit::per_second(3)));
        let policy = Policy::new().rule(rule);
        let store = || MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build();
        let store = || store().expect("valid settings");
        let limiter = Limiter::builder(policy).store(store()).observer(Arc::clone(&limits));
        let limiter = limiter.build().expect("a good policy");
        assert!(limiter.allow(Request::user("alice").with("plan", "pro")));
        assert!(limiter.allow(Request::user("bob")));
        let expected = ["1/min", "3/s", "1/h", "3/s"].map(|words| Some(words.to_owned()));
        assert_eq!(*limits.0.lock().expect("no test panics with it"), expected);
        let limiter = Limiter::builder(Limit::per_day(7)).store(store()).observer(Arc::clone(&limits));
        let limiter = limiter.build().expect("a good limit");
        assert!(limiter.check_many(["alice"]).is_ok());
        assert_eq!(limits.0.lock().expect("no test panics with it").last(), Some(&Some("7/day".to_owned())));
    }

    #[test]
    fn an_event_tells_the_key_of_the_rule_that_bound() {
        let keys = Arc::new(Keys::default());
        let policy = Policy::new()
            .rule(Rule::new("addresses", Limit::per_hour(1)).key(["ip"]))
            .rule(Rule::new("users", Limit::per_hour(5)).key(["user"]));
        let store = MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build().expect("valid settings");
        let limiter = Limiter::builder(policy).store(store).observer(Arc::clone(&keys)).build().expect("a good policy");
        assert!(limiter.allow(Request::user("alice").with("ip", "192.0.2.1")));
        assert!(!limiter.allow(Request::user("bob").with("ip", "192.0.2.1")));
        assert_eq!(*keys.0.lock().expect("no test panics with it"), ["192.0.2.1", "192.0.2.1"]);
    }

    #[test]
    fn an_additional_cost_is_not_another_request() {
        let (keys, counts) = (Arc::new(Keys::default()), Arc::new(CountingObserver::default()));
        let policy =
            Policy::new().limit("all", Limit::per_hour(5)).rule(Rule::new("watch", Limit::per_hour(5)).shadow());
        let store = MemoryStore::builder().max_keys(10).clock(ManualClock::default()).build().expect("valid settings");
        let limiter = Limiter::builder(policy).store(store).observer(Arc::clone(&keys)).observer(Arc::clone(&counts));
        let limiter = limiter.build().expect("a good policy");
        assert!(limiter.allow("alice"));
        assert!(limiter.allow(Request::new("alice").cost(4).in_addition()));
        assert!(!limiter.allow(Request::new("alice").in_addition()));
        assert!(!limiter.allow("alice"));
        assert_eq!((counts.allowed(), counts.refused()), (1, 1));
        assert_eq!(keys.0.lock().expect("no test panics with it").len(), 8, "all of them are told, and their shadows");
    }
}
