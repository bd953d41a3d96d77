//! Connections: how many there may be, and how they end.
//!
//! Draining has two steps. First the server says that it is leaving: it is no
//! longer ready, and every answer tells its client not to come back on this
//! connection. After a grace, in which clients hear of it, listeners close,
//! idle connections are closed, and requests that have begun are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::workers::{Seat, Workers};

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
    /// Room for more.
    room: Arc<Semaphore>,
    tasks: TaskTracker,
    workers: Workers,
    open: Arc<AtomicUsize>,
    have_been: AtomicBool,
}

/// A connection's place; leaving it makes room.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    seat: Seat,
    open: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(crate) fn new(most: usize, workers: Workers) -> Connections {
        let room = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let (tasks, have_been) = (TaskTracker::new(), AtomicBool::new(false));
        Connections { room, tasks, workers, open: Arc::default(), have_been }
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether there has ever been one.
    pub(crate) fn have_been(&self) -> bool {
        self.have_been.load(Ordering::Relaxed)
    }

    /// A place, if there is one: nobody is kept waiting for one.
    pub(crate) fn enter(&self) -> Option<Place> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok()?;
        self.open.fetch_add(1, Ordering::Relaxed);
        self.have_been.store(true, Ordering::Relaxed);
        Some(Place { _permit: permit, seat: self.workers.seat(), open: Arc::clone(&self.open) })
    }

    /// Runs a task that a drain waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Runs a connection on its thread; a drain waits for it.
    pub(crate) fn spawn_at(&self, place: Place, connection: impl Future<Output = ()> + Send + 'static) {
        let handle = place.seat.handle.clone();
        let task = async move {
            let _place = place;
            connection.await;
        };
        self.tasks.spawn_on(task, &handle);
    }

    /// Waits until all have ended, for at most so long; says whether they have.
    pub(crate) async fn finished_within(&self, patience: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(patience, self.tasks.wait()).await.is_ok()
    }
}
