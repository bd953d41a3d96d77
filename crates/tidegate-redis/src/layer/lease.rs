//! Which rules are leased, and what that costs in exactness.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::{RandomState, SeedableRandomState};
use tidegate::Algorithm;
use tidegate::store::{Check, Meter};

/// Lets a process borrow units of a limit and answer by itself while they last.
///
/// # When it borrows
/// From the third request for a key on that this process gets within one
/// [`ttl`](Lease::ttl), and for as long as the key has a lease. Other requests are
/// decided by the servers, as without a lease: for a key that is rarely seen, to borrow and
/// to give back would be two calls in place of one. 8,192 keys are counted at a
/// time, in 256 KiB; a key that loses its place to another is counted anew.
///
/// Callers that wait for units of one limit and key share a call. It borrows a chunk, or what
/// they lack if that is more; they have their units at once, and less than a chunk is left.
/// If it fails, it fails for all of them for whom what is held does not suffice. At most
/// 16,384 wait for a key; others are decided by the servers.
///
/// # Bound
/// A unit is charged on the servers before a request is admitted for it. Since the
/// start, therefore, no more is admitted than the limit allows. In any one
/// interval up to [`excess`](Lease::excess) more can be: units that were
/// borrowed before it began. A process can have two loans of a key at a time: what is left of the
/// one that is over, on its way back, and the next one. They hold two chunks at most, and in an
/// interval that begins then both count. A process that dies keeps what it had borrowed
/// from being used, at most one chunk for each key, and so does a lost reply to
/// a request for more (a chunk, or what callers waited for if that is more) or to
/// one that gives them back, callers that give up before the reply is there (what they waited
/// for, beyond a chunk), and a lease that ends after another process has moved on
/// to a changed limit. Where requests of several limits borrow more than a chunk,
/// alone or together, and another limit refuses them, the rest goes back up to a
/// second later, and counts beside the chunk until then. So does what was borrowed beyond a chunk for a
/// caller that is refused in the end, because others took a part of it.
///
/// When a limit is changed, what is on lease of the one before counts as used until it goes back, within the
/// [`ttl`](Lease::ttl).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Units to borrow at a time; no more than the limit holds.
    pub chunk: u64,
    /// When to give back what was not used.
    pub ttl: Duration,
}

impl Lease {
    /// What so many processes together can admit in one interval, for one
    /// key, beyond what the limit alone would; as much again while what is left of a lease is on its
    /// way back beside the next one.
    #[must_use]
    pub fn excess(&self, processes: u64) -> u64 {
        self.chunk.saturating_mul(processes)
    }
}

/// The leases of a store, by rule.
#[derive(Debug)]
pub struct Leases {
    rules: HashMap<String, Lease, RandomState>,
    deadline: Duration,
    /// Of what the layers remember by the names of states.
    pub(super) hasher: SeedableRandomState,
}

impl Leases {
    /// Leases of these rules. A request that has to borrow takes no longer than
    /// the deadline.
    pub fn new(rules: impl IntoIterator<Item = (String, Lease)>, deadline: Duration) -> Leases {
        Leases { rules: rules.into_iter().collect(), deadline, hasher: SeedableRandomState::default() }
    }

    /// The same, where the layers hash in this way.
    pub(crate) fn hashed(self, hasher: SeedableRandomState) -> Leases {
        Leases { hasher, ..self }
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The shortest time for which anything is borrowed.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.rules.values().map(|lease| lease.ttl).min()
    }

    /// The lease of a rule, if it has one.
    pub fn of_rule(&self, rule: &str) -> Option<Lease> {
        self.rules.get(rule).copied()
    }

    /// The lease that a meter is under. A leaky bucket has none, because only
    /// the servers know when each request should go; nor has a custom kernel, nor a window that
    /// counts by its period, because units that are borrowed by one count are used of the others.
    pub(super) fn of(&self, meter: &Meter) -> Option<Lease> {
        let lease = self.of_rule(meter.name().as_str()).filter(|_| !meter.is_by_period())?;
        match meter.limit()?.algorithm() {
            Algorithm::LeakyBucket => None,
            Algorithm::TokenBucket | Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => {
                Some(lease)
            }
        }
    }

    /// Whether any of these checks has to do with a lease.
    pub(crate) fn concern(&self, checks: &[Check<'_>]) -> bool {
        checks.iter().any(|check| self.of(check.meter()).is_some())
    }
}
