//! What a call says beside its checks.

use tidegate::Micros;
use tidegate::kernel::Verb;
use tidegate_redis::internals::{Call, Outcome, Step, Task};
use tidegate_testkit::Random;

use super::account::Account;
use super::store::{EmbeddedStore, Settings};
use super::{START, limits};

const SENT: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };

/// Where the time is the server's own and all else is as usual, no settings are sent.
const NOT_SENT: Settings = Settings { by_server_time: true, ..SENT };

#[test]
pub(super) fn what_is_not_sent_is_as_usual() {
    for limit in limits() {
        let accounts = [SENT, NOT_SENT].map(|settings| Account::new(limit, settings));
        let agree = |what: &str, ask: &dyn Fn(&Account) -> tidegate::kernel::Verdict| {
            let [sent, not_sent] = accounts.each_ref().map(|account| (ask(account), account.kept_until()));
            assert_eq!(sent, not_sent, "{limit}: {what}");
        };
        agree("a charge at the beginning of time", &|account| account.charge(0, 2));
        agree("undone", &|account| account.undo(0, 1, 0));
        let mut random = Random::new(limit.capacity());
        let (mut now, period) = (START, limit.period().as_micros() as u64);
        for _ in 0..40 {
            let cost = random.magnitude(1..=limit.capacity());
            agree("a charge", &|account| account.charge(now, cost));
            agree("a refund", &|account| account.ask(now, Verb::Refund, cost / 2));
            now += random.magnitude(1..=period);
        }
    }
}

#[test]
pub(super) fn what_is_withheld_is_decided_and_not_carried_out() {
    for limit in limits() {
        let account = Account::new(limit, SENT);
        account.charge(START, limit.capacity() - 1);
        let before = account.peek(START, 0);
        let verbs =
            [(Verb::Charge, 1, true), (Verb::Charge, 2, false), (Verb::Refund, 1, true), (Verb::Reset, 0, true)];
        for (verb, cost, passes) in verbs {
            let check = account.check(verb, cost);
            let step = Step { key: EmbeddedStore::key_of(&check), task: Task::Decide { check, limit } };
            let call = Call { is_withheld: true, ..account.store.call(vec![step]) };
            let reply = account.store.run(&call).expect("a reply");
            let verdict = reply.verdict(0, &call.steps[0].task).expect("a verdict");
            assert_eq!((reply.outcome, verdict.allowed), (Outcome::Refused, passes), "{limit}: {verb:?} {cost}");
            assert_eq!(account.peek(START, 0), before, "{limit}: {verb:?} {cost} was carried out");
        }
    }
}

#[test]
pub(super) fn the_time_that_is_sent_is_the_time() {
    for limit in limits() {
        let account = Account::new(limit, SENT);
        account.set(START);
        for sent in [0, 1, START - 1, START + 1].map(Micros::new) {
            let check = account.check(Verb::Peek, 1);
            let task = Task::Decide { check, limit };
            let step = Step { key: EmbeddedStore::key_of(&check), task };
            let call = Call { now: Some(sent), believed: sent, ..account.store.call(vec![step]) };
            assert_eq!(account.store.run(&call).expect("a reply").now, sent, "{limit}");
        }
    }
}
