//! The breaker, by a clock that the test sets.

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
    for (answered, failed, opens) in [(10, 9, false), (11, 9, false), (10, 10, true), (0, 19, false), (0, 20, true)] {
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
