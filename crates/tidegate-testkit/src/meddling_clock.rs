use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use tidegate::{Clock, ManualClock, Micros};

type Deed = Box<dyn FnOnce() + Send>;

/// A manual clock that does something else first, once, when it is next read.
///
/// A store reads its clock in the midst of a decision: so a test can say what
/// happens there, without threads and luck.
#[derive(Clone, Default)]
pub struct MeddlingClock {
    clock: ManualClock,
    first: Arc<Mutex<Option<Deed>>>,
}

impl MeddlingClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn at(start: Micros) -> MeddlingClock {
        MeddlingClock { clock: ManualClock::at(start), first: Arc::default() }
    }

    /// Sets the clock, at once.
    pub fn set(&self, now: Micros) {
        self.clock.set(now);
    }

    /// What happens when the clock is next read, before it answers.
    pub fn first(&self, deed: impl FnOnce() + Send + 'static) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(deed));
    }

    /// Whether the clock was read since.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Clock for MeddlingClock {
    fn now(&self) -> Micros {
        // Not under the lock: the deed may well read the clock.
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.into_iter().for_each(|first| first());
        self.clock.now()
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        self.clock.wake_at(at, waker);
    }
}

impl fmt::Debug for MeddlingClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeddlingClock").field("clock", &self.clock).finish_non_exhaustive()
    }
}
