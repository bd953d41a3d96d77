//! Who is measured: tidegate, governor, and what people write by hand.
//!
//! All of them answer the same request about the same `&String`: may it pass?
//! The answers are counted, and compared with what they must be. A batch makes
//! its decisions in full.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use governor::clock::{Clock, DefaultClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tidegate::{CoarseClock, Limit, Limiter, MemoryStore};

/// Something that says yes or no to a key.
pub(crate) trait Contestant: Sync {
    /// Whether the request may pass.
    #[expect(clippy::ptr_arg, reason = "governor looks keys up by the type it keeps")]
    fn check(&self, key: &String) -> bool;

    /// Checks one key after another; how many may pass. Compiled anew for each
    /// contestant, so that only the run of keys costs an indirect call.
    fn check_each(&self, keys: &[String]) -> usize {
        keys.iter().filter(|key| self.check(key)).count()
    }

    /// As [`check_each`](Contestant::check_each), but no check begins before
    /// the one before it is done: the fence keeps the processor from working
    /// on two at once, which a predicted branch on the answer would not.
    fn check_each_in_turn(&self, keys: &[String]) -> usize {
        let mut allowed = 0;
        for key in keys {
            allowed += usize::from(self.check(key));
            wait_for_all_before();
        }
        allowed
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
fn wait_for_all_before() {
    // SAFETY: SSE2 is part of x86-64, and the instruction only waits.
    unsafe { std::arch::x86_64::_mm_lfence() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn wait_for_all_before() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// What is allowed, in a form that every contestant understands.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// One more request in every such time.
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

impl Terms {
    /// Nothing is refused, and a key stays live for 36 s after each check: far
    /// longer than it waits for the next one. Fifty million is what the most
    /// popular key of a Zipf workload does not use up.
    pub(crate) const LIVE: Terms = Terms { interval: Duration::from_secs(36), burst: 50_000_000 };
    /// Nothing is refused to a single key that all threads ask for.
    pub(crate) const GENEROUS: Terms = Terms { interval: Duration::from_micros(1), burst: 1_000_000_000 };
    /// Forgotten a millisecond after the last check.
    pub(crate) const FLEETING: Terms = Terms { interval: Duration::from_millis(1), burst: 1 };
    /// Everything but the first request is refused.
    pub(crate) const REFUSING: Terms = Terms { interval: Duration::from_secs(86_400), burst: 1 };

    pub(crate) fn limit(self) -> Limit {
        Limit::token_bucket(1, self.interval).burst(u64::from(self.burst))
    }

    pub(crate) fn quota(self) -> Quota {
        let burst = NonZeroU32::new(self.burst).expect("a burst is at least one");
        Quota::with_period(self.interval).expect("an interval is not zero").allow_burst(burst)
    }
}

/// tidegate, one check at a time.
pub(crate) struct Tidegate(pub(crate) Limiter);

/// tidegate, with all that a decision tells.
struct TidegateWhole(Limiter);

impl Contestant for TidegateWhole {
    #[inline]
    fn check(&self, key: &String) -> bool {
        black_box(&self.0.check(key)).as_ref().is_ok_and(tidegate::Decision::is_allowed)
    }
}

/// tidegate, as many checks at a time.
struct TidegateBatch(Limiter, usize);

/// tidegate without keys.
struct TidegateDirect(Limiter);

/// One upkeep clock for all: quanta runs one such thread per process.
static UPKEEP: LazyLock<QuantaUpkeepClock> =
    LazyLock::new(|| QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("no other upkeep thread"));

/// One coarse clock for all, so that two ticking threads are the most there is.
pub(crate) static COARSE: LazyLock<CoarseClock> =
    LazyLock::new(|| CoarseClock::start().expect("a thread for the clock"));

/// tidegate as it comes, but for the number of keys.
pub(crate) fn tidegate(terms: Terms, max_keys: usize) -> Limiter {
    on(MemoryStore::builder().max_keys(max_keys), terms)
}

/// tidegate with its coarse clock.
pub(crate) fn tidegate_coarse(terms: Terms, max_keys: usize) -> Limiter {
    on(MemoryStore::builder().max_keys(max_keys).clock(COARSE.clone()), terms)
}

fn on(store: tidegate::MemoryStoreBuilder, terms: Terms) -> Limiter {
    let store = store.build().expect("a number of keys within bounds");
    Limiter::with_store(terms.limit(), store).expect("one limit is a policy")
}

impl Contestant for Tidegate {
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.allow(key)
    }
}

impl Contestant for TidegateBatch {
    fn check(&self, key: &String) -> bool {
        self.check_each(std::slice::from_ref(key)) == 1
    }

    fn check_each(&self, keys: &[String]) -> usize {
        let batches = keys.chunks(self.1).map(|batch| black_box(self.0.check_many(batch)));
        batches.flatten().map(|decisions| decisions.iter().filter(|decision| decision.is_allowed()).count()).sum()
    }

    /// A batch is what is waited for.
    fn check_each_in_turn(&self, keys: &[String]) -> usize {
        let mut allowed = 0;
        for batch in keys.chunks(self.1) {
            allowed += self.check_each(batch);
            wait_for_all_before();
        }
        allowed
    }
}

impl Contestant for TidegateDirect {
    #[inline]
    fn check(&self, _key: &String) -> bool {
        self.0.allow(())
    }
}

/// governor's keyed limiter.
pub(crate) struct Governor<S: BuildHasher + Clone, C: Clock>(
    pub(crate) RateLimiter<String, DashMapStateStore<String, S>, C, NoOpMiddleware<C::Instant>>,
);

/// governor as it comes: SipHash, and a reading of the clock per check.
pub(crate) type DefaultGovernor = Governor<RandomState, DefaultClock>;
/// governor's fastest set-up.
pub(crate) type TunedGovernor = Governor<foldhash::fast::RandomState, QuantaUpkeepClock>;

pub(crate) fn governor(terms: Terms) -> DefaultGovernor {
    Governor(RateLimiter::keyed(terms.quota()))
}

pub(crate) fn governor_tuned(terms: Terms) -> TunedGovernor {
    let hasher = foldhash::fast::RandomState::default();
    Governor(RateLimiter::dashmap_with_clock_and_hasher(terms.quota(), UPKEEP.clone(), hasher))
}

impl<S, C> Contestant for Governor<S, C>
where
    S: BuildHasher + Clone + Send + Sync,
    C: Clock + Sync,
    C::Instant: Sync,
{
    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// governor without keys.
struct GovernorDirect<C: Clock>(RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>);

impl<C> Contestant for GovernorDirect<C>
where
    C: Clock + Sync,
    C::Instant: Sync,
{
    #[inline]
    fn check(&self, _key: &String) -> bool {
        self.0.check().is_ok()
    }
}

/// The bucket of a blog post: two floats' worth of state, and `Instant::now`.
struct TokenBucket {
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    fn full(terms: Terms, now: Instant) -> TokenBucket {
        TokenBucket { tokens: f64::from(terms.burst), filled: now }
    }

    fn take(&mut self, terms: Terms, now: Instant) -> bool {
        let refill = (now - self.filled).as_secs_f64() / terms.interval.as_secs_f64();
        self.tokens = (self.tokens + refill).min(f64::from(terms.burst));
        self.filled = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

/// One lock around everything.
struct MutexMap(Terms, Mutex<HashMap<String, TokenBucket>>);

impl Contestant for MutexMap {
    #[inline]
    fn check(&self, key: &String) -> bool {
        let now = Instant::now();
        let mut buckets = self.1.lock().expect("not poisoned");
        let allowed = match buckets.get_mut(key) {
            Some(bucket) => bucket.take(self.0, now),
            None => buckets.entry(key.clone()).or_insert(TokenBucket::full(self.0, now)).take(self.0, now),
        };
        black_box(allowed)
    }
}

/// A lock around each shard.
struct ShardedMap(Terms, DashMap<String, TokenBucket>);

impl Contestant for ShardedMap {
    #[inline]
    fn check(&self, key: &String) -> bool {
        let now = Instant::now();
        let allowed = match self.1.get_mut(key) {
            Some(mut bucket) => bucket.take(self.0, now),
            None => self.1.entry(key.clone()).or_insert(TokenBucket::full(self.0, now)).take(self.0, now),
        };
        black_box(allowed)
    }
}

/// A contestant under its name.
pub(crate) type Entry = (&'static str, Box<dyn Contestant>);

/// Makes a contestant with no keys yet and room for so many.
pub(crate) type Make = fn(Terms, usize) -> Box<dyn Contestant>;

pub(crate) const TIDEGATE: &str = "tidegate";
pub(crate) const WHOLE_DECISION: &str = "tidegate, whole decision";
pub(crate) const COARSE_TIDEGATE: &str = "tidegate, coarse clock";
pub(crate) const BATCH_OF_16: &str = "tidegate, batches of 16";
pub(crate) const BATCH_OF_64: &str = "tidegate, batches of 64";
pub(crate) const GOVERNOR: &str = "governor";
pub(crate) const TUNED_GOVERNOR: &str = "governor, foldhash and upkeep clock";
pub(crate) const MUTEX_MAP: &str = "Mutex<HashMap>, by hand";
pub(crate) const SHARDED_MAP: &str = "DashMap, by hand";

/// Contestants that take keys.
pub(crate) const KEYED: [(&str, Make); 9] = [
    (TIDEGATE, |terms, max_keys| Box::new(Tidegate(tidegate(terms, max_keys)))),
    (WHOLE_DECISION, |terms, max_keys| Box::new(TidegateWhole(tidegate(terms, max_keys)))),
    (COARSE_TIDEGATE, |terms, max_keys| Box::new(Tidegate(tidegate_coarse(terms, max_keys)))),
    (BATCH_OF_16, |terms, max_keys| Box::new(TidegateBatch(tidegate(terms, max_keys), 16))),
    (BATCH_OF_64, |terms, max_keys| Box::new(TidegateBatch(tidegate(terms, max_keys), 64))),
    (GOVERNOR, |terms, _| Box::new(governor(terms))),
    (TUNED_GOVERNOR, |terms, _| Box::new(governor_tuned(terms))),
    (MUTEX_MAP, |terms, _| Box::new(MutexMap(terms, Mutex::default()))),
    (SHARDED_MAP, |terms, _| Box::new(ShardedMap(terms, DashMap::new()))),
];

/// Contestants that can do without keys.
pub(crate) const DIRECT: [(&str, Make); 4] = [
    (TIDEGATE, |terms, _| Box::new(TidegateDirect(Limiter::new(terms.limit())))),
    (COARSE_TIDEGATE, |terms, max_keys| Box::new(TidegateDirect(tidegate_coarse(terms, max_keys)))),
    (GOVERNOR, |terms, _| Box::new(GovernorDirect(RateLimiter::direct(terms.quota())))),
    (TUNED_GOVERNOR, |terms, _| {
        Box::new(GovernorDirect(RateLimiter::direct_with_clock(terms.quota(), UPKEEP.clone())))
    }),
];

/// All of them, made on the same terms.
pub(crate) fn enter(makes: &[(&'static str, Make)], terms: Terms, max_keys: usize) -> Vec<Entry> {
    makes.iter().map(|(name, make)| (*name, make(terms, max_keys))).collect()
}
