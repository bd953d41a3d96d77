//! A master, two replicas and three sentinels: whoever is the master is found.

mod support;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::load::{SLACK, failure_of, load};
use support::{RUNTIME, build};
use tidegate::kernel::{Verb, Verdict};
use tidegate::{Check, Key, Limit, ManualClock, Meter, Micros, Name, Store};
use tidegate_redis::{RedisFailure, RedisStore};
use tidegate_testkit::servers::{SentinelSet, Server, Tally, eventually};

/// One for all tests, one at a time: they end masters.
static SET: LazyLock<Mutex<SentinelSet>> = LazyLock::new(|| {
    let set = SentinelSet::start();
    println!("running on a sentinel set of {}", set.server(0).program().version());
    Mutex::new(set)
});

const DEADLINE: Duration = Duration::from_millis(200);

/// How long anything may take that comes about by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// An instant of no importance, in 2023.
const START: Micros = Micros::new(1_700_000_003_123_457);

const CALLERS: u64 = 16;

/// By a clock that stands still, exactly its burst is admitted.
const BURST: u64 = 1_000;
const LIMIT: Limit = Limit::per_hour(BURST);

/// The set, with every server running.
fn set() -> MutexGuard<'static, SentinelSet> {
    let set = SET.lock().unwrap_or_else(PoisonError::into_inner);
    for server in
        (0..3).flat_map(|index| [set.server(index), set.sentinel(index)]).filter(|server| !server.is_running())
    {
        server.restart();
    }
    set.wait_until_healthy();
    set
}

fn store_on(set: &SentinelSet) -> RedisStore {
    let hosts: Vec<String> = set.sentinel_addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), set.master_name());
    build(support::builder(&url).deadline(DEADLINE).clock(ManualClock::at(START)))
}

/// Something happens to the master under load; what came of it once the limit
/// is used up, by which time callers are answered again.
fn befalls(what: &str, happens: impl FnOnce(&SentinelSet, usize)) -> Tally {
    let set = set();
    let store = store_on(&set);
    let load = load(&store, CALLERS as usize, "alice", &[LIMIT]);
    load.wait_for_admitted(BURST / 3);
    let began = Instant::now();
    happens(&set, set.current_master());
    let healed = began.elapsed();
    let recovered = load.wait_for_answers(CALLERS);
    let tally = load.exhaust();
    println!("{what}: another master after {healed:?}, answers {recovered:?} later; {tally}");
    assert!(tally.longest < DEADLINE + SLACK, "{what}: {tally}");
    assert!(tally.admitted + tally.in_doubt >= BURST, "{what}: {tally}");
    assert!(tally.admitted <= 2 * BURST, "{what}: {tally}");
    tally
}

fn charge(store: &RedisStore) -> Result<Verdict, RedisFailure> {
    let (meter, key) = (Meter::new(Name::literal("rule"), LIMIT), Key::from("alice"));
    let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a cost of one");
    let mut verdicts = [Verdict::default()];
    let decided = RUNTIME.block_on(store.decide(&[check], &mut verdicts));
    decided.map(|_| verdicts[0]).map_err(|error| failure_of(&error))
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
fn a_sentinel_that_hangs_keeps_nobody_from_the_new_master() {
    befalls("kill beside a sentinel that hangs", |set, master| {
        set.sentinel(0).pause();
        set.server(master).kill();
        set.wait_for_another_master(master);
    });
}

#[test]
fn a_demoted_master_is_left_for_the_new_one() {
    // One of its own: sentinels are long confused by what is done here.
    let set = SentinelSet::start();
    let store = store_on(&set);
    charge(&store).expect("an answer");
    let before = set.current_master();
    let after = set.failover();
    // Sentinels close the connections of whom they demote; here they stay.
    let port = set.server(after).port().to_string();
    set.server(before).command(&["REPLICAOF", "127.0.0.1", &port]);
    let began = Instant::now();
    eventually("an answer of the new master", PATIENCE, || charge(&store).map_err(|failure| failure.to_string()));
    println!("a demoted master: left for the new one after {:?}", began.elapsed());
    let commands = |server: &Server| server.info("commandstats", "cmdstat_evalsha");
    let counted = commands(set.server(after));
    charge(&store).expect("an answer");
    assert_ne!(commands(set.server(after)), counted, "it is the new one that is asked");
}

#[test]
fn a_server_that_is_no_master_is_a_failure_in_time_until_it_is_one() {
    let (server, other) = (Server::start(), Server::start());
    let store = build(support::builder(&server.url()).deadline(DEADLINE));
    charge(&store).expect("an answer");
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let began = Instant::now();
    let failure = charge(&store).expect_err("nothing can be written");
    assert!(began.elapsed() < DEADLINE + SLACK, "{:?}", began.elapsed());
    assert!(
        matches!(&failure, RedisFailure::Deadline { last_word, .. } if last_word.contains("read only")),
        "{failure:?}"
    );
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("an answer", PATIENCE, || charge(&store).map_err(|failure| failure.to_string()));
}

#[test]
fn a_busy_server_is_waited_for_within_the_deadline() {
    let server = Server::start_with(&[("busy-reply-threshold", "5")]);
    let store = build(support::builder(&server.url()).deadline(DEADLINE));
    charge(&store).expect("an answer");
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_command(&["EVAL", "while true do end", "0"]));
        let failure = eventually("the server to be busy", PATIENCE, || match charge(&store) {
            Err(RedisFailure::Deadline { last_word, .. })
                if last_word.contains("BUSY") || last_word.contains("busy") =>
            {
                Ok(last_word)
            }
            other => Err(format!("{other:?}")),
        });
        println!("busy: {failure}");
        server.command(&["SCRIPT", "KILL"]);
    });
    eventually("an answer", PATIENCE, || charge(&store).map_err(|failure| failure.to_string()));
}

#[test]
fn a_server_that_loads_its_data_is_waited_for_within_the_deadline() {
    let server =
        Server::start_with(&[("enable-debug-command", "yes"), ("loading-process-events-interval-bytes", "1024")]);
    let store = build(support::builder(&server.url()).deadline(DEADLINE));
    charge(&store).expect("an answer");
    server.command(&["DEBUG", "POPULATE", "10000"]);
    // Microseconds a key: a second of loading, and longer where sleeps are coarse.
    server.command(&["CONFIG", "SET", "key-load-delay", "200"]);
    // More than comes back while a busy machine loads: a unit in 3.6 s.
    for _ in 0..50 {
        charge(&store).expect("an answer");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_command(&["DEBUG", "RELOAD"]));
        let failure = eventually("the server to load", PATIENCE, || match charge(&store) {
            Err(RedisFailure::Deadline { last_word, .. }) if last_word.contains("loading") => Ok(last_word),
            other => Err(format!("{other:?}")),
        });
        println!("loading: {failure}");
    });
    let after = eventually("an answer", PATIENCE, || charge(&store).map_err(|failure| failure.to_string()));
    assert!(after.remaining < BURST - 25, "nothing was forgotten: {} are left of {BURST}", after.remaining);
}
