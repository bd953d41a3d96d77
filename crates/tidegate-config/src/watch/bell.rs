//! A bell that one thread waits for: rung any number of times, heard once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_rung: bool,
    is_stopped: bool,
    /// Whether the thread that waits has ended.
    is_over: bool,
}

/// What ended the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    Rung,
    InVain,
    Stopped,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.state().is_rung = true;
        self.changed.notify_all();
    }

    /// Ends all waiting, now and later.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// The thread that waits has ended.
    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until the thread that waits has ended, for at most so long.
    pub(super) fn wait_for_end(&self, timeout: Duration) {
        drop(self.changed.wait_timeout_while(self.state(), timeout, |state| !state.is_over));
    }

    /// Whether it was rung since it was last waited for.
    pub(super) fn is_rung(&self) -> bool {
        self.state().is_rung
    }

    /// Waits until it is rung, for at most so long.
    pub(super) fn wait(&self, most: Option<Duration>) -> Woken {
        // A time too long to reckon with is for ever.
        let until = most.and_then(|most| Instant::now().checked_add(most));
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return Woken::Stopped;
            }
            if std::mem::take(&mut state.is_rung) {
                return Woken::Rung;
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Woken::InVain,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bell, Woken};
    use std::time::Duration;

    #[test]
    fn many_rings_are_heard_once_and_a_stop_for_ever() {
        let bell = Bell::default();
        (0..3).for_each(|_| bell.ring());
        assert!(bell.is_rung());
        assert_eq!(bell.wait(None), Woken::Rung);
        assert_eq!(bell.wait(Some(Duration::ZERO)), Woken::InVain);
        bell.ring();
        bell.stop();
        assert_eq!([bell.wait(None), bell.wait(Some(Duration::MAX))], [Woken::Stopped; 2]);
    }

    #[test]
    fn a_ring_ends_the_waiting() {
        let bell = Bell::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| bell.wait(Some(Duration::MAX)));
            bell.ring();
            assert_eq!(waiter.join().expect("no panic"), Woken::Rung);
        });
    }
}
