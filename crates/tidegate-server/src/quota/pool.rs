//! A limit as a token bucket that can be divided, and a share of it as Envoy's token bucket.
//!
//! A limit is [`UNITS`] units. A share of `u` of them is a bucket with `u / UNITS` of the limit's
//! tokens and rate, both rounded down, so shares of all units together never exceed the limit.
//!
//! A window of `N` becomes a bucket of `ceil(N / 2)` tokens that gains `floor(N / 2)` in a period: no
//! interval as long as a period sees more than `N`. Of `N = 1` it gains one in two periods.
//!
//! A bucket that a client starts anew is full. What another client used of the same units just
//! before is then used twice, unless the units lie fallow for as long as the bucket takes to fill.
//! So a pool has no more tokens than its rate makes in a time to live, and says how long that is.

use tidegate::{Algorithm, LimitOf, Micros};

/// The units that a limit is divided into: divisible by all numbers up to eight, and by 10, 12, 15, 20.
pub(crate) const UNITS: u32 = 840;

const SECOND: u64 = 1_000_000;

/// Intervals that a rate is told for, in seconds: the shortest that has [`MIN_FILL`] tokens, so that
/// rounding costs less than a hundredth. Envoy knows whole seconds only.
const INTERVALS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const MIN_FILL: u128 = 100;

/// What can be divided of one limit, or of several that apply together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    tokens: u64,
    rate: Rate,
    /// How long units lie unused between two holders.
    pub(crate) fallow: Micros,
}

/// Requests in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    count: u64,
    period: u64,
}

/// A share, as Envoy's token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) max_tokens: u32,
    pub(crate) tokens_per_fill: u32,
    /// Whole seconds.
    pub(crate) fill_interval: u64,
}

impl Rate {
    fn is_below(self, other: Rate) -> bool {
        u128::from(self.count) * u128::from(other.period) < u128::from(other.count) * u128::from(self.period)
    }

    /// Tokens in a time, rounded down.
    fn within(self, micros: u64) -> u64 {
        let tokens = u128::from(self.count) * u128::from(micros) / u128::from(self.period);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

impl Pool {
    /// Of a limit of which every request costs something; none for requests in flight, and for
    /// limits that are no plain numbers, as with a warm-up: those cannot be divided.
    pub(crate) fn of(applied: &LimitOf, ttl: Micros) -> Option<Pool> {
        let limit = applied.meter.limit().filter(|limit| !limit.is_in_flight() && applied.cost > 0)?;
        let (whole, period) = (applied.meter.largest_cost(), Micros::from_duration(limit.period()).get());
        let (burst, count, period) = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (whole, limit.count(), period),
            Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingLog if whole < 2 => {
                (whole, 1, period.saturating_mul(2))
            }
            Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingLog => {
                (whole.div_ceil(2), whole / 2, period)
            }
        };
        // In requests, of which each takes the cost.
        let rate = Rate { count, period: period.saturating_mul(applied.cost) };
        Some(Pool::new(burst / applied.cost, rate, ttl))
    }

    fn new(burst: u64, rate: Rate, ttl: Micros) -> Pool {
        let fill = u128::from(burst) * u128::from(rate.period) / u128::from(rate.count.max(1));
        let fallow =
            u64::try_from(fill).unwrap_or(u64::MAX).clamp(SECOND, ttl.get().max(SECOND)).div_ceil(SECOND) * SECOND;
        let tokens = burst.min(rate.within(fallow).max(1));
        Pool { tokens, rate, fallow: Micros::new(fallow) }
    }

    /// What is within both.
    pub(crate) fn and(self, other: &Pool) -> Pool {
        let rate = if other.rate.is_below(self.rate) { other.rate } else { self.rate };
        Pool { tokens: self.tokens.min(other.tokens), rate, fallow: self.fallow.max(other.fallow) }
    }

    /// Whether its rate is lower.
    pub(crate) fn is_slower_than(&self, other: &Pool) -> bool {
        self.rate.is_below(other.rate)
    }

    /// A share of so many units; none if it has no token or gains none.
    pub(crate) fn grant(&self, units: u32) -> Option<Grant> {
        let max_tokens = u128::from(self.tokens) * u128::from(units) / u128::from(UNITS);
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        let fill = |seconds: u64| {
            let tokens = u128::from(self.rate.count) * u128::from(units) * u128::from(seconds * SECOND);
            tokens / (u128::from(self.rate.period) * u128::from(UNITS))
        };
        let interval = INTERVALS.into_iter().find(|seconds| fill(*seconds) >= MIN_FILL);
        let fill_interval = interval.unwrap_or(INTERVALS[INTERVALS.len() - 1]);
        let tokens_per_fill = u32::try_from(fill(fill_interval)).unwrap_or(u32::MAX);
        (max_tokens > 0 && tokens_per_fill > 0).then_some(Grant { max_tokens, tokens_per_fill, fill_interval })
    }

    /// The fewest units of which a share can be made; none if all are too few.
    pub(crate) fn min_units(&self) -> Option<u32> {
        let (mut too_few, mut enough) = (0, UNITS);
        self.grant(enough)?;
        while enough - too_few > 1 {
            let between = too_few.midpoint(enough);
            *(if self.grant(between).is_some() { &mut enough } else { &mut too_few }) = between;
        }
        Some(enough)
    }

    /// The units that let pass so many requests in so many microseconds, with a quarter to spare.
    pub(crate) fn units_for(&self, requests: u64, micros: u64) -> u32 {
        let wanted = u128::from(requests) * u128::from(self.rate.period) * u128::from(UNITS) * 5;
        let whole = u128::from(self.rate.count) * u128::from(micros.max(1)) * 4;
        u32::try_from(wanted.div_ceil(whole.max(1))).unwrap_or(UNITS).min(UNITS)
    }

    /// How many units of a limit a share of `units` of this pool takes, which that limit is part of.
    pub(crate) fn units_of(&self, part: &Pool, units: u32) -> u32 {
        let units = u128::from(units);
        let by_tokens = (units * u128::from(self.tokens)).div_ceil(u128::from(part.tokens.max(1)));
        let (own, other) = (self.rate, part.rate);
        let by_rate = units * u128::from(own.count) * u128::from(other.period);
        let by_rate = by_rate.div_ceil((u128::from(own.period) * u128::from(other.count)).max(1));
        u32::try_from(by_tokens.max(by_rate)).unwrap_or(UNITS).min(UNITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Micros = Micros::new(10 * SECOND);

    fn pool(burst: u64, count: u64, seconds: u64) -> Pool {
        Pool::new(burst, Rate { count, period: seconds * SECOND }, TTL)
    }

    #[test]
    fn a_share_is_a_part_of_the_tokens_and_of_the_rate() {
        let grant = |pool: Pool, units| {
            pool.grant(units).map(|grant| (grant.max_tokens, grant.tokens_per_fill, grant.fill_interval))
        };
        assert_eq!(grant(pool(100, 100, 1), UNITS), Some((100, 100, 1)));
        assert_eq!(grant(pool(100, 100, 1), UNITS / 2), Some((50, 500, 10)));
        assert_eq!(grant(pool(100, 100, 1), 8), None, "less than a token");
        assert_eq!(grant(pool(100, 100, 1), 9), Some((1, 107, 100)));
        assert_eq!(pool(100, 100, 1).min_units(), Some(9));
        assert_eq!(grant(pool(1_000, 1_000, 3_600), UNITS), Some((2, 277, 1_000)), "as many as ten seconds make");
        assert_eq!(grant(pool(1, 1, 60), UNITS), Some((1, 166, 10_000)));
        assert_eq!(grant(pool(u64::MAX >> 12, u64::MAX >> 12, 1), UNITS), Some((u32::MAX, u32::MAX, 1)));
    }

    #[test]
    fn units_lie_fallow_until_a_bucket_is_full_again() {
        assert_eq!(pool(100, 100, 1).fallow, Micros::new(SECOND));
        assert_eq!(pool(350, 100, 1).fallow, Micros::new(4 * SECOND));
        assert_eq!(pool(1_000, 1_000, 3_600).fallow, TTL);
    }

    #[test]
    fn demand_is_told_in_units() {
        let pool = pool(100, 100, 1);
        assert_eq!([0, 1, 8, 10, 100].map(|requests| pool.units_for(requests, SECOND)), [0, 11, 84, 105, UNITS]);
        assert_eq!(pool.units_for(u64::MAX, 0), UNITS);
    }

    proptest! {
        /// However the units are divided, tokens and rates together are within the limit.
        #[test]
        fn shares_together_are_within_the_limit(
            burst in 1..1_000_000_u64,
            count in 1..1_000_000_u64,
            seconds in 1..100_000_u64,
            cuts in prop::collection::vec(0..=UNITS, 0..9),
        ) {
            let pool = pool(burst, count, seconds);
            let mut cuts = cuts;
            cuts.extend([0, UNITS]);
            cuts.sort_unstable();
            let grants: Vec<Grant> = cuts.windows(2).filter_map(|cut| pool.grant(cut[1] - cut[0])).collect();
            prop_assert!(grants.iter().map(|grant| u64::from(grant.max_tokens)).sum::<u64>() <= burst);
            // In tokens of the longest interval.
            let longest = u128::from(INTERVALS[INTERVALS.len() - 1]);
            let rates = grants.iter().map(|grant| u128::from(grant.tokens_per_fill) * longest / u128::from(grant.fill_interval));
            prop_assert!(rates.sum::<u128>() * u128::from(seconds) <= u128::from(count) * longest);
        }

        #[test]
        fn units_of_several_limits_are_within_each(
            numbers in prop::collection::vec((1..10_000_u64, 1..10_000_u64, 1..1_000_u64), 1..4),
            cuts in prop::collection::vec(1..=UNITS, 1..5),
        ) {
            let pools: Vec<Pool> = numbers.into_iter().map(|(burst, count, seconds)| pool(burst, count, seconds)).collect();
            let whole = pools[1..].iter().fold(pools[0].clone(), Pool::and);
            for part in &pools {
                let grants: Vec<(u32, Grant)> =
                    cuts.iter().filter_map(|units| Some((whole.units_of(part, *units), whole.grant(*units)?))).collect();
                // As far as the units of the limit reach.
                let mut left = UNITS;
                let held = grants.iter().take_while(|(units, _)| { let fits = *units <= left; left -= (*units).min(left); fits });
                let (mut tokens, mut rate) = (0, 0.0);
                for (_, grant) in held {
                    tokens += u64::from(grant.max_tokens);
                    rate += f64::from(grant.tokens_per_fill) / grant.fill_interval as f64;
                }
                prop_assert!(tokens <= part.tokens);
                prop_assert!(rate <= part.rate.count as f64 / (part.rate.period as f64 / SECOND as f64) * 1.000_001);
            }
        }
    }
}
