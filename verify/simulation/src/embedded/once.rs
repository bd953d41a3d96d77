//! Requests with ids, where the suite for stores does not look: what is
//! remembered, for how long, and beside a history.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Kept, Meter, Purpose, RequestId, Store};
use tidegate::{Limit, Micros};
use tidegate_redis::internals::{Call, Form, Once, Outcome, Step, Task, id_key};
use tidegate_testkit::block_on;

use super::account::Account;
use super::store::Settings;
use super::{LIMITS, START, limits};

const ID: RequestId<'static> = RequestId::once("order-17", 1);
/// For how long the embedded store knows an id.
const KNOWN_FOR: u64 = 300_000_000;

#[test]
pub(super) fn an_id_is_known_for_its_time_with_and_without_a_history() {
    for limit in limits() {
        for strict in [false, true] {
            let settings = Settings { kept_longer_ms: 1_000, strict, by_server_time: false, expires: true };
            let account = Account::new(limit, settings);
            let charge = |now: u64| {
                account.set(now);
                let check = account.check(Verb::Charge, 1).with_id(&ID);
                let mut verdict = [Verdict::default()];
                let at = block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
                (at, verdict[0])
            };
            // A new history begins, which strict mode has to wait for.
            account.peek(START, 0);
            let first = START + 10 * limit.period().as_micros() as u64;
            let (at, verdict) = charge(first);
            assert!(at == Micros::new(first) && verdict.allowed && !verdict.repeated, "{limit}: {verdict:?}");
            let known = id_key("tg", &account.check(Verb::Charge, 1).with_id(&ID), ID.text);
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
    for limit in limits() {
        let settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };
        let account = Account::new(limit, settings);
        account.set(START);
        let check = account.check(Verb::Charge, 1).with_id(&ID);
        let once = Once::of(&[check], "tg", Duration::from_millis(1), Micros::new(START));
        let run = || {
            let task = Task::Decide { check, limit };
            let call = account.store.call(vec![Step { key: account.key(), task }]);
            account.store.run(&Call { once: once.clone(), ..call }).expect("a reply")
        };
        assert!(!run().is_repeated(), "{limit}");
        let again = run();
        assert!(again.is_repeated() && !again.is_of_other_limits(once.as_ref()), "{limit}");
    }
}

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };

/// What is remembered of the id.
fn record(account: &Account) -> String {
    let key = id_key("tg", &account.check(Verb::Charge, 1).with_id(&ID), ID.text);
    let keyspace = account.store.keyspace();
    String::from_utf8(keyspace.string(&key).expect("a record").to_vec()).expect("a text")
}

/// Kernels that the client runs: when a charge counts as made is for the client to say.
#[test]
pub(super) fn what_a_client_decided_is_remembered_and_renewed() {
    let ask = |account: &Account, now: u64, verb: Verb, purpose: Purpose, ahead: u64, states: [&str; 2]| {
        account.set(now);
        let id = RequestId { purpose, ..ID };
        let check = account.check(verb, 1).with_id(&id);
        let once = Once::of(&[check], "tg", Duration::from_secs(300), Micros::new(now));
        let swap = |state: &str, after: Option<Kept>, verdict| Task::Swap {
            form: Form::Text,
            state: state.into(),
            passes: true,
            after,
            healed: None,
            verdict,
        };
        let verdict = Some(Verdict { allowed: true, ahead: Micros::new(ahead), ..Verdict::default() });
        let after = Some(Kept { bytes: states[1].into(), forget_at: Micros::new(now + 1) });
        let steps = vec![
            Step { key: account.key(), task: swap(states[0], after, verdict) },
            Step { key: b"beside".into(), task: swap("", None, None) },
        ];
        let call = Call { once, ..account.store.call(steps) };
        let reply = account.store.run(&call).expect("a reply");
        assert_eq!(reply.outcome, Outcome::CarriedOut);
        let charged = record(account).split_once('|').map(|(_, charged)| charged.to_owned());
        charged.expect("what was charged")
    };
    for ahead in [0, 7] {
        let account = &Account::new(LIMITS[0], SETTINGS);
        let subject = account.check(Verb::Charge, 1).subject();
        let charge_at = |at: u64| format!("300000 {subject:016x}:1:{at}");
        assert_eq!(ask(account, START, Verb::Charge, Purpose::Once, ahead, ["", "a"]), charge_at(START + ahead));
        assert_eq!(
            ask(account, START + 9, Verb::RENEW, Purpose::Renew, ahead, ["a", "b"]),
            charge_at(START + 9 + ahead)
        );
        let settled = ask(account, START + 10, Verb::SETTLE, Purpose::Settle, ahead, ["b", "c"]);
        assert!(settled.starts_with('='), "{settled}");
    }
}

#[test]
pub(super) fn a_charge_is_found_by_the_limit_that_was_replaced() {
    let account = Account::new(LIMITS[0], SETTINGS);
    account.set(START);
    let mut verdict = [Verdict::default()];
    let reserve = account.check(Verb::Charge, 3).with_id(&ID);
    assert!(block_on(account.store.decide(&[reserve], &mut verdict)).is_ok() && verdict[0].allowed);
    let [other, last] = ["other", "last"].map(|name| Meter::new(name, LIMITS[0]));
    let former = [&other, reserve.meter()].map(|meter| Former { meter, until: Micros::MAX });
    let settle = Check::new(&last, reserve.key(), Verb::SETTLE, 5).expect("a check").with_former(&former);
    let settle = settle.with_id(&RequestId { purpose: Purpose::Settle, ..ID });
    assert!(block_on(account.store.decide(&[settle], &mut verdict)).is_ok());
    // Two more were taken than reserved, and they count by the limit in force.
    let left = Check::new(&last, reserve.key(), Verb::Peek, 0).expect("a check");
    let capacity = LIMITS[0].capacity();
    for (check, remaining) in [(left, capacity - 2), (left.with_former(&former), capacity - 5)] {
        assert!(block_on(account.store.decide(&[check], &mut verdict)).is_ok());
        assert_eq!(verdict[0].remaining, remaining);
    }
}

#[test]
pub(super) fn a_charge_is_settled_in_the_state_that_was_charged() {
    // Whether the limit in force was charged three, and what is settled.
    for (is_own, actual) in [(true, 1), (true, 3), (true, 4), (false, 1), (false, 3), (false, 4)] {
        let account = Account::new(LIMITS[0], SETTINGS);
        account.set(START);
        let reserve = account.check(Verb::Charge, 3).with_id(&ID);
        let other = Meter::new("other", LIMITS[0]);
        let of_other = |verb, cost| Check::new(&other, reserve.key(), verb, cost).expect("a check");
        let decide = |check: Check<'_>| {
            let mut verdict = [Verdict::default()];
            block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
            verdict[0]
        };
        assert!(decide(reserve).allowed && decide(of_other(Verb::Charge, 1)).allowed);
        let (meter, former) = if is_own { (reserve.meter(), &other) } else { (&other, reserve.meter()) };
        let (former, id) =
            ([Former { meter: former, until: Micros::MAX }], RequestId { purpose: Purpose::Settle, ..ID });
        let settle = Check::new(meter, reserve.key(), Verb::SETTLE, actual).expect("a check");
        let said = decide(settle.with_former(&former).with_id(&id)).remaining;
        let left = |meter| decide(Check::new(meter, reserve.key(), Verb::Peek, 0).expect("a check")).remaining;
        let capacity = LIMITS[0].capacity();
        // What is more is charged to the limit in force.
        let more = if is_own { 0 } else { actual.saturating_sub(3) };
        let each = [capacity - (actual - more), capacity - (1 + more)];
        assert_eq!([left(reserve.meter()), left(&other)], each, "{is_own}: {actual}");
        assert_eq!(said, capacity.saturating_sub(actual + 1), "{is_own}: {actual}");
        assert!(record(&account).contains("|="), "{is_own}: {actual}");
    }
}

#[test]
pub(super) fn a_charge_that_is_renewed_is_of_the_limit_that_was_charged() {
    let limit = Limit::in_flight(2, Duration::from_secs(60));
    let account = Account::new(limit, SETTINGS);
    let ask = |now: u64, check: Check<'_>| {
        account.set(now);
        let mut verdict = [Verdict::default()];
        block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
        assert!(verdict[0].allowed);
    };
    let reserve = account.check(Verb::Charge, 1).with_id(&ID);
    ask(START, reserve);
    let last = Meter::new("last", limit);
    ask(START, Check::new(&last, reserve.key(), Verb::Charge, 1).expect("a check"));
    let former = [Former { meter: reserve.meter(), until: Micros::MAX }];
    let renew = Check::new(&last, reserve.key(), Verb::RENEW, 1).expect("a check").with_former(&former);
    ask(START + 9, renew.with_id(&RequestId { purpose: Purpose::Renew, ..ID }));
    let record = record(&account);
    let (_, charged) = record.split_once('|').expect("what was charged");
    assert_eq!(charged, format!("300000 {:016x}:1:{}", reserve.subject(), START + 9));
}

/// What has drained since may have been of what is kept: the rest is given back.
#[test]
pub(super) fn what_is_settled_late_is_given_back_but_for_what_is_kept() {
    let account = Account::new("5/10s".parse().expect("a limit"), SETTINGS);
    let ask = |now: u64, verb: Verb, cost: u64, purpose: Purpose| {
        account.set(now);
        let id = RequestId { purpose, ..ID };
        let mut verdict = [Verdict::default()];
        let check = account.check(verb, cost).with_id(&id);
        block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
    };
    ask(START, Verb::Charge, 3, Purpose::Once);
    ask(START + 2_000_000, Verb::SETTLE, 2, Purpose::Settle);
    assert_eq!(account.peek(START + 2_000_000, 0).remaining, 4, "as if two had been charged");
}

/// A reservation lasts as long again when it is renewed, as it was made to; and no longer
/// when it is settled.
#[test]
pub(super) fn a_renewal_lasts_as_long_as_the_reservation() {
    let account = Account::new(Limit::in_flight(2, Duration::from_secs(60)), SETTINGS);
    let known = id_key("tg", &account.check(Verb::Charge, 1).with_id(&ID), ID.text);
    let ask = |now: u64, verb: Verb, purpose: Purpose, lasts_ms: u32| {
        account.set(now);
        let id = RequestId { purpose, lasts_ms, ..ID };
        let mut verdict = [Verdict::default()];
        let check = account.check(verb, 1).with_id(&id);
        block_on(account.store.decide(&[check], &mut verdict)).expect("an answer");
        account.store.keyspace().kept_until(&known).expect("a record").get()
    };
    assert_eq!(ask(START, Verb::Charge, Purpose::Once, 90_000), START + 90_000_000);
    assert_eq!(ask(START + 7, Verb::RENEW, Purpose::Renew, 0), START + 7 + 90_000_000);
    assert_eq!(ask(START + 9, Verb::RENEW, Purpose::Renew, 5_000), START + 9 + 90_000_000);
    assert_eq!(ask(START + 11, Verb::SETTLE, Purpose::Settle, 0), START + 9 + 90_000_000);
}
