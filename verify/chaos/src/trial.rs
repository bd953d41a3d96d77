//! What a fault is given: what chance decides, and what faults are built with.

use std::time::Duration;

use tidegate::{FailureMode, Limit, Limiter};
use tidegate_redis::{BreakerSettings, Builder, RedisStore, RefusalCache, Servers};
use tidegate_testkit::Random;

/// How long the store may take: short enough to be waited for many times, long
/// enough for a machine that is slow and busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// What a slow and busy machine may add to a deadline.
pub(crate) const SLACK: Duration = Duration::from_secs(30);

/// The key that all callers ask about.
pub(crate) const KEY: &str = "alice";

/// What a fault is given: chance that repeats itself.
#[derive(Debug)]
pub struct Trial {
    pub(crate) random: Random,
    /// How long the store may take.
    pub(crate) deadline: Duration,
    /// Whether the store remembers refusals: then it asks less, and must keep the same bounds.
    pub(crate) remembers_refusals: bool,
}

impl Trial {
    pub(crate) fn new(seed: u64) -> Trial {
        let mut random = Random::new(seed);
        let remembers_refusals = random.percent(25);
        Trial { random, deadline: DEADLINE, remembers_refusals }
    }

    /// Gives the store all the time it may need: where not even one error is to be expected, a
    /// busy machine must not cause any.
    pub(crate) fn be_patient(&mut self) {
        self.deadline = SLACK;
    }

    /// A limit of any algorithm, whose horizon is a second or two. It is low, so that callers
    /// use it up on a slow machine as well.
    pub(crate) fn limit(&mut self) -> Limit {
        let (count, second) = (self.random.within(10..=30), Duration::from_secs(1));
        let burst = self.random.within(20..=2 * count);
        match self.random.within(0..=4) {
            0 => Limit::token_bucket(count, second).burst(burst),
            1 => Limit::leaky_bucket(count, second).queue(burst),
            2 => Limit::fixed_window(count, second),
            3 => Limit::sliding_log(count, second),
            _ => Limit::sliding_counter(count, second),
        }
    }

    /// Who answers while the store is away, if anyone.
    pub(crate) fn failure_mode(&mut self) -> Option<FailureMode> {
        let modes = [None, Some(FailureMode::Closed), Some(FailureMode::Open), Some(FailureMode::local(2))];
        self.random.choose(&modes)
    }

    /// So long, more or less.
    pub(crate) fn about(&mut self, length: Duration) -> Duration {
        length * u32::try_from(self.random.within(80..=120)).unwrap_or(100) / 100
    }

    /// Settings of a store that gives up soon and tries again soon.
    pub(crate) fn builder(&self, url: &str) -> Builder {
        let servers = Servers::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let breaker = BreakerSettings {
            failures: 1,
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_millis(100),
            ..BreakerSettings::default()
        };
        let builder = RedisStore::builder(servers).prefix("chaos").breaker(breaker);
        let builder = builder.deadline(self.deadline).connect_timeout(self.deadline);
        if self.remembers_refusals { builder.remember_refusals(RefusalCache::default()) } else { builder }
    }

    pub(crate) fn store(&self, url: &str) -> RedisStore {
        build(self.builder(url))
    }
}

/// A store with a thread of its own for its connections.
pub(crate) fn build(builder: Builder) -> RedisStore {
    builder.build().expect("valid settings")
}

/// A limiter of one limit.
pub(crate) fn limiter(
    store: &RedisStore,
    name: &'static str,
    limit: Limit,
    mode: Option<FailureMode>,
) -> Limiter<RedisStore> {
    let policy = tidegate::Policy::new().limit(name, limit);
    let builder = Limiter::builder(policy).store(store.clone());
    let builder = match mode {
        Some(mode) => builder.on_failure(mode),
        None => builder,
    };
    builder.build().expect("a valid policy")
}
