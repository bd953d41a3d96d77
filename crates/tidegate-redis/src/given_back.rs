//! Which states were given something back, and how often.
//!
//! A refusal that is older than what its state was given back may be wrong.
//! The layer that remembers refusals compares counts; a store that gives units
//! back by itself, after it undid a charge, counts here as well.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::store::Check;

/// A count for each state; states share one by their hash, so it may be too
/// high, which makes a refusal forgotten too early.
#[derive(Debug)]
pub(crate) struct GivenBack {
    hashing: Hashing,
    counters: Box<[AtomicU64]>,
}

/// Decides which states share a counter.
#[derive(Clone, Debug)]
pub(crate) enum Hashing {
    /// No caller can choose keys that share one.
    Random(RandomState),
    /// The same every time: in the simulation all chance comes from the seed.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the simulation needs it"))]
    Fixed(BuildHasherDefault<DefaultHasher>),
}

const COUNTERS: usize = 1_024;

impl GivenBack {
    pub(crate) fn new(hashing: Hashing) -> GivenBack {
        GivenBack { hashing, counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
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
        let hash = self.hashing.hash(&(check.meter().identity(), check.key().as_bytes()));
        &self.counters[hash as usize % COUNTERS]
    }
}

impl Hashing {
    pub(crate) fn hash(&self, value: &impl Hash) -> u64 {
        match self {
            Hashing::Random(state) => state.hash_one(value),
            Hashing::Fixed(state) => state.hash_one(value),
        }
    }
}

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing::Random(RandomState::new())
    }
}
