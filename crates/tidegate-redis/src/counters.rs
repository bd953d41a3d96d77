//! What a store has done, in numbers.

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

impl Statistics {
    /// Counts an answer of a server that refused.
    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
        self.refusing = true;
    }
}
