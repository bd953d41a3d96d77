//! One connection to a server for all callers, opened again when it is lost.
//!
//! Opening runs in the background with its own time limit, and all callers
//! wait for the same attempt, each until its own deadline.
//! Nothing here sends a command twice.
//!
//! An idle connection may be closed at its other end, which shows only in the
//! next command. So it is tested with a PING before a caller gets it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::failure::{RedisFailure, Remedy};
use crate::runtime::{Attempt, attempt};
use crate::servers::Origin;

pub(crate) struct Link {
    origin: Origin,
    connect_timeout: Duration,
    runtime: Handle,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    current: Option<MultiplexedConnection>,
    /// Counts the connections, so that only the one that failed is dropped.
    generation: u64,
    /// When a caller last got it.
    used: Option<Instant>,
    opening: Option<Attempt>,
}

/// A connection that was idle for so long is tested first. Others close idle ones
/// later: load balancers after minutes, servers after their `timeout`.
const IDLE: Duration = Duration::from_secs(10);

/// The part of the connect timeout that the test may take: while it runs, all
/// callers wait.
const TRIED_FOR: u32 = 10;

impl Slot {
    fn is_idle(&self) -> bool {
        self.used.is_none_or(|used| used.elapsed() >= IDLE)
    }
}

impl Link {
    pub(crate) fn new(origin: Origin, connect_timeout: Duration, runtime: Handle) -> Arc<Link> {
        Arc::new(Link { origin, connect_timeout, runtime, slot: Mutex::default() })
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection and its number, once there is one.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), RedisFailure> {
        loop {
            let opening = {
                let mut slot = self.slot();
                if let Some(connection) = slot.current.clone().filter(|_| !slot.is_idle()) {
                    slot.used = Some(Instant::now());
                    return Ok((connection, slot.generation));
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
    fn open(self: &Arc<Self>, slot: &mut Slot) -> Attempt {
        if let Some(opening) = &slot.opening {
            return opening.clone();
        }
        let link = Arc::clone(self);
        let idle = slot.current.clone().filter(|_| slot.is_idle());
        let opening = attempt(&self.runtime, "a connection", async move {
            let still_there = match idle {
                Some(idle) => timeout(link.connect_timeout / TRIED_FOR, answers(idle)).await.unwrap_or(false),
                None => false,
            };
            let opened = if still_there { None } else { Some(link.open_another().await) };
            let mut slot = link.slot();
            slot.opening = None;
            if let Some(opened) = opened {
                slot.current = Some(opened?);
                slot.generation += 1;
            }
            slot.used = Some(Instant::now());
            Ok(())
        });
        slot.opening = Some(opening.clone());
        opening
    }

    async fn open_another(&self) -> Result<MultiplexedConnection, RedisFailure> {
        let opened = timeout(self.connect_timeout, self.origin.open()).await;
        opened
            .unwrap_or_else(|_| Err(out_of_time()))
            .map_err(|error| RedisFailure::Connection { source: Arc::new(error) })
    }
}

/// Whether the server replies at all, even with an error.
async fn answers(mut connection: MultiplexedConnection) -> bool {
    match redis::cmd("PING").exec_async(&mut connection).await {
        Ok(()) => true,
        Err(error) => !matches!(Remedy::of(&error), Remedy::GiveUp(failure) if failure.is_outage()),
    }
}

pub(crate) fn out_of_time() -> redis::RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the connection was not opened in time").into()
}
