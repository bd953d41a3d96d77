//! One connection to a server for everyone, opened again when it is lost.
//!
//! Opening runs in the background with its own time limit, and all who need
//! the connection wait for the same attempt, each until their own deadline.
//! Nothing here sends a command twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::RedisFailure;
use crate::servers::Origin;

pub(crate) struct Link {
    origin: Origin,
    patience: Duration,
    runtime: Handle,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    current: Option<MultiplexedConnection>,
    /// Counts the connections, so that only the one that failed is dropped.
    generation: u64,
    opening: Option<Opening>,
}

type Opening = Shared<BoxFuture<'static, Result<(), RedisFailure>>>;

impl Link {
    pub(crate) fn new(origin: Origin, patience: Duration, runtime: Handle) -> Arc<Link> {
        Arc::new(Link { origin, patience, runtime, slot: Mutex::default() })
    }

    /// The host that it leads to, if it is always the same.
    pub(crate) fn host(&self) -> Option<&str> {
        self.origin.host()
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection and its number, once there is one.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), RedisFailure> {
        loop {
            let opening = {
                let mut slot = self.slot();
                if let Some(connection) = &slot.current {
                    return Ok((connection.clone(), slot.generation));
                }
                self.open(&mut slot)
            };
            opening.await?;
        }
    }

    /// Forgets a connection that was lost.
    pub(crate) fn lost(&self, generation: u64) {
        let mut slot = self.slot();
        if slot.generation == generation {
            slot.current = None;
        }
    }

    /// Has a connection that gave no answer replaced, and goes on using it
    /// until then: it may be the server that is slow, or a link that is dead.
    pub(crate) fn suspect(self: &Arc<Self>, generation: u64) {
        let mut slot = self.slot();
        if slot.generation == generation {
            drop(self.open(&mut slot));
        }
    }

    /// The attempt that is under way, or a new one.
    fn open(self: &Arc<Self>, slot: &mut Slot) -> Opening {
        if let Some(opening) = &slot.opening {
            return opening.clone();
        }
        let link = Arc::clone(self);
        let attempt = self.runtime.spawn(async move {
            let opened = match timeout(link.patience, link.origin.open()).await {
                Ok(opened) => opened.map_err(|error| RedisFailure::Connection { source: Arc::new(error) }),
                Err(_) => Err(RedisFailure::Connection { source: Arc::new(out_of_time()) }),
            };
            let mut slot = link.slot();
            slot.opening = None;
            let connection = opened?;
            slot.current = Some(connection);
            slot.generation += 1;
            Ok(())
        });
        let opening =
            attempt.map(|joined| joined.unwrap_or_else(|_| Err(RedisFailure::Garbled { what: "a connection" })));
        let opening = opening.boxed().shared();
        slot.opening = Some(opening.clone());
        opening
    }
}

pub(crate) fn out_of_time() -> redis::RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the connection was not opened in time").into()
}
