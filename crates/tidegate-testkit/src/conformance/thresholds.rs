//! Thresholds: each crossing is told once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Meter, RequestId, Store, Thresholds};
use tidegate::{Algorithm, Key, Limit, ManualClock, Micros, Name};

use super::{Account, Bench, START, limits};
use crate::block_on::block_on;
use crate::oracle::OracleStore;
use crate::random::Random;

fn meter(limit: Limit, percents: &[u8]) -> Meter {
    let thresholds = Thresholds::new(percents.iter().copied()).expect("thresholds");
    Meter::new(Name::literal("rule"), limit).notify(thresholds)
}

fn account<'b, S: Store>(bench: &'b Bench<S>, limit: Limit, key: &'b str) -> Account<'b, S> {
    bench.account_of(meter(limit, &[50, 80, 100]), key)
}

/// Each threshold is told by the charge that crosses it, and not again in this period.
pub fn each_threshold_is_told_once_in_a_period<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = account(&bench, limit, "alice");
        let mut expected = account.meter.threshold_units().map(|(_, units)| units).enumerate().peekable();
        for used in 1..=limit.capacity() {
            let mut bits = 0;
            while let Some((index, _)) = expected.next_if(|(_, units)| *units == used) {
                bits |= 1 << index;
            }
            assert_eq!(account.charge(1).crossed, bits, "{limit}: {used} used");
        }
        assert_eq!(account.charge(1).crossed, 0, "{limit}: refused");
        assert_eq!(bench.account_of(meter(limit, &[100, 1]), "bob").charge(limit.capacity()).crossed, 3, "{limit}");
        // As much again, in the same period: nothing is told. In the next one, all is.
        if limit.algorithm() == Algorithm::SlidingLog || limit.algorithm() == Algorithm::FixedWindow {
            bench.clock.advance(limit.period());
            assert_eq!(account.charge(limit.capacity()).crossed, 7, "{limit}: the next period");
        } else {
            let pause = limit.period() / 4;
            bench.clock.advance(pause);
            let (again, at) = (account.peek(0).remaining, bench.clock_now());
            assert_eq!(account.charge(again).crossed, 0, "{limit}: after {pause:?}");
            bench.set(at + 20 * limit.period().as_micros() as u64);
            assert_eq!(account.charge(limit.capacity()).crossed, 7, "{limit}: another period");
        }
    }
}

/// What is given back can be crossed again; what is settled higher crosses as a charge does.
pub fn a_threshold_can_be_told_again_after_a_refund<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (account, all) = (account(&bench, limit, "alice"), limit.capacity());
        assert_eq!(account.charge(all).crossed, 7, "{limit}");
        assert_eq!(account.refund(1).crossed, 0, "{limit}");
        let again = account.meter.crossed(all - 1, all);
        assert_eq!(account.charge(1).crossed, again, "{limit}: only of what was left again");
        account.refund(all);
        assert_eq!(account.charge(all).crossed, 7, "{limit}");
        account.reset();
        assert_eq!(account.ask(Verb::Report, all + 1).crossed, 7, "{limit}: a report crosses, too");
        account.reset();
        let charged = Charged { at: Micros::new(bench.clock_now()), cost: 1 };
        assert_eq!(account.charge(1).crossed, account.meter.crossed(0, 1), "{limit}");
        let settle = |charged, cost| {
            let check = account.check(Verb::Settle(charged), 0).with_cost(cost);
            bench.decide(&[check])[0].crossed
        };
        assert_eq!(settle(charged, all), account.meter.crossed(1, all), "{limit}: settled higher");
        assert_eq!(settle(Charged { cost: all, ..charged }, 0), 0, "{limit}");
        assert_eq!(account.charge(all).crossed, 7, "{limit}: settled lower");
    }
}

/// Refused and repeated requests, peeks and charges of nothing cross nothing.
pub fn what_charges_nothing_crosses_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (alice, full) = (account(&bench, limit, "alice"), bench.account(limit, Key::from(("alice", "full"))));
        let all = limit.capacity();
        full.charge(all);
        assert_eq!([alice.peek(all), alice.charge(0)].map(|verdict| verdict.crossed), [0, 0], "{limit}");
        let beside = bench.decide(&[alice.check(Verb::Charge, all), full.check(Verb::Charge, all)]);
        assert!(!beside[1].allowed && beside[0].crossed == 0, "{limit}: beside one that was refused");
        let id = &RequestId::once("a", 1);
        let ask = || bench.decide(&[alice.check(Verb::Charge, all).with_id(id)])[0];
        let first = ask();
        assert_eq!(first.crossed, 7, "{limit}");
        assert_eq!(ask(), Verdict { repeated: true, crossed: 0, ..first }, "{limit}");
    }
}

/// Random charges, reports, refunds, resets and corrections, by a clock that also goes back.
pub fn every_crossing_is_that_of_the_oracle<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    // One of which several units drain in a microsecond, besides.
    let finest = Limit::token_bucket(7, Duration::from_micros(4)).burst(9);
    let all: Vec<Limit> = limits().into_iter().chain([finest]).collect();
    for (round, limit) in all.iter().flat_map(|limit| [*limit, limit.debt(3)]).enumerate() {
        let bench = Bench::new(make);
        let clock = ManualClock::at(Micros::new(START));
        let oracle = OracleStore::new(clock.clone());
        let mut random = Random::new(round as u64);
        let account = bench.account_of(meter(limit, &[1, 20, 40, 60, 75, 90, 99, 100]), "alice");
        let (mut now, mut charged) = (START, Charged::default());
        for step in 0..400 {
            now = match random.within(0..=19) {
                0 => now - random.within(0..=3_000_000),
                1 => now + 2 * limit.period().as_micros() as u64,
                2..8 => now,
                _ => now + random.within(0..=limit.period().as_micros() as u64 / 3),
            };
            bench.set(now);
            clock.set(Micros::new(now));
            let cost = random.within(0..=limit.capacity());
            let check = match random.within(0..=11) {
                0 => account.check(Verb::Reset, 0),
                1 => account.check(Verb::Report, cost).with_cost(2 * cost),
                2 => account.check(Verb::Refund, cost),
                3 => account.check(Verb::Settle(charged), cost),
                4 => account.check(Verb::Peek, cost),
                _ => account.check(Verb::Charge, cost),
            };
            let ours = bench.decide(&[check])[0];
            let mut theirs = [Verdict::default()];
            block_on(tidegate::store::Store::decide(&oracle, &[check], &mut theirs)).expect("an answer");
            assert_eq!(ours, theirs[0], "{limit}: step {step}: {:?} of {} at {now}", check.verb(), check.cost());
            if check.verb() == Verb::Charge && ours.allowed {
                charged = Charged { at: Micros::new(now).saturating_add(ours.ahead), cost };
            }
        }
    }
}

/// Of many threads that charge one key, one sees each crossing.
pub fn threads_together_cross_each_threshold_once<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let limits = [
        Limit::per_hour(200),
        Limit::fixed_window(200, Duration::from_secs(3_600)),
        Limit::sliding_counter(200, Duration::from_secs(3_600)),
        Limit::sliding_log(200, Duration::from_secs(3_600)),
    ];
    for limit in limits {
        let bench = Bench::new(make);
        let told: [AtomicU32; 3] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let account = account(&bench, limit, "alice");
                    for _ in 0..60 {
                        let crossed = account.charge(1).crossed;
                        let told = told.iter().enumerate().filter(|(index, _)| crossed & 1 << index != 0);
                        told.for_each(|(_, told)| _ = told.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(told.map(AtomicU32::into_inner), [1; 3], "{limit}");
    }
}

impl<S> Bench<S> {
    fn clock_now(&self) -> u64 {
        tidegate::Clock::now(&self.clock).get()
    }
}
