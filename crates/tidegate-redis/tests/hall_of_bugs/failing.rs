//! Servers that hang, go away and come back: rows 52 and 56 to 60.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::{CountingObserver, FailureMode, Limit, Limiter};
use tidegate_testkit::servers::{ChaosProxy, Fault, GUARD, Server};

use super::{limiter, limiter_on, passes};
use crate::support::listener::listen;
use crate::support::timeline::{RESOLUTION, Timeline, skip};
use crate::support::{RUNTIME, SHORT_PAUSES, build, builder};

/// getsentry/sentry#122038: the server evicted keys, and limits were gone without
/// a word. Ours cannot know either: a key that was evicted is one that lost its
/// state, and costs one burst, which is what `PROMISES.md` says.
#[test]
fn row_52_an_evicted_key_costs_one_burst() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "5/h");
    for loss in 1..=3 {
        assert_eq!(passes(&limiter, 20), 5, "loss {loss}");
        let name = server.command(&["KEYS", "*"]).items()[0].text();
        server.command(&["DEL", &name]);
    }
}

/// envoyproxy/ratelimit#462, #978 and #1188, redis-rs/redis-rs#395: a server that
/// hung held every request for ten seconds, or for ever.
#[test]
fn row_56_a_server_that_hangs_costs_a_deadline() {
    let server = Server::start();
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &server.url(), "100/h");
    assert!(timeline.run(limiter.check_async("alice")).expect("an answer").is_allowed());
    server.pause();
    for _ in 0..20 {
        let (outcome, took) = timeline.run_ahead(limiter.check_async("alice"));
        assert!(outcome.is_err() && took <= GUARD + RESOLUTION, "{took:?}");
        timeline.run(skip(SHORT_PAUSES.longest_pause));
    }
    assert_eq!(limiter.store().statistics().failures, 20);
    server.resume();
}

/// envoyproxy/ratelimit#1018, go-redis/redis_rate#60: when the server was slow,
/// each request opened a connection of its own.
#[test]
fn row_57_a_slow_server_is_not_stormed() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let limiter = limiter_on(&timeline, &proxy.url(), "1000000/h");
    assert!(timeline.run(limiter.check_async("alice")).expect("an answer").is_allowed());
    let before = proxy.connections();
    proxy.set(Fault::Stall);
    timeline.run_ahead(async {
        let asks: Vec<_> = (0..500)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check_async("alice").await.is_ok() })
            })
            .collect();
        for ask in asks {
            assert!(!ask.await.expect("it ran"), "no answer");
        }
    });
    let opened = proxy.connections() - before;
    assert!(opened <= 5, "{opened} connections for five hundred requests");
}

/// hiero-ledger/hiero-json-rpc-relay#5684 (100 of 100 admitted by a limit of 3),
/// pschlan/cron-job.org#446: errors were swallowed and every request passed,
/// unnoticed.
#[test]
fn row_58_an_outage_is_told_with_every_answer() {
    let server = Server::start();
    let counts = Arc::new(CountingObserver::default());
    let store = build(builder(&server.url()));
    let limiter = Limiter::builder(Limit::per_hour(3)).store(store).observer(counts.clone());
    let limiter = limiter.on_failure(FailureMode::Open).build().expect("a valid policy");
    server.kill();
    for _ in 0..10 {
        let decision = RUNTIME.block_on(limiter.check_async("alice")).expect("the fallback answers");
        assert!(decision.is_allowed() && decision.is_degraded());
    }
    assert_eq!(counts.degraded(), 10);
    let statistics = limiter.store().statistics();
    assert!(statistics.outages == 1 && statistics.failures > 0, "{statistics:?}");
    // Without a failure mode, there is no answer at all.
    let strict = super::limiter(&server.url(), "3/h");
    assert!(RUNTIME.block_on(strict.check_async("alice")).is_err());
}

/// go-chi/httprate-redis#15, JhaSourav07/commitpulse#6138: each of N instances
/// fell back to the whole limit.
#[test]
fn row_59_in_an_outage_each_process_keeps_its_share() {
    let server = Server::start();
    server.kill();
    let admitted: u64 = (0..4)
        .map(|_| {
            let limiter = Limiter::builder(Limit::per_hour(10)).store(build(builder(&server.url())));
            let limiter = limiter.on_failure(FailureMode::local(4)).build().expect("a valid policy");
            passes(&limiter, 20)
        })
        .sum();
    assert_eq!(admitted, 8, "four processes with two each, of ten");
}

/// openlinker-project/openlinker#2019: an outage filled the logs with a line for
/// each request.
#[test]
fn row_60_an_outage_is_said_once_and_not_for_each_request() {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let server = Server::start();
    let limiter = limiter(&server.url(), "100/h");
    assert_eq!(passes(&limiter, 1), 1);
    server.kill();
    // By this thread, which is the one that asks.
    listen(&SAID, || {
        for _ in 0..2_000 {
            assert!(RUNTIME.block_on(limiter.check_async("alice")).is_err());
        }
    });
    let said = SAID.load(Ordering::Relaxed);
    assert!((1..=20).contains(&said), "{said} lines for two thousand requests");
}
