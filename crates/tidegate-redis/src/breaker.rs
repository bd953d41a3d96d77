//! A circuit breaker: an outage costs a few deadlines, not one for each call.
//!
//! Closed, it lets every call through and counts how the calls end. It opens
//! when the servers are away, which shows in one of two ways: calls fail one
//! after the other with no answer between them, or at least half of the recent
//! calls fail. One slow moment is neither. The calls that wait in it time out
//! side by side, so they count once in a row, and as many as they are in the
//! share.
//!
//! Open, it refuses every call at once until a pause is over. Then one call goes
//! ahead as a probe while the others are still refused. If the probe is
//! answered, the breaker closes; if it fails, the next pause is twice as long.

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::RedisFailure;
use crate::recent::Recent;

/// When a [`RedisStore`](crate::RedisStore) takes its servers to be away, and
/// for how long it then leaves them alone. A failure is a call without an answer
/// within the deadline, or without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open the breaker: each of a call that began after
    /// the failure before, with no answer to any call in between.
    pub failures: u32,
    /// The time in which the failure of at least half of all calls opens it, too.
    pub horizon: Duration,
    /// The calls that must have ended within the horizon for that.
    pub min_calls: u32,
    /// For how long it is open at first.
    pub first_pause: Duration,
    /// For how long at most.
    pub longest_pause: Duration,
}

impl Default for BreakerSettings {
    /// Opens after 5 failures in a row, or when half of at least 20 calls within
    /// 1 s failed. It is open for 100 ms at first, and for 2 s at most.
    fn default() -> Self {
        BreakerSettings {
            failures: 5,
            horizon: Duration::from_secs(1),
            min_calls: 20,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Calls since it was last closed.
    recent: Recent,
    failures_in_a_row: u32,
    /// The last failure that counted as one in a row.
    last_failure: Option<Instant>,
    /// Until when calls are refused; `None` if it is closed.
    open_until: Option<Instant>,
    pause: Duration,
    probing: bool,
}

impl State {
    fn closed(settings: &BreakerSettings, now: Instant) -> State {
        State {
            recent: Recent::new(settings.horizon, now),
            failures_in_a_row: 0,
            last_failure: None,
            open_until: None,
            pause: Duration::ZERO,
            probing: false,
        }
    }
}

/// Leave to ask the servers, to be given back with what came of it.
#[must_use]
#[derive(Debug)]
pub(crate) struct Pass<'b> {
    breaker: &'b Breaker,
    entered: Instant,
    is_probe: bool,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings, now: Instant) -> Breaker {
        Breaker { settings, state: Mutex::new(State::closed(&settings, now)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }

    /// Leave to ask the servers now.
    pub(crate) fn enter(&self, now: Instant) -> Result<Pass<'_>, RedisFailure> {
        let mut state = self.state();
        let is_probe = match state.open_until {
            None => false,
            Some(until) if until <= now && !state.probing => true,
            Some(until) => return Err(RedisFailure::Away { next_attempt: until.saturating_duration_since(now) }),
        };
        state.probing |= is_probe;
        Ok(Pass { breaker: self, entered: now, is_probe })
    }
}

impl Pass<'_> {
    /// Whether this is the one that finds out if an outage is over.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Whether the call says something about the servers as they are now: the
    /// breaker is closed, and was when the call began.
    fn counts(&self, state: &State) -> bool {
        state.open_until.is_none() && self.entered >= state.recent.began()
    }

    /// The servers answered. True if that ended an outage.
    pub(crate) fn succeeded(self, now: Instant) -> bool {
        let mut state = self.breaker.state();
        if self.is_probe {
            *state = State::closed(&self.breaker.settings, now);
        } else if self.counts(&state) {
            state.recent.answered(now);
            state.failures_in_a_row = 0;
        }
        self.is_probe
    }

    /// They did not. The pause, if that began an outage.
    pub(crate) fn failed(self, now: Instant) -> Option<Duration> {
        let settings = &self.breaker.settings;
        let mut state = self.breaker.state();
        if self.is_probe {
            state.pause = state.pause.saturating_mul(2).min(settings.longest_pause);
            state.open_until = Some(after(now, state.pause));
            return None;
        }
        if !self.counts(&state) {
            return None;
        }
        let recent = state.recent.failed(now);
        if state.last_failure.is_none_or(|last| last <= self.entered) {
            state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
            state.last_failure = Some(now);
        }
        let is_large_share = recent.calls >= settings.min_calls && recent.failures >= recent.calls - recent.failures;
        if state.failures_in_a_row < settings.failures && !is_large_share {
            return None;
        }
        state.pause = settings.first_pause.min(settings.longest_pause);
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
        // Also when the caller gave up: the next call may probe.
        if self.is_probe {
            self.breaker.state().probing = false;
        }
    }
}
