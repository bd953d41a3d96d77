//! Where inline limits keep their states: apart from the policy's, so that no
//! caller can crowd the policy's keys out.
//!
//! Beside a memory store that is a second one, of `--inline-max-keys`, in which
//! keys without room [share](tidegate::store::memory::Overflow::Share) states.
//! On Redis it is the same store within a [budget](crate::ask::budget).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;

use tidegate::store::Store;
use tidegate::{Clock, MemoryStore, Micros};

use crate::ask::budget::{Bounded, Budget};
use crate::ask::snapshot::{self, StatesError};
use crate::ask::store::AnyStore;
use crate::settings::Settings;

/// The store of inline limits. Cheap to clone; clones are one store.
#[derive(Clone)]
pub(crate) struct InlineStore {
    /// Decides.
    pub(crate) store: AnyStore,
    /// For keys that are in the policy's store all the same.
    pub(crate) budget: Arc<Budget>,
}

impl InlineStore {
    /// The one beside `main`, at the same time.
    pub(crate) fn open(settings: &Settings, main: &AnyStore) -> Result<InlineStore, StatesError> {
        let max_keys = settings.inline_max_keys;
        let budget = Arc::new(Budget::new(max_keys, SameClock(main.clone()))?);
        let store = match main {
            AnyStore::Memory(_) => {
                let builder = MemoryStore::builder().max_keys(max_keys).clock(SameClock(main.clone()));
                snapshot::restore(builder, settings.snapshot.as_deref().map(file_of).as_deref())?.into()
            }
            AnyStore::Redis(store) => AnyStore::Bounded(Arc::new(Bounded::new(store.clone(), Arc::clone(&budget)))),
            AnyStore::Bounded(_) => main.clone(),
        };
        Ok(InlineStore { store, budget })
    }

    /// Keys that are live: counts them, which takes a while.
    pub(crate) fn count_keys(&self) -> usize {
        self.budget.count_keys() + self.memory().map_or(0, MemoryStore::count_keys)
    }

    /// Charges of keys for which there was no room.
    pub(crate) fn overflowed(&self) -> u64 {
        self.budget.refused() + self.memory().map_or(0, MemoryStore::overflowed)
    }

    fn memory(&self) -> Option<&MemoryStore> {
        match &self.store {
            AnyStore::Memory(store) => Some(store),
            AnyStore::Redis(_) | AnyStore::Bounded(_) => None,
        }
    }
}

/// The file of its states, beside the one of the policy's.
pub(crate) fn file_of(snapshot: &Path) -> PathBuf {
    snapshot::beside(snapshot, ".inline")
}

/// The time of another store.
struct SameClock(AnyStore);

impl Clock for SameClock {
    fn now(&self) -> Micros {
        self.0.clock().now()
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        self.0.clock().wake_at(at, waker);
    }
}
