//! Requests with ids, where the suite for stores does not look: what is
//! remembered, for how long, and beside a history.

use std::time::Duration;

use tidegate::Micros;
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{RequestId, Store};
use tidegate_redis::internals::{Call, Once, Task, Turn, id_key};
use tidegate_testkit::block_on;

use super::account::Account;
use super::store::Settings;
use super::{LIMITS, START};

const ID: RequestId<'static> = RequestId::once("order-17", 1);
/// For how long the embedded store knows an id.
const KNOWN_FOR: u64 = 300_000_000;

#[test]
pub(super) fn an_id_is_known_for_its_time_with_and_without_a_history() {
    for limit in LIMITS {
        for strict in [false, true] {
            let settings = Settings { kept_longer_ms: 1_000, strict, by_server_time: false, expires: true };
            let account = Account::new(limit, settings);
            let charge = |now: u64| {
                account.set(now);
                let check = account.check(Verb::Charge, 1).with_id(ID);
                let mut verdict = [Verdict::default()];
                let at = block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
                (at, verdict[0])
            };
            // A new history begins, which strict mode has to wait for.
            account.peek(START, 0);
            let first = START + 10 * limit.period().as_micros() as u64;
            let (at, verdict) = charge(first);
            assert!(at == Micros::new(first) && verdict.allowed && !verdict.repeated, "{limit}: {verdict:?}");
            let known = id_key("tg", &account.check(Verb::Charge, 1).with_id(ID), ID.text);
            let until = account.store.keyspace().kept_until(&known);
            assert_eq!(until, Some(Micros::new(first + KNOWN_FOR)), "{limit}");
            let again = charge(first + 1);
            assert_eq!(again, (at, Verdict { repeated: true, ..verdict }), "{limit}: sent again");
            let (_, much_later) = charge(first + KNOWN_FOR + 2_000);
            assert!(!much_later.repeated, "{limit}: known for longer");
        }
    }
}

/// A reply that is given again says by which limits it was decided, and also the
/// shortest memory is one.
#[test]
pub(super) fn a_reply_is_known_by_its_limits() {
    for limit in LIMITS {
        let settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };
        let account = Account::new(limit, settings);
        account.set(START);
        let check = account.check(Verb::Charge, 1).with_id(ID);
        let once = Once::of(&[check], "tg", Duration::from_millis(1));
        let run = || {
            let task = Task::Decide { check, limit, verb: Verb::Charge };
            let call = account.store.call(vec![Turn { key: account.key(), task }]);
            account.store.run(&Call { once: once.clone(), ..call }).expect("a reply")
        };
        assert!(!run().is_repeated(), "{limit}");
        let again = run();
        assert!(again.is_repeated() && !again.is_of_other_limits(once.as_ref()), "{limit}");
    }
}
