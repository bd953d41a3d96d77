//! A check of a round, and what is found out about it.

use super::MemoryStore;
use super::labels::Label;
use super::overflow::Full;
use crate::store::Check;

/// The state of a check, or of a former limit of it, on its way through a round.
pub(super) struct Step<'a> {
    /// The check, or one of the former limit that writes nothing by itself.
    pub(super) check: Check<'a>,
    pub(super) fingerprint: u64,
    pub(super) label: Option<Label<'a>>,
    pub(super) shelf: usize,
    pub(super) placement: Placement,
    /// Whether the state is in the slice, and has to be saved again.
    pub(super) is_loaded: bool,
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
}

impl MemoryStore {
    pub(super) fn step<'a>(&self, check: Check<'a>) -> Step<'a> {
        let fingerprint = self.fingerprint(check);
        self.prefetch(check, fingerprint);
        let (label, shelf) = (self.label(check), self.shelf_of(check));
        Step { check, fingerprint, label, shelf, placement: Placement::Unneeded, is_loaded: false }
    }
}
