//! The text of keys, for listings.
//!
//! One cell per slot of a table, written when the slot changes hands. Off by
//! default: a fingerprint is enough to limit, and holds no personal data.

use crate::name::Name;
use crate::request::Key;
use crate::sync::{Mutex, lock};

/// A rule and one of its keys.
pub(super) type Listed = (Name, Key<'static>);

/// The same, borrowed from a check.
pub(super) type Label<'a> = (&'a Name, &'a Key<'a>);

pub(super) struct Labels {
    cells: Box<[Mutex<Option<Box<Listed>>>]>,
}

impl Labels {
    pub(super) fn new(slots: usize) -> Labels {
        Labels { cells: (0..slots).map(|_| Mutex::new(None)).collect() }
    }

    pub(super) fn put(&self, slot: usize, label: Option<Label<'_>>) {
        let label = label.map(|(rule, key)| Box::new((rule.clone(), key.clone().into_owned())));
        *lock(&self.cells[slot]) = label;
    }

    pub(super) fn take(&self, slot: usize) -> Option<Box<Listed>> {
        lock(&self.cells[slot]).take()
    }

    pub(super) fn restore(&self, slot: usize, label: Option<Box<Listed>>) {
        *lock(&self.cells[slot]) = label;
    }

    pub(super) fn get(&self, slot: usize) -> Option<Listed> {
        lock(&self.cells[slot]).as_deref().cloned()
    }
}
