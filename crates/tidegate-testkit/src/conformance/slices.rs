//! Several limits at once: all are charged, or none is.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Limit, ManualClock};

use super::{Account, Bench, limits};
use crate::block_on::block_on;

/// One of each kind of state that a store may keep.
const TOGETHER: [Limit; 4] = [
    Limit::per_second(5),
    Limit::fixed_window(4, Duration::from_secs(60)),
    Limit::sliding_log(6, Duration::from_secs(10)),
    Limit::sliding_counter(7, Duration::from_secs(10)),
];

/// Every order of the numbers below four.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..256 {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        if (0..4).all(|number| order.contains(&number)) {
            orders.push(order);
        }
    }
    orders
}

/// The limits of [`TOGETHER`], under one key.
fn accounts<S: Store>(bench: &Bench<S>) -> [Account<'_, S>; 4] {
    TOGETHER.map(|limit| bench.account(limit, "alice"))
}

/// What the accounts say without being touched.
fn standings<S: Store>(accounts: &[Account<'_, S>]) -> Vec<Verdict> {
    accounts.iter().map(|account| account.peek(1)).collect()
}

/// A check that is refused changes nothing, now or later.
pub fn a_refused_check_changes_nothing<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (pushing, waiting) = (bench.account(limit, "pushing"), bench.account(limit, "waiting"));
        let refusal = pushing.exhaust();
        waiting.exhaust();
        for _ in 0..5 {
            assert_eq!(pushing.charge(1), refusal, "{limit}: refused once more");
            assert!(!pushing.charge(limit.capacity()).allowed);
        }
        bench.clock.advance(refusal.retry_after.to_duration());
        for cost in [limit.capacity(), 1, 1, limit.capacity()] {
            assert_eq!(pushing.charge(cost), waiting.charge(cost), "{limit}: who pushed and who did not");
        }
    }
}

/// If one limit refuses, none is charged, wherever in the slice it stands.
pub fn a_refused_slice_charges_none_in_any_order<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for refusing in 0..4 {
        let bench = Bench::new(make);
        let accounts = accounts(&bench);
        let refusal = accounts[refusing].exhaust();
        let before = standings(&accounts);
        for order in orders() {
            let checks: Vec<Check<'_>> = order.iter().map(|index| accounts[*index].check(Verb::Charge, 1)).collect();
            for (index, verdict) in order.into_iter().zip(bench.decide(&checks)) {
                let expected = if index == refusing { refusal } else { before[index] };
                assert_eq!(verdict, expected, "{}: refused by {refusing}, in order {order:?}", TOGETHER[index]);
            }
            assert_eq!(standings(&accounts), before, "refused by {refusing}, in order {order:?}");
        }
        // Nor is anything given back.
        let checks = [
            accounts[(refusing + 1) % 4].check(Verb::Reset, 0),
            accounts[refusing].check(Verb::Charge, 1),
            accounts[(refusing + 2) % 4].check(Verb::Refund, 1),
        ];
        assert!(!bench.decide(&checks)[1].allowed);
        assert_eq!(standings(&accounts), before, "refused by {refusing}, beside a reset and a refund");
    }
}

/// If every limit lets a slice pass, each answers as if asked alone.
pub fn an_admitted_slice_charges_all_in_any_order<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for order in orders() {
        let (bench, alone) = (Bench::new(make), Bench::new(make));
        let (accounts, singly) = (accounts(&bench), self::accounts(&alone));
        for cost in [1, 2, 1] {
            let checks: Vec<Check<'_>> = order.iter().map(|index| accounts[*index].check(Verb::Charge, cost)).collect();
            for (index, verdict) in order.into_iter().zip(bench.decide(&checks)) {
                assert_eq!(verdict, singly[index].charge(cost), "{}: in order {order:?}", TOGETHER[index]);
            }
        }
        assert_eq!(standings(&accounts), standings(&singly), "in order {order:?}");
    }
}

/// A peek is not a charge: if it has to wait, the others are charged all the same.
pub fn a_peek_that_waits_does_not_block_the_others<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let bench = Bench::new(make);
    let [peeked, charged, ..] = accounts(&bench);
    let refusal = peeked.exhaust();
    let verdicts = bench.decide(&[peeked.check(Verb::Peek, 1), charged.check(Verb::Charge, 1)]);
    assert_eq!(verdicts[0], refusal);
    assert!(verdicts[1].allowed);
    assert_eq!(charged.peek(1).remaining, charged.capacity() - 1);
}

/// Two checks of one slice about the same state have no order, and no answer.
pub fn one_state_twice_in_a_slice_is_an_error<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let checks = [account.check(Verb::Charge, 1), account.check(Verb::Charge, 1)];
        let answer = block_on(bench.store.decide(&checks, &mut [Verdict::default(); 2]));
        assert!(matches!(answer, Err(StoreError::SameStateTwice { .. })), "{limit}: {answer:?}");
        assert_eq!(account.peek(1).remaining, limit.capacity(), "{limit}: nothing is charged");
    }
}
