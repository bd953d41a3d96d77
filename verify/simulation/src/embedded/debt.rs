//! Reports and what is owed, beside the oracle.

use tidegate::kernel::Verb;
use tidegate::{Limit, Micros};
use tidegate_testkit::{Ask, Oracle, Random};

use super::account::Account;
use super::store::Settings;
use super::{START, limits};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: false };

#[test]
fn what_is_owed_is_what_the_oracle_says() {
    play(100);
}

/// So many times with each limit, and with one of which a unit is the least level there is.
pub(super) fn play(seeds: u64) {
    let finest: Limit = "3/us burst 5".parse().expect("a limit");
    for limit in limits().into_iter().chain([finest]).flat_map(|limit| [limit, limit.debt(2)]) {
        for seed in 0..seeds {
            owe(limit, &mut Random::new(seed));
        }
    }
}

fn owe(limit: Limit, random: &mut Random) {
    let account = Account::new(limit, SETTINGS);
    let mut oracle = Oracle::new();
    let (period, most) = (limit.period().as_micros() as u64, limit.capacity() + limit.max_debt());
    let mut now = START;
    for _ in 0..30 {
        let (verb, cost) = match random.within(0..=9) {
            0..=4 => (Verb::Report, random.magnitude(1..=most + 1)),
            5 => (Verb::Report, random.within(0..=1)),
            6 => (Verb::Charge, random.magnitude(1..=limit.capacity())),
            7 => (Verb::Refund, random.magnitude(1..=limit.capacity())),
            8 => (Verb::Charge, random.within(0..=1)),
            _ => (Verb::Peek, random.within(0..=limit.capacity())),
        };
        let check = account.check(verb, cost);
        let right = oracle.decide(&[Ask::of(&check).expect("a limit of ours")], Micros::new(now))[0];
        assert_eq!(account.ask(now, verb, cost), right, "{limit}: {verb:?} {cost} at {now}");
        now = match random.within(0..=9) {
            0..=3 => now,
            4 => now + 1,
            5 => now + right.retry_after.get(),
            // The instant at which a bucket is empty, up to less than a microsecond.
            6 => (now + right.reset_after.get()).saturating_sub(1),
            7 => now - random.magnitude(1..=period),
            _ => now + random.magnitude(1..=period),
        };
    }
}

/// Not even what is written in another form than the script's own.
#[test]
pub(super) fn a_cost_of_nothing_writes_nothing() {
    for (limit, state) in [("5/s", format!("{START}:0")), ("fixed 5/s", format!("{START}:0:0"))] {
        for verb in [Verb::Charge, Verb::Peek, Verb::Report, Verb::Refund] {
            let account = Account::new(limit.parse().expect("a limit"), SETTINGS);
            account.peek(START, 0);
            account
                .store
                .keyspace()
                .call(b"SET", &[&account.key(), state.as_bytes(), b"PX", b"9000"])
                .expect("a command");
            account.ask(START, verb, 0);
            let keyspace = account.store.keyspace();
            assert_eq!(keyspace.string(&account.key()), Some(state.as_bytes()), "{limit}: {verb:?}");
        }
    }
}

#[test]
pub(super) fn a_log_that_is_given_back_at_the_epoch_is_as_if_never_used() {
    for verb in [Verb::Refund, Verb::Reset] {
        let account = Account::new("sliding-log 5/10s".parse().expect("a limit"), SETTINGS);
        account.charge(0, 3);
        let back = account.ask(0, verb, if verb == Verb::Refund { 3 } else { 0 });
        assert_eq!((back.remaining, back.reset_after), (5, Micros::ZERO), "{verb:?}");
    }
}
