//! The clock for production.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Micros};

/// Real time: monotonic, and anchored to the wall clock once, when it is made.
///
/// It reads the processor's time-stamp counter where that is reliable (about
/// 20 ns) and the operating system's monotonic clock where it is not. It never
/// follows a later step of the wall clock, so an administrator who sets the
/// time grants nobody anything. The price is drift: over weeks it may part
/// from the wall clock by seconds, which moves the edges of epoch-aligned
/// windows by as much. It stands still while the machine is suspended if the
/// processor's counter does.
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    anchor_raw: u64,
    anchor: u64,
}

impl SystemClock {
    /// Anchors a new clock to the wall clock of this moment.
    #[must_use]
    pub fn new() -> SystemClock {
        let counter = quanta::Clock::new();
        let anchor_raw = counter.raw();
        // A wall clock before 1970 reads as the epoch: a limiter needs only
        // that time goes on from there.
        let anchor = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { counter, anchor_raw, anchor: Micros::from_duration(anchor).get() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Micros {
        let elapsed = self.counter.delta_as_nanos(self.anchor_raw, self.counter.raw()) / 1_000;
        Micros::new(self.anchor + elapsed)
    }
}
