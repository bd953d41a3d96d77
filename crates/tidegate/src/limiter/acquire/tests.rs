//! Queues of waiters, without a clock.

use super::*;

#[test]
fn waiters_are_bounded_and_cancelled_ones_forgotten() {
    const MAX: u64 = 10_000;
    let waiters = Waiters::new(Places::new(MAX));
    let waiting = || waiters.places.taken.load(Ordering::Relaxed);
    let queues = || waiters.shards.iter().map(|shard| lock(shard).len()).sum::<usize>();
    let all: Vec<Ticket<'_>> =
        ["a", "b", "a"].iter().map(|key| waiters.join(waiters.queue_of(key), 0).expect("there is room")).collect();
    assert_eq!((waiting(), queues()), (3, 2));
    drop(all);
    // So many that no shard is without.
    let keys = if cfg!(miri) { 2 } else { 2_000_u64 };
    drop((0..keys).map(|key| waiters.join(waiters.queue_of(&key), 0).expect("there is room")).collect::<Vec<_>>());
    assert_eq!((waiting(), queues()), (0, 0));
    waiters.places.taken.store(MAX - 1, Ordering::Relaxed);
    let last = waiters.join(waiters.queue_of(&"a"), 0).expect("there is room for one");
    for _ in 0..2 {
        let refused = waiters.join(waiters.queue_of(&"b"), 0);
        assert!(matches!(refused, Err(AcquireError::TooManyWaiters { bound: MAX })));
    }
    assert_eq!((waiting(), queues()), (MAX, 1));
    drop(last);
    assert!(waiters.join(waiters.queue_of(&"b"), 0).is_ok());
}

#[test]
fn a_waiter_takes_so_many_bytes_and_no_more() {
    let limiter = Limiter::new(crate::Limit::per_hour(1));
    let waiting = limiter.acquire_async(Request::user("alice").with("path", "/orders"), Duration::from_secs(1));
    assert!(size_of_val(&waiting) <= 600, "{}", size_of_val(&waiting));
    let (place, alarm) = (size_of::<Waiter>(), size_of::<crate::time::Alarm>());
    assert!(place <= 40 && alarm <= 40, "{place} in the queue, {alarm} of the alarm");
}

#[test]
fn limiters_that_share_bounds_share_the_places_to_wait() {
    let limiter = |limit: &str| Limiter::builder(limit.parse::<crate::Limit>().expect("a limit"));
    let first = limiter("1/h").max_waiters(1).max_log_entries(5).build().expect("a valid policy");
    let second = limiter("2/h").within_bounds_of(&first).build().expect("a valid policy");
    let place = first.inner.waiters.join(1, 0).expect("there is room for one");
    assert!(matches!(second.inner.waiters.join(1, 0), Err(AcquireError::TooManyWaiters { bound: 1 })));
    drop(place);
    assert!(second.inner.waiters.join(1, 0).is_ok());
    assert!(limiter("sliding-log 5/h").within_bounds_of(&first).build().is_ok());
    assert!(limiter("sliding-log 6/h").within_bounds_of(&first).build().is_err());
}
