//! Keys that expire by the server's own time, which only goes on: nobody
//! notices that a state is gone, and in the end it is.

use tidegate::Micros;
use tidegate::kernel::Verb;
use tidegate_testkit::{Ask, Oracle, Random};

use super::account::Account;
use super::store::Settings;
use super::{LIMITS, START};

/// The least that a server takes beside a state that matters no longer.
const KEPT_LONGER_MS: u64 = 1;

#[test]
fn a_state_is_kept_as_long_as_it_matters_and_no_longer() {
    for limit in LIMITS {
        let settings = Settings { kept_longer_ms: KEPT_LONGER_MS, by_server_time: true, expires: true, strict: false };
        let account = Account::new(limit, settings);
        let mut random = Random::new(limit.capacity());
        let (mut oracle, mut now, mut reset_after) = (Oracle::new(), START, 0);
        let period = limit.period().as_micros() as u64;
        for _ in 0..2_000 {
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
        }
        account.charge(now, 1);
        // An expiry holds for a cell of time, which may have just begun.
        now += 6 * period * (limit.capacity() / limit.count() + 1) + KEPT_LONGER_MS * 1_000;
        account.peek(now, 0);
        assert!(!account.is_kept(), "{limit}: kept when it matters no longer");
    }
}
