//! Chance that repeats itself: the same seed, the same numbers, everywhere.

use std::ops::RangeInclusive;

/// A small generator (SplitMix64): every seed is a good one, and a fork costs
/// nothing.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that always gives the same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `range`, which is not empty.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = range.into_inner();
        let width = u128::from(most.max(least) - least) + 1;
        least + ((u128::from(self.number()) * width) >> 64) as u64
    }

    /// A number of `range` whose size is as likely to be small as large: each
    /// power of two has the same share.
    pub fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = range.into_inner();
        let bits = u64::from(most.max(1).ilog2());
        let top = 1u64 << self.within(0..=bits);
        self.within(top..=top.saturating_mul(2) - 1).clamp(least, most.max(least))
    }

    /// True `times` out of a hundred.
    pub fn percent(&mut self, times: u64) -> bool {
        self.within(1..=100) <= times
    }

    /// One of `choices`, which are not empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.within(0..=choices.len() as u64 - 1) as usize]
    }

    /// A generator of its own, that later numbers of this one do not affect.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random::new(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        // The first number of SplitMix64 for the seed 0, as published.
        assert_eq!(Random::new(0).number(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Random::new(7).number(), Random::new(7).number());
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let numbers: Vec<u64> = (0..1_000).map(|_| random.within(3..=5)).collect();
        assert_eq!((numbers.iter().min(), numbers.iter().max()), (Some(&3), Some(&5)));
        assert_eq!(random.within(9..=9), 9);
        assert!((0..1_000).all(|_| (2..=1_000).contains(&random.magnitude(2..=1_000))));
        assert!(random.within(0..=u64::MAX) != random.within(0..=u64::MAX));
    }
}
