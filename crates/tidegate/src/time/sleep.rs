//! Waiting for an instant with one alarm, however often the waiting task is polled.
//!
//! A clock keeps every alarm until it rings. A task that set one at each poll
//! would fill the clock with them.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Clock, Micros};
use crate::sync::{Mutex, lock};

/// Waits for an instant of a clock. It has at most one alarm set, however often it is polled.
///
/// ```
/// use std::future::poll_fn;
/// use tidegate::store::Sleep;
/// use tidegate::{Clock, Micros};
///
/// async fn sleep_until(at: Micros, clock: &dyn Clock) {
///     let mut sleep = Sleep::until(at);
///     poll_fn(|context| sleep.poll(clock, context)).await;
/// }
/// # let _ = sleep_until;
/// ```
#[derive(Debug)]
pub struct Sleep {
    at: Micros,
    alarm: Option<Arc<Alarm>>,
}

/// An alarm and the waker that it calls; `None` once it has rung.
#[derive(Debug)]
pub(crate) struct Alarm {
    sleeper: Mutex<Option<Waker>>,
}

impl Sleep {
    /// Waits until `at`.
    #[must_use]
    pub fn until(at: Micros) -> Sleep {
        Sleep { at, alarm: None }
    }

    /// Ready once the clock has reached the instant. Only the task that polled last is woken.
    pub fn poll(&mut self, clock: &dyn Clock, context: &Context<'_>) -> Poll<()> {
        if clock.now() >= self.at {
            return Poll::Ready(());
        }
        self.set_alarm(clock, context.waker());
        Poll::Pending
    }

    /// Sets the alarm, unless it is set: then it wakes this waker in place of the last one.
    pub(crate) fn set_alarm(&mut self, clock: &dyn Clock, waker: &Waker) {
        if let Some(alarm) = &self.alarm {
            if let Some(sleeper) = &mut *lock(&alarm.sleeper) {
                sleeper.clone_from(waker);
                return;
            }
        }
        let alarm = Arc::new(Alarm { sleeper: Mutex::new(Some(waker.clone())) });
        clock.wake_at(self.at, &Waker::from(Arc::clone(&alarm)));
        self.alarm = Some(alarm);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        let sleeper = lock(&self.sleeper).take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}
