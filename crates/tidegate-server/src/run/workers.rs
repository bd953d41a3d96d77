//! The threads that serve: each has a runtime of its own, and a connection
//! stays with one thread from its first byte to its last.
//!
//! So a response is written by the thread that read its request, and no other
//! is woken for it. A new connection goes to the thread with the fewest
//! connections.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads beside each of these, for work that takes long: pictures, renderings and simulations are few at a time.
const MAX_BLOCKING_THREADS: usize = 8;

/// All threads of a server; they end with it.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's place with a thread.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) handle: Handle,
    connections: Arc<AtomicUsize>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// So many threads, or one for each core.
    pub(crate) fn start(count: Option<NonZeroUsize>) -> io::Result<Workers> {
        let count = count.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let end = CancellationToken::new();
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let runtime =
                Builder::new_current_thread().enable_all().max_blocking_threads(MAX_BLOCKING_THREADS).build()?;
            let (handle, ended) = (runtime.handle().clone(), end.clone());
            thread::Builder::new()
                .name(format!("tidegate-{number}"))
                .spawn(move || runtime.block_on(ended.cancelled()))?;
            workers.push(Worker { handle, connections: Arc::default() });
        }
        Ok(Workers { workers, _end: end.drop_guard() })
    }

    /// A place with the thread that has the fewest connections.
    pub(crate) fn slot(&self) -> Slot {
        let least = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Worker { handle, connections } = least.expect("there is at least one thread");
        connections.fetch_add(1, Ordering::Relaxed);
        Slot { handle: handle.clone(), connections: Arc::clone(connections) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_the_fewest_are() {
        let workers = Workers::start(NonZeroUsize::new(2)).unwrap();
        let open = || workers.workers.iter().map(|worker| worker.connections.load(Ordering::Relaxed));
        let mut slots: Vec<Slot> = (0..6).map(|_| workers.slot()).collect();
        assert_eq!(open().collect::<Vec<usize>>(), [3, 3]);
        // Two leave the first thread: the next two go there.
        slots.remove(0);
        slots.remove(1);
        assert_eq!(open().collect::<Vec<usize>>(), [1, 3]);
        slots.extend([workers.slot(), workers.slot()]);
        assert_eq!(open().collect::<Vec<usize>>(), [3, 3]);
    }

    #[test]
    fn a_task_runs_on_the_thread_of_its_seat() {
        let workers = Workers::start(NonZeroUsize::new(1)).unwrap();
        let slot = workers.slot();
        let (say, heard) = std::sync::mpsc::channel();
        slot.handle.spawn(async move { say.send(thread::current().name().map(str::to_owned)) });
        assert_eq!(heard.recv().unwrap().as_deref(), Some("tidegate-0"));
    }
}
