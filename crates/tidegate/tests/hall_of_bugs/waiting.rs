//! Waiting, cancellation, locks: rows 31 to 42.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::kernel::{Admission, Kernel, Reading};
use tidegate::store::Meter;
use tidegate::{
    AcquireError, Decision, Event, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Observer, Overflow, Policy,
    Request,
};

use crate::{START, every_algorithm, limit, limiter, passes, remaining, takes};

const LONG: Duration = Duration::from_secs(1_000);

type Outcome = Result<Decision, AcquireError>;

/// A wait that is polled by hand.
pub(crate) struct Waiting {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Waiting {
    pub(crate) fn new(limiter: &Limiter, cost: u64) -> Waiting {
        let limiter = limiter.clone();
        let future = Box::pin(async move { limiter.acquire_async(Request::new("alice").cost(cost), LONG).await });
        Waiting { future, woken: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Option<Outcome> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// Whether it was woken since it was last polled.
    pub(crate) fn was_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }
}

/// golang/go#69419 and #56924, milvus-io/milvus#33335: a reservation that was
/// cancelled gave back too few tokens, or too many.
#[test]
fn row_31_what_is_given_back_is_what_was_taken() {
    for limit in every_algorithm() {
        let ((limiter, clock), (other, other_clock)) = (limiter(limit), limiter(limit));
        // Beside a limiter that was never asked for the three.
        for (limiter, taken) in [(&limiter, 5), (&other, 2)] {
            assert!(takes(limiter, taken));
        }
        let given_back = limiter.refund(Request::new("alice").cost(3)).expect("an answer");
        assert_eq!(given_back.remaining(), Some(3), "{limit}");
        for step in 0..40 {
            let now = Micros::new(START + step * 333_331);
            clock.set(now);
            other_clock.set(now);
            assert_eq!(remaining(&limiter), remaining(&other), "{limit}: at step {step}");
        }
    }
}

/// songzhibin97/gkit#134: a wait that was cancelled before it began took a token.
#[test]
fn row_32_a_wait_that_never_began_takes_nothing() {
    let (limiter, _) = limiter(Limit::per_hour(2));
    for _ in 0..10 {
        drop(Waiting::new(&limiter, 1));
    }
    assert_eq!(remaining(&limiter), 2);
    assert_eq!(passes(&limiter, 5), 2);
    let refused = limiter.acquire("alice", Duration::ZERO);
    assert!(refused.is_err(), "without a timeout");
    assert_eq!(limiter.peek("alice").expect("an answer").retry_after(), Some(Duration::from_secs(1_800)));
}

/// twilight-rs/twilight#1309, dotnet/runtime#64078: a waiter who had left
/// still stood in the line, and held up those behind.
#[test]
fn row_33_a_cancelled_waiter_blocks_no_other() {
    for leaver in 0..3 {
        let (limiter, clock) = limiter(limit("1/s"));
        assert!(takes(&limiter, 1));
        let mut line: Vec<Waiting> = (0..4).map(|_| Waiting::new(&limiter, 1)).collect();
        assert!(line.iter_mut().all(|waiter| waiter.poll().is_none()));
        drop(line.remove(leaver));
        for (number, waiter) in line.iter_mut().enumerate() {
            // The new first waiter has been woken.
            assert!(waiter.poll().is_none());
            clock.advance(Duration::from_secs(1));
            assert!(waiter.was_woken(), "leaver {leaver}: {number}");
            assert!(waiter.poll().is_some_and(|outcome| outcome.is_ok()), "leaver {leaver}: {number}");
        }
    }
}

/// udoprog/leaky-bucket#35 and #39: the one who kept time for all was dropped,
/// and no waiter was ever woken again.
#[test]
fn row_34_the_first_in_line_may_be_dropped_at_any_time() {
    for polls in 0..4 {
        let (limiter, clock) = limiter(limit("1/s"));
        assert!(takes(&limiter, 1));
        let mut line: Vec<Waiting> = (0..3).map(|_| Waiting::new(&limiter, 1)).collect();
        for _ in 0..polls {
            assert!(line.iter_mut().all(|waiter| waiter.poll().is_none()));
        }
        drop(line.remove(0));
        let mut admitted = 0;
        for _ in 0..4 {
            for waiter in &mut line {
                if let Some(outcome) = waiter.poll() {
                    assert!(outcome.is_ok());
                    admitted += 1;
                    waiter.future = Box::pin(std::future::pending());
                }
            }
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(admitted, 2, "after {polls} polls");
    }
}

/// sgl-project/sglang#31907, joshrotenberg/tower-resilience#365: a request that
/// was dropped just as its turn came took the turn along.
#[test]
fn row_35_a_turn_that_is_not_taken_goes_to_the_next() {
    let (limiter, clock) = limiter(limit("1/s"));
    assert!(takes(&limiter, 1));
    let (mut first, mut second) = (Waiting::new(&limiter, 1), Waiting::new(&limiter, 1));
    assert!(first.poll().is_none() && second.poll().is_none());
    clock.advance(Duration::from_secs(1));
    assert!(first.was_woken(), "its time has come");
    drop(first);
    assert!(second.was_woken(), "and now it is the other's");
    assert!(second.poll().is_some_and(|outcome| outcome.is_ok()), "with nothing lost");
}

/// facebook/rocksdb#11425, sidekiq/sidekiq#5315: small requests went past a
/// large one for ever.
#[test]
fn row_37_a_large_request_is_not_overtaken() {
    let (limiter, clock) = limiter(limit("10/s"));
    assert!(takes(&limiter, 10));
    let mut large = Waiting::new(&limiter, 10);
    assert!(large.poll().is_none());
    let mut small: Vec<Waiting> = (0..20).map(|_| Waiting::new(&limiter, 1)).collect();
    for _ in 0..9 {
        clock.advance(Duration::from_millis(100));
        assert!(
            small.iter_mut().all(|waiter| waiter.poll().is_none()),
            "there is room, and another waiter before them"
        );
        assert!(large.poll().is_none());
    }
    clock.advance(Duration::from_millis(100));
    assert!(large.poll().is_some_and(|outcome| outcome.is_ok()));
}

/// Asks the limiter that it observes.
#[derive(Default)]
struct Inquisitive {
    limiter: Mutex<Option<Limiter>>,
    seen: AtomicU64,
}

impl Observer for Inquisitive {
    fn observe(&self, event: &Event<'_>) {
        if event.key.to_string() == "alice" {
            let limiter = self.limiter.lock().expect("not poisoned").clone().expect("it was told");
            assert!(limiter.peek("bob").is_ok() && limiter.check("carol").is_ok());
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// xacrimon/dashmap#369 and #79, pubky/pkdns#51: a lock was held while something
/// else was asked that needed it, and the whole server stood still.
#[test]
fn row_40_no_lock_is_held_while_others_are_told() {
    let observer = Arc::new(Inquisitive::default());
    let policy = Policy::new().limit("one", Limit::per_hour(100)).limit("two", Limit::per_hour(100));
    let store = MemoryStore::builder().max_keys(10).build().expect("valid settings");
    let limiter = Limiter::builder(policy).store(store).observer(observer.clone()).build().expect("a valid policy");
    *observer.limiter.lock().expect("not poisoned") = Some(limiter.clone());
    assert_eq!(passes(&limiter, 50), 50);
    assert_eq!(observer.seen.load(Ordering::Relaxed), 50);
    // A future that holds a lock could not be sent elsewhere.
    fn is_send<T: Send>(_: &T) {}
    is_send(&limiter.check_async("alice"));
    // They hold each other: one has to let go.
    *observer.limiter.lock().expect("not poisoned") = None;
}

/// A kernel that panics when it is told to.
struct Fragile(Arc<AtomicBool>);

impl Kernel for Fragile {
    type State = u64;

    fn capacity(&self) -> u64 {
        3
    }

    fn admit(&self, state: &u64, _: Micros, cost: u64) -> Admission {
        assert!(!self.0.load(Ordering::SeqCst), "told to");
        if state + cost <= 3 { Admission::PASS } else { Admission::Wait { retry_after: Micros::new(1) } }
    }

    fn charge(&self, state: &mut u64, now: Micros, cost: u64) -> Reading {
        *state += cost;
        self.read(state, now)
    }

    fn refund(&self, state: &mut u64, _: Micros, cost: u64) {
        *state = state.saturating_sub(cost);
    }

    fn read(&self, state: &u64, _: Micros) -> Reading {
        Reading { remaining: 3 - state, reset_after: Micros::new(1) }
    }

    fn forget_at(&self, state: &u64) -> Micros {
        if *state == 0 { Micros::ZERO } else { Micros::LATEST }
    }

    fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
        bytes.extend(state.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// yvgude/lean-ctx#1279, Yeachan-Heo/clawhip#351: after one panic under a lock
/// every later request panicked, or every later request was let pass.
#[test]
fn row_41_a_panic_is_the_end_of_one_request_only() {
    let breaks = Arc::new(AtomicBool::new(false));
    let policies = [
        Policy::new().meter(Meter::custom(Name::literal("fragile"), Fragile(breaks.clone()))),
        Policy::new()
            .limit("bucket", Limit::per_hour(3))
            .limit("window", limit("fixed 3/h"))
            .meter(Meter::custom(Name::literal("fragile"), Fragile(breaks.clone()))),
        Policy::new()
            .limit("log", limit("sliding-log 3/h"))
            .meter(Meter::custom(Name::literal("fragile"), Fragile(breaks.clone()))),
        Policy::new()
            .meter(Meter::custom(Name::literal("fragile"), Fragile(breaks.clone())))
            .limit("counter", limit("sliding 3/h")),
    ];
    for (policy, charged) in policies.into_iter().flat_map(|policy| [(policy.clone(), 1), (policy, 0)]) {
        let (limiter, _) = limiter(policy);
        assert_eq!(passes(&limiter, charged), charged);
        breaks.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| takes(&limiter, 1)));
            assert!(asked.is_err(), "the caller hears of it");
        }
        breaks.store(false, Ordering::SeqCst);
        let passed = passes(&limiter, 9);
        assert_eq!(passed, 3 - charged, "neither blocked nor unlimited, and nothing charged by calls that panicked");
    }
}

/// moka-rs/moka#590, #600 and #267, moka-rs/mini-moka#53: caches under churn that
/// stopped evicting, or read what was freed.
#[test]
fn row_42_a_store_under_churn_stays_as_large_as_it_is() {
    let clock = ManualClock::at(Micros::new(START));
    for overflow in [Overflow::Share, Overflow::EvictOldest, Overflow::Refuse, Overflow::Allow] {
        let store = MemoryStore::builder().max_keys(1_000).overflow(overflow).clock(clock.clone()).build();
        let limiter = Limiter::with_store(Limit::per_second(2), store.expect("valid")).expect("a valid policy");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (limiter, clock) = (&limiter, &clock);
                scope.spawn(move || {
                    for number in 0..20_000 {
                        limiter.allow(thread * 1_000_000 + number);
                        if number % 1_000 == 0 {
                            clock.advance(Duration::from_millis(50));
                        }
                    }
                });
            }
        });
        assert!(limiter.store().count_keys() <= 4_000, "{overflow:?}: {}", limiter.store().count_keys());
        clock.advance(Duration::from_secs(10));
        assert_eq!(limiter.store().count_keys(), 0, "{overflow:?}: all of it is free again");
    }
}
