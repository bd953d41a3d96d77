//! Servers that stall, drop, refuse and come back: nobody waits past the
//! deadline, nothing is charged twice, and it recovers by itself.

mod support;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::RUNTIME;
use support::listener::Listener;
use tidegate::{CheckError, CountingObserver, Decision, FailureMode, Limit, Limiter, Policy, Request, StoreError};
use tidegate_redis::{BreakerSettings, RedisFailure, RedisStore};
use tidegate_testkit::servers::{ChaosProxy, Connection, Fault, Server, eventually};

/// Short enough to be waited for many times, long enough for a busy machine.
const DEADLINE: Duration = Duration::from_millis(250);

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(3);

const RECOVERY: Duration = Duration::from_secs(20);

fn store(url: &str) -> RedisStore {
    let breaker = BreakerSettings {
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        ..BreakerSettings::default()
    };
    support::build(support::builder(url).deadline(DEADLINE).breaker(breaker))
}

fn limiter(store: &RedisStore) -> Limiter<RedisStore> {
    Limiter::with_store(Limit::per_hour(1_000), store.clone()).expect("a valid policy")
}

/// Runs to the end, which must come within the deadline.
fn in_time<T>(future: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let output = RUNTIME.block_on(future);
    assert!(began.elapsed() < DEADLINE + SLACK, "took {:?}", began.elapsed());
    output
}

fn failure_of<T: Debug>(outcome: Result<T, CheckError>) -> RedisFailure {
    match outcome {
        Err(CheckError::Store(StoreError::Failed { source })) => {
            source.downcast_ref::<RedisFailure>().expect("the store's own failure").clone()
        }
        other => panic!("expected a failure of the store, got {other:?}"),
    }
}

/// Asks until the servers answer again.
fn until_answered(limiter: &Limiter<RedisStore>, key: &str) -> Decision {
    eventually("an answer", RECOVERY, || in_time(limiter.peek_async(key)))
}

/// Asks until it fails otherwise than by being turned away.
fn until_failed(limiter: &Limiter<RedisStore>, key: &str) -> RedisFailure {
    eventually("a failure", RECOVERY, || match in_time(limiter.check_async(key)) {
        Err(error) => match failure_of::<Decision>(Err(error)) {
            RedisFailure::Away { next_attempt } => Err(format!("away for {next_attempt:?}")),
            failure => Ok(failure),
        },
        Ok(decision) => Err(format!("{decision:?}")),
    })
}

#[test]
fn starts_without_a_server_and_works_when_there_is_one() {
    let server = Server::start();
    server.kill();
    let limiter = limiter(&store(&server.url()));
    assert!(matches!(failure_of(in_time(limiter.check_async("alice"))), RedisFailure::Connection { .. }));
    server.restart();
    assert_eq!(until_answered(&limiter, "alice").remaining(), 1_000);
}

#[test]
fn a_restart_loses_script_and_states_and_nothing_else() {
    let server = Server::start();
    let limiter = limiter(&store(&server.url()));
    assert_eq!(in_time(limiter.check_async("alice")).expect("an answer").remaining(), 999);
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(in_time(limiter.check_async("alice")).expect("the script is sent again").remaining(), 998);
    server.kill();
    let _ = in_time(limiter.check_async("alice"));
    server.restart();
    assert_eq!(until_answered(&limiter, "alice").remaining(), 1_000);
}

#[test]
fn no_fault_on_the_way_holds_anyone_past_the_deadline() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let faults = [
        Fault::Stall,
        Fault::SwallowReplies,
        Fault::Reset,
        Fault::HalfClose,
        Fault::Drip(Duration::from_millis(50)),
        Fault::Delay(DEADLINE * 4),
    ];
    for fault in faults {
        let store = store(&proxy.url());
        let limiter = limiter(&store);
        let _ = in_time(limiter.check_async("alice")).unwrap_or_else(|error| panic!("before {fault:?}: {error:?}"));
        proxy.set(fault);
        for _ in 0..20 {
            let _ = in_time(limiter.check_async("alice"));
        }
        let outcome = failure_of(in_time(limiter.check_async("alice")));
        proxy.set(Fault::None);
        let _ = until_answered(&limiter, "alice");
        assert!(store.statistics().away == 0, "{fault:?} ended in {outcome:?}");
    }
}

#[test]
fn a_charge_whose_reply_was_lost_is_charged_once() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let limiter = limiter(&store(&proxy.url()));
    let mut charged = 0;
    for round in 0..10 {
        let _ = until_answered(&limiter, "alice");
        if round % 2 == 0 {
            proxy.reset_after_next_request();
        } else {
            proxy.set(Fault::SwallowReplies);
        }
        until_failed(&limiter, "alice");
        charged += 1;
        proxy.set(Fault::None);
        assert_eq!(until_answered(&limiter, "alice").remaining(), 1_000 - charged, "round {round}");
    }
}

#[test]
fn an_outage_costs_one_deadline_and_not_one_for_each_request() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let breaker = BreakerSettings { first_pause: RECOVERY, longest_pause: RECOVERY, ..BreakerSettings::default() };
    let store = support::build(support::builder(&proxy.url()).deadline(DEADLINE).breaker(breaker));
    let limiter = limiter(&store);
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    proxy.set(Fault::Stall);
    assert!(matches!(failure_of(in_time(limiter.check_async("alice"))), RedisFailure::Deadline { .. }));
    for _ in 0..1_000 {
        assert!(matches!(failure_of(in_time(limiter.check_async("alice"))), RedisFailure::Away { .. }));
    }
    let statistics = store.statistics();
    assert_eq!((statistics.failures, statistics.turned_away, statistics.outages), (1, 1_000, 1));
    assert_eq!(statistics.away, 1);
}

#[test]
fn a_paused_server_is_found_again() {
    let server = Server::start();
    let limiter = limiter(&store(&server.url()));
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    server.pause();
    assert!(matches!(failure_of(in_time(limiter.check_async("alice"))), RedisFailure::Deadline { .. }));
    server.resume();
    // The charge may have been carried out when the server woke up, once.
    assert!((998..=999).contains(&until_answered(&limiter, "alice").remaining()));
}

#[test]
fn a_replica_is_not_written_to_and_a_promoted_one_is() {
    let (master, server) = (Server::start(), Server::start());
    let limiter = limiter(&store(&server.url()));
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let failure = until_failed(&limiter, "alice");
    assert!(failure.to_string().contains("ReadOnly"), "{failure}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let _ = until_answered(&limiter, "alice");
}

#[test]
fn a_server_busy_with_a_script_is_waited_for_until_the_deadline() {
    let server = Server::start_with(&[("busy-reply-threshold", "20")]);
    let limiter = limiter(&store(&server.url()));
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    let mut other = Connection::open(server.address(), RECOVERY).expect("a connection");
    other.send(&["EVAL", "while true do end", "0"]).expect("sent");
    let failure = until_failed(&limiter, "alice");
    assert!(failure.to_string().contains("BUSY") || failure.to_string().contains("nothing"), "{failure}");
    eventually("the script killed", RECOVERY, || match server.try_command(&["SCRIPT", "KILL"]) {
        Ok(reply) if !reply.is_error() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let _ = until_answered(&limiter, "alice");
}

#[test]
fn a_full_server_says_so_and_charges_nothing() {
    let server = Server::start();
    let limiter = limiter(&store(&server.url()));
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let failure = failure_of(in_time(limiter.check_async("alice")));
    assert!(matches!(&failure, RedisFailure::Refused { .. }) && failure.to_string().contains("OOM"), "{failure}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(until_answered(&limiter, "alice").remaining(), 999);
}

/// All limits go by their failure modes then: somebody should hear of it.
#[test]
fn a_server_that_decides_nothing_is_told_of_once() {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let server = Server::start();
    let limiter = limiter(&store(&server.url()));
    let _ = in_time(limiter.check_async("alice")).expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    tracing::subscriber::with_default(Listener(&SAID), || {
        for _ in 0..100 {
            assert!(matches!(failure_of(in_time(limiter.check_async("alice"))), RedisFailure::Refused { .. }));
        }
    });
    assert_eq!(SAID.load(Ordering::Relaxed), 1);
}

#[test]
fn a_key_of_another_kind_is_an_error_that_says_what_to_do() {
    let server = Server::start();
    for limit in ["2/s", "fixed 2/s", "sliding 2/s", "sliding-log 2/s"] {
        let limit: Limit = limit.parse().expect("a limit");
        let store = RedisStore::builder(tidegate_redis::Servers::parse(&server.url()).expect("a URL"));
        let store = support::build(store.prefix("foreign").deadline(Duration::from_secs(10)));
        let limiter = Limiter::with_store(limit, store).expect("a valid policy");
        let name = format!("foreign:{{alice}}::{limit}");
        for foreign in
            [["HSET", &name, "a", "b"].as_slice(), &["SET", &name, "hello"], &["RPUSH", &name, "a", "b", "c"]]
        {
            server.command(&["DEL", &name]);
            server.command(foreign);
            let failure = failure_of(RUNTIME.block_on(limiter.check_async("alice")));
            assert!(matches!(failure, RedisFailure::ForeignKey { .. }), "{limit} {foreign:?}: {failure:?}");
            assert!(failure.to_string().contains("delete it"), "{failure}");
        }
    }
}

#[test]
fn every_rule_fails_as_it_was_told_and_observers_hear_of_it() {
    let server = Server::start();
    let counts = Arc::new(CountingObserver::default());
    let make = |policy: Policy, mode| {
        let builder = Limiter::builder(policy).store(store(&server.url())).observer(counts.clone());
        builder.on_failure(mode).build().expect("a valid policy")
    };
    let open = make(Limit::per_hour(3).into(), FailureMode::Open);
    let closed = make(Limit::per_hour(3).into(), FailureMode::Closed);
    let local = make(Limit::per_hour(8).into(), FailureMode::local(4));
    for limiter in [&open, &closed, &local] {
        let decision = in_time(limiter.check_async("alice")).expect("an answer");
        assert!(decision.is_allowed() && !decision.is_degraded());
    }
    server.kill();
    let admitted = |limiter: &Limiter<RedisStore>| {
        (0..10)
            .filter(|_| {
                let decision = in_time(limiter.check_async("alice")).expect("a stand-in answers");
                assert!(decision.is_degraded());
                decision.is_allowed()
            })
            .count()
    };
    assert_eq!((admitted(&open), admitted(&closed), admitted(&local)), (10, 0, 2));
    assert_eq!((counts.degraded(), counts.allowed(), counts.refused()), (30, 15, 18));
    server.restart();
    let decision = eventually("the server's own answer", RECOVERY, || {
        let decision = in_time(closed.check_async("alice")).map_err(|error| error.to_string())?;
        if decision.is_degraded() { Err("degraded".to_owned()) } else { Ok(decision) }
    });
    assert!(decision.is_allowed());
}

#[test]
fn a_cost_beyond_the_limit_is_an_error_whether_the_server_is_there_or_not() {
    let server = Server::start();
    let limiter = limiter(&store(&server.url()));
    for _ in 0..2 {
        let outcome = in_time(limiter.check_async(Request::new("alice").cost(1_001)));
        assert!(matches!(outcome, Err(CheckError::Unsatisfiable { cost: 1_001, capacity: 1_000, .. })));
        server.kill();
    }
}

#[test]
fn a_limit_that_is_changed_in_an_outage_counts_on() {
    let server = Server::start();
    let builder = Limiter::builder(Limit::per_hour(8)).store(store(&server.url()));
    let limiter = builder.on_failure(FailureMode::local(2)).build().expect("a valid policy");
    server.kill();
    let admitted =
        || (0..20).filter(|_| in_time(limiter.check_async("alice")).expect("a stand-in answers").is_allowed()).count();
    assert_eq!(admitted(), 4);
    limiter.set_policy(Limit::per_hour(10)).expect("a valid policy");
    assert_eq!(admitted(), 1, "its share is one more");
    limiter.set_policy(Limit::per_hour(4)).expect("a valid policy");
    assert_eq!(admitted(), 0);
}
