//! Connections: how many there may be, and how they end.
//!
//! Each protocol has a pool of its own, so that none can close the server to the others, and
//! an address has only a part of each pool. TLS handshakes are bounded apart, before
//! a pool is entered. HTTP has a few more places for health, metrics and administration,
//! which are wanted most when all others are taken.
//!
//! Draining has two steps. First the server says that it is leaving: it is no
//! longer ready, and every answer tells its client not to come back on this
//! connection. After a grace, in which clients hear of it, listeners close,
//! idle connections are closed, and requests that have begun are answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::run::connection_counts::ConnectionCounts;
use crate::run::handshakes::Handshakes;
use crate::run::protocol::Protocol;
use crate::run::shares::{Full, Share, Shares};
use crate::run::workers::{Slot, Workers};

/// Connections of HTTP beyond its pool, for health, metrics and administration.
pub(crate) const MAX_RESERVED: usize = 32;
const MAX_RESERVED_PER_ADDRESS: usize = 4;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of each protocol.
    pub(crate) connections: usize,
    /// Of each protocol and address.
    pub(crate) per_address: usize,
    /// TLS handshakes that have not finished.
    pub(crate) handshakes: usize,
}

/// The word that the server is leaving. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    /// The same as `leaving`, without its lock.
    is_leaving: Arc<AtomicBool>,
    leaving: CancellationToken,
    closing: CancellationToken,
}

impl Drain {
    /// Whether the server is leaving: answers should say so.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Ends when the server begins to leave.
    pub async fn leaving(&self) {
        self.leaving.child_token().cancelled().await;
    }

    /// Ends when the time has come to finish what has begun and to close. Make
    /// it once for a connection: each has a lock of its own, and to poll it
    /// disturbs no other.
    pub async fn closing(&self) {
        self.closing.child_token().cancelled().await;
    }

    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leaving.cancel();
    }

    pub(crate) fn close(&self) {
        self.leave();
        self.closing.cancel();
    }
}

/// All open connections of a server.
#[derive(Debug)]
pub struct Connections {
    /// By protocol.
    pools: [Arc<Shares>; Protocol::ALL.len()],
    reserve: Arc<Shares>,
    pub(crate) handshakes: Arc<Handshakes>,
    /// What is counted of them.
    pub(crate) counts: ConnectionCounts,
    /// Says when the server leaves.
    pub(crate) drain: Drain,
    tasks: TaskTracker,
    workers: Workers,
    have_been: AtomicBool,
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// All that its protocol has.
    Pool,
    /// Only what is wanted of a server that is full.
    Reserve,
}

impl Connections {
    pub(crate) fn new(bounds: Bounds, workers: Workers) -> Connections {
        let Bounds { connections, per_address, handshakes } = bounds;
        Connections {
            pools: Protocol::ALL.map(|_| Shares::new(connections, per_address)),
            reserve: Shares::new(MAX_RESERVED, MAX_RESERVED_PER_ADDRESS),
            handshakes: Handshakes::new(handshakes, per_address),
            counts: ConnectionCounts::default(),
            drain: Drain::default(),
            tasks: TaskTracker::new(),
            workers,
            have_been: AtomicBool::new(false),
        }
    }

    /// How many are open, without handshakes.
    #[must_use]
    pub fn open(&self) -> usize {
        self.pools.iter().chain([&self.reserve]).map(|pool| pool.held()).sum()
    }

    /// How many may be open of each protocol.
    #[must_use]
    pub fn max(&self) -> usize {
        self.pools[0].total()
    }

    /// Whether there has ever been one.
    pub(crate) fn have_been(&self) -> bool {
        self.have_been.load(Ordering::Relaxed)
    }

    /// A place in the pool of a protocol, if there is one: no connection waits for one.
    pub(crate) fn enter(&self, protocol: Protocol, address: Option<IpAddr>) -> Result<Share, Full> {
        self.pools[protocol as usize].take(address, 1)
    }

    /// A place in the reserve of HTTP, if there is one.
    pub(crate) fn enter_reserve(&self, address: Option<IpAddr>) -> Result<Share, Full> {
        self.reserve.take(address, 1)
    }

    /// A thread for a connection.
    pub(crate) fn slot(&self) -> Slot {
        self.workers.slot()
    }

    /// Runs a task that a drain waits for.
    pub(crate) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Runs a connection on its thread; a drain waits for it.
    pub(crate) fn spawn_at(&self, slot: Slot, connection: impl Future<Output = ()> + Send + 'static) {
        self.have_been.store(true, Ordering::Relaxed);
        let handle = slot.handle.clone();
        let task = async move {
            let _slot = slot;
            connection.await;
        };
        self.tasks.spawn_on(task, &handle);
    }

    /// Waits until all have ended, for at most so long; says whether they have.
    pub(crate) async fn finished_within(&self, timeout: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(timeout, self.tasks.wait()).await.is_ok()
    }
}
