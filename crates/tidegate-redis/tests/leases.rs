//! Leases: what is admitted, beside what the limit says.

use std::pin::pin;
use std::time::Duration;

use crate::support::timeline::{Timeline, is_pending, skip};
use crate::support::{self, LONG_PAUSES, RUNTIME, SERVER};
use tidegate::{CheckError, Limit, Limiter, ManualClock, Micros, Policy, Request};
use tidegate_redis::{Builder, Lease, RedisStore};
use tidegate_testkit::servers::{ChaosProxy, Fault, GUARD, Server, eventually};
use tidegate_testkit::{Random, block_on};

const START: u64 = 1_700_000_000_000_000;
const LEASE: Lease = Lease { chunk: 10, ttl: Duration::from_secs(5) };

/// A process of its own: another store on the same keys and clock.
fn process(prefix: &str, url: &str, clock: &ManualClock, policy: Policy) -> Limiter<RedisStore> {
    let store = support::builder(url).prefix(prefix).clock(clock.clone()).lease("rule", LEASE);
    let limiter = Limiter::with_store(policy, support::build(store)).expect("a valid policy");
    RUNTIME.block_on(ask_often(&limiter));
    limiter
}

/// Asks for a key as often as it takes to borrow for it, and leaves it as it was.
async fn ask_often(limiter: &Limiter<RedisStore>) {
    for _ in 0..2 {
        assert!(limiter.check_async("alice").await.expect("an answer").is_allowed());
    }
    let _ = limiter.reset_async("alice").await.expect("an answer");
}

/// A process whose deadlines expire when the test says so.
fn process_on(timeline: &Timeline, builder: Builder, limit: Limit) -> Limiter<RedisStore> {
    let store = timeline.build(builder.clock(ManualClock::at(Micros::new(START))).lease("rule", LEASE));
    let limiter = Limiter::with_store(Policy::new().limit("rule", limit), store).expect("a valid policy");
    timeline.run(ask_often(&limiter));
    limiter
}

fn processes(number: usize, limit: Limit) -> (Vec<Limiter<RedisStore>>, ManualClock) {
    let (prefix, clock) = (support::new_prefix(), ManualClock::default());
    clock.set(Micros::new(START));
    let policy = Policy::new().limit("rule", limit);
    let processes = (0..number).map(|_| process(&prefix, &SERVER.url(), &clock, policy.clone())).collect();
    (processes, clock)
}

fn admits(limiter: &Limiter<RedisStore>, cost: u64) -> bool {
    RUNTIME.block_on(limiter.check_async(Request::new("alice").cost(cost))).expect("an answer").is_allowed()
}

#[test]
fn answers_without_asking_while_the_lease_lasts() {
    let (processes, _) = processes(1, Limit::per_hour(100));
    let limiter = &processes[0];
    assert!(admits(limiter, 1));
    let before = limiter.store().statistics();
    for _ in 0..9 {
        assert!(admits(limiter, 1));
    }
    let after = limiter.store().statistics();
    assert_eq!((after.round_trips, after.leased), (before.round_trips, before.leased + 9));
    assert!(admits(limiter, 1));
    assert!(limiter.store().statistics().round_trips > after.round_trips);
}

#[test]
fn a_key_that_is_seen_once_takes_one_round_trip() {
    let (processes, _) = processes(1, Limit::per_hour(100));
    let store = processes[0].store();
    let before = store.statistics();
    for number in 0..100 {
        let decision = RUNTIME.block_on(processes[0].check_async(&format!("user {number}"))).expect("an answer");
        assert_eq!(decision.remaining(), Some(99));
    }
    RUNTIME.block_on(store.close());
    let after = store.statistics();
    assert_eq!((after.round_trips - before.round_trips, after.leased, after.units_on_lease), (100, 0, 0));
}

#[test]
fn hands_out_the_whole_limit_and_no_more() {
    for words in ["100/h", "fixed 100/h", "sliding 100/h", "sliding-log 100/h"] {
        let (processes, _) = processes(3, words.parse().expect("a limit"));
        let mut admitted = 0;
        for round in 0..200 {
            admitted += u64::from(admits(&processes[round % 3], 1));
        }
        // What others have on lease is theirs, until they give it back.
        let on_lease: u64 = processes.iter().map(|process| process.store().statistics().units_on_lease).sum();
        assert_eq!((admitted, on_lease), (100, 0), "{words}");
    }
}

#[test]
fn keeps_its_bound_in_every_interval() {
    let limits = [Limit::token_bucket(50, Duration::from_secs(1)), Limit::sliding_log(50, Duration::from_secs(1))];
    for (number, limit) in [1, 2, 4].into_iter().flat_map(|number| limits.map(|limit| (number, limit))) {
        let (processes, clock) = processes(number, limit);
        let mut random = Random::new(number as u64);
        let mut now = START;
        let mut admissions: Vec<(u64, u64)> = Vec::new();
        for _ in 0..1_500 {
            now += random.within(0..=9) * random.within(0..=5_000);
            clock.set(Micros::new(now));
            let cost = random.within(1..=3);
            let process = &processes[random.within(0..=number as u64 - 1) as usize];
            if admits(process, cost) {
                admissions.push((now, cost));
            }
        }
        let excess = processes[0].store().lease("rule").expect("there is one").excess(number as u64);
        assert_eq!(excess, 10 * number as u64);
        for (first, (from, _)) in admissions.iter().enumerate() {
            let mut admitted = 0;
            for (to, cost) in &admissions[first..] {
                admitted += cost;
                let plain = 50 + 50 * (to - from) / 1_000_000;
                assert!(admitted <= plain + excess, "{limit}: {admitted} of {plain} + {excess} by {number}");
                // From the start there is nothing borrowed from before.
                assert!(first > 0 || admitted <= plain, "{limit}: {admitted} of {plain} since the start");
            }
        }
    }
}

#[test]
fn gives_back_what_is_left_when_it_closes() {
    let (processes, _) = processes(2, Limit::per_hour(10));
    assert!(admits(&processes[0], 3), "it holds seven more now");
    assert!(!admits(&processes[1], 1));
    RUNTIME.block_on(processes[0].store().close());
    assert_eq!(processes[0].store().statistics().units_on_lease, 0);
    let admitted = (0..20).filter(|_| admits(&processes[1], 1)).count();
    assert_eq!(admitted, 7);
}

#[test]
fn gives_back_what_is_left_when_the_time_is_over() {
    let (processes, clock) = processes(1, Limit::per_hour(100));
    assert!(admits(&processes[0], 3));
    clock.set(Micros::new(START + 5_000_000));
    eventually("given back", || match processes[0].store().statistics().units_on_lease {
        0 => Ok(()),
        units => Err(format!("{units} on lease")),
    });
    let left = || block_on(processes[0].peek_async("alice")).expect("an answer").remaining().expect("a limit");
    eventually("there again", || match left() {
        97 => Ok(()),
        other => Err(other.to_string()),
    });
}

#[test]
fn a_process_that_dies_takes_at_most_a_chunk_along() {
    let (mut processes, clock) = processes(2, Limit::per_hour(100));
    assert!(admits(&processes[0], 1));
    drop(processes.remove(0));
    clock.set(Micros::new(START + 1));
    let admitted = (0..200).filter(|_| admits(&processes[0], 1)).count();
    assert_eq!(admitted, 90, "nine were lost, one was used");
}

#[test]
fn a_grant_whose_reply_is_lost_is_not_used() {
    for is_swallowed in [false, true] {
        let server = Server::start();
        let proxy = ChaosProxy::start(server.address());
        let timeline = Timeline::start();
        let limiter = process_on(&timeline, support::builder(&proxy.url()), Limit::per_hour(100));
        let check = || limiter.check_async("alice");
        let state = || server.command(&["GET", &server.command(&["KEYS", "*"]).items()[0].text()]);
        let first = timeline.run(limiter.check_async(Request::new("alice").cost(10)));
        assert!(first.expect("an answer").is_allowed(), "one lease, used up");
        let before = state();
        if is_swallowed {
            proxy.set(Fault::SwallowReplies);
        } else {
            proxy.reset_after_next_request();
        }
        // A reset ends the call; without one, only the deadline does.
        let (outcome, _) = timeline.run_ahead_once(|| is_swallowed && state() != before, check());
        assert!(outcome.is_err() && state() != before, "granted, and the reply is lost");
        // A connection that lost a reply would lose the next one as well.
        proxy.reset_connections();
        proxy.set(Fault::None);
        assert_eq!(limiter.store().statistics().units_on_lease, 0);
        let mut admitted = 10;
        eventually("the rest", || {
            while timeline.run(check())?.is_allowed() {
                admitted += 1;
            }
            Ok::<_, CheckError>(())
        });
        assert_eq!(admitted, 90);
    }
}

#[test]
fn a_reset_forgets_the_lease_too() {
    let (processes, _) = processes(1, Limit::per_hour(20));
    assert!(admits(&processes[0], 3));
    let _ = block_on(processes[0].reset_async("alice")).expect("an answer");
    let admitted = (0..40).filter(|_| admits(&processes[0], 1)).count();
    assert_eq!(admitted, 20);
}

#[test]
fn a_leased_rule_beside_another_is_all_or_nothing() {
    let clock = ManualClock::default();
    clock.set(Micros::new(START));
    let policy = Policy::new().limit("rule", Limit::per_hour(100)).limit("other", Limit::per_hour(5));
    let limiter = process(&support::new_prefix(), &SERVER.url(), &clock, policy);
    for _ in 0..20 {
        let _ = RUNTIME.block_on(limiter.check_async("alice")).expect("an answer");
    }
    let left = limiter.store().statistics().units_on_lease;
    assert_eq!(left, 5, "five were used, and what was refused was put back");
}

#[test]
fn a_crowd_takes_a_call_for_each_chunk_at_most() {
    let (processes, _) = processes(1, Limit::per_hour(1_000));
    let limiter = processes[0].clone();
    let before = limiter.store().statistics().round_trips;
    let admitted = RUNTIME.block_on(async {
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(
                    async move { limiter.check_async("alice").await.is_ok_and(|decision| decision.is_allowed()) },
                )
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u64::from(task.await.expect("the task ends"));
        }
        admitted
    });
    let statistics = limiter.store().statistics();
    assert_eq!(admitted, 200);
    assert!(statistics.units_on_lease < LEASE.chunk);
    let trips = statistics.round_trips - before;
    // Callers that come together share one.
    assert!(trips <= 22, "{trips} round trips for 20 chunks");
}

/// A call is on its way until all have come: what those lack that it is not for is one more call.
#[test]
fn callers_that_wait_for_units_share_a_call() {
    for (count, calls) in [(1_000, 2), (50, 5)] {
        let proxy = ChaosProxy::start(SERVER.address());
        let policy = Policy::new().limit("rule", Limit::per_hour(count));
        let limiter = process(&support::new_prefix(), &proxy.url(), &ManualClock::at(Micros::new(START)), policy);
        let before = limiter.store().statistics().round_trips;
        let decisions = RUNTIME.block_on(async {
            proxy.set(Fault::Stall);
            let mut callers: Vec<_> = (0..100).map(|_| Box::pin(limiter.check_async("alice"))).collect();
            for caller in &mut callers {
                assert!(is_pending(caller.as_mut()).await);
            }
            proxy.set(Fault::None);
            let mut decisions = Vec::new();
            for caller in callers {
                decisions.push(caller.await.expect("an answer"));
            }
            decisions
        });
        let (admitted, refused): (Vec<_>, Vec<_>) = decisions.iter().partition(|decision| decision.is_allowed());
        let left = admitted.iter().map(|decision| decision.remaining().expect("a limit"));
        assert!(left.eq((0..count).rev().take(100)), "each is told what the ones before it left");
        // Those that are refused share that, too: a chunk, what there is of it, and what one lacks.
        assert!(refused.iter().all(|decision| decision.remaining() == Some(0) && decision.retry_after().is_some()));
        let after = limiter.store().statistics();
        let made = after.round_trips - before;
        assert!(made <= calls && after.units_on_lease < LEASE.chunk, "{made} calls for a limit of {count}");
    }
}

#[test]
fn a_cost_above_the_chunk_leaves_no_more_than_a_chunk_behind() {
    let proxy = ChaosProxy::start(SERVER.address());
    let policy = Policy::new().limit("rule", Limit::per_hour(1_000));
    let limiter = process(&support::new_prefix(), &proxy.url(), &ManualClock::at(Micros::new(START)), policy);
    RUNTIME.block_on(async {
        let check = |cost| limiter.check_async(Request::new("alice").cost(cost));
        assert!(check(9).await.expect("an answer").is_allowed());
        // While the large one asks for the rest, a small one takes what is there.
        proxy.set(Fault::Stall);
        let mut large = pin!(check(100));
        assert!(is_pending(large.as_mut()).await && check(1).await.expect("an answer").is_allowed());
        proxy.set(Fault::None);
        assert!(large.await.expect("an answer").is_allowed());
        assert!(limiter.store().statistics().units_on_lease <= LEASE.chunk);
        // And nothing more was charged than was used or is held.
        limiter.store().close().await;
        let left = limiter.peek_async("alice").await.expect("an answer").remaining();
        assert_eq!(left, Some(1_000 - 9 - 100 - 1));
    });
}

#[test]
fn gives_back_what_is_left_though_more_was_refused() {
    let (processes, _) = processes(2, Limit::per_hour(12));
    assert!(admits(&processes[0], 3), "it holds seven more now");
    assert!(!admits(&processes[0], 12), "two are left of five that it lacks");
    RUNTIME.block_on(processes[0].store().close());
    assert_eq!(processes[0].store().statistics().units_on_lease, 0);
    let admitted = (0..20).filter(|_| admits(&processes[1], 1)).count();
    assert_eq!(admitted, 9);
}

/// The servers are slow, and the answer to the second request for units comes
/// after the deadline of the caller: what is granted is there for the next.
#[test]
fn units_that_are_granted_late_are_there_for_the_next() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let prefix = support::new_prefix();
    let process = |url: &str| process_on(&timeline, support::builder(url).prefix(&*prefix), Limit::per_hour(10));
    let (other, limiter) = (process(&server.url()), process(&proxy.url()));
    let is_allowed = |limiter: &Limiter<RedisStore>, cost| {
        let request = Request::new("alice").cost(cost);
        timeline.run(limiter.check_async(request)).expect("an answer").is_allowed()
    };
    assert!(is_allowed(&other, 5));
    timeline.run(other.store().close());
    let _ = timeline.run(limiter.check_async("bob")).expect("the script is known");
    let trips = || limiter.store().statistics().round_trips;
    let before = trips();
    let outcome = timeline.run(async {
        let mut asked = pin!(limiter.check_async("alice"));
        proxy.set(Fault::Stall);
        assert!(is_pending(asked.as_mut()).await, "it asks for a chunk");
        skip(GUARD / 2).await;
        // Slow enough to stop the second request, for what is left, on its way.
        proxy.set(Fault::Delay(Duration::from_secs(1)));
        while trips() < before + 2 {
            assert!(is_pending(asked.as_mut()).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.set(Fault::Stall);
        skip(GUARD / 2).await;
        asked.await
    });
    assert!(outcome.is_err(), "two requests take too long");
    proxy.set(Fault::None);
    let admitted = (0..10).filter(|_| is_allowed(&limiter, 1)).count();
    assert_eq!(admitted, 5, "none is lost");
}

#[test]
fn peek_adds_leased_units_to_those_of_the_servers() {
    for words in ["15/h", "fixed 15/h", "sliding 15/h", "sliding-log 15/h"] {
        let (processes, _) = processes(1, words.parse().expect("a limit"));
        let limiter = &processes[0];
        assert!(admits(limiter, 1), "nine are held, and the servers have five");
        let peek = |cost| RUNTIME.block_on(limiter.peek_async(Request::new("alice").cost(cost))).expect("an answer");
        assert_eq!([0, 9, 10, 14, 15].map(|cost| peek(cost).is_allowed()), [true, true, true, true, false], "{words}");
        assert_eq!([0, 9, 10, 14, 15].map(|cost| peek(cost).remaining()), [Some(14); 5], "{words}");
        let refused = RUNTIME.block_on(limiter.check_async(Request::new("alice").cost(15))).expect("an answer");
        assert_eq!((refused.is_allowed(), refused.remaining()), (false, Some(14)), "{words}");
        assert!(admits(limiter, 14), "{words}");
    }
}

#[test]
fn leased_units_survive_a_limit_change() {
    for (before, after) in [("100/h", "200/h"), ("fixed 100/h", "sliding-log 50/h"), ("100/h", "leaky 50/h")] {
        let [before, after] = [before, after].map(|words| words.parse::<Limit>().expect("a limit"));
        let (processes, _) = processes(1, before);
        let limiter = &processes[0];
        assert!(admits(limiter, 1), "nine are held");
        limiter.set_policy(Policy::new().limit("rule", after)).expect("a valid policy");
        assert!(admits(limiter, 1));
        RUNTIME.block_on(limiter.store().close());
        let left = RUNTIME.block_on(limiter.peek_async("alice")).expect("an answer").remaining();
        assert_eq!(left, Some(after.capacity() - 2), "{before} to {after}");
    }
}

#[test]
fn leases_not_returned_in_an_outage_are_returned_after_it() {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let timeline = Timeline::start();
    let limiter = process_on(&timeline, support::builder(&proxy.url()).breaker(LONG_PAUSES), Limit::per_hour(100));
    let taken = timeline.run(limiter.check_async(Request::new("alice").cost(3)));
    assert!(taken.expect("an answer").is_allowed(), "it holds seven more now");
    proxy.set(Fault::Stall);
    assert!(timeline.run_ahead(limiter.check_async("bob")).0.is_err());
    // The store itself hears of it a moment after the caller.
    timeline.run_ahead(async { tokio::time::sleep(Duration::from_secs(1)).await });
    assert_eq!(limiter.store().statistics().away, 1);
    proxy.set(Fault::None);
    // The breaker lets no call through before the pause is over.
    timeline.run(limiter.store().close());
    assert_eq!(limiter.store().statistics().units_on_lease, 7);
    timeline.run(skip(GUARD));
    timeline.run(limiter.store().close());
    let left = timeline.run(limiter.peek_async("alice")).expect("an answer").remaining();
    assert_eq!(left, Some(97));
}
