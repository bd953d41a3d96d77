//! Shares of limits for clients that enforce them by themselves, as Envoy does by RLQS.
//!
//! A [`Lease`] is what one client has of the limits of one bucket: units that are permits in a
//! [ledger](ledger), and the token bucket that they make. It is sans-IO: [reports](Lease::report) go
//! in, [actions](Action) come out of [`Lease::step`], and only the store is asked.
//!
//! An assignment lives for a time from when the client receives it, which is at most
//! [`DELIVERY`] after the step that made it began. Its units are held for that long and, after that,
//! for as long as they lie [fallow](pool). What is renewed sooner goes on. To shrink is to send the
//! smaller assignment and to hold the rest until the larger one has run out. So of every unit there
//! is one holder at most at any time, and each holder finds as many tokens as the limit itself would
//! have by then.

mod division;
mod group;
mod lease;
mod ledger;
pub(crate) mod pool;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::store::{Meter, Store, StoreError};
use tidegate::{Key, LimitOf, Micros};

use self::group::Group;
pub(crate) use self::lease::{Action, Lease};
use self::ledger::Ledgers;
use self::pool::Pool;

/// How long an assignment may take from the step that makes it to its client.
pub(crate) const DELIVERY: Micros = Micros::new(1_000_000);

/// After so long a client that waits for units asks again: less than the time between two steps of a stream, and no
/// more often, however many messages it sends.
const RETRY: Micros = Micros::new(200_000);

/// Whether several servers may share the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// This one has it for itself, and its ledgers began empty.
    Alone,
    /// Others may have it, too.
    WithOthers,
}

/// All shares that this server has handed out.
pub(crate) struct Quotas<S> {
    store: S,
    ttl: Micros,
    sharing: Sharing,
    started: Micros,
    ledgers: Ledgers,
    /// What the ids of this server's permits begin with.
    name: String,
    next: AtomicU64,
    groups: Mutex<Groups>,
}

/// By where the limits are counted: each for as long as it has clients.
type Groups = HashMap<Box<[Key<'static>]>, Arc<Group>>;

/// What a bucket is limited by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    /// By nothing.
    Unlimited,
    /// Nothing of it passes.
    Blocked,
    /// By a share of these limits together.
    By {
        pool: Pool,
        /// Each limit by itself, and where it is counted; the slowest first.
        parts: Arc<[(Key<'static>, Pool)]>,
    },
}

impl<S: Store> Quotas<S> {
    /// On a store, with assignments that live for so long: in whole seconds, one at least.
    pub(crate) fn new(store: S, ttl: Micros, sharing: Sharing, name: String) -> Quotas<S> {
        let (started, expiry) = (store.clock().now(), ttl.saturating_add(ttl).saturating_add(DELIVERY));
        let (ledgers, next, groups) = (Ledgers::new(expiry, ttl), AtomicU64::new(0), Mutex::default());
        Quotas { store, ttl, sharing, started, ledgers, name, next, groups }
    }

    pub(crate) fn now(&self) -> Micros {
        self.store.clock().now()
    }

    /// Whether what was decided so long ago may come too late to its client: it could live longer than its units are
    /// held for.
    pub(crate) fn is_late(&self, decided: Micros) -> bool {
        self.now().saturating_since(decided) > Micros::new(DELIVERY.get() / 2)
    }

    /// What the limits of a request come to; `None` if a rule blocks it. Limits that cannot be
    /// divided are left out.
    pub(crate) fn limited(&self, limits: Option<&[LimitOf]>) -> Limited {
        let Some(limits) = limits else { return Limited::Blocked };
        let part = |applied: &LimitOf| Some((ledger::key_of(applied), Pool::of(applied, self.ttl)?));
        let mut parts: Vec<(Key<'static>, Pool)> = limits.iter().filter_map(part).collect();
        parts.sort_by(|(_, one), (_, other)| other.is_slower_than(one).cmp(&one.is_slower_than(other)));
        match parts.split_first() {
            None => Limited::Unlimited,
            Some(((_, first), others)) => {
                let pool = others.iter().fold(first.clone(), |pool, (_, other)| pool.and(other));
                Limited::By { pool, parts: parts.into() }
            }
        }
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Has other servers know of one client more that is counted here, until that expires.
    async fn call(&self, meter: &Meter, key: &Key<'_>) -> Result<bool, StoreError> {
        ledger::take(&self.store, (meter, key), &format!("{}-{}", self.name, self.next_id()), 1).await
    }

    /// The clients of the same limits.
    fn group(&self, parts: &[(Key<'static>, Pool)]) -> Arc<Group> {
        let keys: Box<[Key<'static>]> = parts.iter().map(|(key, _)| key.clone()).collect();
        let mut groups = self.lock();
        Arc::clone(groups.entry(keys).or_insert_with_key(|keys| Arc::new(Group::new(keys.clone()))))
    }

    /// A client has left its group, which is forgotten with the last one.
    fn forget(&self, group: Arc<Group>) {
        let mut groups = self.lock();
        // The map has one, and this client. All come and go under the lock.
        if Arc::strong_count(&group) == 2 {
            groups.remove(&group.keys);
        }
        drop(group);
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
