//! Callers that ask without end, and what became of them.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::kernel::{Verb, Verdict};
use tidegate::{Check, Key, Limit, Meter, Name, Store, StoreError};
use tidegate_redis::{RedisFailure, RedisStore};
use tidegate_testkit::servers::eventually;
use tokio::task::JoinHandle;

use super::RUNTIME;

/// How long a call may take beyond its deadline on a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// Between two questions of one caller, so that a fault is met half-way.
const PAUSE: Duration = Duration::from_millis(10);

/// Callers of one key, each asking for one unit at a time.
pub(crate) struct Load {
    seen: Arc<Seen>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    over: AtomicBool,
    admitted: AtomicU64,
    refused: AtomicU64,
    /// Without an answer, though it may have been carried out.
    in_doubt: AtomicU64,
    turned_away: AtomicU64,
    longest: Mutex<Duration>,
    last_failure: Mutex<Option<String>>,
}

/// What became of a [`Load`].
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) in_doubt: u64,
    pub(crate) turned_away: u64,
    pub(crate) longest: Duration,
    pub(crate) last_failure: Option<String>,
}

impl Load {
    /// So many callers, each asking for all of `limits` at once.
    pub(crate) fn start(store: &RedisStore, callers: usize, key: &str, limits: &[Limit]) -> Load {
        let seen = Arc::new(Seen::default());
        let callers = (0..callers).map(|_| {
            let (store, seen, key, limits) = (store.clone(), Arc::clone(&seen), key.to_owned(), limits.to_vec());
            RUNTIME.spawn(async move { call_until_over(&store, &seen, &key, &limits).await })
        });
        let callers = callers.collect();
        Load { seen, callers }
    }

    /// What has become of it so far.
    pub(crate) fn tally(&self) -> Tally {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Tally {
            admitted: count(&self.seen.admitted),
            refused: count(&self.seen.refused),
            in_doubt: count(&self.seen.in_doubt),
            turned_away: count(&self.seen.turned_away),
            longest: *self.seen.longest.lock().unwrap_or_else(PoisonError::into_inner),
            last_failure: self.seen.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Waits for so many more answers; returns how long it took.
    pub(crate) fn wait_for_answers(&self, more: u64) -> Duration {
        let (began, before) = (Instant::now(), self.tally().answered());
        eventually("answers", Duration::from_secs(30), || {
            let tally = self.tally();
            if tally.answered() >= before + more { Ok(()) } else { Err(tally) }
        });
        began.elapsed()
    }

    /// Waits until so many were admitted.
    pub(crate) fn wait_for_admitted(&self, admitted: u64) {
        eventually("admissions", Duration::from_secs(30), || {
            let tally = self.tally();
            if tally.admitted >= admitted { Ok(()) } else { Err(tally) }
        });
    }

    /// Goes on until there is nothing left to admit, and ends.
    pub(crate) fn exhaust(self) -> Tally {
        let before = self.tally().refused;
        eventually("the limit to be used up", Duration::from_secs(60), || {
            let tally = self.tally();
            if tally.refused >= before + 20 { Ok(()) } else { Err(tally) }
        });
        self.finish()
    }

    pub(crate) fn finish(self) -> Tally {
        self.seen.over.store(true, Ordering::SeqCst);
        RUNTIME.block_on(async {
            for caller in &mut { self.callers } {
                caller.await.expect("a caller does not panic");
            }
        });
        let seen = self.seen;
        Load { seen, callers: Vec::new() }.tally()
    }
}

async fn call_until_over(store: &RedisStore, seen: &Seen, key: &str, limits: &[Limit]) {
    let key = Key::from(key);
    let meters: Vec<Meter> = limits.iter().map(|limit| Meter::new(Name::literal("load"), *limit)).collect();
    let checks = meters.iter().map(|meter| Check::new(meter, &key, Verb::Charge, 1).expect("a cost of one"));
    let checks: Vec<Check<'_>> = checks.collect();
    while !seen.over.load(Ordering::SeqCst) {
        let mut verdicts = vec![Verdict::default(); checks.len()];
        let began = Instant::now();
        let outcome = store.decide(&checks, &mut verdicts).await;
        let took = began.elapsed();
        let counter = match &outcome {
            Ok(_) if verdicts.iter().all(|verdict| verdict.allowed) => &seen.admitted,
            Ok(_) => &seen.refused,
            Err(error) => {
                let failure = failure_of(error);
                *seen.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{failure:?}"));
                match failure {
                    RedisFailure::Away { .. } => &seen.turned_away,
                    _ => &seen.in_doubt,
                }
            }
        };
        counter.fetch_add(1, Ordering::SeqCst);
        {
            let mut longest = seen.longest.lock().unwrap_or_else(PoisonError::into_inner);
            *longest = took.max(*longest);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Tally {
    pub(crate) fn answered(&self) -> u64 {
        self.admitted + self.refused
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { admitted, refused, in_doubt, turned_away, longest, last_failure } = self;
        write!(f, "{admitted} admitted, {refused} refused, {in_doubt} in doubt, {turned_away} turned away, ")?;
        write!(f, "longest call {longest:?}, last failure {last_failure:?}")
    }
}

/// The store's own word on why it did not answer.
pub(crate) fn failure_of(error: &StoreError) -> RedisFailure {
    let failure = error.source().and_then(|source| source.downcast_ref::<RedisFailure>());
    failure.unwrap_or_else(|| panic!("not a failure of Redis: {error:?}")).clone()
}
