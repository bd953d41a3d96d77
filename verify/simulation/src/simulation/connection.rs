//! A connection between a process and a server.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::{AbortHandle, JoinHandle};

/// A connection, from the servers' side.
pub(super) struct Connection {
    pub(super) process: usize,
    pub(super) server: usize,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Connection {
    pub(super) fn new(process: usize, server: usize) -> Connection {
        Connection { process, server, tasks: Mutex::default() }
    }

    /// Ends with these tasks, which serve it.
    pub(super) fn serve_by(&self, tasks: &[JoinHandle<()>]) {
        self.tasks().extend(tasks.iter().map(JoinHandle::abort_handle));
    }

    /// Ends it: a client that waits for a reply is told.
    pub(super) fn cut(&self) {
        self.tasks().drain(..).for_each(|task| task.abort());
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
