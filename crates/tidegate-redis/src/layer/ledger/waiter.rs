//! A caller that waits for units, and what it waits for.

use std::sync::Arc;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, StoreError};
use tidegate::{Key, Micros};
use tokio::sync::oneshot;

use crate::failure::RedisFailure;

/// What a caller is told that waited for units.
pub(in crate::layer) type Answer = Result<(Verdict, Micros), StoreError>;

/// One limit of one key, with the limits that it replaced: a check that
/// borrows nothing, for what is asked in the background.
#[derive(Clone)]
pub(in crate::layer) struct Subject {
    pub(in crate::layer) meter: Meter,
    pub(in crate::layer) key: Key<'static>,
    former: Vec<(Meter, Micros)>,
}

impl Subject {
    pub(in crate::layer) fn of(check: &Check<'_>) -> Subject {
        let former = check.former().iter().map(|former| (former.meter.clone(), former.until)).collect();
        Subject { meter: check.meter().clone(), key: Key::from(check.key()).into_owned(), former }
    }

    /// Whether a check of the same state has the same limit and former limits. Different limits
    /// can share a state: fixed windows that go by their period.
    pub(super) fn is_of(&self, check: &Check<'_>) -> bool {
        let former = self.former.iter().map(|(meter, until)| (meter, *until));
        self.meter == *check.meter() && former.eq(check.former().iter().map(|former| (former.meter, former.until)))
    }

    /// A check of it.
    pub(in crate::layer) fn check<'a>(
        &'a self,
        verb: Verb,
        cost: u64,
        former: &'a [Former<'a>],
    ) -> Result<Check<'a>, RedisFailure> {
        let check = Check::new(&self.meter, &self.key, verb, cost);
        check.map(|check| check.with_former(former)).map_err(|_| RedisFailure::Garbled { what: "a cost" })
    }

    /// The limits that its limit replaced.
    pub(in crate::layer) fn former(&self) -> Vec<Former<'_>> {
        self.former.iter().map(|(meter, until)| Former { meter, until: *until }).collect()
    }
}

/// A caller that waits for units.
pub(in crate::layer) struct Waiter {
    pub(in crate::layer) cost: u64,
    pub(in crate::layer) subject: Arc<Subject>,
    /// What it lacked, together with all before it, when the request for units began that is under
    /// way; `None` if that request is not for it.
    pub(super) lacked: Option<u64>,
    /// How often the state had been reset when it took its cost.
    pub(in crate::layer) resets: u64,
    pub(in crate::layer) tell: oneshot::Sender<Answer>,
}

impl Waiter {
    /// Whether units were asked for on its behalf.
    pub(in crate::layer) fn was_asked_for(&self) -> bool {
        self.lacked.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.tell.is_closed()
    }
}
