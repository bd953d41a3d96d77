//! The clock for tests and simulations.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Clock, Micros};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Time that moves only when told to.
///
/// Clones share the time. A waiter (in [`acquire_async`](crate::Limiter::acquire_async),
/// say) is woken when the clock is moved to the instant that it waits for.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Clock, ManualClock, Micros};
///
/// let clock = ManualClock::at(Micros::new(1_000));
/// clock.advance(Duration::from_micros(5));
/// assert_eq!(clock.now(), Micros::new(1_005));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<SharedTime>,
}

#[derive(Debug)]
struct SharedTime {
    now: AtomicU64,
    sleepers: Mutex<Vec<(Micros, Waker)>>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    ///
    /// ```
    /// use tidegate::{Clock, ManualClock, Micros};
    ///
    /// assert_eq!(ManualClock::at(Micros::new(1_000)).now().get(), 1_000);
    /// ```
    #[must_use]
    pub fn at(now: Micros) -> ManualClock {
        ManualClock {
            shared: Arc::new(SharedTime { now: AtomicU64::new(now.get()), sleepers: Mutex::new(Vec::new()) }),
        }
    }

    /// Moves to `now`, forwards or back, and wakes the waiters that are due.
    ///
    /// ```
    /// use tidegate::{Clock, ManualClock, Micros};
    ///
    /// let clock = ManualClock::default();
    /// clock.set(Micros::new(7));
    /// assert_eq!(clock.now().get(), 7);
    /// ```
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
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, ManualClock, MemoryStore};
    ///
    /// let clock = ManualClock::default();
    /// let limiter = Limiter::with_store(Limit::per_second(1), MemoryStore::builder().clock(clock.clone()).build()?)?;
    /// assert!(limiter.allow("alice") && !limiter.allow("alice"));
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
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
