//! A check of a round, and what is found out about it.

use super::MemoryStore;
use super::labels::Label;
use super::overflow::Full;
use crate::kernel::Admission;
use crate::store::{Check, MeterState};
use crate::time::Micros;

/// A check, or a former limit of it, on its way through a round.
pub(super) struct Step<'a> {
    pub(super) check: Check<'a>,
    pub(super) fingerprint: u64,
    pub(super) label: Option<Label<'a>>,
    pub(super) shelf: usize,
    pub(super) placement: Placement,
    pub(super) state: MeterState,
    /// The time to go by for this state.
    pub(super) at: Micros,
    pub(super) admission: Admission,
    /// What a check that writes nothing sees in place of a state that it
    /// would heal.
    pub(super) seen: Option<MeterState>,
    pub(super) changed: bool,
    /// Whether the state is here, and has to be saved again.
    pub(super) is_loaded: bool,
    /// Whether the key has a state already, of its own or a shared one.
    pub(super) has_used: bool,
    /// The step that the state migrates to; this one is not decided itself.
    pub(super) target: Option<usize>,
}

/// Where the state of a key is.
#[derive(Clone, Copy)]
pub(super) enum Placement {
    /// In a slot of its own.
    Own,
    /// Nowhere yet: a slot has been marked for it.
    Claimed,
    /// Nowhere, and none is needed: the check will write nothing.
    Unneeded,
    /// In a shared state, for lack of room.
    Shared,
    /// Nowhere, and there is no room at all.
    Missing(Full),
}

impl Step<'_> {
    pub(super) fn has_same_state(&self, other: &Step<'_>) -> bool {
        self.shelf == other.shelf && self.fingerprint == other.fingerprint
    }

    /// Whether its kernel is the user's own, which may panic.
    pub(super) fn is_custom(&self) -> bool {
        self.check.meter().is_custom()
    }
}

impl MemoryStore {
    pub(super) fn step<'a>(&self, check: Check<'a>) -> Step<'a> {
        let fingerprint = self.fingerprint(check);
        self.prefetch(check, fingerprint);
        Step {
            check,
            fingerprint,
            label: self.label(check),
            shelf: self.shelf_of(check),
            placement: Placement::Unneeded,
            state: MeterState::Fresh,
            at: Micros::ZERO,
            admission: Admission::PASS,
            seen: None,
            changed: false,
            is_loaded: false,
            has_used: false,
            target: None,
        }
    }
}
