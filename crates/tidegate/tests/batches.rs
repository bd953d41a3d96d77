//! Batches: each request is decided as it would be by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{Clock, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request};

/// Counts how often it is read.
#[derive(Clone, Default)]
struct Counting {
    clock: ManualClock,
    readings: Arc<AtomicU64>,
}

impl Clock for Counting {
    fn now(&self) -> Micros {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.clock.now()
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        self.clock.wake_at(at, waker);
    }
}

fn limiter(policy: impl Into<Policy>) -> (Limiter, Counting) {
    let clock = Counting::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

#[test]
fn a_batch_of_any_length_is_answered_as_one_by_one() {
    let names: Vec<String> = (0..7).map(|number| format!("user{number}")).collect();
    for count in [0, 1, 2, 31, 32, 33, 63, 64, 65, 100] {
        let requests: Vec<Request<'_>> =
            (0..count).map(|at| Request::new(names[at % 7].as_str()).cost(at as u64 % 3)).collect();
        let (many, _) = limiter(Limit::per_hour(9));
        let (single, _) = limiter(Limit::per_hour(9));
        let expected: Vec<_> = requests.iter().map(|one| single.check(one.clone()).expect("an answer")).collect();
        assert_eq!(many.check_many(requests).expect("answers"), expected, "{count} of them");
    }
}

/// With ids, attributes and impossible costs among them, of policies of one limit and of several, before a
/// change, after it, and when nothing of the old limit matters any more.
#[test]
fn allow_many_says_of_each_what_allow_does() {
    let one = Policy::new().limit("api", Limit::per_hour(9));
    let several = one.clone().limit("all", Limit::sliding_log(40, std::time::Duration::from_secs(60)));
    for policy in [one, several] {
        let ((many, of_many), (single, of_single)) = (limiter(policy.clone()), limiter(policy.clone()));
        let requests = |count: u64, impossible: u64| {
            (0..count).map(move |at| match at % 41 {
                39 => Request::new(at % 7).cost(if at % 2 == 0 { impossible } else { 1 }),
                40 => Request::new(at % 7).id("once"),
                17 => Request::user("alice").with("path", "/"),
                _ => Request::new(at % 7).cost(at % 3),
            })
        };
        for round in 0..3 {
            for count in [0, 1, 31, 32, 33, 65, 100, 200] {
                let expected: Vec<bool> = requests(count, 100).map(|request| single.allow(request)).collect();
                assert_eq!(many.allow_many(requests(count, 100)), expected, "{round}: {count} of them");
                let expected: Vec<_> = requests(count, 1).map(|one| single.check(one).expect("an answer")).collect();
                assert_eq!(many.check_many(requests(count, 1)).expect("answers"), expected, "{round}: {count}");
            }
            for (limiter, clock) in [(&many, &of_many), (&single, &of_single)] {
                match round {
                    0 => limiter.set_policy(Policy::new().limit("api", Limit::per_hour(20))).expect("a valid policy"),
                    _ => clock.clock.advance(std::time::Duration::from_secs(86_400)),
                }
                assert!(!limiter.check("stranger").expect("an answer").is_degraded());
            }
        }
    }
}

#[test]
fn a_batch_reads_the_clock_once_for_every_32() {
    let (limiter, clock) = limiter(Limit::per_hour(10));
    for (count, readings) in [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3)] {
        let before = clock.readings.load(Ordering::Relaxed);
        let decisions = limiter.check_many((0..count).map(|number: u64| Request::new(number)));
        assert_eq!(decisions.expect("answers").len() as u64, count);
        assert_eq!(clock.readings.load(Ordering::Relaxed) - before, readings, "{count} of them");
        let before = clock.readings.load(Ordering::Relaxed);
        assert_eq!(limiter.allow_many((0..count).map(Request::new)), vec![true; count as usize]);
        assert_eq!(clock.readings.load(Ordering::Relaxed) - before, readings, "{count} of them, in a word each");
    }
}

/// A custom store with the required methods only.
struct Plain(MemoryStore);

impl Store for Plain {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.0.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }
}

impl ImmediateStore for Plain {}

#[test]
fn a_custom_store_decides_batches_and_single_checks() {
    let memory = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().expect("valid settings");
    let own = Limiter::with_store(Limit::per_hour(9), Plain(memory)).expect("a valid policy");
    let (known, _) = limiter(Limit::per_hour(9));
    let requests = |keys: u64| (0..40).map(move |number: u64| Request::new(keys + number % 3).cost(number % 4));
    assert_eq!(own.check_many(requests(0)).expect("answers"), known.check_many(requests(0)).expect("answers"));
    assert_eq!(own.allow_many(requests(10)), known.allow_many(requests(10)));
    for key in 0..5_u64 {
        assert_eq!(own.allow(key), known.allow(key), "{key}");
    }
}
