//! What a store has done, in numbers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a [`RedisStore`](crate::RedisStore) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Commands sent to the servers.
    pub round_trips: u64,
    /// Calls that failed for lack of an answer or a connection.
    pub failures: u64,
    /// Calls that a server refused, such as for want of a password or of memory.
    pub refused: u64,
    /// Whether the latest answer of a server was such a refusal.
    pub refusing: bool,
    /// Calls that were not made, because the servers were away.
    pub calls_skipped: u64,
    /// Outages that were noticed.
    pub outages: u64,
    /// Decisions that were made without asking the servers: from a lease.
    pub leased: u64,
    /// Refusals that were repeated without asking the servers.
    pub repeated: u64,
    /// Units on lease now, over all keys.
    pub units_on_lease: u64,
    /// Parts of the servers that are away now; a single server is one part.
    pub away: usize,
}

/// What the client of the servers counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    round_trips: AtomicU64,
    failures: AtomicU64,
    refused: AtomicU64,
    refusing: AtomicBool,
    calls_skipped: AtomicU64,
    outages: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A server has answered, or refused to.
    pub(crate) fn heard(&self, refused: bool) {
        if refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        // Most hear what they heard before: no need to take the cache line for it.
        if self.refusing.load(Ordering::Relaxed) != refused {
            self.refusing.store(refused, Ordering::Relaxed);
        }
    }

    pub(crate) fn call_skipped(&self) {
        self.calls_skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.outages.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted here; the layers above count for themselves.
    pub(crate) fn read(&self, away: usize) -> Statistics {
        Statistics {
            round_trips: self.round_trips.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            refusing: self.refusing.load(Ordering::Relaxed),
            calls_skipped: self.calls_skipped.load(Ordering::Relaxed),
            outages: self.outages.load(Ordering::Relaxed),
            away,
            ..Statistics::default()
        }
    }
}
