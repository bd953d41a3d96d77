//! Which states were given something back, and how often.
//!
//! A refusal that is older than what its state was given back may be wrong.
//! The layer that remembers refusals compares counts; a store that gives units
//! back by itself, after it undid a charge, counts here as well.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::SeedableRandomState;
use tidegate::store::Check;

/// A count for each state; states share one by their hash, so it may be too
/// high, which makes a refusal forgotten too early.
#[derive(Debug)]
pub(crate) struct GivenBack {
    /// Random, so that no caller can choose keys that share a counter.
    hasher: SeedableRandomState,
    counters: Box<[AtomicU64]>,
}

const COUNTERS: usize = 1_024;

impl GivenBack {
    pub(crate) fn new(hasher: SeedableRandomState) -> GivenBack {
        GivenBack { hasher, counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes that the states of these checks were given something back.
    pub(crate) fn note<'c>(&self, checks: impl IntoIterator<Item = &'c Check<'c>>) {
        for check in checks {
            self.counter(check).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often the states of these checks were, all in all.
    pub(crate) fn count(&self, checks: &[Check<'_>]) -> u64 {
        checks.iter().map(|check| self.counter(check).load(Ordering::SeqCst)).fold(0, u64::wrapping_add)
    }

    fn counter(&self, check: &Check<'_>) -> &AtomicU64 {
        let hash = self.hasher.hash_one((check.meter().identity(), check.key().as_bytes()));
        &self.counters[hash as usize % COUNTERS]
    }
}
