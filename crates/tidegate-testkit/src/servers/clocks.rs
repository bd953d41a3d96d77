//! The time by whichever of this machine's clocks went further.
//!
//! A server decides by the wall clock, and a machine may set that while tests run: the host of a virtual machine
//! does. A store in memory decides by a monotonic clock. What either admits in an interval is bounded by how far its
//! own clock went, so an interval is as long here as the clock says that went further in it: a step of the wall clock
//! forwards makes it longer, and a step back makes it no shorter.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The clocks are read so close to each other, unless the machine is too busy for it.
const CLOSE: Duration = Duration::from_micros(50);
const MAX_READINGS: usize = 20;

/// Now, by the further clock since the first call.
pub(super) fn now() -> Instant {
    static CLOCKS: Mutex<Option<Clocks>> = Mutex::new(None);
    let mut clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let reading = Reading::close();
    clocks.get_or_insert_with(|| Clocks::new(&reading)).read(&reading)
}

/// The wall clock, read between two readings of the monotonic one.
struct Reading {
    before: Instant,
    wall: SystemTime,
    after: Instant,
}

impl Reading {
    fn take() -> Reading {
        let before = Instant::now();
        Reading { before, wall: SystemTime::now(), after: Instant::now() }
    }

    /// One whose parts are close to each other, or the closest of many.
    fn close() -> Reading {
        let mut closest = Reading::take();
        for _ in 1..MAX_READINGS {
            if closest.width() <= CLOSE {
                break;
            }
            let next = Reading::take();
            closest = if next.width() < closest.width() { next } else { closest };
        }
        closest
    }

    fn width(&self) -> Duration {
        self.after - self.before
    }
}

/// How both clocks went since a first reading.
struct Clocks {
    first: (Instant, SystemTime),
    /// By how many nanoseconds the wall clock is known to have gone further than the monotonic one, less its steps back.
    ahead: i128,
    /// By how much it went further in all, steps back not counted.
    gained: Duration,
}

impl Clocks {
    fn new(first: &Reading) -> Clocks {
        Clocks { first: (first.after, first.wall), ahead: 0, gained: Duration::ZERO }
    }

    /// The time of a reading: the monotonic clock's, and all that the wall clock has gained on it.
    fn read(&mut self, reading: &Reading) -> Instant {
        let (least, most) = (self.ahead_at(reading.after, reading.wall), self.ahead_at(reading.before, reading.wall));
        if least > self.ahead {
            self.gained += Duration::from_nanos(u64::try_from(least - self.ahead).unwrap_or(u64::MAX));
        }
        self.ahead = self.ahead.clamp(least, most);
        reading.after + self.gained
    }

    fn ahead_at(&self, instant: Instant, wall: SystemTime) -> i128 {
        let nanos = |length: Duration| i128::try_from(length.as_nanos()).unwrap_or(i128::MAX);
        let wall = match wall.duration_since(self.first.1) {
            Ok(since) => nanos(since),
            Err(before) => -nanos(before.duration()),
        };
        let monotonic = nanos(instant.saturating_duration_since(self.first.0));
        wall - monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::{Clocks, Duration, Instant, Reading, SystemTime, now};

    #[test]
    fn an_interval_is_as_long_as_either_clock_says() {
        let (start, wall) = (Instant::now(), SystemTime::now());
        let second = Duration::from_secs(1);
        let reading = |at: u64, set_to: u64| Reading {
            before: start + Duration::from_millis(at),
            wall: wall + second + Duration::from_millis(set_to),
            after: start + Duration::from_millis(at),
        };
        let mut clocks = Clocks::new(&reading(0, 0));
        // Milliseconds of the monotonic clock, of the wall clock, and what is told.
        let steps = [
            (0, 0, 0),
            (10, 10, 10),
            (20, 520, 520),
            (30, 530, 530),
            // Back, by more than it had gained.
            (40, 0, 540),
            (50, 10, 550),
            (60, 30, 570),
            // Slower for a while, then again as fast.
            (70, 35, 580),
            (80, 45, 590),
        ];
        for (at, set_to, told) in steps {
            assert_eq!(clocks.read(&reading(at, set_to)), start + Duration::from_millis(told), "at {at} ms");
        }
    }

    /// A thread that is kept waiting between its readings has seen no step.
    #[test]
    fn a_wide_reading_moves_nothing() {
        let (start, wall) = (Instant::now(), SystemTime::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let wide = |before, set_to, after| Reading {
            before: at(before),
            wall: wall + Duration::from_millis(set_to),
            after: at(after),
        };
        let mut clocks = Clocks::new(&wide(0, 0, 0));
        for (before, set_to, after) in [(10, 10, 900), (910, 990, 1_000), (1_000, 1_000, 1_000), (1_010, 1_030, 1_100)]
        {
            assert_eq!(clocks.read(&wide(before, set_to, after)), at(after));
        }
    }

    #[test]
    fn time_goes_on() {
        let (first, second) = (now(), now());
        assert!(first <= second);
    }
}
