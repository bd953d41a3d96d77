//! A clock for callers to which 20 ns a reading is too much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::{Clock, Micros, SystemClock};

/// Real time in steps of about a millisecond, for the price of a memory read.
///
/// A thread of its own copies the [`SystemClock`] into a cell; it ends when
/// the last clone of the clock is dropped. A reading is therefore late by up
/// to a step (more if the thread is starved), never early: limits refill in
/// millisecond steps, and no request is admitted early.
///
/// ```
/// use tidegate::{CoarseClock, Limit, Limiter, MemoryStore};
///
/// let store = MemoryStore::builder().clock(CoarseClock::start()?).build()?;
/// assert!(Limiter::with_store(Limit::per_second(10), store)?.allow("alice"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock {
    tick: Arc<AtomicU64>,
}

/// How often the cell is refreshed.
const STEP: Duration = Duration::from_millis(1);

impl CoarseClock {
    /// Starts the ticking thread.
    ///
    /// ```
    /// use tidegate::{Clock, CoarseClock};
    ///
    /// assert!(CoarseClock::start()?.now().get() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the operating system refuses another thread.
    pub fn start() -> std::io::Result<CoarseClock> {
        let source = SystemClock::new();
        let tick = Arc::new(AtomicU64::new(source.now().get()));
        let cell = Arc::downgrade(&tick);
        thread::Builder::new().name("tidegate-tick".into()).spawn(move || keep_ticking(&source, &cell))?;
        Ok(CoarseClock { tick })
    }
}

fn keep_ticking(source: &SystemClock, cell: &Weak<AtomicU64>) {
    while let Some(tick) = cell.upgrade() {
        tick.store(source.now().get(), Ordering::Relaxed);
        drop(tick);
        thread::sleep(STEP);
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Micros {
        Micros(self.tick.load(Ordering::Relaxed))
    }
}
