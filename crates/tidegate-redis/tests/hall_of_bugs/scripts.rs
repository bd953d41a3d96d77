//! Keys, expiries and scripts on the server: rows 43 to 51, 53 to 55 and 61.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tidegate::{Limit, ManualClock, Micros, Policy, Request};
use tidegate_testkit::servers::{ChaosProxy, Cluster, Connection, Fault, Server, eventually, slot_of};

use super::{ask, failure, limiter, limiter_on, on, passes, remaining};
use crate::support::cluster::{masters, url_of};
use crate::support::timeline::Timeline;
use crate::support::{RUNTIME, SERVER, assert_kept, build, builder, demote};

/// Of a period that ends within no test.
const KINDS: [&str; 6] = [
    "5/1000days",
    "leaky 5/1000days",
    "fixed 5/1000days",
    "fixed 5/1000days from-first",
    "sliding 5/1000days",
    "sliding-log 5/1000days",
];

/// One for all tests that need a cluster: none ends a node.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(masters);

/// redis/redis#4548, Tabcorp/redis-rate-limiter#1: the count was raised and the
/// expiry was not set, so a user was blocked for ever.
#[test]
fn row_43_no_key_is_left_without_an_expiry() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let size = || server.command(&["DBSIZE"]).integer();
    for words in KINDS {
        for round in 0..4 {
            let timeline = Timeline::start();
            let limiter = limiter_on(&timeline, &proxy.url(), words);
            let request = |key| if round < 2 { Request::new(key) } else { Request::new(key).id(key) };
            let _ = timeline.run(limiter.check_async(request("bob"))).expect("the script is known");
            let before = size();
            // However the reply is lost, with an id and without.
            let is_swallowed = round % 2 == 1;
            if is_swallowed {
                proxy.set(Fault::SwallowReplies);
            } else {
                proxy.reset_after_next_request();
            }
            // A reset ends the call; without one, only the deadline does.
            let has_happened = || is_swallowed && size() > before;
            assert!(timeline.run_ahead_once(has_happened, limiter.check_async(request("alice"))).0.is_err());
            assert!(size() > before, "charged, though the reply was lost");
            proxy.set(Fault::None);
        }
    }
    let keys = server.command(&["KEYS", "*"]);
    assert_eq!(keys.items().len(), 12 * KINDS.len(), "eight states of each kind, and four ids");
    for key in keys.items() {
        let name = key.text();
        assert!(server.command(&["PTTL", &name]).integer() > 0, "{name} lives for ever");
    }
}

/// apache/apisix#12605, cristipufu/aspnetcore-redis-rate-limiting#46: the expiry
/// was shorter than the state mattered, and a bucket was full again too soon.
#[test]
fn row_44_a_key_outlives_what_it_remembers() {
    for words in KINDS {
        let server = Server::start();
        let limiter = limiter(&server.url(), words);
        for cost in [1, 3] {
            let began = Instant::now();
            let decision = ask(&limiter, Request::new("alice").cost(cost));
            assert_kept(&server, began + decision.reset_after().expect("a time"), words);
        }
    }
}

/// throttled/throttled#27, brandur/redis-cell#50: for fast rates the expiry was
/// rounded to zero, which is none, or an error.
#[test]
fn row_45_fast_rates_have_an_expiry_too() {
    for words in ["1000000/s", "1000000/s burst 1", "fixed 1000/ms", "sliding 1000/ms", "sliding-log 10/us"] {
        let server = Server::start();
        let limiter = limiter(&server.url(), words);
        assert!(ask(&limiter, "alice".into()).is_allowed(), "{words}");
        let keys = server.command(&["KEYS", "*"]);
        for key in keys.items() {
            let left = server.command(&["PTTL", &key.text()]).integer();
            // Of a key that has just expired, -2; of one without an expiry, -1.
            assert!(left == -2 || (0..60_000).contains(&left), "{words}: {left} ms");
        }
    }
}

/// spring-cloud/spring-cloud-gateway#248, BerriAI/litellm#14968: a script whose
/// keys lay in two slots was an error, the error was swallowed, and everything
/// passed.
#[test]
fn row_46_a_cluster_keeps_limits_that_lie_in_several_slots() {
    let url = url_of(&CLUSTER);
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let by_ip = tidegate::Rule::new("ip", Limit::per_hour(3)).key(["ip"]);
    let by_user = tidegate::Rule::new("user", Limit::per_hour(2)).key(["user"]);
    let limiter = on(build(builder(&url).clock(clock)), Policy::new().rule(by_ip).rule(by_user));
    let users: Vec<String> = (0..8).map(|number| format!("user{number}")).collect();
    let slots: std::collections::BTreeSet<u16> = users.iter().map(|user| slot_of(user.as_bytes())).collect();
    assert!(slots.len() > 4, "in many slots: {slots:?}");
    let mut admitted = 0;
    for user in users.iter().cycle().take(40) {
        let request = Request::new("").with("ip", "192.0.2.1").with("user", user.as_str());
        admitted += u64::from(ask(&limiter, request).is_allowed());
    }
    assert_eq!(admitted, 3, "neither all nor none");
}

/// valkey-io/valkey-swift#326, redis/ioredis#2075, redis-rs/redis-rs#1814: what
/// followed a redirect was carried out twice, or out of order.
#[test]
fn row_54_a_redirect_repeats_nothing() {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let limiter = on(build(builder(&url_of(&CLUSTER)).clock(clock)), Limit::per_hour(100));
    let slot = slot_of(b"alice");
    let mut charged = 0;
    for _ in 0..3 {
        charged += passes(&limiter, 10);
        let from = CLUSTER.master_of(slot);
        let to = CLUSTER.masters().into_iter().find(|master| *master != from).expect("three masters");
        let migration = CLUSTER.begin_migration(slot, to);
        migration.move_keys();
        // The old master has the slot and not the key: a redirect for each request.
        charged += passes(&limiter, 5);
        assert_eq!(remaining(&limiter), 100 - charged, "each was charged once");
        migration.finish();
        // The slot has moved, and the client does not know yet.
        charged += passes(&limiter, 5);
        assert_eq!(remaining(&limiter), 100 - charged, "each was charged once");
    }
    assert_eq!(charged, 60);
}

/// vutran1710/PyrateLimiter#182, upstash/ratelimit-js#122: after a restart or a
/// flush the script was gone, and stayed gone.
#[test]
fn row_47_a_script_that_was_forgotten_is_sent_again() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "100/day");
    for number in 1..=5 {
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(ask(&limiter, "alice".into()).remaining(), Some(100 - number));
    }
}

/// express-rate-limit/rate-limit-redis#251 and #252: any error was taken for a
/// missing script, so the call was made again and counted twice.
#[test]
fn row_48_what_may_have_been_done_is_not_done_again() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let limiter = limiter(&proxy.url(), "100/day");
    for number in 1..=4 {
        let _ = eventually("an answer", || RUNTIME.block_on(limiter.peek_async("alice")));
        proxy.reset_after_next_request();
        assert!(RUNTIME.block_on(limiter.check_async("alice")).is_err(), "it may have been charged");
        let left = eventually("an answer", || RUNTIME.block_on(limiter.peek_async("alice"))).remaining();
        assert_eq!(left, Some(100 - number), "once");
    }
}

/// spring-cloud/spring-cloud-gateway#1688: each client sent its own time, and
/// clocks that differed refilled twice. Ours send none: time is the server's.
#[test]
fn row_49_no_clock_of_a_client_reaches_the_server() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "5/h");
    let mut monitor = Connection::open(server.address()).expect("a connection");
    assert!(!monitor.command(&["MONITOR"]).expect("a reply").is_error());
    let now = || {
        let time = server.command(&["TIME"]);
        let [seconds, micros] = [0, 1].map(|item| time.items()[item].integer());
        seconds * 1_000_000 + micros
    };
    let before = now();
    assert_eq!(passes(&limiter, 7), 5);
    let decision = ask(&limiter, "alice".into());
    let after = now();
    let state = server.command(&["GET", &server.command(&["KEYS", "*"]).items()[0].text()]).text();
    // The state is when the bucket will be empty, by the server's clock: an hour after the first charge.
    let empty_at: i64 = state.split(':').next().and_then(|at| at.parse().ok()).expect("an instant");
    assert!((before..=after).contains(&(empty_at - 3_600_000_000)), "{state} between {before} and {after}");
    assert!(decision.retry_after() <= Some(Duration::from_secs(720)));
    // What was sent: a script, a key and a limit.
    let sent = loop {
        let seen = monitor.receive().expect("a command").text();
        let (_, sent) = seen.split_once(']').expect("the server's own time comes first");
        if sent.contains("EVAL") {
            break sent.to_owned();
        }
    };
    assert!(!sent.contains(&before.to_string()[..6]), "{sent}");
}

/// redis/redis#1118, nrk/redis-lua#30: numbers beyond 2^53 lost their last digits
/// in Lua, or were written as 1e+14.
#[test]
fn row_50_large_numbers_are_whole_on_the_server() {
    for words in ["999999937/h burst 900000000", "fixed 1000000000000/day", "sliding 1000000007/h", "1/day burst 20000"]
    {
        let server = Server::start();
        let (clock, start) = (ManualClock::default(), 1_700_000_003_123_457);
        clock.set(Micros::new(start));
        let limit: Limit = words.parse().expect(words);
        let here = tidegate::MemoryStore::builder().max_keys(10).clock(clock.clone()).build().expect("valid settings");
        let here = tidegate::Limiter::with_store(limit, here).expect("a valid policy");
        let there = on(build(builder(&server.url()).clock(clock.clone())), limit);
        for step in 1..40_u64 {
            let cost = (limit.capacity() / 7 * (step % 5) + step).min(limit.capacity());
            let request = || Request::new("alice").cost(cost);
            assert_eq!(ask(&there, request()), here.check(request()).expect("an answer"), "{words}: step {step}");
            for key in server.command(&["KEYS", "*"]).items() {
                let state = server.command(&["GET", &key.text()]).text();
                assert!(state.chars().all(|letter| letter.is_ascii_digit() || letter == ':'), "{words}: {state}");
            }
            clock.set(Micros::new(start + step * 3_333_333_331));
        }
    }
}

/// brandur/redis-cell#91: a value that it had not written made the module abort
/// the whole server.
#[test]
fn row_51_a_foreign_value_is_an_error_and_is_not_changed() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "5/h");
    assert_eq!(passes(&limiter, 1), 1);
    let name = server.command(&["KEYS", "*"]).items()[0].text();
    for foreign in ["hello", "", "-1", "1:2:3", "99999999999999999999", "1.5", "nan"] {
        server.command(&["SET", &name, foreign]);
        let said = failure(&limiter).to_string();
        assert!(said.contains("delete it"), "{foreign:?}: {said}");
        assert_eq!(server.command(&["GET", &name]).text(), foreign);
    }
    assert!(server.is_running());
}

/// redis/lettuce#1244, sidekiq/sidekiq#5271: scripts went to replicas, which
/// cannot write.
#[test]
fn row_53_a_replica_is_not_asked_to_decide() {
    let (master, server) = (Server::start(), Server::start());
    demote(&server, &master);
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &server.url(), "3/h");
    // The server has been asked, and has said that it is a replica.
    let is_told = || limiter.store().statistics().round_trips > 1;
    for _ in 0..5 {
        let (outcome, _) = timeline.run_ahead_once(is_told, limiter.check_async("alice"));
        assert!(outcome.is_err(), "a failure, and not an answer");
    }
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let _ = eventually("an answer", || timeline.run(limiter.peek_async("alice")));
    let admitted = (0..9).filter(|_| timeline.run(limiter.check_async("alice")).expect("an answer").is_allowed());
    assert_eq!(admitted.count(), 3);
}

/// redis/redis-py#2624, redis-rs/redis-rs#325: a call that was cancelled left its
/// reply in the socket, and the next caller got that reply.
#[test]
fn row_55_no_call_gets_the_reply_of_a_cancelled_call() {
    let limiter = limiter(&SERVER.url(), "1000/h");
    RUNTIME.block_on(async {
        for round in 0..60_u64 {
            // Given up at a random place on the way.
            let cancelled = limiter.check_async(Request::new("eve").cost(100));
            let _ = tokio::time::timeout(Duration::from_micros(round * 11), cancelled).await;
            let key = format!("key{round}");
            let cost = 1 + round % 7;
            let decision = limiter.check_async(Request::new(key.as_str()).cost(cost)).await.expect("an answer");
            assert_eq!((decision.is_allowed(), decision.remaining()), (true, Some(1_000 - cost)), "round {round}");
        }
    });
}

/// rails/rails#32643, rhubarbgroup/redis-cache#537: a script went through a set
/// that grew with every request.
#[test]
fn row_61_a_log_is_no_longer_than_its_limit() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "sliding-log 100/h");
    assert_eq!(passes(&limiter, 1_000), 100);
    let name = server.command(&["KEYS", "*"]).items()[0].text();
    let length = server.command(&["LLEN", &name]).integer();
    assert!(length <= 201, "a time and a sum for each: {length}");
}
