//! Whom a limit cannot refuse, however they are counted: so that the search
//! asks only about the few that come near.
//!
//! Time is cut into cells, each as long as it takes a full state to be
//! forgotten. What a key asks for in two neighbouring cells is at least what
//! any window holds, and a bucket that never gets more than its size in two
//! of them drains in time. So a key whose busiest two cells fit the capacity is
//! never refused. Keys are known by slots; those that share one are taken
//! together, which only makes them look busier.

use tidegate::{Algorithm, Limit, Micros};

/// Slots of all limits together: 32 bytes each.
pub(crate) const MAX_SLOTS: usize = 1 << 20;

pub(crate) struct Busy {
    /// Microseconds.
    cell: u64,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// The number of the cell that was asked for last.
    cell: u64,
    asked: u64,
    before: u64,
    most: u64,
}

impl Busy {
    /// For every limit of a shape, by `slots` of them, which is a power of two.
    pub(crate) fn new(limit: Limit, slots: usize) -> Busy {
        let period = Micros::from_duration(limit.period()).get();
        let cell = match limit.algorithm() {
            // A burst is rounded up when it is scaled: by one at most, which
            // drains within a period whatever the count.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let drains = (u128::from(limit.capacity()) * u128::from(period)).div_ceil(u128::from(limit.count()));
                u64::try_from(drains).unwrap_or(u64::MAX).saturating_add(period)
            }
            // The sliding counter looks at two windows.
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => 2 * period,
        };
        Busy { cell, slots: vec![Slot::default(); slots.max(1)] }
    }

    /// A key asks for something, not before anyone else did.
    pub(crate) fn ask(&mut self, at: Micros, key: u64, cost: u64) {
        let cell = at.get() / self.cell;
        let place = self.place(key);
        let slot = &mut self.slots[place];
        if cell != slot.cell {
            slot.before = if cell == slot.cell + 1 { slot.asked } else { 0 };
            (slot.cell, slot.asked) = (cell, 0);
        }
        slot.asked = slot.asked.saturating_add(cost);
        slot.most = slot.most.max(slot.asked.saturating_add(slot.before));
    }

    /// A capacity that never refuses a key.
    #[inline]
    pub(crate) fn enough_for(&self, key: u64) -> u64 {
        self.slots[self.place(key)].most
    }

    /// A capacity that never refuses anyone.
    pub(crate) fn enough_for_all(&self) -> u64 {
        self.slots.iter().map(|slot| slot.most).max().unwrap_or(0)
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        key as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Limiter, ManualClock, MemoryStore, Request};
    use tidegate_testkit::Random;

    use super::*;

    #[test]
    fn a_sufficient_limit_refuses_no_request() {
        let mut random = Random::new(9);
        let shapes = [
            "10/s",
            "3/s burst 40",
            "20/s burst 3",
            "leaky 5/s queue 7",
            "fixed 8/s",
            "fixed 8/s from-first",
            "sliding-log 6/s",
            "sliding-counter 9/s",
        ];
        for shape in shapes {
            for slots in [1, 4] {
                let shape: Limit = shape.parse().expect("words of a limit");
                let (mut at, mut busy) = (1 << 40, Busy::new(shape, slots));
                let longest = random.choose(&[50_000, 500_000, 5_000_000]);
                let asked: Vec<(Micros, u64, u64)> = (0..2_000)
                    .map(|_| {
                        at += random.magnitude(1..=longest);
                        (Micros::new(at), random.within(0..=6), random.within(0..=3))
                    })
                    .collect();
                asked.iter().for_each(|(at, key, cost)| busy.ask(*at, *key, *cost));
                let count = (busy.enough_for_all() * shape.count()).div_ceil(shape.capacity());
                let enough = crate::search::scaled(shape, count).expect("it is not too large");
                assert!(enough.capacity() >= busy.enough_for_all());
                let clock = ManualClock::default();
                let store = MemoryStore::builder().max_keys(16).clock(clock.clone()).build().expect("valid settings");
                let limiter = Limiter::with_store(enough, store).expect("a valid limit");
                for (at, key, cost) in asked {
                    clock.set(at);
                    let decision = limiter.check(Request::new(key).cost(cost)).expect("an answer");
                    assert!(decision.is_allowed(), "{enough} refuses {cost} at {at}");
                }
            }
        }
    }
}
