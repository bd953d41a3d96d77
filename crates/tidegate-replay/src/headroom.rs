//! How near keys came to a limit: the peak of each, for a fair sample of all
//! keys, and the few that came nearest.
//!
//! The sample is that of the keys with the smallest hashes, which is any key's
//! chance alike. A key that ends up in it was in it from its first request on,
//! so its peak is exact. While there is room for all keys, the sample is all.

use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;
use tidegate::Key;

/// Keys whose peaks are known, of each limit.
pub(crate) const SAMPLED_KEYS: usize = 2_048;
/// Keys that are named, of each limit.
pub(crate) const NAMED_KEYS: usize = 8;

/// What a key used of its limit at most, in thousandths; one more than all of
/// it if it was refused.
pub(crate) type Peak = u16;
pub(crate) const FULL: Peak = 1_000;
pub(crate) const OVER: Peak = 1_001;

#[derive(Debug, Default)]
pub(crate) struct Headroom {
    peaks: HashMap<u64, Peak, RandomState>,
    /// The hashes of the sample, the largest on top.
    hashes: BinaryHeap<u64>,
    named: Vec<(Peak, u64, Key<'static>)>,
}

impl Headroom {
    /// A key, by its hash, used so much.
    #[inline]
    pub(crate) fn note(&mut self, hash: u64, key: &Key<'_>, used: Peak) {
        let is_full = self.hashes.len() >= SAMPLED_KEYS;
        if !is_full || self.hashes.peek().is_some_and(|largest| hash <= *largest) {
            self.sample(hash, used);
        }
        if self.named.len() < NAMED_KEYS || self.named.last().is_some_and(|(least, ..)| used > *least) {
            self.name(hash, key, used);
        }
    }

    fn sample(&mut self, hash: u64, used: Peak) {
        if let Some(peak) = self.peaks.get_mut(&hash) {
            *peak = used.max(*peak);
            return;
        }
        self.peaks.insert(hash, used);
        self.hashes.push(hash);
        let one_too_many = if self.hashes.len() > SAMPLED_KEYS { self.hashes.pop() } else { None };
        if let Some(largest) = one_too_many {
            self.peaks.remove(&largest);
        }
    }

    fn name(&mut self, hash: u64, key: &Key<'_>, used: Peak) {
        match self.named.iter_mut().find(|(_, known, _)| *known == hash) {
            Some((peak, ..)) if used <= *peak => return,
            Some((peak, ..)) => *peak = used,
            None => {
                self.named.truncate(NAMED_KEYS - 1);
                self.named.push((used, hash, key.clone().into_owned()));
            }
        }
        // Stable: of equals, who came first.
        self.named.sort_by_key(|(peak, ..)| std::cmp::Reverse(*peak));
    }

    /// How many keys there were, and whether that is exact.
    pub(crate) fn keys(&self) -> (u64, bool) {
        match self.hashes.peek() {
            // The largest of so many smallest hashes shows how dense they are.
            Some(largest) if self.hashes.len() >= SAMPLED_KEYS => {
                let share = *largest as f64 / u64::MAX as f64;
                (((SAMPLED_KEYS - 1) as f64 / share.max(f64::MIN_POSITIVE)) as u64, false)
            }
            _ => (self.hashes.len() as u64, true),
        }
    }

    /// The peaks of the sample, least first.
    pub(crate) fn peaks(&self) -> Vec<Peak> {
        let mut peaks: Vec<Peak> = self.peaks.values().copied().collect();
        peaks.sort_unstable();
        peaks
    }

    /// The keys that came nearest to the limit.
    pub(crate) fn nearest(&self) -> impl Iterator<Item = (&Key<'static>, Peak)> {
        self.named.iter().map(|(peak, _, key)| (key, *peak))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;
    use tidegate_testkit::Random;

    use super::*;

    #[test]
    fn peaks_are_exact_whatever_the_number_of_keys() {
        // Seeded: the sample, and so the estimate, is the same in each run.
        let (mut random, state) = (Random::new(2), FixedState::with_seed(2));
        for keys in [10, 2_048, 50_000] {
            let (mut headroom, mut truth) = (Headroom::default(), HashMap::<u64, Peak>::new());
            for _ in 0..200_000 {
                let (key, used) = (random.within(1..=keys), random.magnitude(1..=990) as Peak);
                let hash = state.hash_one(key);
                headroom.note(hash, &Key::from(key), used);
                let peak = truth.entry(hash).or_default();
                *peak = used.max(*peak);
            }
            assert_eq!(headroom.peaks.len(), truth.len().min(SAMPLED_KEYS));
            assert!(headroom.peaks.iter().all(|(hash, peak)| truth[hash] == *peak));
            let mut largest: Vec<Peak> = truth.values().copied().collect();
            largest.sort_unstable_by(|one, other| other.cmp(one));
            largest.truncate(NAMED_KEYS);
            assert!(headroom.nearest().map(|(_, peak)| peak).eq(largest), "{keys} keys");
            let (estimate, exact) = headroom.keys();
            assert_eq!(exact, truth.len() < SAMPLED_KEYS);
            assert!(estimate.abs_diff(truth.len() as u64) <= truth.len() as u64 / 10, "{estimate} for {}", truth.len());
        }
    }
}
