//! Slots on their way, and calls that cannot be taken apart: limits that
//! succeed others, requests with ids, strict mode.

mod support;

use std::time::{Duration, Instant};

use support::load::{SLACK, failure_of};
use support::{RUNTIME, build};
use tidegate::kernel::{Verb, Verdict};
use tidegate::{Check, Key, Limit, ManualClock, Meter, Micros, Name, RequestId, Store};
use tidegate_redis::{Builder, RedisFailure, RedisStore};
use tidegate_testkit::servers::{Cluster, slot_of};

const START: Micros = Micros::new(1_700_000_003_123_457);
const DEADLINE: Duration = Duration::from_secs(1);

fn store_on(cluster: &Cluster, settings: impl FnOnce(Builder) -> Builder) -> RedisStore {
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let builder = support::builder(&format!("redis+cluster://{}", hosts.join(","))).clock(ManualClock::at(START));
    build(settings(builder))
}

/// What came of a check, which must not take longer than a deadline or two.
fn decide(store: &RedisStore, check: Check<'_>) -> Result<Verdict, RedisFailure> {
    let began = Instant::now();
    let mut verdicts = [Verdict::default()];
    let decided = async { tokio::time::timeout(10 * SLACK, store.decide(&[check], &mut verdicts)).await };
    let decided = RUNTIME.block_on(decided).expect("an answer before long");
    assert!(began.elapsed() < 2 * DEADLINE + SLACK, "took {:?}", began.elapsed());
    decided.map(|_| verdicts[0]).map_err(|error| failure_of(&error))
}

#[test]
fn what_cannot_be_taken_apart_waits_and_is_no_outage() {
    let cluster = Cluster::start_with(&[("cluster-node-timeout", "15000")]);
    let (store, strict) = (store_on(&cluster, |builder| builder), store_on(&cluster, Builder::strict));
    let old = Meter::new(Name::literal("rule"), Limit::per_hour(10));
    let new = Meter::new(Name::literal("rule"), Limit::per_hour(20)).in_place_of(&old, START).expect("one change");
    let alice = Key::from("alice");
    let check = |meter, cost| Check::new(meter, &alice, Verb::Charge, cost).expect("a small cost");
    for store in [&store, &strict] {
        decide(store, check(&old, 1)).expect("an answer");
    }
    let slot = slot_of(b"alice");
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("three masters");
    let migration = cluster.begin_migration(slot, to);
    let hasty = |settings: fn(Builder) -> Builder, prefix: &RedisStore| {
        // The same keys, by somebody with less time.
        let prefix = format!("{prefix:?}").split('"').nth(1).expect("a prefix").to_owned();
        store_on(&cluster, |builder| settings(builder.prefix(prefix)).deadline(DEADLINE))
    };
    let (store, strict) = (hasty(|builder| builder, &store), hasty(Builder::strict, &strict));
    let once = RequestId { text: "once", payload: 1 };
    // The former state is here, the new one and the id are nowhere yet: a node
    // with a slot that leaves it decides nothing of that.
    for (what, store, check) in [
        ("a limit that was changed", &store, check(&new, 1)),
        ("a request with an id", &store, check(&old, 1).with_id(once)),
        ("a new limit in strict mode", &strict, check(&new, 0)),
    ] {
        let failure = decide(store, check).expect_err(what);
        assert!(matches!(failure, RedisFailure::OnTheWay), "{what}: {failure:?}");
        assert_eq!((store.statistics().away, store.statistics().failures), (0, 0), "{what}: {failure:?}");
    }
    assert_eq!(decide(&store, check(&old, 1)).expect("it is here still").remaining, 8, "nothing was charged");
    migration.move_keys();
    migration.finish();
    assert_eq!(decide(&store, check(&new, 1)).expect("an answer").remaining, 17);
}
