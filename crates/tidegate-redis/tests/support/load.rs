//! Callers of a store that ask without end.

use std::error::Error;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store, StoreError};
use tidegate::{Key, Limit, Name};
use tidegate_redis::{Builder, RedisFailure, RedisStore};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Load, Outcome};

/// No machine adds so much to the deadline of a hasty store.
pub(crate) const MAX_CALL: Duration = Duration::from_secs(30);

/// Between two requests of one caller, so that a fault is met half-way.
const PAUSE: Duration = Duration::from_millis(10);

/// A store for a load that meets a fault: a call that gets no answer ends soon.
/// Each is counted, whether the fault is the reason or a slow machine.
pub(crate) fn hasty(builder: Builder) -> Builder {
    builder.deadline(Duration::from_secs(1)).connect_timeout(Duration::from_secs(1))
}

/// So many callers of one key, each asking for a unit of all `limits` at once.
pub(crate) fn load(store: &RedisStore, callers: usize, key: &str, limits: &[Limit]) -> Load {
    let (store, key) = (store.clone(), Key::from(key).into_owned());
    let meters: Vec<Meter> = limits.iter().map(|limit| Meter::new(Name::literal("load"), *limit)).collect();
    Load::start(callers, PAUSE, move |_| {
        let checks = meters.iter().map(|meter| Check::new(meter, &key, Verb::Charge, 1).expect("a cost of one"));
        let checks: Vec<Check<'_>> = checks.collect();
        let mut verdicts = vec![Verdict::default(); checks.len()];
        match block_on(store.decide(&checks, &mut verdicts)) {
            Ok(_) if verdicts.iter().all(|verdict| verdict.allowed) => Outcome::Admitted { degraded: false },
            Ok(_) => Outcome::Refused { degraded: false },
            Err(error) => match failure_of(&error) {
                failure @ RedisFailure::Away { .. } => Outcome::TurnedAway { why: failure.to_string() },
                failure => Outcome::InDoubt { why: format!("{failure:?}") },
            },
        }
    })
}

/// The store's own word on why it did not answer.
pub(crate) fn failure_of(error: &StoreError) -> RedisFailure {
    let failure = error.source().and_then(|source| source.downcast_ref::<RedisFailure>());
    failure.unwrap_or_else(|| panic!("not a failure of Redis: {error:?}")).clone()
}
