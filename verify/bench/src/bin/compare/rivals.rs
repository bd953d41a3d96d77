//! Who is asked: each limiter behind one request, with a clock to set where it
//! has one.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use governor::clock::{Clock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Expression};
use tidegate::{CheckError, Limit, Limiter, ManualClock, MemoryStore, Micros, Request};

/// What is wanted of a limiter: a token bucket, or what it has instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) count: u32,
    pub(crate) period: Duration,
    pub(crate) burst: u32,
    /// How many keys to have room for.
    pub(crate) keys: usize,
}

/// What a limiter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Wait(Duration),
    /// Not now, without a word about when.
    Refused,
    /// It can never pass.
    Never,
}

/// A limiter of any project.
pub(crate) trait Subject: Sync {
    fn ask(&self, key: &str, cost: u32) -> Outcome;

    /// Moves its clock on; false if it has none that can be set.
    fn advance(&self, time: Duration) -> bool;
}

/// How a subject is made; none if it cannot be what is wanted.
pub(crate) type Make = fn(Wanted) -> Option<Box<dyn Subject>>;

/// All of them, by name and version.
pub(crate) const RIVALS: [(&str, Make); 5] = [
    ("tidegate", Tidegate::make),
    ("governor 0.10.4", Governor::make),
    ("throttlecrab 0.4.40", Throttlecrab::make),
    ("limitador 0.14", Limitador::make),
    ("rate-net 2.1", RateNet::make),
];

const START: u64 = 1_700_000_000_000_000;

struct Tidegate {
    limiter: Limiter,
    clock: ManualClock,
}

impl Tidegate {
    fn make(wanted: Wanted) -> Option<Box<dyn Subject>> {
        let clock = ManualClock::at(Micros::new(START));
        let limit = Limit::try_token_bucket(wanted.count.into(), wanted.period).ok()?.try_burst(wanted.burst.into());
        let store = MemoryStore::builder().max_keys(wanted.keys).clock(clock.clone()).build().ok()?;
        Some(Box::new(Tidegate { limiter: Limiter::with_store(limit.ok()?, store).ok()?, clock }))
    }
}

impl Subject for Tidegate {
    fn ask(&self, key: &str, cost: u32) -> Outcome {
        match self.limiter.check(Request::new(key).cost(cost.into())) {
            Ok(decision) if decision.is_allowed() => Outcome::Allowed,
            Ok(decision) => Outcome::Wait(decision.retry_after()),
            Err(CheckError::Unsatisfiable { .. }) => Outcome::Never,
            Err(error) => panic!("the memory store answers: {error}"),
        }
    }

    fn advance(&self, time: Duration) -> bool {
        self.clock.advance(time);
        true
    }
}

type Dash = governor::state::keyed::DashMapStateStore<String>;

struct Governor {
    limiter: RateLimiter<String, Dash, FakeRelativeClock, NoOpMiddleware<<FakeRelativeClock as Clock>::Instant>>,
    clock: FakeRelativeClock,
}

impl Governor {
    fn make(wanted: Wanted) -> Option<Box<dyn Subject>> {
        let (count, burst) = (NonZeroU32::new(wanted.count)?, NonZeroU32::new(wanted.burst)?);
        let quota = if wanted.period == Duration::from_secs(1) {
            Quota::per_second(count)
        } else {
            Quota::with_period(wanted.period / wanted.count)?
        };
        let clock = FakeRelativeClock::default();
        // An instant with enough time before it.
        clock.advance(Duration::from_secs(1_000_000));
        Some(Box::new(Governor {
            limiter: RateLimiter::dashmap_with_clock(quota.allow_burst(burst), clock.clone()),
            clock,
        }))
    }
}

impl Subject for Governor {
    fn ask(&self, key: &str, cost: u32) -> Outcome {
        let Some(cost) = NonZeroU32::new(cost) else { return Outcome::Allowed };
        match self.limiter.check_key_n(&key.to_owned(), cost) {
            Ok(Ok(())) => Outcome::Allowed,
            Ok(Err(not_until)) => Outcome::Wait(not_until.wait_time_from(self.clock.now())),
            Err(_) => Outcome::Never,
        }
    }

    fn advance(&self, time: Duration) -> bool {
        self.clock.advance(time);
        true
    }
}

struct Throttlecrab {
    wanted: Wanted,
    inner: Mutex<(throttlecrab::RateLimiter<throttlecrab::AdaptiveStore>, SystemTime)>,
}

impl Throttlecrab {
    fn make(wanted: Wanted) -> Option<Box<dyn Subject>> {
        // It counts periods in whole seconds.
        if wanted.period.subsec_nanos() > 0 {
            return None;
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(START);
        let limiter = throttlecrab::RateLimiter::new(throttlecrab::AdaptiveStore::new());
        Some(Box::new(Throttlecrab { wanted, inner: Mutex::new((limiter, now)) }))
    }
}

impl Subject for Throttlecrab {
    fn ask(&self, key: &str, cost: u32) -> Outcome {
        let Wanted { count, period, burst, .. } = self.wanted;
        let mut inner = self.inner.lock().expect("not poisoned");
        let (limiter, now) = &mut *inner;
        let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
        match limiter.rate_limit(key, burst.into(), count.into(), period, cost.into(), *now) {
            Ok((true, _)) => Outcome::Allowed,
            Ok((false, result)) => Outcome::Wait(result.retry_after),
            Err(_) => Outcome::Never,
        }
    }

    fn advance(&self, time: Duration) -> bool {
        self.inner.lock().expect("not poisoned").1 += time;
        true
    }
}

/// Fixed windows of whole seconds, by the machine's own clock.
struct Limitador {
    limiter: limitador::RateLimiter,
}

impl Limitador {
    fn make(wanted: Wanted) -> Option<Box<dyn Subject>> {
        if wanted.period.subsec_nanos() > 0 {
            return None;
        }
        let key = Expression::parse("key").ok()?;
        let limit = limitador::limit::Limit::new("all", wanted.burst.into(), wanted.period.as_secs(), [], [key]);
        let limiter = limitador::RateLimiter::new(wanted.keys as u64);
        limiter.add_limit(limit);
        Some(Box::new(Limitador { limiter }))
    }
}

impl Subject for Limitador {
    fn ask(&self, key: &str, cost: u32) -> Outcome {
        let context = Context::from(HashMap::from([("key".to_owned(), key.to_owned())]));
        match self.limiter.check_rate_limited_and_update(&"all".into(), &context, cost.into()) {
            Ok(result) if result.limited => Outcome::Refused,
            Ok(_) => Outcome::Allowed,
            Err(error) => panic!("limitador answers: {error:?}"),
        }
    }

    fn advance(&self, _: Duration) -> bool {
        false
    }
}

struct RateNet {
    limiter: rate_net::RateLimiter<Arc<clock_lib::ManualClock>>,
    clock: Arc<clock_lib::ManualClock>,
}

impl RateNet {
    fn make(wanted: Wanted) -> Option<Box<dyn Subject>> {
        let clock = Arc::new(clock_lib::ManualClock::new());
        let builder = rate_net::RateLimiter::builder().quota(wanted.count, wanted.period).burst(wanted.burst);
        let builder = builder.eviction(rate_net::Eviction::capacity(wanted.keys)).clock(Arc::clone(&clock));
        Some(Box::new(RateNet { limiter: builder.try_build().ok()?, clock }))
    }
}

impl Subject for RateNet {
    fn ask(&self, key: &str, cost: u32) -> Outcome {
        match self.limiter.check_n_bytes(key, cost) {
            rate_net::Decision::Deny { retry_after: Duration::MAX } => Outcome::Never,
            rate_net::Decision::Deny { retry_after } => Outcome::Wait(retry_after),
            _ => Outcome::Allowed,
        }
    }

    fn advance(&self, time: Duration) -> bool {
        self.clock.advance(time);
        true
    }
}
