//! Keys expire by the server's own time, which only goes on: an expired state
//! changes no decision, and in the end it is gone.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate::kernel::{LimitKernel, Verb};
use tidegate::{Limit, Micros};
use tidegate_testkit::{Ask, Oracle, Random};

use super::account::Account;
use super::keyspace::Output;
use super::store::Settings;
use super::{START, limits};

/// The least that a server takes beside a state that matters no longer.
const KEPT_LONGER_MS: u64 = 1;

#[test]
fn a_state_is_kept_as_long_as_it_matters_and_no_longer() {
    play(2_000);
}

/// So many decisions on each limit.
pub(super) fn play(decisions: u64) {
    for limit in limits() {
        let account = Account::new(limit, BY_SERVER_TIME);
        let mut random = Random::new(limit.capacity());
        let (mut oracle, mut now, mut reset_after) = (Oracle::new(), START, 0);
        let period = limit.period().as_micros() as u64;
        for _ in 0..decisions {
            now += match random.within(0..=9) {
                0..=3 => 0,
                4..=6 => random.magnitude(1..=2 * period),
                7 => reset_after.max(1) - 1,
                8 => reset_after,
                _ => reset_after + random.within(0..=2_000),
            };
            let (verb, cost) = match random.within(0..=19) {
                0..=14 => (Verb::Charge, random.magnitude(1..=limit.capacity())),
                15..=16 => (Verb::Peek, random.within(0..=limit.capacity())),
                17..=18 => (Verb::Refund, random.magnitude(1..=limit.capacity())),
                _ => (Verb::Reset, 0),
            };
            let check = account.check(verb, cost);
            let right = oracle.decide(&[Ask::of(&check).expect("a limit of ours")], Micros::new(now))[0];
            assert_eq!(account.ask(now, verb, cost), right, "{limit}: {verb:?} {cost} at {now}");
            reset_after = right.reset_after.get();
            if verb == Verb::Charge && right.allowed {
                let beyond = account.kept_until().expect("it was charged").get() - account.forget_at().get();
                assert!(beyond_need(limit).contains(&beyond), "{limit}: kept for {beyond} us too long");
            }
        }
        account.charge(now, 1);
        // An expiry holds for a cell of time, which may have just begun.
        now += 6 * period * (limit.capacity() / limit.count() + 1) + (KEPT_LONGER_MS + 2) * 1_000;
        account.peek(now, 0);
        assert!(!account.is_kept(), "{limit}: kept when it matters no longer");
    }
}

/// How much longer than it matters a state may be kept after a charge, in microseconds.
fn beyond_need(limit: Limit) -> RangeInclusive<u64> {
    let (least, most) = match limit.kernel() {
        // For a cell of time as long as it takes to drain, and as long again; less what a tick rounds up.
        LimitKernel::Bucket(bucket) => {
            let horizon = bucket.full().div_ceil(bucket.drain()) * bucket.tick();
            (horizon - bucket.tick(), 2 * horizon)
        }
        LimitKernel::Window(_) => (0, 0),
        LimitKernel::Log(log) => (0, log.period()),
    };
    // In whole milliseconds.
    least + KEPT_LONGER_MS * 1_000..=most + (KEPT_LONGER_MS + 1) * 1_000
}

const BY_SERVER_TIME: Settings =
    Settings { kept_longer_ms: KEPT_LONGER_MS, by_server_time: true, expires: true, strict: false };

/// A charge that stays within a cell of time moves the state, and nothing else.
#[test]
pub(super) fn a_bucket_in_use_is_one_increment() {
    let account = Account::new(Limit::per_second(5), BY_SERVER_TIME);
    // At the beginning of a cell, which is as long as a full bucket takes to drain.
    let start = START.next_multiple_of(1_000_000);
    for increments in 0..4 {
        account.charge(start, 1);
        assert_eq!(account.store.keyspace().increments, increments);
    }
    account.charge(start, 1);
    assert_eq!(account.store.keyspace().increments, 3, "the next cell has another expiry");
}

#[test]
pub(super) fn a_log_in_use_expires_and_forgets_in_time() {
    let account = Account::new(Limit::sliding_log(5, Duration::from_secs(10)), BY_SERVER_TIME);
    let length = || match account.store.keyspace().call(b"LLEN", &[&account.key()]) {
        Ok(Output::Number(length)) => length,
        other => panic!("no length: {other:?}"),
    };
    let start = START.next_multiple_of(10_000_000);
    let expiries = [(0, 1), (0, 1), (1, 1), (2, 1), (9_999_999, 1), (10_000_000, 2)];
    for (later, expiries) in expiries {
        account.charge(start + later, 1);
        assert_eq!(account.store.keyspace().expiries, expiries, "{later} us later");
        let kept_until = start + (later / 10_000_000 + 2) * 10_000_000 + KEPT_LONGER_MS * 1_000;
        assert_eq!(account.kept_until(), Some(Micros::new(kept_until)), "{later} us later");
    }
    // What came before the first, and a time and a total for each that counts.
    assert_eq!(length(), 1.0 + 2.0 * 4.0);
    account.charge(start + 10_000_001, 1);
    assert_eq!(length(), 1.0 + 2.0 * 4.0, "one has come, and one has gone");
}

#[test]
pub(super) fn what_is_given_back_in_full_leaves_nothing() {
    for limit in limits().into_iter().filter(|limit| !matches!(limit.kernel(), LimitKernel::Bucket(_))) {
        let account = Account::new(limit, BY_SERVER_TIME);
        account.charge(START, 3);
        account.ask(START, Verb::Refund, 3);
        assert!(!account.is_kept(), "{limit}");
        account.charge(START, 3);
        account.undo(START, 3, START);
        assert!(!account.is_kept(), "{limit}");
    }
}
