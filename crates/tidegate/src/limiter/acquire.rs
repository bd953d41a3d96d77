//! Waiting until admitted: first come, first served, for each key and class.
//!
//! A caller that waits stands in the queue of its key, and of its class if a rule has
//! [any](crate::PriorityClasses): a class that has to wait does not hold up one that need not. Only the
//! first in the queue asks the store. A waiter who leaves, admitted or not, wakes the
//! next. Nothing is charged before it is admitted, so a waiter who is dropped
//! leaves nothing behind.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::Limiter;
use super::ask::ignore_limits;
use crate::blocking;
use crate::decision::Decision;
use crate::kernel::Verb;
use crate::request::{Key, Request};
use crate::store::{Check, CheckError, Store};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::time::{Clock, Micros, Sleep};

/// Why a wait ended without admission.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{AcquireError, Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_hour(1));
/// assert!(limiter.allow("alice"));
/// let waited = limiter.acquire("alice", Duration::from_secs(1));
/// assert!(matches!(waited, Err(AcquireError::Timeout { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request could not be admitted in time; nothing was charged.
    #[error("not admitted within {timeout:?}: ask again later or allow more time")]
    Timeout {
        /// How long the caller was ready to wait.
        timeout: Duration,
    },
    /// Too many are waiting already.
    #[error("{bound} callers are waiting already: shed this one")]
    TooManyWaiters {
        /// The number that is allowed, over all keys.
        bound: u64,
    },
    /// The request could not be decided.
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl<S: Store> Limiter<S> {
    /// Blocks this thread until the request is admitted, in the order of arrival for each
    /// key and [class](crate::PriorityClasses), for at most `timeout`. Requests without a key of their own wait
    /// for those that meet the same limits.
    ///
    /// The first in line asks again after its `retry_after`, or sooner if this
    /// limiter was given another policy or the key was refunded or reset. It
    /// gives up at once when it sees that the time will not do.
    /// Callers of [`check`](Limiter::check) do not queue, and may overtake.
    /// What a leaky bucket asks for as [`delay`](Decision::delay) is left to
    /// the caller.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(100).burst(1));
    /// for _ in 0..3 {
    ///     assert!(limiter.acquire("crawler", Duration::from_secs(60))?.is_allowed());
    /// }
    /// # Ok::<(), tidegate::AcquireError>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Timeout`], or whatever else kept the request
    /// from being admitted; nothing was charged.
    pub fn acquire<'a>(&self, request: impl Into<Request<'a>>, timeout: Duration) -> Result<Decision, AcquireError> {
        blocking::block_on(self.acquire_async(request, timeout))
    }

    /// [`acquire`](Limiter::acquire) as a future. One that is dropped has charged nothing, and
    /// lets the next in line go ahead.
    ///
    /// It needs no particular runtime. A caller that waits takes about 750 bytes:
    /// at most 600 of this future, most of them the request, and the rest for its
    /// place in the queue and its alarm. [`max_waiters`](super::LimiterBuilder::max_waiters) is the bound on them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::{AcquireError, Limit, Limiter};
    /// # async fn run() -> Result<(), AcquireError> {
    /// let limiter = Limiter::new(Limit::per_second(100).burst(1));
    /// for page in 1..=3 {
    ///     let _admitted = limiter.acquire_async("crawler", Duration::from_secs(5)).await?;
    ///     println!("fetch page {page}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Limiter::acquire).
    pub fn acquire_async<'a>(
        &self,
        request: impl Into<Request<'a>>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Decision, AcquireError>> {
        self.acquire_with_limits_async(request, timeout, ignore_limits)
    }

    /// The same, and the limits that made each decision, of which the last is the answer: see
    /// [`decide_with_limits_async`](Limiter::decide_with_limits_async).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::{AcquireError, Limit, Limiter};
    /// # async fn run() -> Result<(), AcquireError> {
    /// let limiter = Limiter::new(Limit::per_second(100).burst(1));
    /// let (timeout, mut count) = (Duration::from_secs(5), 0);
    /// let _admitted = limiter.acquire_with_limits_async("crawler", timeout, |_, limits| count = limits.len()).await?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Limiter::acquire).
    pub fn acquire_with_limits_async<'a>(
        &self,
        request: impl Into<Request<'a>>,
        timeout: Duration,
        mut tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> impl Future<Output = Result<Decision, AcquireError>> {
        let request = request.into();
        // A block, not a function: a function would keep its arguments twice.
        async move {
            let clock = self.store().clock();
            let deadline = clock.now().saturating_add(Micros::from_duration(timeout));
            let timed_out = || AcquireError::Timeout { timeout };
            let ticket = self.inner.waiters.join(self.queue_of(&request), self.class_of(&request))?;
            if !ticket.comes_up_before(deadline, clock).await {
                return Err(timed_out());
            }
            loop {
                // Read before asking: at worst we come back a little early and
                // ask again, never late.
                let asked = clock.now();
                // On the heap, where it is only while the store is asked. A decision that is kept
                // while the caller sleeps would be part of every waiter.
                let next_try = match Box::pin(self.ask(Verb::Charge, &request, &mut tell)).await? {
                    decision if decision.is_allowed() => return Ok(decision),
                    decision if decision.is_blocked() => return Err(timed_out()),
                    decision => asked.saturating_add(decision.wait()),
                };
                // The answer itself may have taken longer than the timeout.
                if next_try.max(clock.now()) > deadline {
                    return Err(timed_out());
                }
                ticket.sleep_until(next_try, clock).await;
            }
        }
    }

    /// The queue of a request: that of its key. A request without a key is
    /// known by the keys that the rules make of its attributes: all would wait
    /// for each other otherwise.
    fn queue_of(&self, request: &Request<'_>) -> u64 {
        let waiters = &self.inner.waiters;
        if request.key != Key::from(()) {
            return waiters.queue_of(&request.key);
        }
        let current = self.inner.policies.current();
        let resolution = current.policy.resolve(request);
        let limits: Vec<_> = resolution.enforced.iter().map(|applied| (applied.meter.name(), &applied.key)).collect();
        waiters.queue_of(&limits)
    }

    /// The class of a request, by all rules that apply to it.
    fn class_of(&self, request: &Request<'_>) -> u64 {
        let current = self.inner.policies.current();
        if !current.policy.has_classes() {
            return 0;
        }
        let resolution = current.policy.resolve(request);
        let floors: Vec<u64> = resolution.enforced.iter().map(|applied| applied.meter.floor()).collect();
        self.inner.waiters.queue_of(&floors)
    }

    /// Has the first in each queue of a request's key ask again, before the
    /// time that it was told: there may be more.
    pub(super) fn wake_first(&self, request: &Request<'_>) {
        if self.inner.waiters.places.taken.load(Ordering::Relaxed) > 0 {
            self.inner.waiters.wake_first(self.queue_of(request));
        }
    }
}

/// Everyone who waits, by key.
#[derive(Debug)]
pub(super) struct Waiters {
    shards: Box<[Mutex<HashMap<u64, Queues>>]>,
    hasher: RandomState,
    tickets: AtomicU64,
    pub(super) places: Arc<Places>,
}

/// How many may wait, and how many do: for one limiter, or for some that
/// share it.
#[derive(Debug)]
pub(super) struct Places {
    max: u64,
    taken: AtomicU64,
}

impl Places {
    pub(super) fn new(max: u64) -> Arc<Places> {
        Arc::new(Places { max, taken: AtomicU64::new(0) })
    }
}

/// The queues of a key, one for each class that waits: mostly one.
type Queues = SmallVec<[Queue; 1]>;

#[derive(Debug)]
struct Queue {
    class: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
    /// Whether something has happened since the first in line was told to wait.
    may_be_more: bool,
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

impl Waiters {
    pub(super) fn new(places: Arc<Places>) -> Waiters {
        Waiters {
            shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
            hasher: RandomState::new(),
            tickets: AtomicU64::new(0),
            places,
        }
    }

    fn queue_of(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, Queues>> {
        lock(&self.shards[key as usize % SHARDS])
    }

    fn wake_first(&self, key: u64) {
        let wakers: SmallVec<[Waker; 1]> =
            self.shard(key).get_mut(&key).into_iter().flatten().filter_map(told_of_more).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Has all who are first in their queues ask again.
    pub(super) fn wake_all_first(&self) {
        for shard in &self.shards {
            let wakers: Vec<Waker> = lock(shard).values_mut().flatten().filter_map(told_of_more).collect();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Takes a place at the end of the queue of a key and a class.
    fn join(&self, key: u64, class: u64) -> Result<Ticket<'_>, AcquireError> {
        let Places { max, taken } = &*self.places;
        if taken.fetch_add(1, Ordering::Relaxed) >= *max {
            taken.fetch_sub(1, Ordering::Relaxed);
            return Err(AcquireError::TooManyWaiters { bound: *max });
        }
        let mut ticket = Ticket { waiters: self, key, number: 0 };
        ticket.number = {
            let mut shard = ticket.shard();
            // Drawn under the lock, so that a queue is sorted by number.
            let number = self.tickets.fetch_add(1, Ordering::Relaxed);
            let waiter = Waiter { ticket: number, waker: None, may_be_more: false };
            let queues = shard.entry(ticket.key).or_default();
            match queues.iter_mut().find(|queue| queue.class == class) {
                Some(queue) => queue.waiters.push_back(waiter),
                None => queues.push(Queue { class, waiters: VecDeque::from([waiter]) }),
            }
            number
        };
        Ok(ticket)
    }
}

/// Notes it for the first in a queue, who is to be woken.
fn told_of_more(queue: &mut Queue) -> Option<Waker> {
    let first = queue.waiters.front_mut()?;
    first.may_be_more = true;
    first.waker.take()
}

/// A place in a queue, given up when dropped.
struct Ticket<'w> {
    waiters: &'w Waiters,
    /// Two keys of one hash would share a queue, not a limit.
    key: u64,
    number: u64,
}

impl Ticket<'_> {
    fn shard(&self) -> MutexGuard<'_, HashMap<u64, Queues>> {
        self.waiters.shard(self.key)
    }

    /// Its own queue among those of the key.
    fn queue<'q>(&self, shard: &'q mut HashMap<u64, Queues>) -> Option<&'q mut VecDeque<Waiter>> {
        let mut queues = shard.get_mut(&self.key)?.iter_mut().map(|queue| &mut queue.waiters);
        queues.find(|queue| self.place_in(queue).is_ok())
    }

    fn place_in(&self, queue: &VecDeque<Waiter>) -> Result<usize, usize> {
        queue.binary_search_by_key(&self.number, |waiter| waiter.ticket)
    }

    /// Whether this is the first in its queue; if not, `waker` is woken when
    /// it is.
    fn is_first(&self, waker: &Waker) -> bool {
        let mut shard = self.shard();
        let Some(queue) = self.queue(&mut shard) else { return true };
        if queue.front().is_none_or(|first| first.ticket == self.number) {
            return true;
        }
        if let Ok(place) = self.place_in(queue) {
            queue[place].waker = Some(waker.clone());
        }
        false
    }

    /// Whether something has happened since this first in line was told to
    /// wait; if not, `waker` is woken when it does.
    fn may_be_more(&self, waker: &Waker) -> bool {
        let mut shard = self.shard();
        let queue = self.queue(&mut shard);
        let own = queue.and_then(|queue| self.place_in(queue).ok().and_then(|place| queue.get_mut(place)));
        own.is_some_and(|own| {
            own.waker = Some(waker.clone());
            std::mem::take(&mut own.may_be_more)
        })
    }

    /// Sleeps until `at`, or until there may be more than was told.
    async fn sleep_until(&self, at: Micros, clock: &dyn Clock) {
        let mut sleep = Sleep::until(at);
        poll_fn(|context| if self.may_be_more(context.waker()) { Poll::Ready(()) } else { sleep.poll(clock, context) })
            .await;
    }

    /// Waits to be first; false if `deadline` comes before.
    async fn comes_up_before(&self, deadline: Micros, clock: &dyn Clock) -> bool {
        let mut sleep = Sleep::until(deadline);
        poll_fn(|context| {
            if self.is_first(context.waker()) {
                return Poll::Ready(true);
            }
            if clock.now() >= deadline {
                return Poll::Ready(false);
            }
            if deadline < Micros::LATEST {
                sleep.set_alarm(clock, context.waker());
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.waiters.places.taken.fetch_sub(1, Ordering::Relaxed);
        let next = {
            let mut shard = self.shard();
            let Some(queue) = self.queue(&mut shard) else { return };
            let place = self.place_in(queue);
            if let Ok(place) = place {
                queue.remove(place);
            }
            let next = queue.front_mut().filter(|_| place == Ok(0)).and_then(|first| first.waker.take());
            if queue.is_empty() {
                if let Some(queues) = shard.get_mut(&self.key).filter(|queues| queues.len() > 1) {
                    queues.retain(|queue| !queue.waiters.is_empty());
                } else {
                    shard.remove(&self.key);
                }
            }
            next
        };
        // A waker is foreign code: it runs without our lock.
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

/// Every schedule of a few waiters, by the model checker.
#[cfg(all(test, loom))]
mod schedules {
    use std::sync::Arc;
    use std::task::Context;

    use loom::future::block_on;
    use loom::thread;

    use super::*;
    use crate::{Limit, ManualClock, MemoryStore};

    #[test]
    fn waiters_are_admitted_as_time_goes_on() {
        loom::model(|| {
            let clock = ManualClock::default();
            let store = MemoryStore::builder().max_keys(1).clock(clock.clone()).build().expect("valid settings");
            let limiter = Limiter::with_store(Limit::per_second(1).burst(2), store).expect("a valid policy");
            assert!(limiter.allow(Request::new("alice").cost(2)));
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let limiter = limiter.clone();
                    thread::spawn(move || block_on(limiter.acquire_async("alice", Duration::from_secs(10))).is_ok())
                })
                .collect();
            clock.set(Micros::new(1_000_000));
            clock.set(Micros::new(2_000_000));
            assert!(waiters.into_iter().all(|waiter| waiter.join().expect("the waiter ends")));
            assert!(!limiter.allow("alice"), "both were charged");
        });
    }

    #[test]
    fn a_cancelled_waiter_wakes_the_next() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::new(Places::new(2)));
            let key = Key::from("alice");
            let first = waiters.join(waiters.queue_of(&key), 0).expect("there is room");
            let next =
                thread::spawn({
                    let waiters = Arc::clone(&waiters);
                    move || {
                        let ticket = waiters.join(waiters.queue_of(&Key::from("alice")), 0).expect("there is room");
                        block_on(poll_fn(|context| {
                            if ticket.is_first(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
                        }));
                    }
                });
            drop(first);
            next.join().expect("the next in line comes up");
        });
    }

    /// A waiter is dropped after its first poll, while the clock moves and the
    /// next in line waits for both.
    #[test]
    fn a_dropped_waiter_charges_nothing_and_blocks_no_other() {
        loom::model(|| {
            let clock = ManualClock::default();
            let store = MemoryStore::builder().max_keys(1).clock(clock.clone()).build().expect("valid settings");
            let limiter = Limiter::with_store(Limit::per_second(1), store).expect("a valid policy");
            assert!(limiter.allow("alice"));
            let leaver = limiter.clone();
            let mut leaver = Box::pin(async move { leaver.acquire_async("alice", Duration::from_secs(10)).await });
            let poll = leaver.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_pending());
            let next = thread::spawn({
                let limiter = limiter.clone();
                move || block_on(limiter.acquire_async("alice", Duration::from_secs(10))).is_ok()
            });
            let leaving = thread::spawn(move || drop(leaver));
            clock.set(Micros::new(1_000_000));
            leaving.join().expect("it leaves");
            assert!(next.join().expect("the waiter ends"), "it is admitted");
            assert!(!limiter.allow("alice"), "one of them was charged");
            clock.set(Micros::new(2_000_000));
            assert!(limiter.allow("alice"), "and the other was not");
        });
    }

    /// A policy that has more takes over while a request is told to wait.
    #[test]
    fn a_waiter_is_woken_by_a_policy_that_has_more() {
        loom::model(|| {
            let store = MemoryStore::builder().max_keys(1).clock(ManualClock::default()).build();
            let limiter = Limiter::with_store(Limit::per_second(1), store.expect("valid settings"));
            let limiter = limiter.expect("a valid policy");
            assert!(limiter.allow("alice"));
            let waiter = thread::spawn({
                let limiter = limiter.clone();
                move || block_on(limiter.acquire_async("alice", Duration::from_secs(10))).is_ok()
            });
            limiter.set_policy(Limit::per_second(2)).expect("a valid policy");
            assert!(waiter.join().expect("the waiter ends"), "it is admitted, though no time passes");
        });
    }

    /// A policy takes over while a request is decided, by the old one or by the
    /// new one: what was used counts on.
    #[test]
    fn a_policy_that_takes_over_mints_nothing() {
        loom::model(|| {
            let store = MemoryStore::builder().max_keys(1).clock(ManualClock::default()).build();
            let limiter = Limiter::with_store(Limit::per_second(1), store.expect("valid settings"));
            let limiter = limiter.expect("a valid policy");
            let asking = thread::spawn({
                let limiter = limiter.clone();
                move || limiter.allow("alice")
            });
            limiter.set_policy(Limit::per_second(2)).expect("a valid policy");
            let mine = limiter.allow("alice");
            let other = asking.join().expect("the thread ends");
            assert!(mine, "there is room for both in the new limit");
            let left = limiter.peek("alice").expect("an answer").remaining().expect("a limit");
            assert!(u64::from(mine) + u64::from(other) + left <= 2, "{left} are left");
        });
    }
}
