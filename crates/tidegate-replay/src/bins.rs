//! What happened when, in a bounded number of bins of equal width.
//!
//! How long a log is shows only at its end. Bins begin narrow; when there
//! would be too many, the next wider width takes their place, which is a
//! multiple of theirs, so that bins are added up and never torn apart.

use tidegate::Micros;

/// Bins that are kept.
pub(crate) const MAX_BINS: u64 = 240;

/// Widths in microseconds, each a multiple of the one before: 1 ms to a week.
/// Beyond, they double.
const WIDTHS: [u64; 13] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    10_800_000_000,
    86_400_000_000,
    604_800_000_000,
];

/// One bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) newly_refused: u64,
    pub(crate) newly_admitted: u64,
    /// Refused, by the number of the rule.
    pub(crate) by_rule: Vec<u64>,
}

impl Bin {
    pub(crate) fn refuse(&mut self, rule: usize) {
        self.refused += 1;
        if self.by_rule.len() <= rule {
            self.by_rule.resize(rule + 1, 0);
        }
        self.by_rule[rule] += 1;
    }

    fn add(&mut self, other: Bin) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.newly_refused += other.newly_refused;
        self.newly_admitted += other.newly_admitted;
        if self.by_rule.len() < other.by_rule.len() {
            self.by_rule.resize(other.by_rule.len(), 0);
        }
        self.by_rule.iter_mut().zip(other.by_rule).for_each(|(own, other)| *own += other);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Bins {
    width: u64,
    /// The number of the first bin: its start in widths since the epoch.
    first: u64,
    bins: Vec<Bin>,
}

impl Default for Bins {
    fn default() -> Bins {
        Bins { width: WIDTHS[0], first: 0, bins: Vec::new() }
    }
}

impl Bins {
    /// The bin of an instant, which is not before that of the last call.
    pub(crate) fn at(&mut self, at: Micros) -> &mut Bin {
        if self.bins.is_empty() {
            self.first = at.get() / self.width;
        }
        while at.get() / self.width - self.first >= MAX_BINS {
            self.widen();
        }
        let number = (at.get() / self.width).saturating_sub(self.first) as usize;
        if number >= self.bins.len() {
            self.bins.resize_with(number + 1, Bin::default);
        }
        &mut self.bins[number]
    }

    fn widen(&mut self) {
        let next = WIDTHS.into_iter().find(|width| *width > self.width).unwrap_or(self.width * 2);
        let times = next / self.width;
        let first = self.first / times;
        let mut wider: Vec<Bin> = Vec::new();
        for (number, bin) in std::mem::take(&mut self.bins).into_iter().enumerate() {
            let number = ((self.first + number as u64) / times - first) as usize;
            if number >= wider.len() {
                wider.resize_with(number + 1, Bin::default);
            }
            wider[number].add(bin);
        }
        (self.width, self.first, self.bins) = (next, first, wider);
    }

    pub(crate) fn width(&self) -> Micros {
        Micros::new(self.width)
    }

    /// Each bin, and when it begins.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Micros, &Bin)> {
        let starts = (self.first..).map(|number| Micros::new(number * self.width));
        starts.zip(&self.bins)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::Random;

    use super::*;

    #[test]
    fn widths_are_multiples_of_those_before() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1] % pair[0] == 0));
    }

    #[test]
    fn every_instant_is_in_its_bin_however_long_the_log() {
        let mut random = Random::new(5);
        for longest_step in [1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000] {
            let (mut bins, mut at, mut times) = (Bins::default(), random.within(0..=1 << 50), Vec::new());
            for number in 0..2_000_usize {
                at += random.magnitude(1..=longest_step);
                bins.at(Micros::new(at)).refuse(number % 3);
                times.push(at);
            }
            let all: Vec<_> = bins.iter().collect();
            assert!(all.len() as u64 <= MAX_BINS);
            for (start, bin) in all {
                let within = |at: &&u64| (start.get()..start.get() + bins.width().get()).contains(at);
                assert_eq!(bin.refused, times.iter().filter(within).count() as u64);
                assert_eq!(bin.refused, bin.by_rule.iter().sum::<u64>());
            }
        }
    }
}
