//! A slot on its way from one master to another, step by step.
//!
//! Between the steps the slot is in two places: who asks for a key that has
//! moved is sent on (`ASK`), and who asks for several of which some have moved
//! is told to try again (`TRYAGAIN`).

use super::Cluster;
use crate::servers::{Reply, eventually};

/// A slot that is being moved; it stays where it is until [`finish`](Migration::finish).
#[derive(Debug)]
#[must_use = "the slot stays in between until the migration is finished"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Begins to move a slot to another master: no key has moved yet.
    ///
    /// ```no_run
    /// # let cluster = tidegate_testkit::servers::Cluster::start();
    /// let migration = cluster.begin_migration(7, 1);
    /// migration.move_some(1);
    /// migration.move_keys();
    /// migration.finish();
    /// assert_eq!(cluster.master_of(7), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// When the slot is there already, or `to` is no master.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.master_of(slot);
        assert_ne!(from, to, "the slot {slot} is on the node {to} already");
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
        Migration { cluster: self, slot, from, to }
    }

    /// Moves a slot and all its keys to another master.
    ///
    /// # Panics
    ///
    /// As [`begin_migration`](Cluster::begin_migration).
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        migration.move_keys();
        migration.finish();
    }

    fn set_slot(&self, node: usize, slot: u16, what: &[&str]) {
        self.node(node).command(&[&["CLUSTER", "SETSLOT", &slot.to_string()], what].concat());
    }
}

impl Migration<'_> {
    /// The slot that is being moved.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The master that it leaves.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The master that it goes to.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Moves at most so many keys; returns how many have moved.
    ///
    /// # Panics
    ///
    /// When a key is refused, for example because it is there already.
    pub fn move_some(&self, most: usize) -> usize {
        let (from, to) = (self.cluster.node(self.from), self.cluster.node(self.to));
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), &most.to_string()]);
        let keys: Vec<&[u8]> = keys.items().iter().map(Reply::bytes).collect();
        if keys.is_empty() {
            return 0;
        }
        let port = to.port().to_string();
        let mut command: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
        command.extend(&keys);
        from.command(&command);
        keys.len()
    }

    /// Moves the keys that are left; returns how many have moved.
    ///
    /// # Panics
    ///
    /// As [`move_some`](Migration::move_some).
    pub fn move_keys(&self) -> usize {
        std::iter::repeat_with(|| self.move_some(100)).take_while(|moved| *moved > 0).sum()
    }

    /// Gives the slot to the new master, and waits until every node that runs
    /// knows.
    ///
    /// # Panics
    ///
    /// When keys are left, or it takes too long.
    pub fn finish(self) {
        let Migration { cluster, slot, from, to } = self;
        let id = &cluster.ids[to];
        // The new master first: if the old one gave it up alone, no node would have it.
        cluster.set_slot(to, slot, &["NODE", id]);
        cluster.set_slot(from, slot, &["NODE", id]);
        eventually("a slot to be known at its new master", || {
            cluster.health()?;
            let master = cluster.master_of(slot);
            if master == to { Ok(()) } else { Err(format!("it is on the node {master}")) }
        });
    }
}
