//! A caller that waits for units, and what it waits for.

use std::sync::Arc;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Meter, StoreError};
use tidegate::{Key, Micros};
use tokio::sync::oneshot;
use tokio::time::Instant;

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
        Subject::replacing(check, |_| true)
    }

    /// The same, with some of the former limits only.
    pub(in crate::layer) fn replacing(check: &Check<'_>, is_replaced: impl Fn(&Meter) -> bool) -> Subject {
        let former = check.former().iter().filter(|former| is_replaced(former.meter));
        let former = former.map(|former| (former.meter.clone(), former.until));
        Subject { meter: check.meter().clone(), key: Key::from(check.key()).into_owned(), former: former.collect() }
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
    pub(super) resets: u64,
    pub(super) expires: Instant,
    /// `None` once it was told that its deadline is over.
    pub(super) tell: Option<oneshot::Sender<Answer>>,
}

impl Waiter {
    /// Whether the caller was there to hear it.
    pub(in crate::layer) fn tell(&mut self, answer: Answer) -> bool {
        self.tell.take().is_some_and(|tell| tell.send(answer).is_ok())
    }

    /// Whether units were asked for on its behalf.
    pub(in crate::layer) fn was_asked_for(&self) -> bool {
        self.lacked.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.tell.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// The instant so long after another; in 30 years if no instant is so late.
pub(in crate::layer) fn after(instant: Instant, wait: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(30 * 365 * 86_400);
    instant.checked_add(wait).unwrap_or(instant + AGE)
}
