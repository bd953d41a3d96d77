//! The keyed hash by which a store knows its keys.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// What makes this store's fingerprints differ from every other's.
pub(super) struct Seeds {
    pub(super) hasher: u64,
    pub(super) shared_seed: u64,
    shared: SharedSeed,
}

impl Seeds {
    pub(super) fn random() -> Seeds {
        if cfg!(loom) {
            // The model checker repeats a run step by step.
            return Seeds::new(1, 2);
        }
        // The standard library seeds its hasher from the operating system.
        let random = || RandomState::new().build_hasher().finish();
        Seeds::new(random(), random())
    }

    pub(super) fn new(hasher: u64, shared_seed: u64) -> Seeds {
        Seeds { hasher, shared_seed, shared: SharedSeed::from_u64(shared_seed) }
    }
    #[inline(always)]
    pub(super) fn fingerprint(&self, namespace: u64, bytes: &[u8]) -> u64 {
        // The namespace is written, not mixed into the seed: foldhash mixes the
        // key there too, and a key could then be chosen to undo it.
        let mut hasher = FoldHasher::with_seed(self.hasher, &self.shared);
        hasher.write_u64(namespace);
        hasher.write(bytes);
        hasher.finish()
    }
}
