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

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        failures: 2,
        horizon: Duration::from_secs(1),
        min_calls: 20,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_millis(300),
    };

    const DEADLINE: Duration = Duration::from_millis(100);

    fn enter(breaker: &Breaker, now: Instant) -> Option<Pass<'_>> {
        breaker.enter(now).ok()
    }

    fn opened(start: Instant) -> Breaker {
        let breaker = Breaker::new(SETTINGS, start);
        for _ in 0..SETTINGS.failures {
            let pass = enter(&breaker, start).expect("closed");
            pass.failed(start);
        }
        breaker
    }

    /// Callers that each wait for an answer and then ask again.
    struct Callers {
        breaker: Breaker,
        now: Instant,
    }

    impl Callers {
        fn new(settings: BreakerSettings) -> Callers {
            let now = Instant::now();
            Callers { breaker: Breaker::new(settings, now), now }
        }

        fn answered(&mut self, calls: u32, apart: Duration) {
            for _ in 0..calls {
                let pass = enter(&self.breaker, self.now).expect("closed");
                self.now += apart;
                pass.succeeded(self.now);
            }
        }

        /// So many calls that wait side by side until their deadline. Whether they opened it.
        fn time_out_together(&mut self, calls: usize) -> bool {
            let passes: Vec<_> = (0..calls).map(|_| enter(&self.breaker, self.now).expect("closed")).collect();
            self.now += DEADLINE;
            for pass in passes {
                pass.failed(self.now);
            }
            self.breaker.is_open()
        }
    }

    #[test]
    fn opens_after_so_many_failures_in_a_row() {
        let start = Instant::now();
        let breaker = Breaker::new(SETTINGS, start);
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), None);
        enter(&breaker, start).expect("one failure is not enough").succeeded(start);
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), None);
        assert_eq!(enter(&breaker, start).expect("closed").failed(start), Some(SETTINGS.first_pause));
        assert!(enter(&breaker, start).is_none() && breaker.is_open());
    }

    /// The load that found it: half a million calls in 30 s, and three of them too late.
    #[test]
    fn three_timeouts_among_half_a_million_calls_do_not_open_it() {
        let mut callers = Callers::new(BreakerSettings::default());
        for _ in 0..3 {
            callers.answered(166_667, Duration::from_micros(60));
            assert!(!callers.time_out_together(1));
        }
    }

    #[test]
    fn calls_that_time_out_side_by_side_open_it_only_as_a_large_share() {
        for (together, opens) in [(64, false), (400, false), (499, false), (500, true), (1_000, true)] {
            let mut callers = Callers::new(BreakerSettings::default());
            callers.answered(500, Duration::from_micros(100));
            assert_eq!(callers.time_out_together(together), opens, "{together} calls of {}", 500 + together);
        }
    }

    #[test]
    fn slow_moments_with_answers_between_them_do_not_open_it() {
        let mut callers = Callers::new(BreakerSettings::default());
        for _ in 0..100 {
            callers.answered(100, Duration::from_millis(1));
            assert!(!callers.time_out_together(64));
        }
    }

    /// However busy the server was a moment ago.
    #[test]
    fn a_dead_server_opens_it_after_as_many_deadlines_as_failures_in_a_row() {
        for together in [1, 64] {
            let mut callers = Callers::new(BreakerSettings::default());
            callers.answered(20_000, Duration::from_micros(50));
            let deadlines = (1..).find(|_| callers.time_out_together(together));
            assert_eq!(deadlines, Some(BreakerSettings::default().failures), "{together} callers");
        }
    }

    #[test]
    fn opens_when_half_of_enough_recent_calls_failed() {
        let settings = BreakerSettings { failures: u32::MAX, ..SETTINGS };
        for (answered, failed, opens) in [(10, 9, false), (11, 9, false), (10, 10, true), (0, 19, false), (0, 20, true)]
        {
            let start = Instant::now();
            let breaker = Breaker::new(settings, start);
            for _ in 0..answered {
                enter(&breaker, start).expect("closed").succeeded(start);
            }
            for _ in 0..failed {
                enter(&breaker, start).expect("closed").failed(start);
            }
            assert_eq!(breaker.is_open(), opens, "{answered} answered, {failed} failed");
        }
        let mut callers = Callers::new(settings);
        callers.answered(1_000, Duration::from_micros(1));
        callers.now += SETTINGS.horizon;
        assert!(callers.time_out_together(20), "the answers are older than the horizon");
    }

    #[test]
    fn one_probe_at_a_time_and_success_closes() {
        let start = Instant::now();
        let breaker = opened(start);
        let later = start + SETTINGS.first_pause;
        assert!(enter(&breaker, later - Duration::from_millis(1)).is_none());
        let probe = enter(&breaker, later).expect("the pause is over");
        assert!(enter(&breaker, later).is_none(), "another one waits for the probe");
        assert!(probe.succeeded(later));
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
        let open_for = |first_pause| {
            let breaker = Breaker::new(BreakerSettings { failures: 1, first_pause, longest_pause, ..SETTINGS }, start);
            assert_eq!(enter(&breaker, start).expect("closed").failed(start), Some(first_pause));
            breaker
        };
        for first_pause in [Duration::MAX, Duration::MAX / 2] {
            let breaker = open_for(first_pause);
            let later = start + Duration::from_secs(86_400 * 365);
            assert!(enter(&breaker, later).is_none() && breaker.is_open(), "{first_pause:?}");
        }
        let breaker = open_for(Duration::ZERO);
        breaker.state().pause = Duration::MAX;
        enter(&breaker, start).expect("the pause is over").failed(start);
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
        let breaker = Breaker::new(SETTINGS, start);
        let slow = enter(&breaker, start).expect("closed");
        for _ in 0..SETTINGS.failures {
            enter(&breaker, start).expect("closed").failed(start);
        }
        assert!(!slow.succeeded(start) && breaker.is_open());
    }

    /// Where a deadline is longer than the pause.
    #[test]
    fn calls_that_began_before_the_end_of_an_outage_do_not_begin_another() {
        let start = Instant::now();
        let breaker = Breaker::new(SETTINGS, start);
        let slow: Vec<_> = (0..100).map(|_| enter(&breaker, start).expect("closed")).collect();
        for _ in 0..SETTINGS.failures {
            enter(&breaker, start).expect("closed").failed(start);
        }
        let later = start + SETTINGS.first_pause;
        assert!(enter(&breaker, later).expect("the pause is over").succeeded(later));
        for pass in slow {
            assert_eq!(pass.failed(later), None);
        }
        assert_eq!(enter(&breaker, later).expect("closed").failed(later), None);
    }
}
