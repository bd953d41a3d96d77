use super::*;
use crate::kernel::Charged;
use crate::limit::Limit;

const NOW: Micros = Micros::new(1_700_000_000_000_000);
const LIMITS: [&str; 8] = [
    "10/s",
    "leaky 12/s",
    "7/min burst 20",
    "fixed 11/s",
    "fixed 9/10s from-first",
    "sliding 13/s",
    "sliding-log 8/s",
    "20/s warming",
];

fn meter(words: &str) -> Meter {
    match words.strip_suffix(" warming") {
        None => Meter::new("rule", words.parse::<Limit>().expect("a limit")),
        Some(words) => Meter::new("rule", words.parse::<Limit>().expect("a limit"))
            .warming_up("5 over 2s".parse().expect("a warm-up")),
    }
}

/// States by their subjects, as a store keeps them.
#[derive(Clone, Default)]
struct States(std::collections::HashMap<u64, Vec<u8>>);

impl States {
    fn decide(&mut self, checks: &[Check<'_>], now: Micros) -> Vec<Verdict> {
        let mut slice = Slice::new(checks, now).expect("distinct states");
        for part in slice.parts_mut() {
            part.load(self.0.get(&part.subject()).map_or(&[], Vec::as_slice)).expect("a state that was saved");
        }
        slice.decide(now);
        for part in slice.parts_mut() {
            if let Some(kept) = part.save() {
                self.0.insert(part.subject(), kept.bytes);
            }
        }
        slice.verdicts()
    }

    fn one(&mut self, check: Check<'_>, now: Micros) -> Verdict {
        self.decide(&[check], now)[0]
    }
}

fn check<'a>(meter: &'a Meter, former: &'a [Former<'a>], verb: Verb, cost: u64) -> Check<'a> {
    let key: &'static Key<'static> = Box::leak(Box::new(Key::from("alice")));
    Check::capped(meter, key, verb, cost).with_former(former)
}

fn after(now: Micros, micros: u64) -> Micros {
    now.saturating_add(Micros::new(micros))
}

#[test]
fn former_use_is_a_floor_that_melts() {
    let (old, new) = (meter("10/s"), meter("fixed 20/min"));
    let former = [Former { meter: &old, until: Micros::LATEST }];
    let mut states = States::default();
    assert!(states.one(check(&old, &[], Verb::Charge, 8), NOW).allowed);
    assert_eq!(states.one(check(&new, &former, Verb::Peek, 0), NOW).remaining, 12);
    assert_eq!(states.one(check(&new, &former, Verb::Charge, 12), NOW).remaining, 0);
    let refused = states.one(check(&new, &former, Verb::Charge, 3), NOW);
    assert_eq!((refused.allowed, refused.retry_after), (false, Micros::new(300_000)));
    let later = after(NOW, 300_000);
    assert!(states.one(check(&new, &former, Verb::Charge, 3), later).allowed);
}

#[test]
fn a_limit_lowered_and_raised_again_forgives_nothing() {
    for (high, low) in LIMITS.iter().flat_map(|high| LIMITS.map(|low| (*high, low))) {
        let (high, low) = (meter(high), meter(low));
        if high.is_same_as(&low) {
            continue;
        }
        let (highs, lows) =
            ([Former { meter: &high, until: Micros::LATEST }], [Former { meter: &low, until: Micros::LATEST }]);
        let mut states = States::default();
        assert!(states.one(check(&high, &[], Verb::Charge, 5), NOW).allowed);
        assert!(states.one(check(&low, &highs, Verb::Charge, 2), NOW).remaining <= low.capacity() - 5);
        let said = states.one(check(&high, &lows, Verb::Peek, 0), NOW);
        assert!(said.remaining <= high.capacity() - 5, "{high:?} {low:?}: {said:?}");
    }
}

#[test]
fn waits_beside_former_limits_are_exact() {
    for (old, new) in LIMITS.iter().flat_map(|old| LIMITS.map(|new| (*old, new))).filter(|(old, new)| old != new) {
        let words = format!("{old} to {new}");
        let (old, new) = (meter(old), meter(new));
        let former = [Former { meter: &old, until: Micros::LATEST }];
        let mut states = States::default();
        let (mut now, mut waits) = (NOW, 0);
        for (step, cost) in [3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 1, 2].into_iter().enumerate() {
            now = after(now, 33_333);
            let (by, former) = if step < 4 { (&old, &[][..]) } else { (&new, &former[..]) };
            let charge = check(by, former, Verb::Charge, cost);
            let cost = charge.cost();
            let said = states.one(charge, now);
            if said.allowed {
                continue;
            }
            waits += 1;
            let at = after(now, said.retry_after.get());
            let [just_before, then] = [Micros::new(at.get() - 1), at]
                .map(|at| states.clone().one(check(by, former, Verb::Charge, cost), at).allowed);
            assert_eq!([just_before, then], [false, true], "{words}: {cost} at {step}: {said:?}");
        }
        assert!(waits > 0, "{words}");
    }
}

#[test]
fn used_former_and_cost_never_exceed_the_capacity() {
    let mut random: u64 = 7;
    let mut any = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % (most + 1)
    };
    for round in 0..400 {
        let meters: Vec<Meter> = LIMITS.iter().map(|words| meter(words)).collect();
        let mut history: Vec<usize> = Vec::new();
        let (mut states, mut now, mut current) = (States::default(), NOW, any(7) as usize);
        for _ in 0..60 {
            now = after(now, any(400_000));
            if any(9) == 0 {
                history.retain(|one| *one != current);
                history.push(current);
                current = any(7) as usize;
                history.retain(|one| *one != current);
            }
            let former: Vec<Former<'_>> =
                history.iter().map(|one| Former { meter: &meters[*one], until: Micros::LATEST }).collect();
            let used = |states: &States| -> u64 {
                history
                    .iter()
                    .chain([&current])
                    .map(|one| {
                        let bytes = states
                            .0
                            .get(&check(&meters[*one], &[], Verb::Peek, 0).subject())
                            .cloned()
                            .unwrap_or_default();
                        let kernel = meters[*one].kernel();
                        kernel.used(&kernel.decode(&bytes).unwrap_or_default(), now)
                    })
                    .sum()
            };
            let (before, charge) = (used(&states), check(&meters[current], &former, Verb::Charge, 1 + any(5)));
            let said = states.one(charge, now);
            let (capacity, cost) = (meters[current].capacity(), charge.cost());
            let is_warming = meters[current].warm_up().is_some();
            if said.allowed {
                assert!(before + cost <= capacity, "round {round}: {before} + {cost} of {capacity}");
                assert_eq!(used(&states), before + cost, "round {round}: nothing moves, and nothing is lost");
            } else {
                assert!(is_warming || before + cost > capacity, "round {round}: {before} + {cost} of {capacity}");
            }
            assert!(is_warming || said.remaining == capacity.saturating_sub(used(&states)), "round {round}: {said:?}");
        }
    }
}

#[test]
fn a_refund_begins_with_the_newest_state_and_a_reset_clears_all() {
    let [first, second, third] = ["10/h", "fixed 20/h", "sliding-log 30/h"].map(meter);
    let until = |micros| after(NOW, micros);
    let former = [
        Former { meter: &first, until: until(first.horizon().get() + 1) },
        Former { meter: &second, until: until(second.horizon().get() + 2) },
    ];
    let mut states = States::default();
    for (meter, cost) in [(&first, 4), (&second, 5), (&third, 6)] {
        assert!(states.one(check(meter, &[], Verb::Charge, cost), NOW).allowed);
    }
    let mut left = |verb, cost| {
        let said = states.one(check(&third, &former, verb, cost), NOW);
        let each = [&first, &second, &third].map(|meter| states.one(check(meter, &[], Verb::Peek, 0), NOW).remaining);
        (said.remaining, each)
    };
    assert_eq!(left(Verb::Refund, 2), (17, [6, 15, 26]));
    assert_eq!(left(Verb::Refund, 6), (23, [6, 17, 30]), "of the second what the third had not");
    assert_eq!(left(Verb::Refund, 30), (30, [10, 20, 30]));
    assert_eq!(left(Verb::Charge, 3), (27, [10, 20, 27]));
    assert_eq!(left(Verb::Reset, 0), (30, [10, 20, 30]));
}

#[test]
fn a_correction_goes_to_the_state_that_was_charged() {
    for (old, new) in LIMITS.iter().flat_map(|old| LIMITS.map(|new| (*old, new))).filter(|(old, new)| old != new) {
        let words = format!("{old} to {new}");
        let (old, new) = (meter(old), meter(new));
        let former = [Former { meter: &old, until: Micros::LATEST }];
        let mut states = States::default();
        assert!(states.one(check(&old, &[], Verb::Charge, 5), NOW).allowed);
        assert!(states.one(check(&new, &former, Verb::Charge, 0), NOW).allowed);
        let charged = Charged { at: NOW, cost: 5 };
        for (to, used) in [(2, 2), (4, 4)] {
            let mut states = states.clone();
            let settle = check(&new, &former, Verb::SETTLE, to);
            let subject = old.subject(settle.key());
            let correction = settle.correcting(|other| (other == subject).then_some(charged));
            let said = states.one(correction, NOW);
            assert_eq!((said.allowed, said.unrecorded), (true, 0), "{words}");
            let old_left = states.one(check(&old, &[], Verb::Peek, 0), NOW);
            let new_left = states.one(check(&new, &[], Verb::Peek, 0), NOW);
            assert_eq!(new_left, States::default().one(check(&new, &[], Verb::Peek, 0), NOW), "{words}: untouched");
            assert!(old.warm_up().is_some() || old_left.remaining == old.capacity() - used, "{words}: {old_left:?}");
        }
    }
}

#[test]
fn a_permit_is_renewed_where_it_is_and_never_beyond_the_end_of_its_limit() {
    let in_flight = |count| Meter::new("jobs", Limit::in_flight(count, std::time::Duration::from_secs(60)));
    let (old, new) = (in_flight(4), in_flight(3));
    let until = after(NOW, old.horizon().get());
    let former = [Former { meter: &old, until }];
    let mut states = States::default();
    assert!(states.one(check(&old, &[], Verb::Charge, 1), NOW).allowed);
    let (mut charged, mut now, mut renewed) = (Charged { at: NOW, cost: 1 }, NOW, 0);
    loop {
        now = after(now, 50_000_000);
        let renew = check(&new, &former, Verb::RENEW, 0).correcting(|_| None);
        assert_eq!(renew.verb(), Verb::SETTLE, "an unknown charge is not renewed");
        let subject = old.subject(renew.key());
        let renew = check(&new, &former, Verb::RENEW, 0).correcting(|other| (other == subject).then_some(charged));
        if !states.one(renew, now).allowed {
            break;
        }
        (charged.at, renewed) = (now, renewed + 1);
        assert_eq!(states.one(check(&new, &former, Verb::Peek, 0), after(now, 59_999_999)).remaining, 2);
    }
    assert!(renewed > 1_000 && after(now, 60_000_000) > until, "{renewed}");
}

#[test]
fn a_key_keeps_its_age_when_its_limit_is_changed() {
    let warming = |count: u64| {
        let warm_up = "2 over 1h".parse().expect("a warm-up");
        Meter::new("rule", Limit::per_second(count)).warming_up(warm_up)
    };
    let (old, new) = (warming(100), warming(200));
    let former = [Former { meter: &old, until: Micros::LATEST }];
    let mut states = States::default();
    let half_an_hour = after(NOW, 1_800_000_000);
    assert!(states.one(check(&old, &[], Verb::Charge, 1), NOW).allowed);
    let known = states.one(check(&new, &former, Verb::Peek, 0), half_an_hour);
    assert_eq!(known.remaining, 101, "half of the way from 2 to 200");
    assert_eq!(states.one(check(&new, &former, Verb::Charge, 1), half_an_hour).remaining, 100);
    assert_eq!(states.one(check(&new, &[], Verb::Peek, 0), half_an_hour).remaining, 100, "its own from now on");
    let stranger = States::default().one(check(&new, &former, Verb::Peek, 0), half_an_hour);
    assert_eq!(stranger.remaining, 2);
}

#[test]
fn a_delay_begins_where_former_queues_have_drained() {
    let (old, new) = (meter("leaky 10/s"), meter("leaky 20/s"));
    let former = [Former { meter: &old, until: Micros::LATEST }];
    let mut states = States::default();
    assert!(states.one(check(&old, &[], Verb::Charge, 4), NOW).allowed);
    let delays = [(); 3].map(|()| states.one(check(&new, &former, Verb::Charge, 1), NOW).delay.get());
    assert_eq!(delays, [400_000, 450_000, 500_000]);
}

#[test]
fn a_state_of_another_limit_is_refused() {
    let meter = meter("10/s");
    let checks = [check(&meter, &[], Verb::Charge, 1)];
    let mut slice = Slice::new(&checks, NOW).expect("one check");
    assert!(slice.parts_mut().all(|part| part.load(b"hello").is_none()));
    let twice = [checks[0], checks[0]];
    assert!(matches!(Slice::new(&twice, NOW), Err(StoreError::SameStateTwice { .. })));
}
