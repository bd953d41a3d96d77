//! A server: states, a clock of its own, and moods.

use std::collections::HashSet;

use tokio::time::Instant;

use crate::embedded::keyspace::Keyspace;

pub(super) struct Server {
    pub(super) keyspace: Keyspace,
    /// What its replica has: at some time, all of it.
    replica: Keyspace,
    /// How far its clock is ahead, in microseconds.
    pub(super) ahead: i64,
    /// Digests of the scripts that it was sent.
    pub(super) scripts: HashSet<String>,
    /// Until when it does nothing.
    pub(super) stopped_until: Option<Instant>,
    /// Whether no client can connect to it.
    pub(super) is_down: bool,
    /// Why it carries nothing out.
    pub(super) refuses: Option<&'static str>,
}

pub(super) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

impl Server {
    /// A server that knows nothing; `number` tells histories apart.
    pub(super) fn new(number: u64) -> Server {
        let mut server = Server {
            keyspace: Keyspace::of_a_server(),
            replica: Keyspace::of_a_server(),
            ahead: 0,
            scripts: HashSet::new(),
            stopped_until: None,
            is_down: false,
            refuses: None,
        };
        server.begin_history(number);
        server
    }

    fn begin_history(&mut self, number: u64) {
        self.keyspace.history = format!("{number:040x}");
    }

    /// Forgets every state, and goes on with the same history.
    pub(super) fn flush(&mut self) {
        let history = std::mem::take(&mut self.keyspace.history);
        self.keyspace = Keyspace::of_a_server();
        self.keyspace.history = history;
    }

    /// Comes back from a crash without its states.
    pub(super) fn lose_everything(&mut self, number: u64) {
        self.flush();
        self.begin_history(number);
        self.scripts.clear();
    }

    pub(super) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// The replica has all that this server has.
    pub(super) fn replicate(&mut self) {
        self.replica = self.keyspace.clone();
    }

    /// The replica as a server of its own, with a history of its own.
    pub(super) fn promoted(&self, number: u64, ahead: i64) -> Server {
        let mut promoted = Server { keyspace: self.replica.clone(), ahead, ..Server::new(0) };
        promoted.begin_history(number);
        promoted.replicate();
        promoted
    }
}
