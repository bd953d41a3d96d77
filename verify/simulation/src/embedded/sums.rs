//! The running totals of a log wrap around, and no decision changes.

use tidegate::kernel::Verb;
use tidegate::{Algorithm, Limit};
use tidegate_redis::internals::numbers;
use tidegate_testkit::Random;

use super::account::Account;
use super::keyspace::{Keyspace, Output};
use super::store::{EmbeddedStore, Settings};
use super::{LIMITS, START};

/// Where they begin again: `SUMS` in `log.lua`.
const SUMS: u64 = 1 << 52;

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: false };

/// A log whose totals are about to go round, beside one whose totals begin at zero.
fn go_round(limit: Limit, seed: u64) {
    let mut random = Random::new(seed);
    let [plain, shifted] = [(); 2].map(|()| Account::new(limit, SETTINGS));
    for account in [&plain, &shifted] {
        account.charge(START, 1);
    }
    let key = EmbeddedStore::key_of(&shifted.check(Verb::Peek, 0));
    let before = SUMS - random.within(1..=2 * limit.capacity());
    for (index, number) in [(&b"0"[..], before), (b"2", (before + 1) % SUMS)] {
        let number = number.to_string();
        shifted.store.keyspace().call(b"LSET", &[&key, index, number.as_bytes()]).expect("a list");
    }
    let (mut now, period) = (START, limit.period().as_micros() as u64);
    let mut charges = Vec::new();
    for _ in 0..60 {
        now += random.magnitude(1..=period / 2) - 1;
        let cost = random.magnitude(1..=limit.capacity());
        let verb = match random.within(0..=9) {
            0..=6 => Verb::Charge,
            7 => Verb::Refund,
            _ => Verb::Peek,
        };
        let [answer, same] = [&plain, &shifted].map(|account| account.ask(now, verb, cost));
        assert_eq!(answer, same, "{limit}, seed {seed}: {verb:?} {cost} at {now}");
        if verb == Verb::Charge && answer.allowed {
            charges.push((now, cost));
        }
        let list = totals(&mut shifted.store.keyspace(), &key);
        assert!(list.iter().all(|total| *total < SUMS), "{limit}, seed {seed}: {list:?}");
        if random.percent(20) && !charges.is_empty() {
            let (at, cost) = charges.swap_remove(random.within(0..=charges.len() as u64 - 1) as usize);
            let [answer, same] = [&plain, &shifted].map(|account| account.undo(now, cost, at));
            assert_eq!(answer, same, "{limit}, seed {seed}: undo {cost} of {at} at {now}");
        }
    }
}

/// Every other number of a log.
fn totals(keyspace: &mut Keyspace, key: &[u8]) -> Vec<u64> {
    match keyspace.call(b"LRANGE", &[key, b"0", b"-1"]) {
        Ok(Output::Several(list)) => {
            list.iter().step_by(2).filter_map(|word| numbers(word)).map(|[total]| total).collect()
        }
        other => panic!("no list: {other:?}"),
    }
}

#[test]
fn a_log_whose_totals_go_round_decides_as_any_other() {
    play(100);
}

/// So many times with each limit.
pub(super) fn play(seeds: u64) {
    for limit in LIMITS.into_iter().filter(|limit| limit.algorithm() == Algorithm::SlidingLog) {
        (0..seeds).for_each(|seed| go_round(limit, seed));
    }
}
