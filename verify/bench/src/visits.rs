//! Who comes by, in order: the keys of a workload, laid out as they are asked.
//!
//! A caller has its key at hand: it has just read it from a request. So the
//! visits are not indices into a shuffled table of keys, which would make
//! every contestant pay two cache misses for the text before it begins; they
//! are a `Vec<String>` in the order of the visits, made in that order, which
//! the processor streams in ahead. It is a `Vec<String>` because governor asks
//! for `&String`, and the same one for all.

/// How many keys most workloads have.
pub(crate) const MILLION: usize = 1_000_000;

/// How many visits before they repeat: four for each of a million keys, so
/// that nearly all of them are asked for.
pub(crate) const VISITS: usize = 1 << 22;

/// The text of a key: 16 bytes.
pub(crate) fn key(index: usize) -> String {
    format!("user-{index:011}")
}

/// The keys `from..to`, each once.
pub(crate) fn each(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(key).collect()
}

/// Visits of keys below `keys`, all equally likely.
pub(crate) fn uniform(keys: usize, visits: usize) -> Vec<String> {
    let mut random = Random(1);
    (0..visits).map(|_| key(random.below(keys))).collect()
}

/// Visits of keys below `keys`, the k-th of them 1/k as likely as the first.
pub(crate) fn zipf(keys: usize, visits: usize) -> Vec<String> {
    let mut random = Random(2);
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    (0..visits)
        .map(|_| {
            let target = random.fraction() * sum;
            key(cumulated.partition_point(|cumulated| *cumulated < target).min(keys - 1))
        })
        .collect()
}

/// Visits of one key, few enough to stay in the first cache.
pub(crate) fn hot() -> Vec<String> {
    vec![key(0); 256]
}

/// SplitMix64: the workloads are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_16_bytes() {
        assert!([0, 1, 9_999_999].iter().all(|index| key(*index).len() == 16));
    }

    #[test]
    fn the_first_of_zipf_comes_twice_as_often_as_the_second() {
        let visits = zipf(1_000, 100_000);
        let count = |index| visits.iter().filter(|visit| **visit == key(index)).count() as f64;
        assert!((1.8..2.2).contains(&(count(0) / count(1))));
    }
}
