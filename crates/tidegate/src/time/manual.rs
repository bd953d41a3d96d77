//! The clock for tests and simulations.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Clock, Micros};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Time that moves only when told to.
///
/// Clones share the time. A waiter (in [`acquire`](crate::Limiter::acquire),
/// say) is woken when the clock is moved to the instant that it waits for.
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    now: AtomicU64,
    sleepers: Mutex<Vec<(Micros, Waker)>>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Micros) -> ManualClock {
        ManualClock { shared: Arc::new(Shared { now: AtomicU64::new(now.get()), sleepers: Mutex::new(Vec::new()) }) }
    }

    /// Moves to `now`, forwards or back, and wakes the waiters that are due.
    pub fn set(&self, now: Micros) {
        self.shared.now.store(now.get(), Ordering::SeqCst);
        let due: Vec<Waker> = {
            let mut sleepers = lock(&self.shared.sleepers);
            let (due, later) = sleepers.drain(..).partition(|(at, _)| *at <= now);
            *sleepers = later;
            let due: Vec<(Micros, Waker)> = due;
            due.into_iter().map(|(_, waker)| waker).collect()
        };
        due.into_iter().for_each(Waker::wake);
    }

    /// Moves forwards by `length`.
    pub fn advance(&self, length: Duration) {
        self.set(self.now().saturating_add(Micros::from_duration(length)));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock::at(Micros::ZERO)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.shared.now.load(Ordering::SeqCst))
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        let mut sleepers = lock(&self.shared.sleepers);
        // Under the lock, so that `set` either sees this sleeper or is seen.
        if self.now() >= at {
            drop(sleepers);
            waker.wake_by_ref();
        } else if !sleepers.iter().any(|(due, other)| *due <= at && other.will_wake(waker)) {
            sleepers.push((at, waker.clone()));
        }
    }
}
