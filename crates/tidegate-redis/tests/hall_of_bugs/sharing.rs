//! Many processes, one limit: rows 36 and 62 to 64.

use std::time::Duration;

use tidegate::{Limit, ManualClock, Micros, Policy, Request};
use tidegate_redis::{Lease, RedisStore};

use super::{ask, on, passes};
use crate::support::{self, RUNTIME, SERVER};

const START: u64 = 1_700_000_000_000_000;

/// Stores of several processes on the same keys and clock.
fn processes(
    number: usize,
    lease: Option<Lease>,
    policy: &Policy,
) -> (Vec<tidegate::Limiter<RedisStore>>, ManualClock) {
    let (prefix, clock) = (support::new_prefix(), ManualClock::at(Micros::new(START)));
    let process = || {
        let store = support::builder(&SERVER.url()).prefix(prefix.as_str()).clock(clock.clone());
        let store = lease.into_iter().fold(store, |store, lease| store.lease("rule", lease));
        on(support::build(store), policy.clone())
    };
    ((0..number).map(|_| process()).collect(), clock)
}

fn rule(limit: Limit) -> Policy {
    Policy::new().limit("rule", limit)
}

/// cristipufu/aspnetcore-redis-rate-limiting#2, redisson/redisson#4462: a process
/// died with a slot, which was never released. Ours holds no slots; what a dead
/// process had borrowed drains away as if it had been used.
#[test]
fn row_36_what_a_dead_process_held_comes_back_by_itself() {
    let lease = Lease { chunk: 5, ttl: Duration::from_secs(600) };
    let (mut processes, clock) = processes(2, Some(lease), &rule(Limit::token_bucket(10, Duration::from_secs(10))));
    assert_eq!(passes(&processes[0], 3), 3, "the third one borrows");
    // Gone without a word: nothing is closed, nothing given back.
    std::mem::forget(processes.remove(0));
    assert_eq!(passes(&processes[0], 20), 3, "two were used, and it took a chunk along");
    clock.advance(Duration::from_secs(10));
    assert_eq!(passes(&processes[0], 20), 10, "and the limit is whole again");
}

/// mailgun/gubernator#208 and #219: nodes that did not own a key answered from
/// their caches, and counted hits twice.
#[test]
fn row_62_every_process_knows_of_every_charge() {
    for words in ["9/h", "fixed 9/h", "sliding 9/h", "sliding-log 9/h"] {
        let (processes, _) = processes(3, None, &rule(words.parse().expect(words)));
        for number in 0..12 {
            let decision = ask(&processes[number % 3], "alice".into());
            let left = 9_u64.saturating_sub(number as u64 + 1);
            assert_eq!((decision.is_allowed(), decision.remaining()), (number < 9, Some(left)), "{words}: {number}");
        }
    }
}

/// Kuadrant/limitador#299 and its documents: counters that were kept locally and
/// told later went over the limit. Ours are paid for beforehand.
#[test]
fn row_63_leases_never_go_over_the_limit() {
    let lease = Lease { chunk: 4, ttl: Duration::from_secs(60) };
    for words in ["30/h", "fixed 30/h", "sliding 30/h", "sliding-log 30/h"] {
        let (processes, _) = processes(3, Some(lease), &rule(words.parse().expect(words)));
        let admitted: u64 = (0..20).flat_map(|_| &processes).map(|process| passes(process, 3)).sum();
        assert_eq!(admitted, 30, "{words}");
    }
}

/// And requests that another limit refuses leave no process with more than it
/// may hold, however many of them there are at once.
#[test]
fn row_63_refused_requests_do_not_pile_units_up() {
    let lease = Lease { chunk: 4, ttl: Duration::from_secs(3_600) };
    let policy = rule(Limit::per_hour(10_000)).limit("other", Limit::per_hour(1));
    let (processes, _) = processes(1, Some(lease), &policy);
    let limiter = &processes[0];
    RUNTIME.block_on(async {
        for _ in 0..5 {
            let asks: Vec<_> = (0..100)
                .map(|_| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move { limiter.check_async("alice").await.is_ok_and(|it| it.is_allowed()) })
                })
                .collect();
            for ask in asks {
                let _ = ask.await.expect("it ran");
            }
        }
    });
    // What is too much goes back to the servers in a moment.
    tidegate_testkit::servers::eventually("given back", || match limiter.store().statistics().units_on_lease {
        held if held <= lease.chunk => Ok(()),
        held => Err(format!("{held} units held")),
    });
}

/// symfony/symfony#65796, animir/node-rate-limiter-flexible#280: the first limit
/// was charged though the second refused, on Redis as elsewhere.
#[test]
fn row_64_on_redis_too_a_refusal_charges_no_limit() {
    let policy = Policy::new()
        .limit("first", Limit::per_hour(100))
        .limit("second", "sliding-log 3/h".parse().expect("a limit"))
        .limit("third", "fixed 50/h".parse().expect("a limit"));
    let (processes, _) = processes(1, None, &policy);
    assert_eq!(passes(&processes[0], 30), 3);
    for (rule, left) in [("first", 97), ("second", 0), ("third", 47)] {
        let request = Request::new("alice").rule(rule);
        let decision = RUNTIME.block_on(processes[0].peek_async(request)).expect("an answer");
        assert_eq!(decision.remaining(), Some(left), "{rule}");
    }
}
