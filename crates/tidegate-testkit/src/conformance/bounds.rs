//! How much passes: never more than each algorithm says, wherever one looks.

use std::ops::Range;
use std::time::Duration;

use tidegate::store::Store;
use tidegate::{Algorithm, Limit, ManualClock, Micros};

use super::{Bench, START, limits};
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

fn limits_of(algorithms: &[Algorithm]) -> impl Iterator<Item = Limit> {
    limits().into_iter().filter(|limit| algorithms.contains(&limit.algorithm()))
}

/// In every interval, a bucket admits at most its burst and what comes back
/// in that time.
pub fn a_bucket_admits_at_most_its_burst_and_its_rate_in_every_interval<S: Store>(
    make: &impl Fn() -> (S, ManualClock),
) {
    for limit in limits_of(&[Algorithm::TokenBucket, Algorithm::LeakyBucket]) {
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
    for limit in limits_of(&[Algorithm::SlidingLog]) {
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
    for limit in limits_of(&[Algorithm::FixedWindow]) {
        let period = micros(limit.period());
        let (mut start, mut end, mut sum) = (0, 0, 0);
        for one in traffic(&Bench::new(make), limit) {
            if one.at >= end {
                start = match limit.resets_by() {
                    Some(calendar) => calendar.period_of(Micros::new(one.at)).0.get(),
                    None if limit.starts_with_first_request() => one.at,
                    None => one.at - one.at % period,
                };
                (end, sum) = (start + period, 0);
            }
            sum += one.cost;
            assert!(sum <= limit.count(), "{limit}: {sum} passed in the window from {start}");
        }
    }
}

/// `floor(previous * (period - elapsed) / period) + current <= count`, at
/// every admission.
pub fn a_sliding_counter_keeps_its_inequality<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[Algorithm::SlidingCounter]) {
        let admitted = traffic(&Bench::new(make), limit);
        let period = micros(limit.period());
        for (index, last) in admitted.iter().enumerate() {
            let start = last.at - last.at % period;
            let in_window = |from: u64| {
                let window = admitted[..=index].iter().filter(|one| (from..from + period).contains(&one.at));
                window.map(|one| one.cost).sum::<u64>()
            };
            let (previous, current) = (in_window(start - period), in_window(start));
            let counted = previous * (start + period - last.at) / period + current;
            assert!(counted <= limit.count(), "{limit} at {}", last.at);
        }
    }
}

/// In every interval, a sliding counter admits at most its count and, rounded
/// up, what the rate gives in that time less a microsecond.
pub fn a_sliding_counter_admits_at_most_its_count_and_its_rate_in_every_interval<S: Store>(
    make: &impl Fn() -> (S, ManualClock),
) {
    for limit in limits_of(&[Algorithm::SlidingCounter]) {
        let admitted = traffic(&Bench::new(make), limit);
        for (index, first) in admitted.iter().enumerate() {
            let mut sum = 0;
            for last in &admitted[index..] {
                sum += last.cost;
                let most = most_of_a_counter(limit, last.at - first.at);
                assert!(sum <= most, "{limit}: {sum} of {most} passed from {} to {}", first.at, last.at);
            }
        }
    }
}

/// A burst in the last microsecond of a window and steady pressure after it
/// meet the bound of a sliding counter at every admission.
pub fn the_bound_of_a_sliding_counter_is_tight<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[Algorithm::SlidingCounter]) {
        let bench = Bench::new(make);
        let period = micros(limit.period());
        let first = START.next_multiple_of(period) - 1;
        let mut sum = 0;
        for at in under_pressure(&bench, limit, first..first + 3 * period) {
            sum += 1;
            assert!(sum <= limit.count() || sum == most_of_a_counter(limit, at - first), "{limit}: {sum} at {at}");
        }
        assert_eq!(sum, most_of_a_counter(limit, 3 * period - 1), "{limit}");
    }
}

/// Under greedy load a sliding counter admits its count in every window of the
/// clock: no less than its rate.
pub fn a_sliding_counter_under_pressure_admits_its_count_in_every_window<S: Store>(
    make: &impl Fn() -> (S, ManualClock),
) {
    for (count, expected) in [(1, 100), (2, 200), (10, 1_000)] {
        let limit = Limit::sliding_counter(count, Duration::from_secs(1));
        let from = START.next_multiple_of(SECOND);
        let admitted = under_pressure(&Bench::new(make), limit, from..from + 100 * SECOND);
        for window in 0..100 {
            let is_in = |at: &&u64| (**at - from) / SECOND == window;
            assert_eq!(admitted.iter().filter(is_in).count() as u64, count, "{limit}: window {window}");
        }
        assert_eq!(admitted.len(), expected, "{limit}");
    }
}

/// Requests that come evenly, as many as a sliding counter's count in each
/// period, all pass; but of those that come at the very edge of a window every
/// second one is refused, since the whole window before it counts there.
pub fn a_sliding_counter_admits_even_traffic_at_its_rate<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for count in [1, 2, 10] {
        let limit = Limit::sliding_counter(count, Duration::from_secs(1));
        let gap = SECOND / count;
        for (phase, refused) in [(1, 0), (START % gap, 0), (gap - 1, 0), (0, 10)] {
            let bench = Bench::new(make);
            let account = bench.account(limit, "alice");
            let mut refusals = Vec::new();
            for number in 0..20 * count {
                let at = START.next_multiple_of(SECOND) + phase + number * gap;
                bench.set(at);
                if !account.charge(1).allowed {
                    refusals.push(at);
                }
            }
            assert_eq!(refusals.len(), refused, "{limit}: {phase} us after an edge, refused at {refusals:?}");
            assert!(refusals.iter().all(|at| at % SECOND == 0), "{limit}: {refusals:?}");
        }
    }
}

const SECOND: u64 = 1_000_000;

/// When units pass while the caller asks again as soon as it may.
fn under_pressure<S: Store>(bench: &Bench<S>, limit: Limit, time: Range<u64>) -> Vec<u64> {
    let account = bench.account(limit, "alice");
    let (mut at, mut admitted) = (time.start, Vec::new());
    while time.contains(&at) {
        bench.set(at);
        let verdict = account.charge(1);
        if verdict.allowed {
            admitted.push(at);
        }
        at += verdict.retry_after.get();
    }
    admitted
}

/// The most that a sliding counter admits from an instant to another that is
/// so much later, both included.
fn most_of_a_counter(limit: Limit, length: u64) -> u64 {
    limit.count() + (limit.count() * length.saturating_sub(1)).div_ceil(micros(limit.period()))
}

/// Requests that arrive together leave one by one, a `period / count` apart.
pub fn leaky_bucket_delays_make_the_outflow_even<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits_of(&[Algorithm::LeakyBucket]) {
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
