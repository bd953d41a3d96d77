//! The ledger, without servers: what a grant is told here, a test says.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::Meter;
use tidegate::{Key, Limit, Name};
use tokio::sync::oneshot;

use super::account::MAX_WAITERS;
use super::*;

const STATE: &[u8] = b"state";
const NOW: Micros = Micros::new(1_000_000);
const UNTIL: Micros = Micros::new(2_000_000);
const CHUNK: u64 = 100;

fn ledger() -> Ledger {
    Ledger::new()
}

fn meter() -> Meter {
    Meter::new(Name::literal("rule"), Limit::per_second(100))
}

fn want_by(ledger: &Ledger, meter: &Meter, cost: u64, now: Micros, is_frequent: bool) -> Wanting {
    let alice = Key::from("alice");
    let check = Check::new(meter, &alice, Verb::Charge, cost).expect("a cost within the limit");
    ledger.take_or_wait(STATE, &check, now, || is_frequent)
}

fn want(ledger: &Ledger, cost: u64, now: Micros, is_frequent: bool) -> Wanting {
    want_by(ledger, &meter(), cost, now, is_frequent)
}

/// A caller that waits for its cost of a limit.
fn wait_for(ledger: &Ledger, meter: &Meter, cost: u64, now: Micros) -> oneshot::Receiver<Answer> {
    match want_by(ledger, meter, cost, now, true) {
        Wanting::Waits(told, _) => told,
        Wanting::Taken(_) | Wanting::NoLease => panic!("it need not wait"),
    }
}

/// A caller that waits for its cost.
fn wait(ledger: &Ledger, cost: u64, now: Micros) -> oneshot::Receiver<Answer> {
    wait_for(ledger, &meter(), cost, now)
}

fn begin(ledger: &Ledger, now: Micros) -> (Loan, Option<Return>) {
    match ledger.with(STATE, |account| account.next(CHUNK, now)).expect("a caller waits") {
        Next::Ask(loan, left) => (loan, left),
        Next::Tell(served) => panic!("there is enough for {:?}", costs(&served.waiters)),
    }
}

/// The costs of those that what is held suffices for.
fn served(ledger: &Ledger) -> Vec<u64> {
    match ledger.with(STATE, |account| account.next(CHUNK, NOW)).expect("a caller waits") {
        Next::Tell(served) => costs(&served.waiters),
        Next::Ask(loan, _) => panic!("{:?} are lacking", loan.short),
    }
}

fn is_over(ledger: &Ledger) -> bool {
    ledger.with(STATE, |account| account.next(CHUNK, NOW)).is_none()
}

fn costs(waiters: &[Waiter]) -> Vec<u64> {
    waiters.iter().map(|waiter| waiter.cost).collect()
}

fn end(ledger: &Ledger, loan: &Loan, is_refused: bool) -> Vec<u64> {
    costs(&ledger.with(STATE, |account| account.end(loan, is_refused, CHUNK)))
}

/// The units that are given up.
fn expired(ledger: &Ledger, now: Micros) -> Vec<u64> {
    let given_up = |state_key: &[u8]| {
        ledger.with(state_key, |account| account.give_up_expired(now)).expect("something is too much").units
    };
    ledger.expired(now).iter().map(|state_key| given_up(state_key)).collect()
}

/// Takes units, and puts them back after something else was done.
fn put_back(ledger: &Ledger, cost: u64, chunk: u64, meanwhile: impl FnOnce()) {
    let (meter, alice) = (meter(), Key::from("alice"));
    let check = Check::new(&meter, &alice, Verb::Charge, cost).expect("a cost within the limit");
    let portion = ledger.portion(STATE, &check, chunk);
    meanwhile();
    ledger.put_back(&portion);
}

fn grant(units: u64) -> Grant {
    Grant { units, chunk: CHUNK, verdict: Verdict::default(), at: NOW, until: UNTIL }
}

fn granted(ledger: &Ledger, loan: &Loan, grant: Grant) -> bool {
    ledger.with(STATE, |account| account.grant(loan, grant)).is_some()
}

/// The costs of those that took them, and what can be taken by others then.
fn taken_of(ledger: &Ledger, loan: &Loan, grant: Grant) -> (Vec<u64>, u64) {
    let served = ledger.with(STATE, |account| account.grant(loan, grant)).expect("it is awaited");
    (costs(&served.waiters), ledger.with(STATE, |account| account.held(NOW)))
}

/// Borrows so many units beside those that a caller waits for.
fn borrow(ledger: &Ledger, units: u64) -> Loan {
    let held = ledger.with(STATE, |account| account.held(NOW));
    let _told = wait(ledger, held + 1, NOW);
    let (loan, _) = begin(ledger, NOW);
    assert!(granted(ledger, &loan, grant(held + 1 + units)));
    assert!(is_over(ledger), "the turn is over");
    loan
}

/// A caller that has waited for its cost and taken it.
fn waiter_that_took(ledger: &Ledger, cost: u64) -> Waiter {
    let _told = wait(ledger, cost, NOW);
    let (loan, _) = begin(ledger, NOW);
    let served = ledger.with(STATE, |account| account.grant(&loan, grant(cost))).expect("it is awaited");
    served.waiters.into_iter().next().expect("there was enough for it")
}

fn taken(ledger: &Ledger, cost: u64, now: Micros) -> bool {
    ledger.with(STATE, |account| account.take(cost, now)).is_some()
}

#[test]
fn hands_out_what_was_granted_and_no_more() {
    let ledger = ledger();
    assert!(!taken(&ledger, 1, NOW));
    borrow(&ledger, 3);
    assert!(taken(&ledger, 2, NOW) && !taken(&ledger, 2, NOW) && taken(&ledger, 1, NOW) && !taken(&ledger, 1, NOW));
}

#[test]
fn a_grant_that_comes_twice_or_late_is_refused() {
    let ledger = ledger();
    let first = borrow(&ledger, 3);
    assert!(!granted(&ledger, &first, grant(3)), "twice");
    let _told = wait(&ledger, 4, NOW);
    let (late, _) = begin(&ledger, NOW);
    let (current, _) = begin(&ledger, NOW);
    assert!(!granted(&ledger, &late, grant(3)), "late");
    assert!(granted(&ledger, &current, grant(3)));
    assert_eq!(ledger.units(), 2);
}

#[test]
fn the_rest_of_an_expired_lease_is_returned_once() {
    let ledger = ledger();
    borrow(&ledger, 3);
    assert!(taken(&ledger, 1, NOW));
    assert!(!taken(&ledger, 1, UNTIL), "it is over");
    let returned = expired(&ledger, UNTIL);
    assert_eq!(returned, [2]);
    assert!(ledger.expired(UNTIL).is_empty() && ledger.units() == 0);
}

#[test]
fn the_rest_of_a_lease_is_returned_before_more_is_borrowed() {
    let ledger = ledger();
    borrow(&ledger, 3);
    let _told = wait(&ledger, 1, UNTIL);
    let (loan, left) = begin(&ledger, UNTIL);
    assert_eq!((left.map(|left| left.units), loan.short), (Some(3), vec![1]));
}

#[test]
fn a_reset_leaves_nothing_to_hand_out() {
    let ledger = ledger();
    borrow(&ledger, 3);
    let _told = wait(&ledger, 4, NOW);
    let (under_way, _) = begin(&ledger, NOW);
    ledger.with(STATE, Account::cancel);
    assert!(!granted(&ledger, &under_way, grant(3)));
    assert!(!taken(&ledger, 1, NOW));
}

#[test]
fn of_a_grant_without_a_caller_a_chunk_is_kept() {
    let (ledger, chunk) = (ledger(), 3);
    let gone = waiter_that_took(&ledger, 7);
    ledger.with(STATE, |account| account.keep_taken(gone.cost, gone.resets, chunk));
    assert_eq!(ledger.units(), chunk);
    assert!(ledger.expired(NOW).is_empty(), "nothing is given back");
}

#[test]
fn a_unit_of_a_caller_that_is_gone_is_not_kept_after_a_reset() {
    let ledger = ledger();
    let gone = waiter_that_took(&ledger, 7);
    ledger.with(STATE, Account::cancel);
    ledger.with(STATE, |account| account.keep_taken(gone.cost, gone.resets, CHUNK));
    assert_eq!(ledger.units(), 0);
    // What is taken after the reset is kept.
    let gone = waiter_that_took(&ledger, 7);
    ledger.with(STATE, |account| account.keep_taken(gone.cost, gone.resets, CHUNK));
    assert_eq!(ledger.units(), 7);
}

#[test]
fn one_grant_is_for_all_that_wait_in_their_order() {
    let (ledger, chunk) = (ledger(), 4);
    borrow(&ledger, 1);
    let _told = [3, 2, 3].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(loan.short, [2, 4, 7]);
    // What all of them lack, or so many of the first as there are units for, and a chunk at least.
    assert_eq!([100, 7, 6, 4, 3, 2, 1, 0].map(|most| loan.wanted(chunk, most)), [7, 7, 4, 4, 3, 2, 2, 2]);
    let _later = wait(&ledger, 3, NOW);
    assert_eq!(taken_of(&ledger, &loan, Grant { chunk, ..grant(7) }), (vec![3, 2, 3], 0));
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!((ledger.units(), loan.short), (0, vec![3]), "it came after the call");
}

#[test]
fn one_that_came_later_takes_what_the_others_left() {
    let ledger = ledger();
    let _first = wait(&ledger, 1, NOW);
    let (loan, _) = begin(&ledger, NOW);
    let _later = [2, 3, 1].map(|cost| wait(&ledger, cost, NOW));
    assert_eq!(taken_of(&ledger, &loan, grant(4)), (vec![1, 2], 1), "the next one does not suffice with it");
}

/// One request takes what is there while others ask for the rest of their costs.
#[test]
fn a_grant_that_does_not_suffice_any_more_is_not_held() {
    let (ledger, chunk) = (ledger(), 3);
    borrow(&ledger, 1);
    let told = [2, 10].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    assert!(taken(&ledger, 1, NOW));
    assert_eq!(taken_of(&ledger, &loan, Grant { chunk, ..grant(11) }), (vec![2], 0));
    assert_eq!(ledger.units(), 9, "for the other one");
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(loan.short, [1]);
    assert_eq!(end(&ledger, &loan, true), [10]);
    assert_eq!(ledger.with(STATE, |account| account.held(NOW)), 9, "a chunk of it");
    drop(told);
}

#[test]
fn what_was_reserved_for_a_caller_that_is_gone_is_kept_up_to_a_chunk() {
    for is_abandoned in [false, true] {
        let (ledger, chunk) = (ledger(), 3);
        borrow(&ledger, 1);
        let Wanting::Waits(told, Some(turn)) = want(&ledger, 10, NOW, true) else { panic!("it waits, and asks") };
        let (loan, _) = begin(&ledger, NOW);
        assert!(taken(&ledger, 1, NOW));
        assert_eq!(taken_of(&ledger, &loan, Grant { chunk, ..grant(9) }), (vec![], 0));
        if is_abandoned {
            ledger.with(STATE, |account| account.abandon(&turn, chunk));
            assert!(told.blocking_recv().is_err(), "it hears that there is no answer");
        } else {
            drop(told);
            assert!(ledger.with(STATE, |account| account.next(chunk, NOW)).is_none());
        }
        assert_eq!((ledger.with(STATE, |account| account.held(NOW)), ledger.units()), (chunk, chunk));
    }
}

#[test]
fn what_was_taken_before_a_reset_is_not_put_back_after_it() {
    let ledger = ledger();
    borrow(&ledger, 9);
    put_back(&ledger, 5, CHUNK, || {
        assert!(taken(&ledger, 5, NOW));
        ledger.with(STATE, Account::cancel);
    });
    assert_eq!(ledger.units(), 0);
}

#[test]
fn what_is_put_back_when_the_lease_is_over_is_given_up() {
    let ledger = ledger();
    borrow(&ledger, 9);
    put_back(&ledger, 5, CHUNK, || {
        assert!(taken(&ledger, 5, NOW));
        assert_eq!(expired(&ledger, UNTIL), [4]);
        assert!(ledger.expired(UNTIL).is_empty(), "the account is forgotten");
    });
    assert_eq!(expired(&ledger, UNTIL), [5]);
}

/// The task that asks the servers ends a moment after it has told the callers.
#[test]
fn a_lease_that_is_over_is_given_up_while_callers_are_told() {
    let ledger = ledger();
    let Wanting::Waits(_told, turn) = want(&ledger, 1, NOW, true) else { panic!("it waits") };
    let (loan, _) = begin(&ledger, NOW);
    assert!(granted(&ledger, &loan, grant(10)));
    assert_eq!(expired(&ledger, Micros::MAX), [9]);
    assert_eq!(ledger.units(), 0);
    drop(turn);
}

#[test]
fn a_reset_finds_what_waits_to_be_given_up() {
    let ledger = ledger();
    borrow(&ledger, 9);
    let waiting = ledger.expired(UNTIL);
    ledger.with(STATE, Account::cancel);
    assert_eq!(waiting.len(), 1);
    assert!(waiting.iter().all(|state_key| ledger.with(state_key, |account| account.give_up_expired(UNTIL)).is_none()));
}

#[test]
fn a_reset_takes_what_was_reserved_along() {
    let ledger = ledger();
    borrow(&ledger, 1);
    let _told = wait(&ledger, 10, NOW);
    let (loan, _) = begin(&ledger, NOW);
    assert!(taken(&ledger, 1, NOW));
    assert_eq!(taken_of(&ledger, &loan, grant(9)), (vec![], 0));
    ledger.with(STATE, Account::cancel);
    assert_eq!(ledger.units(), 0);
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(loan.short, [10]);
}

/// Callers that are gone take nothing from those that are there.
#[test]
fn what_callers_that_are_gone_waited_for_is_for_the_others() {
    let (ledger, chunk) = (ledger(), 10);
    let gone: Vec<_> = (0..40).map(|_| wait(&ledger, 1, NOW)).collect();
    let (loan, _) = begin(&ledger, NOW);
    let _there: Vec<_> = (0..20).map(|_| wait(&ledger, 1, NOW)).collect();
    drop(gone);
    let served =
        ledger.with(STATE, |account| account.grant(&loan, Grant { chunk, ..grant(40) })).expect("it is awaited");
    assert_eq!((served.waiters.len(), served.verdict.remaining), (20, 40));
    assert_eq!(ledger.units(), chunk, "more would be let through in an interval than a chunk");
}

#[test]
fn what_is_held_is_for_those_that_it_suffices_for() {
    for is_refused in [true, false] {
        let ledger = ledger();
        let _first = wait(&ledger, 1, NOW);
        let (loan, _) = begin(&ledger, NOW);
        let _told = [4, 1, 2].map(|cost| wait(&ledger, cost, NOW));
        assert_eq!(taken_of(&ledger, &loan, grant(4)), (vec![1], 3));
        let (loan, _) = begin(&ledger, NOW);
        assert_eq!(loan.short, [1, 2, 4]);
        assert_eq!(end(&ledger, &loan, is_refused), [4]);
        assert_eq!(served(&ledger), [1, 2]);
        assert!(is_over(&ledger) && ledger.units() == 0);
    }
}

/// Requests of several limits put back while a caller asks for what it lacks.
#[test]
fn no_caller_is_refused_what_was_put_back_meanwhile() {
    let ledger = ledger();
    borrow(&ledger, 2);
    let _told = [3, 3].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    put_back(&ledger, 1, CHUNK, || {});
    assert_eq!(end(&ledger, &loan, true), [3], "it suffices for one of them");
    assert_eq!(served(&ledger), [3]);
}

/// Fixed windows of different counts have one state.
#[test]
fn callers_of_different_limits_do_not_share_a_call() {
    let ledger = ledger();
    let meters = [10, 5].map(|count| {
        let limit = Limit::fixed_window(count, Duration::from_secs(60));
        Meter::new(Name::literal("rule"), limit).by_period()
    });
    let [ten, five] = &meters;
    let _told = [(ten, 2), (ten, 7), (five, 1), (ten, 1)].map(|(meter, cost)| wait_for(&ledger, meter, cost, NOW));
    for (meter, short) in [(ten, vec![2, 9]), (five, vec![1]), (ten, vec![1])] {
        let (loan, _) = begin(&ledger, NOW);
        assert!(loan.subject.meter == *meter && loan.short == short, "{:?}", loan.short);
        let served =
            ledger.with(STATE, |account| account.grant(&loan, grant(short[short.len() - 1]))).expect("it is awaited");
        assert_eq!(served.waiters.len(), short.len());
    }
    // What is left is for the others, but one after the other.
    let _told = [(five, 1), (ten, 1)].map(|(meter, cost)| wait_for(&ledger, meter, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(taken_of(&ledger, &loan, grant(10)), (vec![1], 9));
    assert_eq!(served(&ledger), [1]);
}

#[test]
fn callers_beyond_a_bound_do_not_wait() {
    let ledger = ledger();
    let _told: Vec<_> = (0..MAX_WAITERS).map(|_| wait(&ledger, 1, NOW)).collect();
    assert!(matches!(want(&ledger, 1, NOW, true), Wanting::NoLease));
}

#[test]
fn a_refusal_is_for_those_that_wait_for_the_same_cost() {
    let ledger = ledger();
    let _told = [5, 1, 5].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    let _later = wait(&ledger, 5, NOW);
    assert_eq!(end(&ledger, &loan, true), [5, 5]);
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(loan.short, [1, 6]);
    assert_eq!(end(&ledger, &loan, false), [1, 5], "a failure is for all");
}

#[test]
fn a_state_that_was_refused_units_is_forgotten_like_others() {
    let ledger = ledger();
    let _told = wait(&ledger, 1, NOW);
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(end(&ledger, &loan, true), [1]);
    assert!(is_over(&ledger) && ledger.expired(NOW).is_empty());
    assert!(matches!(want(&ledger, 1, NOW, false), Wanting::NoLease), "the account is gone");
}

/// Requests of several limits take, borrow beside each other, and put back
/// when another limit refuses: a chunk is all that is held then.
#[test]
fn units_beyond_a_chunk_are_returned_to_the_servers() {
    let (ledger, chunk) = (ledger(), 3);
    borrow(&ledger, chunk);
    assert!(taken(&ledger, 3, NOW));
    borrow(&ledger, chunk);
    put_back(&ledger, 2, chunk, || {});
    assert_eq!(ledger.units(), 5, "two of them to be given back");
    assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 1, NOW), "no more than a chunk can be taken");
    let returned = expired(&ledger, NOW);
    assert_eq!((returned, ledger.units()), (vec![2], 2), "the lease itself goes on");
    // The other way round: what was put back first leaves less room for the grant.
    let _told = wait(&ledger, 3, NOW);
    let (loan, _) = begin(&ledger, NOW);
    put_back(&ledger, 1, chunk, || {});
    assert!(granted(&ledger, &loan, Grant { chunk, ..grant(chunk + 1) }));
    assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 3, NOW), "the one who asked had three, a chunk is left");
}
