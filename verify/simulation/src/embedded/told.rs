//! What was told of thresholds is remembered beside the state, for a period.

use tidegate::kernel::Verb;
use tidegate::store::{Meter, Thresholds};
use tidegate::{Key, Limit, Micros, Name};
use tidegate_redis::internals::{Form, Task, Tell, Turn};

use super::START;
use super::store::{EmbeddedStore, Settings};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };
const SECOND: u64 = 1_000_000;
const TOLD: &[u8] = b"tg:{alice}%told:rule:sliding-log 4/10s";

fn meter() -> Meter {
    let limit: Limit = "sliding-log 4/10s".parse().expect("a limit");
    Meter::new(Name::literal("rule"), limit).notify(Thresholds::new([5, 50, 100]).expect("thresholds"))
}

/// A turn that the client decided: what is used before and after, and whether that gives back.
fn decided(store: &EmbeddedStore, meter: &Meter, used: [u64; 2], gives_back: bool) -> u8 {
    let swap =
        Task::Swap { form: Form::Text, state: Vec::new(), passes: true, after: None, healed: None, verdict: None };
    let tell = Task::Tell(Tell { of: 0, meter, decided: Some((used, gives_back)) });
    let turns = vec![Turn { key: b"custom".into(), task: swap }, Turn { key: b"told".into(), task: tell }];
    store.run(&store.call(turns)).expect("a reply").crossed(1)
}

#[test]
pub(super) fn marks_are_kept_for_a_period_and_removed_when_less_is_used() {
    let (store, clock) = EmbeddedStore::with(SETTINGS);
    let (meter, key) = (meter(), Key::from("alice"));
    let ask = |now: u64, verb, cost| {
        clock.set(Micros::new(START + now));
        let check = tidegate::store::Check::new(&meter, &key, verb, cost).expect("a cost");
        let mut verdicts = [Default::default()];
        tidegate_testkit::block_on(tidegate::store::Store::decide(&store, &[check], &mut verdicts)).expect("an answer");
        let marks = store.keyspace().string(TOLD).map(|marks| String::from_utf8_lossy(marks).into_owned());
        let until = store.keyspace().kept_until(TOLD).map(|until| until.get() - START);
        (verdicts[0].crossed, marks.unwrap_or_default(), until)
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
