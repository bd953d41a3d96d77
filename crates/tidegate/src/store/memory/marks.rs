//! Which thresholds were told, of limits whose use drains away.
//!
//! A mark lasts for one period. It is set and removed under the lock of the state that
//! it is about; its own lock comes after every other. Marks are kept in two generations:
//! when the younger is full the older is dropped, so there is no sweep. A threshold whose
//! mark was dropped may be told again.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::MemoryStore;
use super::step::Step;
use crate::store::{Meter, is_marked};
use crate::sync::{Mutex, lock};
use crate::time::Micros;

const SHARDS: usize = 16;
/// The latest marks that a shard certainly keeps; twice as many is the most it has.
const MARKS_OF_A_SHARD: usize = 2_048;

/// The marks of a store: at most 65,536.
pub(super) struct Marks {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

/// When a mark ends, by state and percentage.
type Generation = HashMap<(u64, u8), Micros, RandomState>;

impl Marks {
    fn new() -> Marks {
        Marks { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Shard {
    /// Marks a threshold; false if that was done already.
    fn mark(&mut self, of: (u64, u8), now: Micros, lasts: Micros) -> bool {
        let known = self.young.get(&of).or_else(|| self.old.get(&of));
        if known.is_some_and(|until| is_marked(*until, now, lasts)) {
            return false;
        }
        if self.young.len() >= MARKS_OF_A_SHARD {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&of);
        self.young.insert(of, now.saturating_add(lasts));
        true
    }

    fn unmark(&mut self, of: (u64, u8)) {
        self.young.remove(&of);
        self.old.remove(&of);
    }
}

impl MemoryStore {
    /// Of the thresholds that a check crossed, those that are to be told now. The state is still locked.
    pub(super) fn crossed(&self, step: &Step<'_>, used_after: u64, crossed: u8, now: Micros) -> u8 {
        let (check, meter) = (&step.check, step.check.meter());
        let unmarks = check.act().gives_back();
        if !meter.needs_marks() || (crossed == 0 && !unmarks) {
            return crossed;
        }
        let unmarked = (!meter.reached(used_after)) * u8::from(unmarks);
        self.told(step.fingerprint, meter, crossed, unmarked, now)
    }

    /// Marks what was crossed, unless that was told already, and unmarks what is to be
    /// told again.
    fn told(&self, fingerprint: u64, meter: &Meter, crossed: u8, unmarked: u8, now: Micros) -> u8 {
        let marks = match self.marks.get() {
            None if crossed == 0 => return 0,
            _ => self.marks.get_or_init(|| Box::new(Marks::new())),
        };
        let mut shard = lock(&marks.shards[(fingerprint % SHARDS as u64) as usize]);
        let mut told = 0;
        for (index, percent) in meter.thresholds().percents().iter().enumerate() {
            let (of, bit) = ((fingerprint, *percent), 1 << index);
            if crossed & bit != 0 && shard.mark(of, now, meter.mark_lasts()) {
                told |= bit;
            }
            if unmarked & bit != 0 {
                shard.unmark(of);
            }
        }
        told
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LASTS: Micros = Micros::new(10);

    #[test]
    fn a_mark_ends_after_its_time_or_when_it_is_removed() {
        let mut shard = Shard::default();
        let mut mark = |now| shard.mark((1, 50), Micros::new(now), LASTS);
        assert_eq!([100, 109, 110, 111].map(&mut mark), [true, false, true, false]);
        assert!(mark(89), "a mark that only a wrong clock explains");
        assert!(shard.mark((1, 80), Micros::new(100), LASTS) && shard.mark((2, 50), Micros::new(100), LASTS));
        shard.unmark((1, 80));
        assert!(shard.mark((1, 80), Micros::new(100), LASTS) && !shard.mark((2, 50), Micros::new(100), LASTS));
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of entries, and no unsafe code in sight")]
    fn a_shard_keeps_the_latest_marks_and_no_more_than_twice_as_many() {
        let mut shard = Shard::default();
        let now = Micros::new(100);
        for state in 0..10 * MARKS_OF_A_SHARD as u64 {
            assert!(shard.mark((state, 50), now, LASTS));
            assert!(shard.young.len() + shard.old.len() <= 2 * MARKS_OF_A_SHARD);
            let kept = state.saturating_sub(MARKS_OF_A_SHARD as u64 - 1);
            assert!(!shard.mark((kept, 50), now, LASTS), "one of the latest");
        }
        assert!(shard.mark((0, 50), now, LASTS), "told again");
    }
}
