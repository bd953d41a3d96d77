//! A layer, a store over a store: it decides by another store, and counts
//! the decisions that took longer than a threshold.
//!
//! `cargo test -p tidegate --example custom_layer` runs the conformance suite on it.

use std::error::Error;

use tidegate::{Limit, Limiter, MemoryStore};

// ANCHOR: store
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::kernel::Verdict;
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{Clock, Micros};

/// A store that counts how many decisions of the one below it are slow.
struct Timed<S> {
    inner: S,
    threshold: Duration,
    slow: Arc<AtomicU64>,
}

impl<S: Store> Store for Timed<S> {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let began = Instant::now();
        // The whole slice goes down in one call: it is decided as a whole.
        let decided = self.inner.decide(checks, verdicts).await;
        if began.elapsed() > self.threshold {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        decided
    }

    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
}

// It answers at once if the store below does: then `Limiter::check` works, too.
impl<S: ImmediateStore> ImmediateStore for Timed<S> {}
// ANCHOR_END: store

fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: use
    let slow = Arc::new(AtomicU64::new(0));
    let store = Timed { inner: MemoryStore::default(), threshold: Duration::from_secs(1), slow: Arc::clone(&slow) };
    let limiter = Limiter::builder(Limit::per_second(2)).store(store).build()?;
    for _ in 0..3 {
        println!("{}", limiter.check("alice")?);
    }
    println!("{} slow decisions", slow.load(Ordering::Relaxed));
    // ANCHOR_END: use
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    // ANCHOR: test
    use tidegate::ManualClock;

    tidegate_testkit::conformance!(timed, || {
        let clock = ManualClock::default();
        let inner = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().expect("valid settings");
        (Timed { inner, threshold: Duration::from_secs(1), slow: Arc::default() }, clock)
    });
    // ANCHOR_END: test
}
