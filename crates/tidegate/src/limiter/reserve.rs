//! Reservations: charges that can be corrected once, when the cost is known.
//!
//! A reservation is a charge under an id. The store remembers what it took of each
//! limit, and when; [`settle`](Limiter::settle) corrects that, once. What is never
//! settled stays charged, which time pays back, and a permit of a limit on
//! [requests in flight](crate::Limit::in_flight) expires.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::ask::ignore_limits;
use super::{AcquireError, Limiter};
use crate::blocking;
use crate::decision::Decision;
use crate::kernel::Verb;
use crate::request::{Amounts, OwnedRequest, Request};
use crate::store::memory::MemoryStore;
use crate::store::{Check, CheckError, ImmediateStore, Store};
use std::sync::atomic::{AtomicU64, Ordering};

/// A charge that can be corrected once: when the request has ended, and it is known what it
/// took.
///
/// One that is dropped gives back its permits of limits on
/// [requests in flight](crate::Limit::in_flight), and leaves the rest charged. A store
/// remembers reservations as it does the ids of requests: for a time, and the memory store
/// about 130,000 of them. One that is forgotten can no longer be corrected.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Amounts, Limit, Limiter, Policy, Request, Rule};
///
/// let policy = Policy::new()
///     .rule(Rule::new("tokens", Limit::per_minute(1_000)).unit("tokens"))
///     .limit("at once", Limit::in_flight(1, Duration::from_secs(60)));
/// let limiter = Limiter::new(policy);
///
/// let call = limiter.reserve(Request::new("alice").amount("tokens", 800))?.made().expect("admitted");
/// assert!(limiter.reserve("alice")?.made().is_none(), "one at once");
/// let settled = call.settle(Amounts::new().amount("tokens", 300))?;
/// assert_eq!(settled.remaining(), Some(1));
/// assert_eq!(limiter.peek(Request::new("alice").rule("tokens"))?.remaining(), Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a reservation that is dropped gives its permits back"]
pub struct Reservation<S: Store = MemoryStore> {
    limiter: Limiter<S>,
    request: Arc<OwnedRequest>,
    decision: Decision,
    is_open: bool,
}

/// What a limiter answers to [`reserve`](Limiter::reserve): a refusal is a value, as that of a check.
///
/// ```
/// use tidegate::{Limit, Limiter, ReserveOutcome};
///
/// let limiter = Limiter::new(Limit::per_hour(100));
/// match limiter.reserve("alice")? {
///     ReserveOutcome::Made(call) => drop(call.settle(30)?),
///     ReserveOutcome::Refused(decision) => println!("retry after {:?}", decision.retry_after()),
/// }
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is dropped gives its permits back"]
pub enum ReserveOutcome<S: Store = MemoryStore> {
    /// Every limit admitted the request: the estimate is charged.
    Made(Reservation<S>),
    /// A limit refused; nothing was charged.
    Refused(Decision),
}

impl<S: Store> ReserveOutcome<S> {
    /// The reservation; none if a limit refused.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// if let Some(call) = limiter.reserve("alice")?.made() {
    ///     assert_eq!(call.settle(30)?.remaining(), Some(70));
    /// }
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use = "a reservation that is dropped gives its permits back"]
    pub fn made(self) -> Option<Reservation<S>> {
        match self {
            ReserveOutcome::Made(reservation) => Some(reservation),
            ReserveOutcome::Refused(_) => None,
        }
    }

    /// What the limits said.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(1));
    /// assert!(limiter.allow("alice"));
    /// let outcome = limiter.reserve("alice")?;
    /// assert!(!outcome.decision().is_allowed() && outcome.decision().retry_after().is_some());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    pub fn decision(&self) -> &Decision {
        match self {
            ReserveOutcome::Made(reservation) => reservation.decision(),
            ReserveOutcome::Refused(decision) => decision,
        }
    }
}

impl<S: Store> Limiter<S> {
    /// [`reserve`](Limiter::reserve) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve_async(Request::new("alice").cost(80)).await?.made().expect("admitted");
    /// let _ = call.settle_async(30).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`reserve`](Limiter::reserve).
    pub fn reserve_async<'a>(
        &self,
        request: impl Into<Request<'a>>,
    ) -> impl Future<Output = Result<ReserveOutcome<S>, CheckError>> + Send {
        self.reserve_with_limits_async(request.into(), ignore_limits)
    }

    /// The same, and the limits that made the decision: see [`decide_with_limits_async`](Limiter::decide_with_limits_async).
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve_with_limits_async("alice", |_, limits| println!("{} limits", limits.len())).await?;
    /// # drop(call);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`reserve`](Limiter::reserve).
    pub async fn reserve_with_limits_async<'a>(
        &self,
        request: impl Into<Request<'a>> + Send,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<ReserveOutcome<S>, CheckError> {
        let mut reservation = self.reservation(request.into());
        let decided = self.ask(Verb::Charge, &reservation.request.lent(), tell).await;
        reservation.is_open = decided.as_ref().is_ok_and(Decision::is_allowed);
        let decision = decided?;
        if !decision.is_allowed() {
            return Ok(ReserveOutcome::Refused(decision));
        }
        reservation.decision = decision;
        Ok(ReserveOutcome::Made(reservation))
    }

    /// Waits for a reservation as [`acquire_async`](Limiter::acquire_async) does for a request.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.acquire_reservation_async("alice", std::time::Duration::from_secs(5)).await?;
    /// let _ = call.release_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire_async`](Limiter::acquire_async); nothing is reserved then.
    pub async fn acquire_reservation_async<'a>(
        &self,
        request: impl Into<Request<'a>>,
        timeout: Duration,
    ) -> Result<Reservation<S>, AcquireError> {
        let mut reservation = self.reservation(request.into());
        let acquired = self.acquire_async(reservation.request.lent(), timeout).await;
        reservation.is_open = acquired.is_ok();
        reservation.decision = acquired?;
        Ok(reservation)
    }

    /// One that is open from the first: where the future that makes it is dropped, it may be
    /// made all the same.
    fn reservation(&self, request: Request<'_>) -> Reservation<S> {
        let request = Arc::new(OwnedRequest::new(&request.into_estimate()).or_id(new_id));
        Reservation { limiter: self.clone(), request, decision: Decision::unlimited(), is_open: true }
    }

    /// [`settle`](Limiter::settle) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let _ = limiter.settle_async(Request::new("alice").id("call-1"), 30).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`settle`](Limiter::settle).
    pub async fn settle_async<'a>(
        &self,
        request: impl Into<Request<'a>>,
        actual: impl Into<Amounts<'a>>,
    ) -> Result<Decision, CheckError> {
        self.decide_async(Verb::SETTLE, request.into().into_settlement(actual)).await
    }

    /// [`release`](Limiter::release) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let _ = limiter.release_async(Request::new("alice").id("call-1")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`settle`](Limiter::settle).
    pub async fn release_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_async(Verb::SETTLE, request.into().into_release()).await
    }

    /// [`renew`](Limiter::renew) on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let _ = limiter.renew_async(Request::new("alice").id("call-1")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`settle`](Limiter::settle).
    pub async fn renew_async<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.ask(Verb::RENEW, &request.into(), ignore_limits).await
    }
}

impl<S: ImmediateStore> Limiter<S> {
    /// Charges the request, whose cost is an estimate, if every limit lets it pass, so that it
    /// can be corrected when it is known what it took. The request's [id](Request::id) names
    /// the reservation; one that has none is given one.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// assert_eq!(call.decision().remaining(), Some(20));
    /// let _ = call.settle(30)?;
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    pub fn reserve<'a>(&self, request: impl Into<Request<'a>>) -> Result<ReserveOutcome<S>, CheckError> {
        blocking::now(self.reserve_async(request))
    }

    /// Corrects the reservation of this id: each limit is charged what the request took
    /// instead of what was estimated. What was too much is given back as far as it is certainly
    /// still there; what was too little is [reported](Limiter::report), and may make debt.
    /// Limits that count what `actual` does not say keep the estimate, and permits of limits on
    /// [requests in flight](crate::Limit::in_flight) are given back.
    ///
    /// The request is the one that was reserved: its key and attributes lead to its limits.
    /// Settling again changes nothing and gets the same answer.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// call.leave_open();
    /// let settled = limiter.settle(Request::new("alice").id("call-1"), 30)?;
    /// assert_eq!(settled.remaining(), Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::NotReserved`] if there is no such reservation or its time is over, so that
    /// it can no longer be corrected; or whatever kept the store from answering.
    pub fn settle<'a>(
        &self,
        request: impl Into<Request<'a>>,
        actual: impl Into<Amounts<'a>>,
    ) -> Result<Decision, CheckError> {
        blocking::now(self.settle_async(request, actual))
    }

    /// Takes the reservation of this id back: the request was not carried out. As
    /// [`settle`](Limiter::settle) where nothing was taken.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// call.leave_open();
    /// let released = limiter.release(Request::new("alice").id("call-1"))?;
    /// assert_eq!(released.remaining(), Some(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`settle`](Limiter::settle).
    pub fn release<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        blocking::now(self.release_async(request))
    }

    /// Has the permits of the reservation of this id last from now on, and the reservation
    /// itself as long again. The decision is a refusal if one of them has expired: it is
    /// given to another request by now, perhaps.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::in_flight(1, Duration::from_secs(60)));
    /// let call = limiter.reserve(Request::new("alice").id("call-1"))?.made().expect("admitted");
    /// assert!(limiter.renew(Request::new("alice").id("call-1"))?.is_allowed());
    /// # drop(call);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`settle`](Limiter::settle).
    pub fn renew<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        blocking::now(self.renew_async(request))
    }
}

impl<S: Store> Reservation<S> {
    /// The id, by which another process may settle it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// assert_eq!(call.id(), "call-1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> &str {
        self.request.id().unwrap_or_default()
    }

    /// What the limits said when it was made.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// assert!(call.decision().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// [`Limiter::settle`] on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve_async("alice").await?.made().expect("admitted");
    /// let _ = call.settle_async(3).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub async fn settle_async<'a>(mut self, actual: impl Into<Amounts<'a>>) -> Result<Decision, CheckError> {
        let settled = self.limiter.settle_async(self.request.lent(), actual.into()).await;
        self.is_open = settled.is_err();
        settled
    }

    /// [`Limiter::release`] on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve_async("alice").await?.made().expect("admitted");
    /// let _ = call.release_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub async fn release_async(mut self) -> Result<Decision, CheckError> {
        let released = self.limiter.release_async(self.request.lent()).await;
        self.is_open = released.is_err();
        released
    }

    /// [`Limiter::renew`] on any store.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter, Request};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve_async("alice").await?.made().expect("admitted");
    /// assert!(call.renew_async().await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub async fn renew_async(&self) -> Result<Decision, CheckError> {
        self.limiter.renew_async(self.request.lent()).await
    }

    /// [`renew_async`](Reservation::renew_async) that no caller waits for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::in_flight(1, Duration::from_secs(60)));
    /// let call = limiter.reserve("alice")?.made().expect("admitted");
    /// call.renew_in_background();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew_in_background(&self) {
        let (limiter, request) = (self.limiter.clone(), Arc::clone(&self.request));
        let task = async move { drop(limiter.renew_async(request.lent()).await) };
        self.limiter.inner.store.in_background(Box::pin(task));
    }

    /// Leaves it open, for another process to settle by its [id](Reservation::id).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// let id = call.id().to_owned();
    /// call.leave_open();
    /// let _ = limiter.settle(Request::new("alice").id(&id), 30)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leave_open(mut self) {
        self.is_open = false;
    }
}

impl<S: ImmediateStore> Reservation<S> {
    /// Corrects what was charged: see [`Limiter::settle`].
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// assert_eq!(call.settle(30)?.remaining(), Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub fn settle<'a>(self, actual: impl Into<Amounts<'a>>) -> Result<Decision, CheckError> {
        blocking::now(self.settle_async(actual.into()))
    }

    /// Takes all of it back: see [`Limiter::release`].
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(100));
    /// let call = limiter.reserve(Request::new("alice").cost(80).id("call-1"))?.made().expect("admitted");
    /// assert_eq!(call.release()?.remaining(), Some(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub fn release(self) -> Result<Decision, CheckError> {
        blocking::now(self.release_async())
    }

    /// Has its permits last from now on: see [`Limiter::renew`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::in_flight(1, Duration::from_secs(60)));
    /// let call = limiter.reserve("alice")?.made().expect("admitted");
    /// assert!(call.renew()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub fn renew(&self) -> Result<Decision, CheckError> {
        blocking::now(self.renew_async())
    }
}

impl<S: Store> Drop for Reservation<S> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let (current, request) = (self.limiter.inner.policies.current_for_long(), self.request.lent());
        let resolution = current.policy.resolve(&request);
        let mut limits = resolution.enforced.iter().chain(&resolution.shadows);
        if limits.any(|applied| applied.meter.is_in_flight()) {
            let (limiter, request) = (self.limiter.clone(), Arc::clone(&self.request));
            let task = async move { drop(limiter.settle_async(request.lent(), Amounts::new()).await) };
            self.limiter.inner.store.in_background(Box::pin(task));
        }
    }
}

impl<S: Store> std::fmt::Debug for Reservation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("id", &self.id()).field("decision", &self.decision).finish_non_exhaustive()
    }
}

/// An id that no other request has: random for the process, and counted.
fn new_id() -> String {
    static PROCESS: LazyLock<[u64; 2]> = LazyLock::new(|| [0, 1].map(|half: u64| RandomState::new().hash_one(half)));
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}{:016x}-{}", PROCESS[0], PROCESS[1], NEXT.fetch_add(1, Ordering::Relaxed))
}
