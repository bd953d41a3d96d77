//! Reservations that are renewed, settled or released after their limit was changed.

use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request, Reservation, ReserveOutcome, Rule};
use tidegate_testkit::Random;

const SECOND: Duration = Duration::from_secs(1);
/// The begin of an hour.
const START: Micros = Micros::new(1_699_999_200_000_000);

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::at(START);
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

fn limit(words: &str) -> Limit {
    words.parse().expect("a limit")
}

fn reserve(limiter: &Limiter, cost: u64) -> Reservation {
    limiter
        .reserve(Request::new("alice").cost(cost).lasts(Duration::from_secs(3_600)))
        .expect("an answer")
        .made()
        .expect("a reservation")
}

fn left(limiter: &Limiter) -> u64 {
    limiter.peek(Request::new("alice").cost(0)).expect("an answer").remaining().expect("a limit")
}

#[test]
fn a_permit_is_renewed_for_as_long_as_it_is_needed_after_a_change() {
    let minute = Duration::from_secs(60);
    for (before, after) in [((2, minute), (3, minute)), ((4, minute), (3, minute)), ((2, minute), (3, 2 * minute))] {
        let [before, after] = [before, after].map(|(count, period)| Limit::in_flight(count, period));
        let (limiter, clock) = limiter(before);
        let held = reserve(&limiter, 1);
        clock.advance(10 * SECOND);
        limiter.set_policy(after).expect("a valid policy");
        for _ in 0..20 {
            clock.advance(30 * SECOND);
            assert!(held.renew().expect("renewed").is_allowed());
            assert_eq!(left(&limiter), 2, "{before} to {after}");
        }
        clock.advance(59 * SECOND);
        assert_eq!(left(&limiter), 2, "{before} to {after}: it counts for a minute");
        assert!(held.release().expect("released").is_allowed());
        assert_eq!(left(&limiter), 3, "{before} to {after}");
    }
}

#[test]
fn permits_are_given_back_though_their_limit_has_another_period_or_warms_up_since() {
    let minute = Duration::from_secs(60);
    let rule = |period| Rule::new("jobs", Limit::in_flight(3, period));
    let warming = rule(minute).warm_up("2 over 1min".parse().expect("a warm-up"));
    for (after, left_each_time) in [(rule(2 * minute), [1, 2, 3]), (rule(minute / 2), [1, 2, 3]), (warming, [0, 1, 2])]
    {
        let (limiter, clock) = limiter(rule(minute));
        let held = [(); 3].map(|()| {
            clock.advance(SECOND);
            reserve(&limiter, 1)
        });
        limiter.set_policy(after.clone()).expect("a valid policy");
        clock.advance(SECOND);
        for (held, left_then) in held.into_iter().zip(left_each_time) {
            assert!(held.release().expect("released").is_allowed());
            assert_eq!(left(&limiter), left_then, "{after:?}");
        }
    }
}

#[test]
fn what_had_gone_before_the_change_does_not_come_back() {
    for (before, after, changed, asked, left_then) in [
        // Nine of ten have drained.
        ("10/s", "10/h", 900, 0, 9),
        ("leaky 10/s", "10/h", 900, 0, 9),
        // The window of the charge has ended.
        ("fixed 10/min", "fixed 10/h", 70_000, 0, 10),
        ("fixed 10/min", "10/h", 70_000, 0, 10),
        ("fixed 10/min from-first", "fixed 10/h", 70_000, 0, 10),
        // A tenth of the last window counts.
        ("sliding 10/min", "fixed 10/h", 114_000, 0, 9),
        ("sliding-log 10/min", "fixed 10/h", 70_000, 0, 10),
        ("10/s", "fixed 10/h", 900, 0, 9),
        // And when nothing of the former limit matters any more.
        ("10/s", "10/h", 900, 5_000, 9),
    ] {
        let (limiter, clock) = limiter(limit(before));
        let held = reserve(&limiter, 10);
        clock.advance(Duration::from_millis(changed));
        limiter.set_policy(limit(after)).expect("a valid policy");
        assert_eq!(left(&limiter), left_then, "{before} to {after}");
        assert!(limiter.allow(Request::new("alice").cost(left_then)));
        clock.advance(Duration::from_millis(asked));
        assert!(held.release().expect("released").is_allowed());
        let left = left(&limiter);
        assert!(left <= 10 - left_then, "{before} to {after}: {left} of {left_then} are given back");
    }
}

#[test]
fn what_had_gone_under_a_limit_in_between_does_not_come_back() {
    // Ten are reserved at the beginning; at these seconds the limit changes, and others charge so many.
    let cases = [
        // What others charged is not given back in place of what has gone.
        ("fixed 10/min", [(70, "fixed 10/h", 10), (72, "fixed 20/h", 0)], 10),
        ("1000/s", [(70, "10/day", 10), (72, "20/day", 0)], 10),
        // Raised for a moment, and put back: the limit that was charged has forgiven nothing.
        ("fixed 10/h", [(1, "fixed 100/s", 1), (3, "fixed 10/h", 0)], 10),
        ("10/day", [(1, "1000/s", 1), (3, "10/day", 0)], 10),
        // What is there comes back.
        ("fixed 10/h", [(1, "fixed 12/h", 2), (3, "fixed 20/h", 3)], 15),
        ("sliding-log 10/min", [(1, "sliding-log 12/h", 2), (60, "sliding-log 20/day", 3)], 15),
    ];
    for (first, changes, left_then) in cases {
        let (limiter, clock) = limiter(limit(first));
        let held = reserve(&limiter, 10);
        let mut charged = 0;
        for (second, to, cost) in changes {
            clock.set(START.saturating_add(Micros::new(second * 1_000_000)));
            limiter.set_policy(limit(to)).expect("a valid policy");
            clock.advance(SECOND / 10);
            assert!(cost == 0 || limiter.allow(Request::new("alice").cost(cost)), "{first}: {cost} of {to}");
            charged += cost;
        }
        assert!(charged > 0 && held.release().expect("released").is_allowed());
        assert_eq!(left(&limiter), left_then, "{first}");
    }
}

/// Whatever is settled, and however the limit is changed meanwhile: a key is at least as full as one
/// that was charged what was used in the first place.
#[test]
fn a_settlement_after_a_change_gives_back_no_more_than_was_charged_too_much() {
    let limits = [
        "20/s",
        "20/min",
        "leaky 30/min",
        "20/h",
        "9/s burst 40",
        "fixed 20/min",
        "fixed 30/h",
        "fixed 20/min from-first",
        "sliding 20/min",
        "sliding 40/h",
        "sliding-log 20/min",
        "sliding-log 30/h",
    ];
    let mut given_back = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let any = |random: &mut Random| limit(random.choose(&limits));
        let first = any(&mut random);
        let ((real, real_clock), (twin, twin_clock)) = (limiter(first), limiter(first));
        let mut open = Vec::new();
        let mut log = vec![format!("{first}")];
        for _ in 0..12 {
            let pause = Duration::from_millis(random.choose(&[1, 50, 900, 20_000, 70_000]));
            // Both write a state of the limit in force.
            for (limiter, clock) in [(&real, &real_clock), (&twin, &twin_clock)] {
                clock.advance(pause);
                if limiter.allow("alice") {
                    limiter.refund("alice").expect("refunded");
                }
            }
            match random.within(0..=5) {
                0 | 1 => {
                    let (estimate, actual) = (random.within(1..=12), random.within(0..=5));
                    if let Ok(ReserveOutcome::Made(held)) =
                        real.reserve(Request::new("alice").cost(estimate).lasts(Duration::from_secs(3_600)))
                    {
                        let kept = actual.min(estimate);
                        let charged = twin.allow(Request::new("alice").cost(kept));
                        assert!(charged || kept == 0, "{seed}: {log:?}");
                        log.push(format!("{pause:?}: reserved {estimate}, used {kept}"));
                        open.push((held, kept));
                    }
                }
                2 => {
                    let to = any(&mut random);
                    let _ = (real.set_policy(to), twin.set_policy(to));
                    log.push(format!("{pause:?}: {to}"));
                }
                3 => {
                    let cost = random.within(1..=5);
                    if real.allow(Request::new("alice").cost(cost)) {
                        assert!(twin.allow(Request::new("alice").cost(cost)), "{seed}: {log:?}");
                        log.push(format!("{pause:?}: allowed {cost}"));
                    }
                }
                _ if !open.is_empty() => {
                    let (held, kept) = open.swap_remove(random.within(0..=open.len() as u64 - 1) as usize);
                    let before = left(&real);
                    assert!(held.settle(kept).expect("settled").is_allowed());
                    log.push(format!("{pause:?}: settled to {kept}, {before} to {}", left(&real)));
                    given_back += left(&real) - before;
                }
                _ => {}
            }
            let (left, most) = (left(&real), left(&twin));
            assert!(left <= most, "{seed}: {left}, of {most} at most: {log:#?}");
        }
    }
    assert!(given_back > 500, "{given_back}");
}

#[test]
fn a_renewal_by_a_clock_that_went_back_leaves_the_climb_where_it_was() {
    let hour = Duration::from_secs(3_600);
    let rule = Rule::new("jobs", Limit::in_flight(10, hour)).warm_up("2 over 1min".parse().expect("a warm-up"));
    let (limiter, clock) = limiter(rule);
    let held = reserve(&limiter, 1);
    clock.set(Micros::new(START.get() - 10_000_000));
    assert!(held.renew().expect("renewed").is_allowed());
    assert_eq!(left(&limiter), 1);
    clock.set(START);
    assert_eq!(left(&limiter), 1, "it has just begun");
}
