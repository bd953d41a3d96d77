//! Servers that stall, drop, refuse and come back: no call waits past the
//! deadline, nothing is charged twice, and it recovers by itself.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::listener::listen;
use crate::support::timeline::{RESOLUTION, Timeline, skip};
use crate::support::{self, RUNTIME, SHORT_PAUSES};
use tidegate::store::StoreError;
use tidegate::{CheckError, CountingObserver, Decision, FailureMode, Limit, Limiter, Policy, Request};
use tidegate_redis::{BreakerSettings, RedisFailure, RedisStore};
use tidegate_testkit::servers::{ChaosProxy, Connection, Fault, GUARD, Server, eventually};

/// A unit comes back after a quarter of an hour, which no machine is slow enough for.
const LIMIT: Limit = Limit::per_day(100);

fn on(store: RedisStore) -> Limiter<RedisStore> {
    Limiter::with_store(LIMIT, store).expect("a valid policy")
}

fn limiter(url: &str) -> Limiter<RedisStore> {
    on(support::build(support::builder(url)))
}

/// A limiter whose deadlines expire when the test says so.
fn limiter_on(timeline: &Timeline, url: &str) -> Limiter<RedisStore> {
    on(timeline.build(support::builder(url).breaker(SHORT_PAUSES)))
}

fn check(limiter: &Limiter<RedisStore>) -> Result<Decision, CheckError> {
    RUNTIME.block_on(limiter.check_async("alice"))
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
fn until_answered(limiter: &Limiter<RedisStore>) -> Decision {
    eventually("an answer", || RUNTIME.block_on(limiter.peek_async("alice")))
}

/// The same where an attempt may get no answer: each is given up after twice
/// the time of the one before.
fn until_answered_on(timeline: &Timeline, limiter: &Limiter<RedisStore>) -> Decision {
    let mut attempt = Duration::from_millis(50);
    eventually("an answer", || {
        let began = Instant::now();
        attempt *= 2;
        timeline.run_ahead_once(|| began.elapsed() > attempt, limiter.peek_async("alice")).0
    })
}

/// A server that answers only that it cannot decide: what it said last.
fn out_of_time(timeline: &Timeline, limiter: &Limiter<RedisStore>) -> Result<String, String> {
    let call = async { limiter.check_async("alice").await.map_err(|error| failure_of::<Decision>(Err(error))) };
    timeline.run_out_of_time(limiter.store(), call)
}

#[test]
fn starts_without_a_server_and_works_when_there_is_one() {
    let server = Server::start();
    server.kill();
    let limiter = limiter(&server.url());
    assert!(matches!(failure_of(check(&limiter)), RedisFailure::Connection { .. }));
    server.restart();
    assert_eq!(until_answered(&limiter).remaining(), Some(100));
}

#[test]
fn a_restart_loses_script_and_states_and_nothing_else() {
    let server = Server::start();
    let limiter = limiter(&server.url());
    assert_eq!(check(&limiter).expect("an answer").remaining(), Some(99));
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(check(&limiter).expect("the script is sent again").remaining(), Some(98));
    server.kill();
    let _ = check(&limiter);
    server.restart();
    assert_eq!(until_answered(&limiter).remaining(), Some(100));
}

#[test]
fn no_network_fault_holds_a_call_past_its_deadline() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let faults = [
        Fault::Stall,
        Fault::SwallowReplies,
        Fault::Reset,
        Fault::HalfClose,
        Fault::Drip(Duration::from_millis(50)),
        Fault::Delay(GUARD),
    ];
    for fault in faults {
        let timeline = Timeline::start();
        let limiter = limiter_on(&timeline, &proxy.url());
        let check = || limiter.check_async("alice");
        let _ = timeline.run(check()).unwrap_or_else(|error| panic!("before {fault:?}: {error:?}"));
        proxy.set(fault);
        for _ in 0..20 {
            let (outcome, took) = timeline.run_ahead(check());
            let failure = failure_of(outcome);
            assert!(took <= GUARD + RESOLUTION, "{fault:?}: {failure:?} after {took:?}");
            // Every second one is a probe.
            if matches!(failure, RedisFailure::Away { .. }) {
                timeline.run(skip(SHORT_PAUSES.longest_pause));
            }
        }
        proxy.set(Fault::None);
        let _ = until_answered_on(&timeline, &limiter);
        assert_eq!(limiter.store().statistics().away, 0, "{fault:?}");
    }
}

#[test]
fn a_charge_whose_reply_was_lost_is_charged_once() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &proxy.url());
    let state = || server.command(&["GET", &server.command(&["KEYS", "*"]).items()[0].text()]);
    let _ = timeline.run(limiter.check_async("alice")).expect("an answer");
    for charged in 2..=11 {
        let _ = until_answered_on(&timeline, &limiter);
        if charged % 2 == 0 {
            proxy.reset_after_next_request();
            assert!(timeline.run(limiter.check_async("alice")).is_err());
        } else {
            let before = state();
            proxy.set(Fault::SwallowReplies);
            let (outcome, _) = timeline.run_ahead_once(|| state() != before, limiter.check_async("alice"));
            assert!(outcome.is_err());
            proxy.set(Fault::None);
        }
        assert_eq!(until_answered_on(&timeline, &limiter).remaining(), Some(100 - charged));
    }
}

/// A server that answers one check, with this error, and then hangs.
fn hanging_after(error: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let mut error = Some(error);
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a socket")).split(b'\n');
            for line in lines.map_while(Result::ok) {
                let reply = match line.as_slice() {
                    b"CLIENT\r" => "+OK\r\n",
                    b"EVALSHA\r" => error.take().unwrap_or_default(),
                    _ => "",
                };
                stream.write_all(reply.as_bytes()).expect("sent");
            }
        }
    });
    address
}

/// A word that says to send the call again is no answer to that.
#[test]
fn a_server_that_hangs_after_a_word_is_a_failure() {
    for error in ["-TRYAGAIN keys are moved\r\n", "-NOSCRIPT no such script\r\n", "-LOADING the dataset\r\n"] {
        let timeline = Timeline::start();
        let limiter = limiter_on(&timeline, &format!("redis://{}", hanging_after(error)));
        let is_told = || limiter.store().statistics().round_trips > 1;
        let (outcome, _) = timeline.run_ahead_once(is_told, limiter.check_async(Request::new("alice").id("once")));
        let failure = failure_of(outcome);
        assert!(matches!(failure, RedisFailure::Deadline { .. }), "{error}: {failure:?}");
        let statistics = limiter.store().statistics();
        assert_eq!((statistics.failures, statistics.refused, statistics.refusing), (1, 0, false), "{error}");
    }
}

/// The default breaker, but that a pause lasts as long as the test runs by the real clock.
fn patient_breaker() -> BreakerSettings {
    BreakerSettings { first_pause: GUARD, longest_pause: GUARD, ..BreakerSettings::default() }
}

/// So many calls that are answered, one after the other.
fn answered(timeline: &Timeline, limiter: &Limiter<RedisStore>, calls: u32) {
    timeline.run(async {
        for call in 0..calls {
            let decision = limiter.check_async("alice").await;
            assert!(decision.is_ok(), "call {call}: {decision:?}");
        }
    });
}

/// So many calls side by side, none of which is answered within its deadline.
fn time_out_together(timeline: &Timeline, limiter: &Limiter<RedisStore>, calls: u32) {
    timeline.run_ahead(async {
        let check = || {
            let limiter = limiter.clone();
            tokio::spawn(async move { failure_of(limiter.check_async("alice").await) })
        };
        for call in (0..calls).map(|_| check()).collect::<Vec<_>>() {
            let failure = call.await.expect("it ran");
            assert!(matches!(failure, RedisFailure::Deadline { .. }), "{failure:?}");
        }
    });
}

/// Failures, calls that were refused at once, and outages.
fn counts(limiter: &Limiter<RedisStore>) -> (u64, u64, u64) {
    let statistics = limiter.store().statistics();
    (statistics.failures, statistics.calls_skipped, statistics.outages)
}

#[test]
fn an_outage_costs_a_few_deadlines_and_not_one_for_each_request() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let limiter = on(timeline.build(support::builder(&proxy.url()).breaker(patient_breaker())));
    answered(&timeline, &limiter, 1_000);
    proxy.set(Fault::Stall);
    let failure = || failure_of(timeline.run_ahead(limiter.check_async("alice")).0);
    for _ in 0..patient_breaker().failures {
        // A call that waits for another connection hears that it was not opened in time.
        assert!(matches!(failure(), RedisFailure::Deadline { .. } | RedisFailure::Connection { .. }));
    }
    for _ in 0..1_000 {
        assert!(matches!(failure(), RedisFailure::Away { .. }));
    }
    assert_eq!(counts(&limiter), (patient_breaker().failures.into(), 1_000, 1));
    assert_eq!(limiter.store().statistics().away, 1);
}

#[test]
fn a_dead_server_opens_the_breaker_after_a_few_calls() {
    let server = Server::start();
    let timeline = Timeline::start();
    let limiter = on(timeline.build(support::builder(&server.url()).breaker(patient_breaker())));
    answered(&timeline, &limiter, 1_000);
    server.kill();
    let failure = || failure_of(timeline.run(limiter.check_async("alice")));
    for _ in 0..patient_breaker().failures {
        assert!(matches!(failure(), RedisFailure::Connection { .. }));
    }
    assert!(matches!(failure(), RedisFailure::Away { .. }));
    assert_eq!(counts(&limiter), (patient_breaker().failures.into(), 1, 1));
}

/// A busy server that misses a deadline now and then: no other call fails.
#[test]
fn three_timeouts_among_thousands_of_calls_leave_the_breaker_closed() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let limiter = on(timeline.build(support::builder(&proxy.url()).breaker(patient_breaker())));
    for _ in 0..3 {
        answered(&timeline, &limiter, 1_000);
        proxy.set(Fault::Stall);
        time_out_together(&timeline, &limiter, 1);
        proxy.set(Fault::None);
    }
    answered(&timeline, &limiter, 1_000);
    assert_eq!(counts(&limiter), (3, 0, 0));
}

#[test]
fn calls_that_time_out_side_by_side_open_the_breaker_only_as_a_large_share() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    // Deadlines expire by a clock that runs ahead; what came before is still recent.
    let breaker = BreakerSettings { horizon: 100 * GUARD, ..patient_breaker() };
    let limiter = on(timeline.build(support::builder(&proxy.url()).breaker(breaker)));
    answered(&timeline, &limiter, 1_000);
    proxy.set(Fault::Stall);
    time_out_together(&timeline, &limiter, 64);
    proxy.set(Fault::None);
    answered(&timeline, &limiter, 1_000);
    assert_eq!(counts(&limiter), (64, 0, 0));
    proxy.set(Fault::Stall);
    time_out_together(&timeline, &limiter, 2_000);
    assert_eq!(counts(&limiter), (2_064, 0, 1));
    assert!(matches!(failure_of(timeline.run(limiter.check_async("alice"))), RedisFailure::Away { .. }));
}

#[test]
fn a_paused_server_is_found_again() {
    let server = Server::start();
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &server.url());
    let _ = timeline.run(limiter.check_async("alice")).expect("an answer");
    server.pause();
    let (outcome, took) = timeline.run_ahead(limiter.check_async("alice"));
    assert!(matches!(failure_of(outcome), RedisFailure::Deadline { .. }));
    assert!(took <= GUARD + RESOLUTION, "took {took:?}");
    server.resume();
    // The charge may have been carried out when the server woke up, once.
    assert!((98..=99).contains(&until_answered_on(&timeline, &limiter).remaining().expect("a limit")));
}

#[test]
fn a_replica_is_not_written_to_and_a_promoted_one_is() {
    let (master, server) = (Server::start(), Server::start());
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &server.url());
    let _ = timeline.run(limiter.check_async("alice")).expect("an answer");
    support::demote(&server, &master);
    let last_word = out_of_time(&timeline, &limiter).expect("nothing can be written");
    assert!(last_word.contains("ReadOnly"), "{last_word}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let _ = until_answered_on(&timeline, &limiter);
}

#[test]
fn a_server_busy_with_a_script_is_waited_for_until_the_deadline() {
    let server = Server::start_with(&[("busy-reply-threshold", "20")]);
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &server.url());
    let _ = timeline.run(limiter.check_async("alice")).expect("an answer");
    let mut other = Connection::open(server.address()).expect("a connection");
    other.send(&["EVAL", "while true do end", "0"]).expect("sent");
    let last_word = eventually("the server to be busy", || out_of_time(&timeline, &limiter));
    assert!(last_word.contains("BUSY"), "{last_word}");
    server.command(&["SCRIPT", "KILL"]);
    let _ = until_answered_on(&timeline, &limiter);
}

#[test]
fn a_full_server_says_so_and_charges_nothing() {
    let server = Server::start();
    let limiter = limiter(&server.url());
    let _ = check(&limiter).expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let failure = failure_of(check(&limiter));
    assert!(matches!(&failure, RedisFailure::Refused { .. }) && failure.to_string().contains("OOM"), "{failure}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(until_answered(&limiter).remaining(), Some(99));
}

/// All limits go by their failure modes then: the log should say so.
#[test]
fn a_server_that_decides_nothing_is_told_of_once() {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let server = Server::start();
    let limiter = limiter(&server.url());
    let _ = check(&limiter).expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    listen(&SAID, || {
        for _ in 0..100 {
            assert!(matches!(failure_of(check(&limiter)), RedisFailure::Refused { .. }));
        }
    });
    assert_eq!(SAID.load(Ordering::Relaxed), 1);
}

#[test]
fn a_key_of_another_kind_is_an_error_that_says_what_to_do() {
    let server = Server::start();
    for limit in ["2/s", "fixed 2/s", "sliding 2/s", "sliding-log 2/s"] {
        let limit: Limit = limit.parse().expect("a limit");
        let store = support::build(support::builder(&server.url()).prefix("foreign"));
        let limiter = Limiter::with_store(limit, store).expect("a valid policy");
        let name = format!("foreign:{{alice}}::{limit}");
        for foreign in
            [["HSET", &name, "a", "b"].as_slice(), &["SET", &name, "hello"], &["RPUSH", &name, "a", "b", "c"]]
        {
            server.command(&["DEL", &name]);
            server.command(foreign);
            let failure = failure_of(check(&limiter));
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
        let store = support::build(support::builder(&server.url()));
        let builder = Limiter::builder(policy).store(store).observer(counts.clone());
        builder.on_failure(mode).build().expect("a valid policy")
    };
    let open = make(Limit::per_hour(3).into(), FailureMode::Open);
    let closed = make(Limit::per_hour(3).into(), FailureMode::Closed);
    let local = make(Limit::per_hour(8).into(), FailureMode::local(4));
    for limiter in [&open, &closed, &local] {
        let decision = check(limiter).expect("an answer");
        assert!(decision.is_allowed() && !decision.is_degraded());
    }
    server.kill();
    let admitted = |limiter: &Limiter<RedisStore>| {
        (0..10)
            .filter(|_| {
                let decision = check(limiter).expect("the fallback answers");
                assert!(decision.is_degraded());
                decision.is_allowed()
            })
            .count()
    };
    assert_eq!((admitted(&open), admitted(&closed), admitted(&local)), (10, 0, 2));
    assert_eq!((counts.degraded(), counts.allowed(), counts.refused()), (30, 15, 18));
    server.restart();
    let decision = eventually("the server's own answer", || {
        let decision = check(&closed).map_err(|error| error.to_string())?;
        if decision.is_degraded() { Err("degraded".to_owned()) } else { Ok(decision) }
    });
    assert!(decision.is_allowed());
}

#[test]
fn a_cost_beyond_the_limit_is_an_error_whether_the_server_is_there_or_not() {
    let server = Server::start();
    let limiter = limiter(&server.url());
    for _ in 0..2 {
        let outcome = RUNTIME.block_on(limiter.check_async(Request::new("alice").cost(101)));
        assert!(matches!(outcome, Err(CheckError::Unsatisfiable { cost: 101, capacity: 100, .. })));
        server.kill();
    }
}

#[test]
fn a_limit_that_is_changed_in_an_outage_counts_on() {
    let server = Server::start();
    let store = support::build(support::builder(&server.url()));
    let builder = Limiter::builder(Limit::per_hour(8)).store(store);
    let limiter = builder.on_failure(FailureMode::local(2)).build().expect("a valid policy");
    server.kill();
    let admitted = || (0..20).filter(|_| check(&limiter).expect("the fallback answers").is_allowed()).count();
    assert_eq!(admitted(), 4);
    limiter.set_policy(Limit::per_hour(10)).expect("a valid policy");
    assert_eq!(admitted(), 1, "its share is one more");
    limiter.set_policy(Limit::per_hour(4)).expect("a valid policy");
    assert_eq!(admitted(), 0);
}
