//! A master, two replicas and three sentinels: the store finds the current master.

use std::time::Instant;

use crate::support::load::{MAX_CALL, failure_of, hasty, load};
use crate::support::timeline::Timeline;
use crate::support::{self, RUNTIME, SHORT_PAUSES, build};
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store};
use tidegate::{Key, Limit, ManualClock, Micros, Name};
use tidegate_redis::{Builder, RedisFailure, RedisStore};
use tidegate_testkit::servers::{Reply, SentinelSet, Server, Tally, eventually};

/// An instant of no importance, in 2023.
const START: Micros = Micros::new(1_700_000_003_123_457);

const CALLERS: u64 = 16;

/// By a clock that stands still, exactly its burst is admitted.
const BURST: u64 = 1_000;
const LIMIT: Limit = Limit::per_hour(BURST);

fn builder_on(set: &SentinelSet) -> Builder {
    let hosts: Vec<String> = set.sentinel_addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), set.master_name());
    support::builder(&url).clock(ManualClock::at(START))
}

/// How many failovers the sentinels have begun: on a busy machine, perhaps one
/// that no test asked for.
fn failovers(set: &SentinelSet) -> u64 {
    let sentinel = (0..3).map(|index| set.sentinel(index)).find(|sentinel| sentinel.is_running());
    let info = sentinel.expect("a sentinel that runs").command(&["SENTINEL", "MASTER", set.master_name()]);
    let mut words = info.items().iter().map(Reply::text);
    words.find(|word| word == "config-epoch").and_then(|_| words.next()?.parse().ok()).expect("an epoch")
}

/// Something happens to the master under load; what came of it once the limit
/// is used up, by which time callers are answered again.
fn befalls(what: &str, happens: impl FnOnce(&SentinelSet, usize)) -> Tally {
    let set = SentinelSet::start();
    let store = build(hasty(builder_on(&set)));
    let load = load(&store, CALLERS as usize, "alice", &[LIMIT]);
    load.wait_for_admitted(BURST / 3);
    let began = Instant::now();
    happens(&set, set.current_master());
    let healed = began.elapsed();
    let recovered = load.wait_for_answers(CALLERS);
    let tally = load.exhaust();
    println!("{what}: another master after {healed:?}, answers {recovered:?} later; {tally}");
    assert!(tally.longest < MAX_CALL, "{what}: {tally}");
    assert!(tally.admitted + tally.in_doubt >= BURST, "{what}: {tally}");
    let failovers = failovers(&set);
    assert!(failovers > 0 && tally.admitted <= (1 + failovers) * BURST, "{what}: {tally}, {failovers} failovers");
    tally
}

async fn charge(store: &RedisStore) -> Result<Verdict, RedisFailure> {
    let (meter, key) = (Meter::new(Name::literal("rule"), LIMIT), Key::from("alice"));
    let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a cost of one");
    let mut verdicts = [Verdict::default()];
    let decided = store.decide(&[check], &mut verdicts).await;
    decided.map(|_| verdicts[0]).map_err(|error| failure_of(&error))
}

/// A server, and a store on it whose deadlines expire when the test says so.
fn server_and_store(timeline: &Timeline, directives: &[(&str, &str)]) -> (Server, RedisStore) {
    let server = Server::start_with(directives);
    let builder = support::builder(&server.url()).clock(ManualClock::at(START)).breaker(SHORT_PAUSES);
    let store = timeline.build(builder);
    timeline.run(charge(&store)).expect("an answer");
    (server, store)
}

fn until_answered(timeline: &Timeline, store: &RedisStore) -> Verdict {
    eventually("an answer", || timeline.run(charge(store)).map_err(|failure| failure.to_string()))
}

#[test]
fn a_failover_costs_at_most_another_burst() {
    befalls("failover", |set, _| _ = set.failover());
}

#[test]
fn a_killed_master_is_replaced_and_costs_at_most_another_burst() {
    befalls("kill", |set, master| {
        set.server(master).kill();
        set.wait_for_another_master(master);
    });
}

#[test]
fn a_master_that_hangs_is_replaced_and_costs_at_most_another_burst() {
    befalls("pause", |set, master| {
        set.server(master).pause();
        set.wait_for_another_master(master);
    });
}

#[test]
fn a_hanging_sentinel_does_not_hide_the_new_master() {
    befalls("kill beside a sentinel that hangs", |set, master| {
        set.sentinel(0).pause();
        set.server(master).kill();
        set.wait_for_another_master(master);
    });
}

#[test]
fn a_demoted_master_is_left_for_the_new_one() {
    let set = SentinelSet::start();
    let store = build(builder_on(&set));
    let charge = || RUNTIME.block_on(charge(&store));
    charge().expect("an answer");
    let before = set.current_master();
    let after = set.failover();
    // Sentinels close the connections of whom they demote; here they stay.
    let port = set.server(after).port().to_string();
    set.server(before).command(&["REPLICAOF", "127.0.0.1", &port]);
    let began = Instant::now();
    eventually("an answer of the new master", || charge().map_err(|failure| failure.to_string()));
    println!("a demoted master: left for the new one after {:?}", began.elapsed());
    let commands = |server: &Server| server.info("commandstats", "cmdstat_evalsha");
    let counted = commands(set.server(after));
    charge().expect("an answer");
    assert_ne!(commands(set.server(after)), counted, "it is the new one that is asked");
}

#[test]
fn a_server_that_is_no_master_is_a_failure_in_time_until_it_is_one() {
    let timeline = Timeline::start();
    let ((server, store), other) = (server_and_store(&timeline, &[]), Server::start());
    support::demote(&server, &other);
    let last_word = timeline.run_out_of_time(&store, charge(&store)).expect("nothing can be written");
    assert!(last_word.contains("read only"), "{last_word}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_answered(&timeline, &store);
}

#[test]
fn a_busy_server_is_waited_for_within_the_deadline() {
    let timeline = Timeline::start();
    let (server, store) = server_and_store(&timeline, &[("busy-reply-threshold", "5")]);
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_command(&["EVAL", "while true do end", "0"]));
        let last_word = eventually("the server to be busy", || timeline.run_out_of_time(&store, charge(&store)));
        server.command(&["SCRIPT", "KILL"]);
        assert!(last_word.to_lowercase().contains("busy"), "{last_word}");
    });
    until_answered(&timeline, &store);
}

#[test]
fn a_server_that_loads_its_data_is_waited_for_within_the_deadline() {
    let timeline = Timeline::start();
    let directives = [("enable-debug-command", "yes"), ("loading-process-events-interval-bytes", "1024")];
    let (server, store) = server_and_store(&timeline, &directives);
    server.command(&["DEBUG", "POPULATE", "10000"]);
    // Microseconds a key: ten seconds of loading, unless it is told to hurry.
    server.command(&["CONFIG", "SET", "key-load-delay", "1000"]);
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_command(&["DEBUG", "RELOAD"]));
        let last_word = eventually("the server to load", || timeline.run_out_of_time(&store, charge(&store)));
        server.command(&["CONFIG", "SET", "key-load-delay", "0"]);
        assert!(last_word.contains("loading"), "{last_word}");
    });
    assert!(until_answered(&timeline, &store).remaining < BURST - 1, "nothing was forgotten");
}
