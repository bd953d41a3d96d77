//! The hall of bugs, where a store is shared: rows 36 and 43 to 64. What the
//! hall is stands in `crates/tidegate/tests/hall_of_bugs/main.rs`.
//!
//! What others found on Redis is shown on a real server.

#[path = "../support/mod.rs"]
mod support;

mod failing;
mod scripts;
mod sharing;

use std::time::Duration;

use support::{RUNTIME, builder};
use tidegate::{Decision, Limit, Limiter, Policy, Request};
use tidegate_redis::{BreakerSettings, RedisFailure, RedisStore};

const DEADLINE: Duration = Duration::from_millis(250);
const RECOVERY: Duration = Duration::from_secs(20);

/// A store that gives up soon and tries again soon.
fn impatient(url: &str) -> RedisStore {
    let breaker = BreakerSettings {
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        ..BreakerSettings::default()
    };
    support::build(builder(url).deadline(DEADLINE).breaker(breaker))
}

fn on(store: RedisStore, policy: impl Into<Policy>) -> Limiter<RedisStore> {
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn limiter(url: &str, words: &str) -> Limiter<RedisStore> {
    on(support::build(builder(url)), words.parse::<Limit>().expect(words))
}

fn ask(limiter: &Limiter<RedisStore>, request: Request<'_>) -> Decision {
    RUNTIME.block_on(limiter.check_async(request)).expect("an answer")
}

fn passes(limiter: &Limiter<RedisStore>, tries: u64) -> u64 {
    (0..tries).filter(|_| ask(limiter, "alice".into()).is_allowed()).count() as u64
}

fn remaining(limiter: &Limiter<RedisStore>) -> u64 {
    RUNTIME.block_on(limiter.peek_async("alice")).expect("an answer").remaining()
}

/// Why the store had no answer.
fn failure(limiter: &Limiter<RedisStore>) -> RedisFailure {
    match RUNTIME.block_on(limiter.check_async("alice")) {
        Err(tidegate::CheckError::Store(tidegate::StoreError::Failed { source })) => {
            source.downcast_ref::<RedisFailure>().expect("the store's own failure").clone()
        }
        other => panic!("expected a failure of the store, got {other:?}"),
    }
}
