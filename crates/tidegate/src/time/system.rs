//! The clock for production.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Micros};

/// Real time: monotonic, and anchored to the wall clock once, when it is made.
///
/// It reads the processor's time-stamp counter where that is reliable (about
/// 20 ns) and the operating system's monotonic clock where it is not. It never
/// follows a later step of the wall clock, so an administrator who sets the
/// time grants no requests. The price is drift: over weeks it may part
/// from the wall clock by seconds, which moves the edges of epoch-aligned
/// windows by as much. It stands still while the machine is suspended if the
/// processor's counter does.
///
/// ```
/// use tidegate::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let first = clock.now();
/// assert!(clock.now() >= first);
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    anchor_raw: u64,
    anchor: u64,
    /// Microseconds in a step of the counter, times 2^64.
    micros_per_step: u64,
}

impl SystemClock {
    /// Anchors a new clock to the wall clock of this moment.
    #[must_use]
    pub fn new() -> SystemClock {
        let counter = quanta::Clock::new();
        // Long enough for 40 bits of the ratio: a second in 35,000 years.
        let steps = 1_u64 << 40;
        let nanos = u128::from(counter.delta_as_nanos(0, steps));
        let micros_per_step = u64::try_from((nanos << 24) / 1_000).unwrap_or(u64::MAX);
        let anchor_raw = counter.raw();
        // A wall clock before 1970 reads as the epoch: a limiter needs only
        // that time goes on from there.
        let anchor = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { counter, anchor_raw, anchor: Micros::from_duration(anchor).get(), micros_per_step }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Micros {
        // Another core's counter may be a little behind the one that anchored.
        let steps = self.counter.raw().saturating_sub(self.anchor_raw);
        let elapsed = (u128::from(steps) * u128::from(self.micros_per_step)) >> 64;
        Micros(self.anchor + elapsed as u64).min(Micros::LATEST)
    }
}

// Miri has no counter to read.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn runs_with_real_time_from_the_wall_clock() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64;
        let (before, clock) = (wall(), SystemClock::new());
        let (now, after) = (clock.now().get(), wall());
        // Ahead by what passed between its two readings, at most all of this time.
        let latest = after + 2 * (after - before) + 2;
        assert!(before <= now && now <= latest, "anchored to the wall clock: {before} <= {now} <= {latest} us");
        // Each reading lies between two of the standard library's, however
        // long this thread is kept from running in between.
        let (before, from, after) = (Instant::now(), clock.now(), Instant::now());
        while after.elapsed().as_millis() < 20 {}
        let (least, to) = (after.elapsed().as_micros() as u64, clock.now());
        let most = before.elapsed().as_micros() as u64;
        let seen = to.saturating_since(from).get();
        assert!(seen + 2 >= least - least / 100 && seen <= most + most / 100 + 2, "{least} <= {seen} <= {most} us");
    }
}
