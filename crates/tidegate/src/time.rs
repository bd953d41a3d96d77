//! Time as the limiter sees it: whole microseconds, read from one clock.
//!
//! A store owns its clock and reads it once per decision. Nothing here says
//! that readings never go back: the kernels are built to grant nothing when
//! they do.

pub(crate) mod alarm;
mod coarse;
mod manual;
mod sleep;
mod system;

pub use coarse::CoarseClock;
pub use manual::ManualClock;
#[cfg(all(test, not(loom)))]
pub(crate) use sleep::Alarm;
pub use sleep::Sleep;
pub use system::SystemClock;

use std::fmt;
use std::task::Waker;
use std::time::Duration;

/// Whole microseconds: an instant since the Unix epoch, or a length of time.
///
/// Never above [`Micros::MAX`], so that it is exact in a double, which is all
/// that a Lua script inside Redis has.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Micros;
///
/// let start = Micros::new(1_700_000_000_000_000);
/// let end = start.saturating_add(Micros::from_duration(Duration::from_millis(5)));
/// assert_eq!(end.saturating_since(start).get(), 5_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// The epoch, or no time at all.
    pub const ZERO: Micros = Micros(0);
    /// The most that can be told: 2^53 - 1.
    pub const MAX: Micros = Micros((1 << 53) - 1);
    /// The last instant at which anything is decided: 2^52 - 1, in the year
    /// 2112. Stores take a later reading of a clock for this one.
    pub const LATEST: Micros = Micros((1 << 52) - 1);

    /// Takes a count of microseconds; above [`Micros::MAX`] it is that.
    ///
    /// ```
    /// use tidegate::Micros;
    ///
    /// assert_eq!(Micros::new(u64::MAX), Micros::MAX);
    /// ```
    #[must_use]
    #[inline]
    pub const fn new(micros: u64) -> Micros {
        if micros > Micros::MAX.0 { Micros::MAX } else { Micros(micros) }
    }

    /// The whole microseconds in `duration`, rounded down.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Micros;
    ///
    /// assert_eq!(Micros::from_duration(Duration::from_nanos(1_999)).get(), 1);
    /// ```
    #[must_use]
    pub const fn from_duration(duration: Duration) -> Micros {
        let micros = duration.as_micros();
        if micros > Micros::MAX.0 as u128 { Micros::MAX } else { Micros(micros as u64) }
    }

    /// The plain number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The same length of time as the standard library's type.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Micros;
    ///
    /// assert_eq!(Micros::new(1_500).to_duration(), Duration::from_micros(1_500));
    /// ```
    #[must_use]
    #[inline]
    pub const fn to_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// `self + length`, at most [`Micros::MAX`].
    ///
    /// ```
    /// use tidegate::Micros;
    ///
    /// assert_eq!(Micros::MAX.saturating_add(Micros::new(1)), Micros::MAX);
    /// ```
    #[must_use]
    #[inline]
    pub const fn saturating_add(self, length: Micros) -> Micros {
        Micros::new(self.0 + length.0)
    }

    /// The time from `earlier` to `self`, or none if that is not earlier.
    ///
    /// ```
    /// use tidegate::Micros;
    ///
    /// assert_eq!(Micros::new(3).saturating_since(Micros::new(5)), Micros::ZERO);
    /// ```
    #[must_use]
    #[inline]
    pub const fn saturating_since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A source of time, and of waking up later.
///
/// A store reads it once per decision. Implement it to run limits on a time
/// of your own: simulated, replayed, or coarser.
///
/// ```
/// use tidegate::{Clock, Micros};
///
/// /// Hours pass in seconds.
/// struct Fast(tidegate::SystemClock);
///
/// impl Clock for Fast {
///     fn now(&self) -> Micros {
///         Micros::new(self.0.now().get().wrapping_mul(3_600) % Micros::LATEST.get())
///     }
/// }
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The time now, in microseconds since the Unix epoch.
    fn now(&self) -> Micros;

    /// Wakes `waker` once [`now`](Clock::now) has reached `at`, or a little
    /// later; waking it early or twice does no harm. A task that may be polled
    /// meanwhile calls it through a [`Sleep`](crate::store::Sleep).
    ///
    /// The provided method uses one timer thread for the whole process, which
    /// starts with the first call. A clock that does not run with real time
    /// brings its own.
    fn wake_at(&self, at: Micros, waker: &Waker) {
        alarm::wake_after(at.saturating_since(self.now()).to_duration(), waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_above_the_most_that_can_be_told() {
        let most = (1 << 53) - 1;
        let times = [0, 1, most - 1, most, most + 1, u64::MAX];
        assert_eq!(times.map(|micros| Micros::new(micros).get()), [0, 1, most - 1, most, most, most]);
        let told = times.map(|micros| Micros::from_duration(Duration::from_micros(micros)).get());
        assert_eq!(told, [0, 1, most - 1, most, most, most]);
        assert_eq!(Micros::from_duration(Duration::MAX), Micros::MAX);
        assert_eq!(Micros::from_duration(Duration::from_nanos(1_999)), Micros::new(1), "rounded down");
        assert_eq!(Micros::MAX.to_duration(), Duration::from_micros(most));
    }

    #[test]
    fn sums_and_differences_end_where_time_does() {
        let [two, five] = [2, 5].map(Micros::new);
        assert_eq!(two.saturating_add(five), Micros::new(7));
        assert_eq!(Micros::MAX.saturating_add(five), Micros::MAX);
        assert_eq!(five.saturating_since(two), Micros::new(3));
        assert_eq!(two.saturating_since(five), Micros::ZERO);
        assert_eq!(five.to_string(), "5us");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the timer outlives the tests, which Miri does not allow")]
    fn a_clock_that_only_tells_the_time_wakes_by_the_timer_of_the_process() {
        struct Stopped;

        impl Clock for Stopped {
            fn now(&self) -> Micros {
                Micros::new(1_000_000)
            }
        }

        struct Told(std::sync::mpsc::SyncSender<()>);

        impl std::task::Wake for Told {
            fn wake(self: std::sync::Arc<Self>) {
                // A second wake-up has no receiver.
                let _ = self.0.try_send(());
            }
        }

        let (sender, told) = std::sync::mpsc::sync_channel(1);
        Stopped.wake_at(Micros::new(1_000_100), &Waker::from(std::sync::Arc::new(Told(sender))));
        assert_eq!(told.recv_timeout(Duration::from_secs(300)), Ok(()));
    }
}
