//! How much passes: never more than each algorithm says, wherever one looks.

use std::time::Duration;

use tidegate::{AlgorithmKind, Limit, ManualClock, Store};

use super::{Bench, LIMITS, START};
use crate::random::Random;

/// A charge that passed.
struct Admitted {
    at: u64,
    cost: u64,
}

/// Random charges by a clock that goes forwards; those that passed.
fn traffic<S: Store>(bench: &Bench<S>, limit: Limit) -> Vec<Admitted> {
    let account = bench.account(limit, "alice");
    let mut random = Random::new(7);
    let mut at = START;
    let mut admitted = Vec::new();
    bench.set(at);
    for _ in 0..200 {
        let refill = micros(limit.period()) / limit.count();
        at += if random.percent(30) { 0 } else { random.within(1..=2 * refill) };
        bench.set(at);
        let cost = random.within(1..=limit.capacity().min(3));
        if account.charge(cost).allowed {
            admitted.push(Admitted { at, cost });
        }
    }
    assert!((20..200).contains(&admitted.len()), "{limit}: traffic that is neither all admitted nor all refused");
    admitted
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn limits_of(algorithms: &[AlgorithmKind]) -> impl Iterator<Item = Limit> {
    LIMITS.into_iter().filter(|limit| algorithms.contains(&limit.algorithm()))
}

/// In every interval, a bucket admits at most its burst and what comes back
/// in that time.
pub fn a_bucket_admits_at_most_its_burst_and_its_rate_in_every_interval<S: Store>(
    make: &impl Fn() -> (S, ManualClock),
) {
    for limit in limits_of(&[AlgorithmKind::TokenBucket, AlgorithmKind::LeakyBucket]) {
        let admitted = traffic(&Bench::new(make), limit);
        for (index, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in &admitted[index..] {
                sum += last.cost;
                let above = u128::from(sum.saturating_sub(limit.capacity())) * limit.period().as_micros();
                let refilled = u128::from(limit.count()) * u128::from(last.at - first.at);
                assert!(above <= refilled, "{limit}: {sum} passed from {} to {}", first.at, last.at);
            }
        }
    }
}

/// No period, wherever it starts, holds more than a sliding log's count.
pub fn a_sliding_log_admits_at_most_its_count_in_every_window<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[AlgorithmKind::SlidingLog]) {
        let admitted = traffic(&Bench::new(make), limit);
        for first in &admitted {
            let window = first.at..first.at + micros(limit.period());
            let sum: u64 = admitted.iter().filter(|one| window.contains(&one.at)).map(|one| one.cost).sum();
            assert!(sum <= limit.count(), "{limit}: {sum} passed in the period from {}", first.at);
        }
    }
}

/// No window holds more than a fixed window's count.
pub fn a_fixed_window_admits_at_most_its_count_in_every_window<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[AlgorithmKind::FixedWindow]) {
        let period = micros(limit.period());
        let (mut start, mut sum) = (0, 0);
        for one in traffic(&Bench::new(make), limit) {
            if one.at >= start + period {
                start = if limit.starts_with_first_request() { one.at } else { one.at - one.at % period };
                sum = 0;
            }
            sum += one.cost;
            assert!(sum <= limit.count(), "{limit}: {sum} passed in the window from {start}");
        }
    }
}

/// `previous * (period - elapsed) + current * period <= count * period`, at
/// every admission.
pub fn a_sliding_counter_keeps_its_inequality<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[AlgorithmKind::SlidingCounter]) {
        let admitted = traffic(&Bench::new(make), limit);
        let period = micros(limit.period());
        for (index, last) in admitted.iter().enumerate() {
            let start = last.at - last.at % period;
            let in_window = |from: u64| {
                let window = admitted[..=index].iter().filter(|one| (from..from + period).contains(&one.at));
                window.map(|one| u128::from(one.cost)).sum::<u128>()
            };
            let (previous, current) = (in_window(start - period), in_window(start));
            let weighed = previous * u128::from(start + period - last.at) + current * u128::from(period);
            assert!(weighed <= u128::from(limit.count()) * u128::from(period), "{limit} at {}", last.at);
        }
    }
}

/// Requests that arrive together leave one by one, a `period / count` apart.
pub fn leaky_bucket_delays_make_the_outflow_even<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[AlgorithmKind::LeakyBucket]) {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        for place in 0..limit.capacity() {
            let due = (u128::from(place) * limit.period().as_micros()).div_ceil(u128::from(limit.count()));
            let verdict = account.charge(1);
            assert!(verdict.allowed, "{limit}: number {place} fits the queue");
            assert_eq!(u128::from(verdict.delay.get()), due, "{limit}: number {place}");
        }
        assert!(!account.charge(1).allowed, "{limit}: the queue is full");
    }
}
