//! Classes of requests: what each of them leaves to the others.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Meter, Store};
use tidegate::{Limit, ManualClock, Name};

use super::{Account, Bench, LIMITS, START, limits};
use crate::random::Random;

/// The same key under the same limit, by a class with a floor.
fn class<'b, S: Store>(bench: &'b Bench<S>, limit: Limit, floor: u64) -> Account<'b, S> {
    bench.account_of(Meter::new(Name::literal("rule"), limit).with_floor(floor), "alice")
}

/// Whatever else is charged, a class that is admitted leaves at least its floor, and one that
/// is refused would not have. `remaining` is what the class may still take.
pub fn no_class_takes_below_its_floor<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let (mut admitted, mut refused) = (0, 0);
    // The last is a bucket whose level counts units, so that a floor of one is a level of one.
    for limit in limits().into_iter().chain([Limit::per_second(1_000_000)]) {
        let bench = Bench::new(make);
        let floors = [0, 1, limit.capacity() / 2, limit.capacity() - 1];
        let (whole, mut random, mut now) = (class(&bench, limit, 0), Random::new(29), START);
        for _ in 0..200 {
            now += random.magnitude(1..=1_000_000);
            bench.set(now);
            let floor = random.choose(&floors);
            let account = class(&bench, limit, floor);
            let cost = random.within(1..=limit.capacity() - floor);
            let left = whole.peek(1).remaining;
            assert_eq!(account.peek(1).remaining, left.saturating_sub(floor), "{limit}: {floor} of {left}");
            let verdict = account.charge(cost);
            assert_eq!(verdict.allowed, left >= cost + floor, "{limit}: {cost} above {floor} of {left}");
            let after = whole.peek(1).remaining;
            assert_eq!(after, if verdict.allowed { left - cost } else { left }, "{limit}");
            assert_eq!(verdict.remaining, after.saturating_sub(floor), "{limit}: {verdict:?}");
            *(if verdict.allowed { &mut admitted } else { &mut refused }) += 1;
        }
    }
    assert!(admitted > 200 && refused > 200, "{admitted} admitted, {refused} refused");
}

/// A floor of zero changes no field of any verdict.
pub fn a_class_without_a_floor_is_as_if_there_were_none<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (plain, of_class) = (bench.account(limit, "plain"), class(&bench, limit, 0));
        let (mut random, mut now) = (Random::new(31), START);
        for _ in 0..100 {
            now += random.magnitude(1..=1_000_000);
            bench.set(now);
            let verb = random.choose(&[Verb::Charge, Verb::Charge, Verb::Peek, Verb::Report, Verb::Refund]);
            let cost = random.within(0..=limit.capacity());
            assert_eq!(of_class.ask(verb, cost), plain.ask(verb, cost), "{limit}: {verb:?} of {cost}");
        }
    }
}

/// A class alone on its key that returns at `now + retry_after` is admitted; one microsecond
/// earlier it is refused, while a class with a lower floor may pass.
pub fn a_class_is_refused_until_the_promised_instant<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (mut random, mut now) = (Random::new(37), START);
        for _ in 0..20 {
            let floor = random.within(1..=limit.capacity() - 1);
            let account = class(&bench, limit, floor);
            bench.set(now);
            class(&bench, limit, 0).exhaust();
            let cost = random.within(1..=limit.capacity() - floor);
            let refusal = account.charge(cost);
            assert!(!refusal.allowed && refusal.remaining == 0, "{limit}: {refusal:?}");
            now = account.sees_kept(refusal, now, cost) + random.within(0..=3);
        }
    }
}

/// Only charges are held back. The largest refund is that of the whole limit.
pub fn what_costs_nothing_and_what_is_given_back_or_reported_is_not_held_back<S: Store>(
    make: &impl Fn() -> (S, ManualClock),
) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (whole, held_back) = (class(&bench, limit, 0), class(&bench, limit, limit.capacity() - 1));
        assert!(whole.charge(limit.capacity()).allowed);
        for verb in [Verb::Charge, Verb::Peek] {
            let Verdict { allowed, remaining, .. } = held_back.ask(verb, 0);
            assert!(allowed && remaining == 0, "{limit}: {verb:?} of nothing");
        }
        assert!(held_back.refund(limit.capacity()).allowed);
        assert_eq!(whole.peek(1).remaining, limit.capacity(), "{limit}: all was given back");
        assert_eq!(held_back.ask(Verb::Report, limit.capacity()).unrecorded, 0, "{limit}");
        assert_eq!(whole.peek(1).remaining, 0, "{limit}: all was reported");
        held_back.reset();
        assert!(whole.takes_all(), "{limit}: a class resets the whole limit");
    }
}

/// All or nothing: where the floor refuses, nothing else is charged.
pub fn a_class_that_is_refused_refuses_its_slice<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for (limit, other) in limits().into_iter().flat_map(|limit| LIMITS.map(|other| (limit, other))) {
        let bench = Bench::new(make);
        let floor = limit.capacity() - 1;
        let (held_back, whole) = (class(&bench, limit, floor), class(&bench, limit, 0));
        let beside = bench.account_of(Meter::new(Name::literal("beside"), other), "alice");
        assert!(whole.charge(1).allowed);
        let verdicts = bench.decide(&[beside.check(Verb::Charge, 1), held_back.check(Verb::Charge, 1)]);
        assert_eq!([verdicts[0].allowed, verdicts[1].allowed], [true, false], "{limit} beside {other}");
        assert_eq!(beside.peek(1).remaining, other.capacity(), "{limit} beside {other}: nothing is charged");
        assert_eq!(whole.peek(1).remaining, floor, "{limit} beside {other}: nothing is charged");
    }
}
