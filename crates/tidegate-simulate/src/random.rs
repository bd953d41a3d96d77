//! Chance that repeats itself: the same seed gives the same numbers on every
//! machine, because there is no float in it.

/// A small generator (SplitMix64): every seed is a good one.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The generator of one source of traffic: others of the same seed do not
    /// affect it.
    pub(crate) fn new(seed: u64, source: u32) -> Random {
        let mut random = Random { state: seed };
        let base = random.number();
        Random { state: base ^ u64::from(source).wrapping_mul(0xd134_2543_de82_ef95) }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        let choices = u128::from(most - least) + 1;
        least + ((u128::from(self.number()) * choices) >> 64) as u64
    }

    /// An exponentially distributed number of mean one, in 2^-32.
    ///
    /// Von Neumann's way, which only compares: a run of falling numbers is of
    /// odd length with a probability of exp(-first). A logarithm would round as
    /// the machine's library does, and then seeds would mean something else on
    /// each.
    pub(crate) fn exponential(&mut self) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.number();
            let (mut last, mut length) = (first, 1u32);
            loop {
                let next = self.number();
                if next >= last {
                    break;
                }
                (last, length) = (next, length + 1);
            }
            if length % 2 == 1 {
                return (whole << 32) | (first >> 32);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_were_published() {
        // SplitMix64 for the seed 0.
        assert_eq!(Random { state: 0 }.number(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn gaps_are_exponential() {
        let mut random = Random::new(1, 0);
        let gaps: Vec<f64> = (0..200_000).map(|_| random.exponential() as f64 / 2f64.powi(32)).collect();
        let share_above = |least: f64| gaps.iter().filter(|gap| **gap > least).count() as f64 / gaps.len() as f64;
        // The standard error of a share is below 0.0012 here.
        for least in [0.1, 0.5, 1.0, 2.0, 4.0] {
            assert!((share_above(least) - (-least).exp()).abs() < 0.005, "above {least}: {}", share_above(least));
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }
}
