//! What was told of thresholds is remembered beside the state, for a period.

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Check, Meter, Purpose, RequestId, Store, Thresholds};
use tidegate::{Key, Limit, ManualClock, Micros, Name};
use tidegate_redis::internals::{Form, Step, Task, Tell};
use tidegate_testkit::block_on;

use super::START;
use super::store::{EmbeddedStore, Settings};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };
const SECOND: u64 = 1_000_000;
const TOLD: &[u8] = b"tg:{alice}%told:rule:sliding-log 4/10s";

fn meter() -> Meter {
    meter_of("sliding-log 4/10s", &[5, 50, 100])
}

fn meter_of(words: &str, percents: &[u8]) -> Meter {
    let thresholds = Thresholds::new(percents.iter().copied()).expect("thresholds");
    Meter::new(Name::literal("rule"), words.parse::<Limit>().expect("a limit")).notify(thresholds)
}

/// Which thresholds a check crosses.
fn crossed(store: &EmbeddedStore, clock: &ManualClock, meter: &Meter, now: u64, (verb, cost): (Verb, u64)) -> u8 {
    clock.set(Micros::new(now));
    let key = Key::from("alice");
    let mut verdicts = [Verdict::default()];
    let check = Check::new(meter, &key, verb, cost).expect("a cost");
    block_on(store.decide(&[check], &mut verdicts)).expect("an answer");
    verdicts[0].crossed
}

/// A step that the client decided: what is used before and after, and whether that gives back.
fn decided(store: &EmbeddedStore, meter: &Meter, used: [u64; 2], gives_back: bool) -> u8 {
    let swap =
        Task::Swap { form: Form::Text, state: Vec::new(), passes: true, after: None, healed: None, verdict: None };
    let tell = Task::Tell(Tell { of: 0, meter, decided: Some((used, gives_back)) });
    let steps = vec![Step { key: b"custom".into(), task: swap }, Step { key: b"told".into(), task: tell }];
    store.run(&store.call(steps)).expect("a reply").crossed(1)
}

#[test]
pub(super) fn marks_are_kept_for_a_period_and_removed_when_less_is_used() {
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    let meter = meter();
    let ask = |now: u64, verb, cost| {
        let crossed = crossed(&store, &clock, &meter, START + now, (verb, cost));
        let marks = store.keyspace().string(TOLD).map(|marks| String::from_utf8_lossy(marks).into_owned());
        let until = store.keyspace().kept_until(TOLD).map(|until| until.get() - START);
        (crossed, marks.unwrap_or_default(), until)
    };
    let mark = |percent: u64, told: u64| format!(" {percent}:{}", START + told + 10 * SECOND);
    assert_eq!(ask(0, Verb::Peek, 4), (0, String::new(), None));
    assert_eq!(ask(0, Verb::Charge, 1), (1, mark(5, 0), Some(11 * SECOND)));
    assert_eq!(ask(1, Verb::Charge, 1), (2, mark(5, 0) + &mark(50, 1), Some(11 * SECOND + 1)));
    assert_eq!(ask(2, Verb::Refund, 1), (0, mark(5, 0), Some(11 * SECOND + 2)));
    assert_eq!(ask(3, Verb::Reset, 0), (0, String::new(), None));
    assert_eq!(ask(4, Verb::Charge, 4).0, 7);
    assert_eq!(ask(5 + 10 * SECOND, Verb::Charge, 4).0, 7, "in the next period");
}

#[test]
pub(super) fn what_the_client_decided_is_told_once() {
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    clock.set(Micros::new(START));
    let meter = meter();
    let tell = |used, gives_back| decided(&store, &meter, used, gives_back);
    assert_eq!([tell([0, 0], false), tell([0, 2], false), tell([1, 4], false), tell([0, 4], false)], [0, 3, 4, 0]);
    assert_eq!([tell([4, 1], false), tell([1, 4], false)], [0, 0], "nothing was given back");
    assert_eq!([tell([4, 1], true), tell([1, 4], false)], [0, 6]);
    clock.set(Micros::new(START + 10 * SECOND - 1));
    assert_eq!(tell([1, 4], false), 0, "until the period is over");
    clock.set(Micros::new(START + 10 * SECOND));
    assert_eq!(tell([1, 4], false), 6);
    clock.set(Micros::new(START));
    assert_eq!(tell([1, 4], false), 0, "a clock that went back by a period");
    clock.set(Micros::new(START - 1));
    assert_eq!(tell([1, 4], false), 6, "a mark that only a wrong clock explains");
}

#[test]
pub(super) fn a_mark_is_removed_only_when_less_is_used_than_its_threshold() {
    // Of two charges of one instant, one is settled to less: enough is left.
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    let meter = meter_of("sliding-log 10/10s", &[60]);
    let ask = |second: u64, verb, cost| crossed(&store, &clock, &meter, START + second * SECOND, (verb, cost));
    assert_eq!([ask(0, Verb::Charge, 3), ask(5, Verb::Charge, 2), ask(9, Verb::Charge, 1)], [0, 0, 1]);
    assert_eq!([ask(11, Verb::Charge, 2), ask(11, Verb::Charge, 2)], [0, 0], "told two seconds before");
    let charged = Charged { at: Micros::new(START + 11 * SECOND), cost: 2 };
    assert_eq!(ask(11, Verb::Settle(charged), 1), 0);
    assert_eq!(ask(16, Verb::Charge, 2), 0, "told in this period");
    // A charge that is settled as it was gives nothing back.
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    let meter = meter_of("100/100s", &[50]);
    let ask = |second: u64, verb, cost| crossed(&store, &clock, &meter, START + second * SECOND, (verb, cost));
    let (id, key) = (RequestId::once("reserved", 1), Key::from("alice"));
    let by_id = |verb, purpose| {
        let id = RequestId { purpose, ..id };
        let check = Check::new(&meter, &key, verb, 50).expect("a cost");
        let mut verdicts = [Verdict::default()];
        block_on(store.decide(&[check.with_id(&id)], &mut verdicts)).expect("an answer");
        verdicts[0].crossed
    };
    clock.set(Micros::new(START));
    assert_eq!(by_id(Verb::Charge, Purpose::Once), 1);
    clock.set(Micros::new(START + 10 * SECOND));
    assert_eq!(by_id(Verb::SETTLE, Purpose::Settle), 0);
    assert_eq!(ask(10, Verb::Charge, 10), 0, "told in this period");
}

#[test]
pub(super) fn a_mark_is_of_its_own_percentage() {
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    let (before, after) = (meter_of("100/100s", &[15]), meter_of("100/100s", &[5, 15]));
    assert_eq!(crossed(&store, &clock, &before, START, (Verb::Charge, 20)), 1);
    // Another threshold, whose digits are the end of the first, is crossed when most has drained.
    assert_eq!(crossed(&store, &clock, &after, START + 18 * SECOND, (Verb::Charge, 5)), 1);
}
