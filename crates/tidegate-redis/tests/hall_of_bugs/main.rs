//! The hall of bugs, where a store is shared: rows 36 and 43 to 64. What the
//! hall is stands in `crates/tidegate/tests/hall_of_bugs/main.rs`.
//!
//! What others found on Redis is shown on a real server.

#[path = "../support/mod.rs"]
mod support;

mod failing;
mod scripts;
mod sharing;

use crate::support::timeline::Timeline;
use crate::support::{RUNTIME, SHORT_PAUSES, builder};
use tidegate::{Decision, Limit, Limiter, Policy, Request};
use tidegate_redis::{RedisFailure, RedisStore};

fn on(store: RedisStore, policy: impl Into<Policy>) -> Limiter<RedisStore> {
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn limiter(url: &str, words: &str) -> Limiter<RedisStore> {
    on(support::build(builder(url)), words.parse::<Limit>().expect(words))
}

/// One whose deadlines expire when the test says so.
fn limiter_on(timeline: &Timeline, url: &str, words: &str) -> Limiter<RedisStore> {
    on(timeline.build(builder(url).breaker(SHORT_PAUSES)), words.parse::<Limit>().expect(words))
}

fn ask(limiter: &Limiter<RedisStore>, request: Request<'_>) -> Decision {
    RUNTIME.block_on(limiter.check_async(request)).expect("an answer")
}

fn passes(limiter: &Limiter<RedisStore>, tries: u64) -> u64 {
    (0..tries).filter(|_| ask(limiter, "alice".into()).is_allowed()).count() as u64
}

fn remaining(limiter: &Limiter<RedisStore>) -> u64 {
    RUNTIME.block_on(limiter.peek_async("alice")).expect("an answer").remaining().expect("a limit")
}

/// Why the store had no answer.
fn failure(limiter: &Limiter<RedisStore>) -> RedisFailure {
    match RUNTIME.block_on(limiter.check_async("alice")) {
        Err(tidegate::CheckError::Store(tidegate::store::StoreError::Failed { source })) => {
            source.downcast_ref::<RedisFailure>().expect("the store's own failure").clone()
        }
        other => panic!("expected a failure of the store, got {other:?}"),
    }
}
