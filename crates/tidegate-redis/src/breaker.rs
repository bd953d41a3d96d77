//! A circuit breaker: an outage costs one deadline, not one per request.
//!
//! Closed, it lets everyone through. A failure opens it for a while, in which
//! nobody waits for servers that are away. Then one request goes ahead as a
//! probe while the others are still turned away; if it succeeds the breaker
//! closes, and if it fails the next pause is twice as long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::RedisFailure;

/// How a [`RedisStore`](crate::RedisStore) deals with servers that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open the breaker.
    pub failures: u32,
    /// For how long it is open at first.
    pub first_pause: Duration,
    /// For how long at most.
    pub longest_pause: Duration,
}

impl Default for BreakerSettings {
    /// The first failure opens it for 100 ms; the longest pause is 2 s.
    fn default() -> Self {
        BreakerSettings { failures: 1, first_pause: Duration::from_millis(100), longest_pause: Duration::from_secs(2) }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    /// Whether nothing is amiss, for those who need not look closer.
    sound: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Until when nobody is let through; `None` if it is closed.
    open_until: Option<Instant>,
    pause: Duration,
    probing: bool,
}

/// Leave to ask the servers, to be given back with what came of it.
#[must_use]
#[derive(Debug)]
pub(crate) struct Pass<'b> {
    breaker: &'b Breaker,
    is_probe: bool,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Breaker {
        Breaker { settings, sound: AtomicBool::new(true), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }

    /// Leave to ask the servers now.
    pub(crate) fn enter(&self, now: Instant) -> Result<Pass<'_>, RedisFailure> {
        if self.sound.load(Ordering::Acquire) {
            return Ok(Pass { breaker: self, is_probe: false });
        }
        let mut state = self.state();
        let is_probe = match state.open_until {
            None => false,
            Some(until) if until <= now && !state.probing => true,
            Some(until) => return Err(RedisFailure::Away { next_attempt: until.saturating_duration_since(now) }),
        };
        state.probing |= is_probe;
        Ok(Pass { breaker: self, is_probe })
    }
}

impl Pass<'_> {
    /// Whether this is the one that finds out if an outage is over.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// The servers answered. True if that ended an outage.
    pub(crate) fn succeeded(self) -> bool {
        if self.breaker.sound.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.breaker.state();
        // An answer that was long on its way says nothing about an outage
        // that began since.
        let ends_outage = state.open_until.is_some() && self.is_probe;
        if ends_outage || state.open_until.is_none() {
            *state = State::default();
            self.breaker.sound.store(true, Ordering::Release);
        }
        ends_outage
    }

    /// They did not. The pause, if that began an outage.
    pub(crate) fn failed(self, now: Instant) -> Option<Duration> {
        let BreakerSettings { failures, first_pause, longest_pause } = self.breaker.settings;
        let mut state = self.breaker.state();
        self.breaker.sound.store(false, Ordering::Release);
        state.failures = state.failures.saturating_add(1);
        if self.is_probe {
            state.pause = state.pause.saturating_mul(2).min(longest_pause);
            state.open_until = Some(after(now, state.pause));
            return None;
        }
        if state.open_until.is_some() || state.failures < failures {
            return None;
        }
        state.pause = first_pause.min(longest_pause);
        state.open_until = Some(after(now, state.pause));
        Some(state.pause)
    }
}

/// When a pause is over that may be without end.
fn after(now: Instant, pause: Duration) -> Instant {
    now.checked_add(pause).unwrap_or_else(|| now + NEVER)
}

/// As good as never: thirty years.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Also when whoever asked gave up: the next one may probe.
        if self.is_probe {
            self.breaker.state().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        failures: 2,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_millis(300),
    };

    fn enter(breaker: &Breaker, now: Instant) -> Option<Pass<'_>> {
        breaker.enter(now).ok()
    }

    fn opened(start: Instant) -> Breaker {
        let breaker = Breaker::new(SETTINGS);
        for _ in 0..SETTINGS.failures {
            let pass = enter(&breaker, start).expect("closed");
            pass.failed(start);
        }
        breaker
    }

    #[test]
    fn opens_after_so_many_failures_in_a_row() {
        let start = Instant::now();
        let breaker = Breaker::new(SETTINGS);
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), None);
        enter(&breaker, start).expect("one failure is not enough").succeeded();
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), None);
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), Some(SETTINGS.first_pause));
        assert!(enter(&breaker, start).is_none() && breaker.is_open());
    }

    #[test]
    fn one_probe_at_a_time_and_success_closes() {
        let start = Instant::now();
        let breaker = opened(start);
        let later = start + SETTINGS.first_pause;
        assert!(enter(&breaker, later - Duration::from_millis(1)).is_none());
        let probe = enter(&breaker, later).expect("the pause is over");
        assert!(enter(&breaker, later).is_none(), "another one waits for the probe");
        assert!(probe.succeeded());
        assert!(enter(&breaker, later).is_some() && !breaker.is_open());
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut now = Instant::now();
        let breaker = opened(now);
        for pause in [100, 200, 300, 300] {
            now += Duration::from_millis(pause);
            assert!(enter(&breaker, now - Duration::from_millis(1)).is_none(), "{pause}");
            enter(&breaker, now).expect("the pause is over").failed(now);
        }
    }

    #[test]
    fn a_pause_without_end_is_one() {
        let (start, longest_pause) = (Instant::now(), Duration::MAX);
        for first_pause in [Duration::MAX, Duration::MAX / 2] {
            let breaker = Breaker::new(BreakerSettings { failures: 1, first_pause, longest_pause });
            assert_eq!(enter(&breaker, start).expect("closed").failed(start), Some(first_pause));
            let later = start + Duration::from_secs(86_400 * 365);
            assert!(enter(&breaker, later).is_none() && breaker.is_open(), "{first_pause:?}");
        }
        let breaker = Breaker::new(BreakerSettings { failures: 1, first_pause: Duration::from_secs(1), longest_pause });
        breaker.state().pause = Duration::MAX;
        let probe = Pass { breaker: &breaker, is_probe: true };
        probe.failed(start);
        assert!(enter(&breaker, start).is_none());
    }

    #[test]
    fn a_probe_that_is_given_up_leaves_the_place_to_the_next() {
        let start = Instant::now();
        let breaker = opened(start);
        let later = start + SETTINGS.first_pause;
        drop(enter(&breaker, later).expect("the pause is over"));
        assert!(enter(&breaker, later).is_some());
    }

    #[test]
    fn a_late_success_does_not_end_an_outage() {
        let start = Instant::now();
        let breaker = Breaker::new(SETTINGS);
        let slow = enter(&breaker, start).expect("closed");
        for _ in 0..SETTINGS.failures {
            enter(&breaker, start).expect("closed").failed(start);
        }
        assert!(!slow.succeeded() && breaker.is_open());
    }
}
