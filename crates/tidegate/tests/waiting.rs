//! `acquire`: first come, first served; on time, or not at all.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{
    AcquireError, CheckError, Clock, Decision, Limit, Limiter, ManualClock, MemoryStore, Micros, Request, Rule, Setting,
};
use tidegate_testkit::block_on;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(1_000);

fn limiter(limit: Limit) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(limit, store).expect("a valid policy"), clock)
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Outcome = Result<Decision, AcquireError>;

/// A wait that is polled by hand.
struct Waiting {
    future: Option<Pin<Box<dyn Future<Output = Outcome>>>>,
    woken: Arc<Woken>,
}

impl Waiting {
    fn new(limiter: &Limiter, request: Request<'static>, timeout: Duration) -> Waiting {
        let limiter = limiter.clone();
        let future = Box::pin(async move { limiter.acquire_async(request, timeout).await });
        Waiting { future: Some(future), woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<Outcome> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let future = self.future.as_mut().expect("not polled after it ended");
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => {
                self.future = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }

    fn times_woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

#[test]
fn waiters_are_admitted_in_the_order_of_their_arrival() {
    let (limiter, clock) = limiter(Limit::per_second(1));
    assert!(limiter.allow("alice"));
    let mut waiters: Vec<Waiting> = (0..5).map(|_| Waiting::new(&limiter, "alice".into(), LONG)).collect();
    for waiter in &mut waiters {
        assert!(waiter.poll().is_none());
    }
    for next in 0..5 {
        clock.advance(SECOND);
        // Polled in the wrong order: only the first in line is admitted.
        let done: Vec<usize> = (next..5).rev().filter(|index| waiters[*index].poll().is_some()).collect();
        assert_eq!(done, [next]);
        // The next in line finds out when to come back.
        if let Some(waiter) = waiters.get_mut(next + 1) {
            assert!(waiter.poll().is_none());
        }
    }
}

#[test]
fn a_small_request_does_not_overtake_a_large_one() {
    let (limiter, clock) = limiter(Limit::per_second(10));
    assert!(limiter.allow(Request::new("alice").cost(10)));
    let mut large = Waiting::new(&limiter, Request::new("alice").cost(10), LONG);
    let mut small = Waiting::new(&limiter, Request::new("alice").cost(1), LONG);
    assert!(large.poll().is_none() && small.poll().is_none());
    clock.advance(SECOND / 2);
    assert!(small.poll().is_none() && large.poll().is_none(), "there would be room for the small one");
    clock.advance(SECOND / 2);
    assert!(large.poll().is_some_and(|outcome| outcome.is_ok()));
    assert!(small.poll().is_none());
    clock.advance(SECOND / 10);
    assert!(small.poll().is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn a_cancelled_waiter_leaves_nothing_behind_and_wakes_the_next() {
    // The one who leaves is cancelled after each number of polls there is.
    for polls in 0..3 {
        for leaver in 0..2 {
            let (limiter, clock) = limiter(Limit::per_second(1));
            assert!(limiter.allow("alice"));
            let mut waiters: Vec<Waiting> = (0..3).map(|_| Waiting::new(&limiter, "alice".into(), LONG)).collect();
            for _ in 0..polls {
                for waiter in &mut waiters {
                    assert!(waiter.poll().is_none());
                }
            }
            let left = waiters.remove(leaver);
            let woken_before: Vec<usize> = waiters.iter().map(Waiting::times_woken).collect();
            drop(left);
            if polls > 0 && leaver == 0 {
                assert!(waiters[0].times_woken() > woken_before[0], "the next in line is woken");
            }
            assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_none()));
            for waiter in &mut waiters {
                clock.advance(SECOND);
                assert!(waiter.poll().is_some_and(|outcome| outcome.is_ok()), "no waiter lost its place");
            }
            let peek = limiter.peek("alice").expect("an answer");
            assert_eq!(peek.remaining(), Some(0), "three were charged, not four");
        }
    }
}

#[test]
fn times_out_at_once_if_the_wait_exceeds_the_timeout() {
    let (limiter, clock) = limiter(Limit::per_second(1));
    assert!(limiter.allow("alice"));
    let outcome = Waiting::new(&limiter, "alice".into(), Duration::from_millis(999)).poll();
    let error = outcome.expect("it ends at once").expect_err("a second would be needed");
    assert_eq!(error.to_string(), "not admitted within 999ms: ask again later or allow more time");
    let mut enough = Waiting::new(&limiter, "alice".into(), SECOND);
    assert!(enough.poll().is_none());
    clock.advance(SECOND);
    assert!(enough.poll().is_some_and(|outcome| outcome.is_ok()));
}

/// A store that takes its time to answer.
struct Slow {
    store: MemoryStore,
    clock: ManualClock,
}

impl Store for Slow {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let decided = self.store.decide(checks, verdicts).await;
        self.clock.advance(3 * SECOND);
        decided
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}

#[test]
fn the_timeout_covers_the_store_call() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_second(1), Slow { store, clock: clock.clone() }).expect("a policy");
    let mut first = pin!(limiter.check_async("alice"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Ok(decision)) if decision.is_allowed()));
    clock.set(Micros::ZERO);
    // Told to come back after a second, when three have passed.
    let mut second = pin!(limiter.acquire_async("alice", SECOND));
    let outcome = second.as_mut().poll(&mut context);
    assert!(matches!(outcome, Poll::Ready(Err(AcquireError::Timeout { .. }))), "{outcome:?}");
}

#[test]
fn the_timeout_covers_the_time_in_the_queue() {
    let (limiter, clock) = limiter(Limit::token_bucket(1, Duration::from_secs(100)));
    assert!(limiter.allow("alice"));
    let mut first = Waiting::new(&limiter, "alice".into(), LONG);
    let mut second = Waiting::new(&limiter, "alice".into(), SECOND);
    assert!(first.poll().is_none() && second.poll().is_none());
    clock.advance(SECOND);
    assert!(second.times_woken() > 0, "its alarm rang");
    assert!(matches!(second.poll(), Some(Err(AcquireError::Timeout { .. }))));
    assert!(first.poll().is_none());
}

#[test]
fn a_waiter_that_times_out_in_the_queue_is_not_admitted() {
    let (limiter, clock) = limiter(Limit::per_second(10));
    assert!(limiter.allow(Request::new("alice").cost(10)));
    let mut large = Waiting::new(&limiter, Request::new("alice").cost(10), LONG);
    let mut small = Waiting::new(&limiter, "alice".into(), SECOND / 2);
    assert!(large.poll().is_none() && small.poll().is_none());
    clock.advance(SECOND / 2);
    assert!(matches!(small.poll(), Some(Err(AcquireError::Timeout { .. }))), "there would be room for it");
    clock.advance(SECOND / 2);
    assert!(large.poll().is_some_and(|outcome| outcome.is_ok()), "nothing was charged before");
}

/// A clock that stands still, and rings its alarms when told.
#[derive(Clone, Default)]
struct Alarms(Arc<Mutex<Vec<(Micros, Waker)>>>);

impl Alarms {
    /// When they are to ring.
    fn times(&self) -> Vec<Micros> {
        self.0.lock().expect("no thread panics").iter().map(|(at, _)| *at).collect()
    }

    fn ring(&self) -> usize {
        let alarms = std::mem::take(&mut *self.0.lock().expect("no thread panics"));
        alarms.iter().for_each(|(_, waker)| waker.wake_by_ref());
        alarms.len()
    }
}

impl Clock for Alarms {
    fn now(&self) -> Micros {
        Micros::ZERO
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        self.0.lock().expect("no thread panics").push((at, waker.clone()));
    }
}

#[test]
fn a_waiter_without_a_timeout_sets_no_alarm_in_the_queue() {
    let alarms = Alarms::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(alarms.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_second(1), store).expect("a valid policy");
    assert!(limiter.allow("alice"));
    let mut first = Waiting::new(&limiter, "alice".into(), Duration::MAX);
    let mut second = Waiting::new(&limiter, "alice".into(), Micros::LATEST.to_duration());
    let mut third = Waiting::new(&limiter, "alice".into(), LONG);
    assert!(first.poll().is_none() && second.poll().is_none() && third.poll().is_none());
    assert_eq!(alarms.times(), [Micros::new(1_000_000), Micros::from_duration(LONG)]);
}

#[test]
fn a_blocked_request_is_refused_without_waiting() {
    let (limiter, _) = limiter(Limit::per_second(1));
    let rule = Rule::new("api", Limit::per_second(1)).override_exactly("user", "mallory", Setting::Blocked);
    limiter.set_policy(rule).expect("a valid policy");
    for timeout in [Duration::ZERO, LONG, Duration::MAX] {
        let outcome = Waiting::new(&limiter, Request::user("mallory"), timeout).poll();
        assert!(matches!(outcome, Some(Err(AcquireError::Timeout { .. }))), "{timeout:?}: {outcome:?}");
    }
}

#[test]
fn a_cost_above_the_capacity_is_an_error_not_a_wait() {
    let (limiter, _clock) = limiter(Limit::per_second(1));
    let outcome = Waiting::new(&limiter, Request::new("alice").cost(2), LONG).poll();
    assert!(matches!(outcome, Some(Err(AcquireError::Check(CheckError::Unsatisfiable { cost: 2, capacity: 1, .. })))));
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let (limiter, _clock) = limiter(Limit::per_second(1));
    assert!(limiter.allow("alice"));
    let mut alice = Waiting::new(&limiter, "alice".into(), LONG);
    assert!(alice.poll().is_none());
    assert!(Waiting::new(&limiter, "bob".into(), LONG).poll().is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn threads_wait_by_real_time() {
    // A thousand a second: each of the four waits a millisecond or so.
    let limiter = Limiter::new(Limit::per_second(1_000).burst(1));
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, order) = (&limiter, &order);
            scope.spawn(move || {
                let decision = limiter.acquire("everyone", LONG).expect("there is time enough");
                assert!(decision.is_allowed());
                order.lock().expect("no thread panics").push(thread);
            });
        }
    });
    assert_eq!(order.into_inner().expect("no thread panicked").len(), 4);
}

#[test]
fn a_future_may_be_moved_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    let (limiter, _clock) = limiter(Limit::per_second(1));
    let future = pin!(limiter.acquire_async("alice", SECOND));
    is_send(&future);
}

#[test]
fn a_waiter_has_one_alarm_however_often_it_is_polled() {
    let alarms = Alarms::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(alarms.clone()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_second(1), store).expect("a valid policy");
    assert!(limiter.allow("alice"));
    let mut first = Waiting::new(&limiter, "alice".into(), LONG);
    let mut second = Waiting::new(&limiter, "alice".into(), LONG);
    // An alarm may ring early: then there is another one, and still only one.
    for _ in 0..3 {
        for _ in 0..100 {
            assert!(first.poll().is_none() && second.poll().is_none());
        }
        // The last waker is called.
        first.woken = Arc::default();
        second.woken = Arc::default();
        assert!(first.poll().is_none() && second.poll().is_none());
        assert_eq!(alarms.ring(), 2);
        assert_eq!((first.times_woken(), second.times_woken()), (1, 1));
    }
}

#[test]
fn requests_without_a_key_queue_by_their_limits() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    let rule = Rule::new("addresses", Limit::per_second(1)).key(["ip"]);
    let limiter = Limiter::with_store(rule, store).expect("a valid policy");
    let request = |ip: &'static str| Request::new(()).with("ip", ip);
    assert!(limiter.allow(request("192.0.2.1")));
    let mut first = Waiting::new(&limiter, request("192.0.2.1"), LONG);
    let mut second = Waiting::new(&limiter, request("192.0.2.1"), LONG);
    assert!(first.poll().is_none() && second.poll().is_none());
    let mut other = Waiting::new(&limiter, request("192.0.2.2"), LONG);
    assert!(other.poll().is_some_and(|outcome| outcome.is_ok()), "no waiter is before it");
    clock.advance(SECOND);
    assert!(second.poll().is_none() && first.poll().is_some(), "the first comes first");
    assert!(second.poll().is_none());
}

#[test]
fn waiters_are_woken_when_more_becomes_available() {
    let change: [fn(&Limiter); 7] = [
        |limiter| limiter.set_policy(Limit::per_second(5)).expect("a valid policy"),
        |limiter| assert!(limiter.reset("alice").is_ok()),
        |limiter| assert!(limiter.refund("alice").is_ok()),
        |limiter| assert!(block_on(limiter.reset_async("alice")).is_ok()),
        |limiter| assert!(block_on(limiter.refund_async("alice")).is_ok()),
        |limiter| assert!(block_on(limiter.decide_all_async(&[(Verb::Refund, "alice".into())])).is_ok()),
        |limiter| assert!(block_on(limiter.decide_all_async(&[(Verb::Reset, "alice".into())])).is_ok()),
    ];
    for change in change {
        let (limiter, _clock) = limiter(Limit::per_hour(1));
        assert!(limiter.allow("alice"));
        let mut first = Waiting::new(&limiter, "alice".into(), 10 * LONG);
        let mut second = Waiting::new(&limiter, "alice".into(), 10 * LONG);
        assert!(first.poll().is_none() && second.poll().is_none());
        change(&limiter);
        assert_eq!((first.times_woken(), second.times_woken()), (1, 0), "the first in line");
        assert!(second.poll().is_none());
        assert!(first.poll().is_some_and(|outcome| outcome.is_ok()), "it is admitted at once");
        // Also with no other waiter.
        drop(second);
        while limiter.allow("alice") {}
        let mut alone = Waiting::new(&limiter, "alice".into(), 10 * LONG);
        assert!(alone.poll().is_none());
        assert!(limiter.reset("alice").is_ok() && alone.times_woken() == 1);
    }
}

#[test]
fn a_charge_or_a_peek_of_the_same_key_does_not_wake_a_waiter() {
    let (limiter, _clock) = limiter(Limit::per_hour(1));
    assert!(limiter.allow("alice"));
    let mut waiting = Waiting::new(&limiter, "alice".into(), 10 * LONG);
    assert!(waiting.poll().is_none());
    for verb in [Verb::Charge, Verb::Peek] {
        assert!(block_on(limiter.decide_async(verb, "alice")).is_ok());
        assert!(block_on(limiter.decide_all_async(&[(verb, "alice".into())])).is_ok());
        assert_eq!(waiting.times_woken(), 0, "{verb:?}");
    }
}

#[test]
fn requests_of_one_key_share_a_queue() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock).build().expect("valid settings");
    let rule = Rule::new("addresses", Limit::per_second(1)).key(["ip"]);
    let limiter = Limiter::with_store(rule, store).expect("a valid policy");
    let request = |ip: &'static str| Request::new("alice").with("ip", ip);
    assert!(limiter.allow(request("192.0.2.1")));
    let mut first = Waiting::new(&limiter, request("192.0.2.1"), LONG);
    let mut second = Waiting::new(&limiter, request("192.0.2.2"), LONG);
    assert!(first.poll().is_none() && second.poll().is_none(), "in the order of arrival");
    drop(first);
    assert!(second.poll().is_some_and(|outcome| outcome.is_ok()));
}
