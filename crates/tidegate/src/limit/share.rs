//! The part of a limit that one of several processes keeps by itself.

use std::num::NonZeroU32;

use super::Limit;
use crate::algorithm::Algorithm;

impl Limit {
    /// The limit that each of so many processes may keep by itself so that
    /// together they keep this one; at least one unit at a time each.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tidegate::Limit;
    ///
    /// let four = NonZeroU32::new(4).unwrap();
    /// assert_eq!(Limit::per_second(100).share(four).to_string(), "100/4s burst 25");
    /// assert_eq!("fixed 10/min".parse::<Limit>()?.share(four).to_string(), "fixed 2/min");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn share(self, processes: NonZeroU32) -> Limit {
        let parts = u64::from(processes.get());
        let fewer = |count: u64| (count / parts).max(1);
        let slower = || self.with_numbers(self.count(), self.period() * processes.get(), fewer(self.capacity()));
        let smaller = || self.with_numbers(fewer(self.count()), self.period(), fewer(self.capacity()));
        let share = match self.algorithm() {
            // The rate of a bucket can be divided exactly, unless its period
            // becomes too long.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => slower().or_else(smaller),
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => smaller(),
        };
        share.or_else(|| self.with_numbers(self.count(), self.period(), 1)).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_no_more_than_the_limit() {
        let limits = ["100/s", "7/min burst 3", "leaky 10/s queue 4", "fixed 10/h", "sliding 9/min", "sliding-log 1/s"];
        for words in limits {
            let limit: Limit = words.parse().expect("a limit");
            for processes in [1, 2, 3, 7, 1_000, u32::MAX] {
                let share = limit.share(NonZeroU32::new(processes).expect("not zero"));
                let all = u128::from(share.capacity()) * u128::from(processes);
                assert!(
                    share.capacity() == 1 || all <= u128::from(limit.capacity()),
                    "{words} by {processes}: {share}"
                );
                assert_eq!(share.algorithm(), limit.algorithm());
            }
        }
        assert_eq!(Limit::per_second(5).share(NonZeroU32::MIN), Limit::per_second(5));
        // Neither twice as slow nor half as large is a limit.
        let slow: Limit = "3/3285day burst 23".parse().expect("a limit");
        assert_eq!(slow.share(NonZeroU32::new(2).expect("not zero")).to_string(), "3/3285day burst 1");
    }
}
