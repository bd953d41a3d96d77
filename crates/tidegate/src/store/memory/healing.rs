//! Where a state that was loaded for a decision is healed.

use super::MemoryStore;
use crate::kernel::Kernel;
use crate::store::Check;
use crate::time::Micros;

/// How to decide on a state that was loaded.
pub(super) struct Healed<S> {
    /// The time to decide at.
    pub(super) at: Micros,
    /// What a check that writes nothing sees in place of a state that it
    /// would heal.
    pub(super) seen: Option<S>,
    /// Whether the state was healed, and has to be written.
    pub(super) changed: bool,
}

impl MemoryStore {
    /// Heals a state for a check that would be decided at the time `at`;
    /// `None` if it needs no healing.
    #[inline(always)]
    pub(super) fn heal<K>(
        &self,
        kernel: &K,
        state: &mut K::State,
        at: Micros,
        check: Check<'_>,
    ) -> Option<Healed<K::State>>
    where
        K: Kernel + ?Sized,
    {
        kernel.heal(state, at).is_some().then(|| self.heal_later(kernel, state, at, check))
    }

    /// A state that seems to come from the future may only mean that this
    /// thread slept since it read the clock. So the clock is read again, now
    /// that the state is locked; but the time never goes back for a key.
    #[cold]
    fn heal_later<K>(&self, kernel: &K, state: &mut K::State, at: Micros, check: Check<'_>) -> Healed<K::State>
    where
        K: Kernel + ?Sized,
    {
        let at = self.clock.now().max(at);
        match kernel.heal(state, at) {
            Some(full) if check.act().writes() => {
                *state = full;
                Healed { at, seen: None, changed: true }
            }
            seen => Healed { at, seen, changed: false },
        }
    }
}
