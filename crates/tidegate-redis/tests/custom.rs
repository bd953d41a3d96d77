//! Kernels of the user's own, on Redis: decided here, swapped in there.

use std::sync::Arc;

use crate::support::{self, RUNTIME, SERVER};
use tidegate::kernel::{Admission, Kernel, Reading};
use tidegate::store::Meter;
use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Policy, Request};
use tidegate_redis::RedisStore;
use tidegate_testkit::{Random, block_on};

/// So many in all, and never again. The state is any bytes, spaces included.
struct Quota(u64);

impl Kernel for Quota {
    type State = u64;

    fn capacity(&self) -> u64 {
        self.0
    }

    fn admit(&self, used: &u64, _: Micros, cost: u64) -> Admission {
        if used + cost <= self.0 { Admission::PASS } else { Admission::Wait { retry_after: Micros::new(1_000_000) } }
    }

    fn charge(&self, used: &mut u64, now: Micros, cost: u64) -> Reading {
        *used += cost;
        self.read(used, now)
    }

    fn refund(&self, used: &mut u64, _: Micros, cost: u64) {
        *used = used.saturating_sub(cost);
    }

    fn read(&self, used: &u64, _: Micros) -> Reading {
        Reading { remaining: self.0 - used, reset_after: Micros::new(60_000_000) }
    }

    fn forget_at(&self, _: &u64) -> Micros {
        Micros::LATEST
    }

    fn encode(&self, used: &u64, bytes: &mut Vec<u8>) {
        bytes.extend(format!("used {used} % of - \n\0").bytes());
        bytes.extend(used.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Option<u64> {
        let used = u64::from_le_bytes(*bytes.last_chunk()?);
        (used <= self.0).then_some(used)
    }
}

fn policy(most: u64) -> Policy {
    Policy::new().meter(Meter::custom(Name::literal("quota"), Quota(most)))
}

fn mixed() -> Policy {
    policy(40)
        .limit("bucket", Limit::per_second(5))
        .limit("log", Limit::sliding_log(6, std::time::Duration::from_secs(1)))
}

#[test]
fn decides_as_the_memory_store_does() {
    for policy in [policy(40), mixed()] {
        let (redis, clock) = support::manual_store();
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        clock.set(Micros::new(1_700_000_000_000_000));
        let redis = Limiter::with_store(policy.clone(), redis).expect("a valid policy");
        let memory = Limiter::with_store(policy, memory).expect("a valid policy");
        let mut random = Random::new(7);
        for step in 0..2_000 {
            clock.set(Micros::new(1_700_000_000_000_000 + step * random.within(0..=100_000)));
            let request = Request::new("alice").cost(random.within(0..=3));
            let (there, here) = match random.within(0..=19) {
                0 => (
                    block_on(redis.reset_async(request.clone())).map(tidegate::Decision::from),
                    memory.reset(request).map(tidegate::Decision::from),
                ),
                1..=3 => (
                    block_on(redis.refund_async(request.clone())).map(tidegate::Decision::from),
                    memory.refund(request).map(tidegate::Decision::from),
                ),
                4..=6 => (block_on(redis.peek_async(request.clone())), memory.peek(request)),
                _ => (block_on(redis.check_async(request.clone())), memory.check(request)),
            };
            assert_eq!(there.expect("an answer"), here.expect("an answer"), "step {step}");
        }
    }
}

#[test]
fn takes_two_round_trips_and_is_exact_under_contention() {
    let store = support::build(support::builder(&SERVER.url()));
    let limiter = Arc::new(Limiter::with_store(policy(50), store).expect("a valid policy"));
    assert!(RUNTIME.block_on(limiter.check_async("bob")).expect("an answer").is_allowed());
    let before = limiter.store().statistics().round_trips;
    assert!(RUNTIME.block_on(limiter.check_async("bob")).expect("an answer").is_allowed());
    assert_eq!(limiter.store().statistics().round_trips, before + 2);
    let admitted = RUNTIME.block_on(async {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..40 {
                        // Overtaken too often is an error: nothing was charged.
                        admitted += u64::from(limiter.check_async("alice").await.is_ok_and(|d| d.is_allowed()));
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.expect("the task ends");
        }
        admitted
    });
    assert_eq!(admitted, 50);
}

#[test]
fn bytes_of_another_kernel_are_an_error() {
    let (store, clock): (RedisStore, ManualClock) = support::manual_store();
    clock.set(Micros::new(1_700_000_000_000_000));
    let large = Limiter::with_store(policy(50), store.clone()).expect("a valid policy");
    assert!(block_on(large.check_async(Request::new("alice").cost(45))).expect("an answer").is_allowed());
    let small = Limiter::with_store(policy(10), store).expect("a valid policy");
    let error = block_on(small.check_async("alice")).expect_err("45 of 10 is no state");
    let mut chain = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        chain.push(error.to_string());
        cause = error.source();
    }
    assert!(chain.last().is_some_and(|last| last.contains("custom kernel")), "{chain:?}");
}
