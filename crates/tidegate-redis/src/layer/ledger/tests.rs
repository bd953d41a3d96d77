//! The ledger, without servers: what a grant is told here, a test says.

use tidegate::kernel::Verb;
use tidegate::{Limit, Name};

use super::*;

const STATE: &[u8] = b"state";
const NOW: Micros = Micros::new(1_000_000);
const UNTIL: Micros = Micros::new(2_000_000);
const DEADLINE: Duration = Duration::from_secs(1);

fn ledger() -> Ledger {
    Ledger::new(DEADLINE)
}

fn want(ledger: &Ledger, cost: u64, now: Micros, is_frequent: bool) -> Wanting {
    let meter = Meter::new(Name::literal("rule"), Limit::per_second(100));
    let alice = Key::from("alice");
    let check = Check::new(&meter, &alice, Verb::Charge, cost).expect("a cost within the limit");
    ledger.take_or_wait(STATE, &check, now, || is_frequent)
}

/// A caller that waits for its cost.
fn wait(ledger: &Ledger, cost: u64, now: Micros) -> oneshot::Receiver<Answer> {
    match want(ledger, cost, now, true) {
        Wanting::Waits(told, _) => told,
        Wanting::Taken(_) | Wanting::NoLease => panic!("it need not wait"),
    }
}

fn begin(ledger: &Ledger, now: Micros) -> (Loan, Option<Return>) {
    ledger.begin(STATE, 0, now).expect("a caller waits")
}

fn grant(units: u64) -> Grant {
    Grant { units, chunk: 100, verdict: Verdict::default(), at: NOW, until: UNTIL }
}

fn granted(ledger: &Ledger, loan: &Loan, grant: Grant) -> bool {
    matches!(ledger.grant(STATE, loan, grant), Granted::Taken { .. })
}

/// The costs of those that took them, and what is at hand for the next.
fn taken_of(ledger: &Ledger, loan: &Loan, grant: Grant) -> (Vec<u64>, u64) {
    match ledger.grant(STATE, loan, grant) {
        Granted::Taken { waiters, at_hand, .. } => (waiters.iter().map(|waiter| waiter.cost).collect(), at_hand),
        Granted::Refused => panic!("it is awaited"),
    }
}

/// Borrows so many units beside those that a caller waits for.
fn borrow(ledger: &Ledger, units: u64) -> Loan {
    let held = ledger.held(STATE, NOW);
    let _told = wait(ledger, held + 1, NOW);
    let (loan, _) = begin(ledger, NOW);
    assert!(granted(ledger, &loan, grant(held + 1 + units)));
    assert!(ledger.begin(STATE, 0, NOW).is_none(), "the turn is over");
    loan
}

fn taken(ledger: &Ledger, cost: u64, now: Micros) -> bool {
    ledger.take(STATE, cost, now).is_some()
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
    let returned: Vec<u64> = ledger.expired(UNTIL).iter().map(|left| left.units).collect();
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
    ledger.cancel(STATE);
    assert!(!granted(&ledger, &under_way, grant(3)));
    assert!(!taken(&ledger, 1, NOW));
}

#[test]
fn of_a_grant_without_a_caller_a_chunk_is_kept() {
    let (ledger, chunk) = (ledger(), 3);
    borrow(&ledger, 7);
    assert!(taken(&ledger, 7, NOW));
    ledger.keep(STATE, 7, chunk);
    assert_eq!(ledger.units(), chunk);
    assert!(ledger.expired(NOW).is_empty(), "nothing is given back");
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
    assert_eq!(taken_of(&ledger, &loan, grant(4)), (vec![1, 2], 0));
    assert_eq!(ledger.units(), 1, "the next one does not suffice with it");
}

/// One request takes what is there while others ask for the rest of their costs.
#[test]
fn a_grant_that_does_not_suffice_any_more_is_not_held() {
    let ledger = ledger();
    borrow(&ledger, 1);
    let _told = [2, 10].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    assert!(taken(&ledger, 1, NOW));
    assert_eq!(taken_of(&ledger, &loan, Grant { chunk: 3, ..grant(11) }), (vec![2], 9));
    assert_eq!(ledger.units(), 0);
    let (loan, _) = ledger.begin(STATE, 9, NOW).expect("one waits");
    assert_eq!(loan.short, [1]);
}

#[test]
fn a_refusal_is_for_those_that_wait_for_the_same_cost() {
    let ledger = ledger();
    let _told = [5, 1, 5].map(|cost| wait(&ledger, cost, NOW));
    let (loan, _) = begin(&ledger, NOW);
    let _later = wait(&ledger, 5, NOW);
    let costs = |waiters: Vec<Waiter>| waiters.iter().map(|waiter| waiter.cost).collect::<Vec<_>>();
    assert_eq!(costs(ledger.end(STATE, &loan, true)), [5, 5]);
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(loan.short, [1, 6]);
    assert_eq!(costs(ledger.end(STATE, &loan, false)), [1, 5], "a failure is for all");
}

#[test]
fn a_caller_waits_no_longer_than_its_deadline() {
    let ledger = ledger();
    let began = Instant::now();
    let _told = [1, 1].map(|cost| wait(&ledger, cost, NOW));
    let (late, next) = ledger.late(STATE, began);
    assert!(late.is_empty() && next.is_some_and(|next| next >= began + DEADLINE));
    let (late, next) = ledger.late(STATE, Instant::now() + DEADLINE);
    assert_eq!((late.len(), next), (2, None));
    assert!(ledger.begin(STATE, 0, NOW).is_none(), "nothing is borrowed for callers that are gone");
}

#[test]
fn a_state_that_was_refused_units_is_forgotten_like_others() {
    let ledger = ledger();
    let _told = wait(&ledger, 1, NOW);
    let (loan, _) = begin(&ledger, NOW);
    assert_eq!(ledger.end(STATE, &loan, true).len(), 1);
    assert!(ledger.begin(STATE, 0, NOW).is_none() && ledger.expired(NOW).is_empty());
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
    ledger.put_back(STATE, 2, chunk);
    assert_eq!(ledger.units(), 5, "two of them to be given back");
    assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 1, NOW), "no more than a chunk can be taken");
    let returned: Vec<u64> = ledger.expired(NOW).iter().map(|left| left.units).collect();
    assert_eq!((returned, ledger.units()), (vec![2], 2), "the lease itself goes on");
    // The other way round: what was put back first leaves less room for the grant.
    let _told = wait(&ledger, 3, NOW);
    let (loan, _) = begin(&ledger, NOW);
    ledger.put_back(STATE, 1, chunk);
    assert!(granted(&ledger, &loan, Grant { chunk, ..grant(chunk + 1) }));
    assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 3, NOW), "the one who asked had three, a chunk is left");
}
