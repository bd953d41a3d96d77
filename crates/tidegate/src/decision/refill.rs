//! When more of a limit becomes available, for response headers and messages.

use std::time::Duration;

use super::Decision;
use crate::algorithm::Algorithm;
use crate::limit::Limit;

impl Limit {
    /// The time in which the whole capacity comes back: the period, or for a
    /// bucket the time in which an empty one is full again, rounded up.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_minute(60).burst(10).refill_time().as_secs(), 10);
    /// ```
    #[must_use]
    pub fn refill_time(&self) -> Duration {
        match self.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let whole = self.period().as_micros() * u128::from(self.capacity());
                micros(whole.div_ceil(u128::from(self.count())))
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => self.period(),
        }
    }

    /// How long after a decision by this limit there is more than it said: until
    /// the next unit of a bucket, until the window of anything else has passed;
    /// for a refused request, its `retry_after`. Zero if nothing was
    /// used. Never too early, and for a bucket late by at most twice its
    /// [resolution](Limit::resolution).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limit = Limit::per_minute(60).burst(10);
    /// let limiter = Limiter::new(limit);
    /// let decisions = limiter.check_many(["alice"; 5])?;
    /// assert!(decisions[4].reset_after().is_some_and(|time| time.as_secs() >= 4));
    /// assert!(limit.more_after(&decisions[4]).as_secs() <= 1);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn more_after(&self, decision: &Decision) -> Duration {
        if !decision.is_allowed() {
            return decision.verdict.retry_after.to_duration();
        }
        let whole = decision.verdict.reset_after.to_duration();
        let drains = matches!(self.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        // The local fallback counts by a share of the limit.
        if !drains || decision.is_degraded() {
            return whole;
        }
        // Units that are still to come after the next one.
        let left = decision.verdict.remaining.saturating_add(decision.floor);
        let later = self.capacity().saturating_sub(left).saturating_sub(1);
        // In the steps in which the limit sees time: between two of them nothing comes.
        let step = self.resolution().as_micros();
        let steps = u128::from(later) * self.period().as_micros().div_ceil(step) / u128::from(self.count());
        whole.saturating_sub(micros(steps * step))
    }
}

fn micros(micros: u128) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::Verdict;
    use crate::{Clock, Limiter, ManualClock, MemoryStore, Micros, Name, Request};

    fn limiter(limit: Limit) -> (Limiter, ManualClock) {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_700_000_000));
        let store = MemoryStore::builder().max_keys(8).clock(clock.clone()).build().expect("valid settings");
        (Limiter::with_store(limit, store).expect("a valid policy"), clock)
    }

    fn limit(words: &str) -> Limit {
        words.parse().expect(words)
    }

    #[test]
    fn the_whole_capacity_comes_back_in_the_time_that_is_told() {
        for (words, micros) in [
            ("100/min burst 20", 12_000_000),
            ("3/s burst 1", 333_334),
            ("leaky 2/s queue 8", 4_000_000),
            ("fixed 10/min", 60_000_000),
            ("sliding-log 10/h", 3_600_000_000),
            ("sliding 10/90500ms", 90_500_000),
        ] {
            assert_eq!(limit(words).refill_time().as_micros(), micros, "{words}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn refill_after_is_never_early_and_for_a_bucket_barely_late() {
        for words in
            ["100/min burst 20", "3/s burst 7", "leaky 7/s queue 5", "fixed 5/min", "sliding-log 3/10s", "1/us burst 9"]
        {
            let limit = limit(words);
            for used in 1..=limit.capacity() {
                let (limiter, clock) = limiter(limit);
                let mut decision = limiter.peek("alice").expect("an answer");
                assert_eq!(limit.more_after(&decision), Duration::ZERO, "{words}: nothing is used");
                for _ in 0..used {
                    clock.advance(Duration::from_micros(170_001));
                    decision = limiter.check("alice").expect("an answer");
                }
                let more_after = limit.more_after(&decision);
                let is_bucket = matches!(limit.kernel(), crate::kernel::LimitKernel::Bucket(_));
                if is_bucket && more_after > Duration::from_micros(2) {
                    clock.advance(more_after - Duration::from_micros(2));
                    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), decision.remaining(), "{words}");
                    clock.advance(Duration::from_micros(2));
                } else {
                    clock.advance(more_after);
                }
                assert!(limiter.peek("alice").expect("an answer").remaining() > decision.remaining(), "{words}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn a_coarse_bucket_has_no_more_before_it_is_told() {
        for words in [
            "999999999989/day burst 5000000",
            "leaky 999999999989/day queue 5000000",
            "999999999989/h burst 50000000",
            "1000/86400000001us burst 1000000",
        ] {
            let limit = limit(words);
            let step = limit.resolution();
            assert!(step > Duration::from_micros(1), "{words}");
            for round in 1..200 {
                let (limiter, clock) = limiter(limit);
                clock.advance(Duration::from_micros(round * 37));
                let cost = 1 + round * 7_919 % limit.capacity();
                let decision = limiter.check(Request::new("alice").cost(cost)).expect("an answer");
                let more_after = limit.more_after(&decision);
                let left = || limiter.peek("alice").expect("an answer").remaining();
                let begun = clock.now();
                clock.advance(more_after);
                assert!(left() > decision.remaining(), "{words} after {cost}: too early");
                if let Some(before) = more_after.checked_sub(2 * step) {
                    clock.set(begun.saturating_add(Micros::from_duration(before)));
                    assert_eq!(left(), decision.remaining(), "{words} after {cost}: too late");
                }
            }
        }
    }

    #[test]
    fn a_refusal_has_retry_after() {
        let limit = limit("1/min");
        let (limiter, _) = limiter(limit);
        let refused = &limiter.check_many(["alice"; 2]).expect("answers")[1];
        assert_eq!(limit.more_after(refused), Duration::from_secs(60));
        // The next unit comes sooner than all that was asked for.
        let limit = "10/min burst 10".parse::<Limit>().expect("a limit");
        let (limiter, _) = self::limiter(limit);
        assert!(limiter.check(Request::new("alice").cost(9)).is_ok_and(|decision| decision.is_allowed()));
        let refused = limiter.check(Request::new("alice").cost(5)).expect("an answer");
        assert_eq!(limit.more_after(&refused), Duration::from_secs(24));
    }

    #[test]
    fn of_a_stand_in_only_the_whole_is_known() {
        let verdict =
            Verdict { allowed: true, remaining: 1, reset_after: Micros::new(8_000_000), ..Verdict::default() };
        let decision = |degraded| Decision::new(Name::literal("rule"), None, 5, 0, Verdict { degraded, ..verdict });
        let limit = limit("30/min burst 5");
        assert_eq!(limit.more_after(&decision(false)), Duration::from_secs(2));
        assert_eq!(limit.more_after(&decision(true)), Duration::from_secs(8));
    }
}
