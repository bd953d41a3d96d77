//! The seam: a store keeps the state of every key, and the time, and decides
//! a slice of checks all-or-nothing.
//!
//! Everything that a store needs is in the [`Check`]s; everything that a
//! limit means is in the kernel. A store only reads, asks the kernel, and
//! writes, atomically.
//!
//! This module is for authors of stores, layers and kernels, and for the crates
//! beside this one. Its stability promise is weaker than that of the crate's
//! root: a minor version may change it.

mod crossed;
mod demand;
mod erased;
mod error;
mod failure_mode;
pub mod memory;
mod meter;
mod meter_kernel;
mod record;
mod slice;
mod thresholds;

use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use crate::request::{Purpose, RequestId};
pub use crate::time::Sleep;
pub use crossed::{Marks, is_marked};
pub use demand::{Demand, refund_charges};
pub(crate) use erased::{AnyState, HeapKernel};
pub use error::{CheckError, StoreError};
pub use failure_mode::FailureMode;
pub use meter::Meter;
pub(crate) use meter_kernel::{MeterKernel, MeterState};
pub use record::Record;
pub(crate) use record::owner_of;
pub use slice::{Former, Kept, Part, Slice};
pub(crate) use slice::{is_leaky, seen_from};
pub use thresholds::{MAX_THRESHOLDS, Thresholds};

use smallvec::SmallVec;

use crate::blocking;
use crate::decision::Decision;
use crate::kernel::{Act, Charged, Verb, Verdict};
use crate::limit::Limit;
use crate::request::Key;
use crate::time::{Clock, Micros};

/// One limit asked about one key: all that a store needs to decide.
///
/// ```
/// use tidegate::kernel::{Verb, Verdict};
/// use tidegate::store::{Check, ImmediateStore, Meter};
/// use tidegate::{Key, Limit, MemoryStore};
///
/// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
/// let check = Check::new(&meter, &key, Verb::Charge, 4)?;
/// let mut verdicts = [Verdict::default()];
/// MemoryStore::default().decide_now(&[check], &mut verdicts)?;
/// assert!(verdicts[0].allowed && verdicts[0].remaining == 6);
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    meter: &'a Meter,
    key: &'a Key<'a>,
    verb: Verb,
    cost: u64,
    former: &'a [Former<'a>],
    id: Option<&'a RequestId<'a>>,
    /// The limit that was charged what this corrects, if that is not the check's own.
    corrects: Option<&'a Meter>,
}

impl<'a> Check<'a> {
    /// A check that can be decided. To give back more than the meter can hold
    /// is to give back all of it: the limit may have been higher when it was
    /// charged. A report may be of any cost.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::store::{Check, Meter};
    /// use tidegate::{Key, Limit};
    ///
    /// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
    /// assert!(Check::new(&meter, &key, Verb::Charge, 10).is_ok());
    /// assert!(Check::new(&meter, &key, Verb::Charge, 11).is_err());
    /// assert_eq!(Check::new(&meter, &key, Verb::Refund, 11)?.cost(), 10);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost is above the meter's largest:
    /// no waiting would ever help.
    #[inline]
    pub fn new(meter: &'a Meter, key: &'a Key<'a>, verb: Verb, cost: u64) -> Result<Check<'a>, CheckError> {
        let capacity = meter.largest_cost();
        if cost > capacity && matches!(verb, Verb::Charge | Verb::Peek | Verb::Reset) {
            let (rule, floor) = (meter.name().clone(), meter.floor());
            return Err(CheckError::Unsatisfiable { cost, capacity, rule, floor });
        }
        Ok(Check::capped(meter, key, verb, cost))
    }

    /// A check of this cost, or of the meter's largest unless it may make debt.
    #[inline]
    pub(crate) fn capped(meter: &'a Meter, key: &'a Key<'a>, verb: Verb, cost: u64) -> Check<'a> {
        let cost = match verb {
            Verb::Report | Verb::Settle(_) => cost,
            Verb::Charge | Verb::Peek | Verb::Reset => cost.min(meter.largest_cost()),
            // What was charged may be more than the class of this request could take.
            Verb::Refund | Verb::Renew(_) => cost.min(meter.largest_of_all()),
        };
        Check { meter, key, verb, cost, former: &[], id: None, corrects: None }
    }

    /// The same check, of a limit that replaced others: what the key used of
    /// those counts on.
    #[must_use]
    #[inline]
    pub fn with_former(self, former: &'a [Former<'a>]) -> Check<'a> {
        Check { former, ..self }
    }

    /// The limits that this one replaced, as far as they may matter.
    #[must_use]
    #[inline]
    pub fn former(&self) -> &'a [Former<'a>] {
        self.former
    }

    /// The former limits that may still count something, the newest first: in this order they are refunded.
    pub fn former_at(&self, now: Micros) -> impl Iterator<Item = &'a Former<'a>> + use<'a> {
        let mut former: SmallVec<[&'a Former<'a>; 2]> = self.former.iter().filter(|one| one.until > now).collect();
        former.sort_by_key(|one| Reverse(one.replaced_at()));
        former.into_iter()
    }

    /// The same check as part of a request that is to be carried out once. If a slice
    /// has an id, all its checks have it that need one.
    #[must_use]
    #[inline]
    pub fn with_id(self, id: &'a RequestId<'a>) -> Check<'a> {
        // Only a verb that adds or subtracts needs an id.
        let matters = id.purpose != Purpose::Once || matches!(self.verb, Verb::Charge | Verb::Report | Verb::Refund);
        Check { id: Some(id).filter(|_| matters), ..self }
    }

    /// The id of the request, if it has one that matters.
    #[must_use]
    #[inline]
    pub fn id(&self) -> Option<&'a RequestId<'a>> {
        self.id
    }

    /// The limit, named and made ready.
    #[must_use]
    #[inline]
    pub fn meter(&self) -> &'a Meter {
        self.meter
    }

    /// Whose limit.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &'a Key<'a> {
        self.key
    }

    /// What to do.
    #[must_use]
    #[inline]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Of how much; never above the meter's largest cost, unless it may make debt.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// What tells the state of this check from every other, and then those of the limits that
    /// its own replaced: the same in every process.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::store::{Check, Meter};
    /// use tidegate::{Key, Limit};
    ///
    /// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
    /// let check = Check::new(&meter, &key, Verb::Charge, 1)?;
    /// assert!(check.subjects().eq([check.subject()]), "no limit was replaced");
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn subjects(&self) -> impl Iterator<Item = u64> + use<'a> {
        let key = self.key;
        self.meters().map(move |meter| meter.subject(key))
    }

    /// The limit, and those that it replaced.
    fn meters(&self) -> impl Iterator<Item = &'a Meter> + use<'a> {
        std::iter::once(self.meter).chain(self.former.iter().map(|former| former.meter))
    }

    /// The state of this check, as one number.
    #[must_use]
    pub fn subject(&self) -> u64 {
        self.meter.subject(self.key)
    }

    /// The same check of a limit that its own replaced, for stores that do to each state what
    /// the verb says. It has no former limits itself.
    #[must_use]
    pub fn of_former(&self, former: &Former<'a>) -> Check<'a> {
        Check { meter: former.meter, former: &[], ..*self }
    }

    /// A check of another limit with the same key, that writes nothing.
    pub(crate) fn peek_of(meter: &'a Meter, key: &'a Key<'a>) -> Check<'a> {
        Check::capped(meter, key, Verb::Peek, 0)
    }

    /// What it does to the state.
    #[must_use]
    #[inline(always)]
    pub fn act(&self) -> Act {
        Act::of(self.verb, self.cost)
    }

    /// Whether this takes anything if it passes.
    #[inline]
    pub(crate) fn is_charge(&self) -> bool {
        matches!(self.act(), Act::Take { .. })
    }

    /// The same check, to be carried out whatever came before.
    #[must_use]
    pub fn without_id(&self) -> Check<'a> {
        Check { id: None, ..*self }
    }

    /// Whether this is part of the correction of what was charged under its id.
    #[must_use]
    pub fn is_correction(&self) -> bool {
        self.id.is_some_and(|id| id.purpose != Purpose::Once)
    }

    /// The check that corrects the charge of its state, or of a limit that its own replaced; if
    /// there is none, and for a check that corrects nothing, one that only says how things stand.
    #[must_use]
    pub fn correcting(&self, charge_of: impl Fn(u64) -> Option<Charged>) -> Check<'a> {
        let charge = self.meters().find_map(|meter| Some((charge_of(meter.subject(self.key))?, meter)));
        let (verb, meter) = match (self.verb, charge) {
            (Verb::Settle(_), Some((charged, meter))) => (Verb::Settle(charged), meter),
            (Verb::Renew(_), Some((charged, meter))) => (Verb::Renew(charged), meter),
            _ => return Check { verb: Verb::SETTLE, cost: 0, id: None, ..*self },
        };
        Check { verb, id: None, corrects: Some(meter), ..*self }
    }

    /// The limit whose state a correction is about: the one that was charged.
    #[must_use]
    pub fn corrected(&self) -> &'a Meter {
        self.corrects.unwrap_or(self.meter)
    }

    /// The same limit and key, asked for something else.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::store::{Check, Meter};
    /// use tidegate::{Key, Limit};
    ///
    /// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
    /// let check = Check::new(&meter, &key, Verb::Charge, 4)?.with_verb(Verb::Report);
    /// assert_eq!((check.verb(), check.cost()), (Verb::Report, 4));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn with_verb(&self, verb: Verb) -> Check<'a> {
        Check { verb, ..*self }
    }

    /// The same check of another cost: that of a check which can be decided.
    #[must_use]
    pub fn with_cost(&self, cost: u64) -> Check<'a> {
        Check { cost, ..*self }
    }

    /// The same check by a meter of the same states.
    pub(crate) fn by<'b>(&self, meter: &'b Meter) -> Check<'b>
    where
        'a: 'b,
    {
        Check { meter, ..*self }
    }

    /// The same check as a peek, which charges nothing.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::store::{Check, Meter};
    /// use tidegate::{Key, Limit};
    ///
    /// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
    /// assert_eq!(Check::new(&meter, &key, Verb::Charge, 4)?.as_peek().verb(), Verb::Peek);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn as_peek(&self) -> Check<'a> {
        Check { verb: Verb::Peek, id: None, ..*self }
    }

    /// The same cost, given back.
    pub(crate) fn as_refund(&self) -> Check<'a> {
        Check { verb: Verb::Refund, id: None, ..*self }
    }

    #[inline]
    pub(crate) fn decision(&self, verdict: Verdict) -> Decision {
        self.meter.decision(verdict)
    }
}

/// For how long a store remembers the id of a slice that was carried out: as the request says, or
/// as long as ids usually are; and at least until the permits that it holds expire, so that they
/// can be given back.
#[must_use]
pub fn remembered_for(id: &RequestId<'_>, checks: &[Check<'_>], usually: Duration) -> Duration {
    let told = if id.lasts_ms == 0 { usually } else { Duration::from_millis(id.lasts_ms.into()) };
    let permits = checks.iter().filter_map(|check| check.meter().nominal_limit()).filter(Limit::is_in_flight);
    permits.map(|limit| limit.period()).fold(told, Duration::max)
}

/// Keeps the state of every key, and the time.
///
/// ```
/// use std::future::Future;
/// use tidegate::kernel::Verdict;
/// use tidegate::store::{Check, Store, StoreError};
/// use tidegate::{Clock, Limit, Limiter, MemoryStore, Micros};
///
/// /// Prints what it is asked.
/// struct Printing(MemoryStore);
///
/// impl Store for Printing {
///     fn decide(
///         &self,
///         checks: &[Check<'_>],
///         verdicts: &mut [Verdict],
///     ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
///         checks.iter().for_each(|check| println!("{:?} {} of {}", check.verb(), check.cost(), check.key()));
///         self.0.decide(checks, verdicts)
///     }
///
///     fn clock(&self) -> &dyn Clock {
///         self.0.clock()
///     }
/// }
///
/// let limiter = Limiter::with_store(Limit::per_hour(1), Printing(MemoryStore::default()))?;
/// # let _ = limiter;
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
///
/// # Contract
/// - `decide` is atomic: either every check of the slice that charges is
///   carried out, or none is. If one is refused, the verdicts of the others
///   say what they would have answered, uncharged.
/// - `verdicts` is as long as `checks`; the answer is the time at which the
///   store decided.
/// - A slice with a [`RequestId`] that was carried out is not carried out
///   again while the store remembers the id: it gets the same verdicts. An id
///   belongs to the verb and the first part of the key of the first check that has it.
/// - A slice whose id is to [settle](Purpose::Settle) or to [renew](Purpose::Renew)
///   corrects the charges of the slice that was carried out under it: each check that
///   settles or renews is about the charge of its own limit, or of one that it replaced; if
///   there is none, and for any other check, it only says how things stand. What was
///   settled is not corrected again: it gets the same verdicts. A renewal has the id
///   remembered for as long again. Where nothing is remembered, it is
///   [`StoreError::NotReserved`].
/// - What a key used of a check's [former limits](Check::former) stays where it was charged, and counts beside
///   what it uses of the check's own: [`Slice::decide`] does it.
/// - Verdicts are those of [`Slice::decide`], field
///   by field, and which thresholds of its meter a check [crossed](Meter::crossed): each
///   once, and where it [needs marks](Meter::needs_marks) not again while the mark is [in
///   force](is_marked); a check that [gives back](crate::kernel::Act::gives_back) removes the marks of those above
///   what is used then. `conformance!` of `tidegate-testkit` checks it.
pub trait Store: Send + Sync + 'static {
    /// Decides all of `checks`, or charges none of them.
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send;

    /// The clock by which callers of this store wait.
    fn clock(&self) -> &dyn Clock;

    /// Carries on with what no caller waits for: a reservation that was dropped is given back.
    /// The provided method polls it once, which is enough for a store that answers at once;
    /// others hand it to their runtime.
    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        blocking::once(task);
    }
}

/// A store that answers at once: the future of [`Store::decide`] is ready
/// when it is first polled. All methods are provided; a store overrides those
/// that it can do faster.
///
/// ```
/// use tidegate::kernel::Verb;
/// use tidegate::store::{Check, ImmediateStore, Meter};
/// use tidegate::{Key, Limit, MemoryStore};
///
/// let (meter, key) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"));
/// assert!(MemoryStore::default().admits_now(Check::new(&meter, &key, Verb::Charge, 4)?)?);
/// # Ok::<(), tidegate::CheckError>(())
/// ```
pub trait ImmediateStore: Store {
    /// [`Store::decide`], now.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    #[inline]
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        blocking::now(self.decide(checks, verdicts))
    }

    /// [`decide_now`](ImmediateStore::decide_now) for the commonest case, one check.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    #[inline]
    fn decide_one_now(&self, check: Check<'_>, verdict: &mut Verdict) -> Result<Micros, StoreError> {
        self.decide_now(std::slice::from_ref(&check), std::slice::from_mut(verdict))
    }

    /// Whether all checks are admitted, for callers that need no more: all are
    /// charged, or none is.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    #[inline]
    fn admits_all_now(&self, checks: &[Check<'_>]) -> Result<bool, StoreError> {
        let mut verdicts = vec![Verdict::default(); checks.len()];
        self.decide_now(checks, &mut verdicts)?;
        Ok(verdicts.iter().all(|verdict| verdict.allowed))
    }

    /// Whether one check is admitted, for callers that need no more.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    #[inline]
    fn admits_now(&self, check: Check<'_>) -> Result<bool, StoreError> {
        let mut verdict = Verdict::default();
        self.decide_one_now(check, &mut verdict)?;
        Ok(verdict.allowed)
    }

    /// Whether each check is admitted, each for itself, for callers that need no more.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    fn admits_each_now(&self, checks: &[Check<'_>], admitted: &mut [bool]) -> Result<(), StoreError> {
        for (check, admitted) in checks.iter().zip(admitted) {
            *admitted = self.admits_now(*check)?;
        }
        Ok(())
    }

    /// Decides each check for itself, all at one time: a store can do many
    /// faster than one by one.
    ///
    /// # Errors
    /// Whatever keeps the store from deciding.
    fn decide_each_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut now = self.clock().now();
        for (check, verdict) in checks.iter().zip(verdicts) {
            now = self.decide_one_now(*check, verdict)?;
        }
        Ok(now)
    }
}

impl<S: Store> Store for Arc<S> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
        S::decide(self, checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        S::clock(self)
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        S::in_background(self, task);
    }
}

impl<S: ImmediateStore> ImmediateStore for Arc<S> {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        S::decide_now(self, checks, verdicts)
    }

    #[inline]
    fn decide_one_now(&self, check: Check<'_>, verdict: &mut Verdict) -> Result<Micros, StoreError> {
        S::decide_one_now(self, check, verdict)
    }

    #[inline]
    fn admits_now(&self, check: Check<'_>) -> Result<bool, StoreError> {
        S::admits_now(self, check)
    }

    #[inline]
    fn admits_all_now(&self, checks: &[Check<'_>]) -> Result<bool, StoreError> {
        S::admits_all_now(self, checks)
    }

    fn admits_each_now(&self, checks: &[Check<'_>], admitted: &mut [bool]) -> Result<(), StoreError> {
        S::admits_each_now(self, checks, admitted)
    }

    fn decide_each_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        S::decide_each_now(self, checks, verdicts)
    }
}
