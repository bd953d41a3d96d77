//! Slots on their way, and calls that cannot be taken apart: limits that
//! succeed others, requests with ids, strict mode.

use crate::support;
use crate::support::cluster::{masters, url_of};
use crate::support::load::failure_of;
use crate::support::timeline::{RESOLUTION, Timeline};
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, RequestId, Store};
use tidegate::{Key, Limit, ManualClock, Micros, Name};
use tidegate_redis::{RedisFailure, RedisStore};
use tidegate_testkit::servers::{GUARD, slot_of};

const START: Micros = Micros::new(1_700_000_003_123_457);

async fn decide(store: &RedisStore, check: Check<'_>) -> Result<Verdict, RedisFailure> {
    let mut verdicts = [Verdict::default()];
    let decided = store.decide(&[check], &mut verdicts).await;
    decided.map(|_| verdicts[0]).map_err(|error| failure_of(&error))
}

#[test]
fn a_slice_that_cannot_be_split_waits_and_is_no_outage() {
    let (cluster, timeline) = (masters(), Timeline::start());
    let builder = || support::builder(&url_of(&cluster)).clock(ManualClock::at(START));
    let (store, strict) = (timeline.build(builder()), timeline.build(builder().strict()));
    let old = Meter::new(Name::literal("rule"), Limit::per_hour(10));
    let new = Meter::new(Name::literal("rule"), Limit::per_hour(20));
    let former = [Former { meter: &old, until: START.saturating_add(old.horizon()) }];
    let alice = Key::from("alice");
    let check = |meter, cost| Check::new(meter, &alice, Verb::Charge, cost).expect("a small cost");
    let changed = |cost| check(&new, cost).with_former(&former);
    for store in [&store, &strict] {
        timeline.run(decide(store, check(&old, 1))).expect("an answer");
    }
    let slot = slot_of(b"alice");
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("three masters");
    let migration = cluster.begin_migration(slot, to);
    let once = RequestId::once("once", 1);
    // The former state is here, the new one and the id are nowhere yet: a node
    // with a slot that leaves it decides nothing of that.
    for (what, store, check) in [
        ("a limit that was changed", &store, changed(1)),
        ("a request with an id", &store, check(&old, 1).with_id(&once)),
        ("a new limit in strict mode", &strict, changed(0)),
    ] {
        let (outcome, took) = timeline.run_ahead_while_told(store, decide(store, check));
        let failure = outcome.expect_err(what);
        assert!(matches!(failure, RedisFailure::OnTheWay), "{what}: {failure:?}");
        assert!(took <= 2 * (GUARD + RESOLUTION), "{what}: no longer than a deadline or two, not {took:?}");
        assert_eq!((store.statistics().away, store.statistics().failures), (0, 0), "{what}: {failure:?}");
    }
    let left = timeline.run(decide(&store, check(&old, 1))).expect("it is here still").remaining;
    assert_eq!(left, 8, "nothing was charged");
    migration.move_keys();
    migration.finish();
    assert_eq!(timeline.run(decide(&store, changed(1))).expect("an answer").remaining, 17);
}
