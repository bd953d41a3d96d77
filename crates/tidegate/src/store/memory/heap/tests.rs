//! A heap by itself: which keys make room, and what is remembered of those that were forgotten.

use super::*;
use smallvec::smallvec;

use crate::kernel::{Verb, Verdict, decide};
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::store::memory::shelf::{Held, Lock, Shelf};
use crate::store::memory::step::{Placement, Step};
use crate::store::{Check, Meter, MeterKernel};

const HOUR: u64 = 3_600_000_000;

/// A log that holds one instant for an hour.
fn meter() -> Meter {
    Meter::new(Name::literal("log"), Limit::sliding_log(1, std::time::Duration::from_secs(3_600)))
}

fn kernel() -> HeapKernel {
    match meter().kernel() {
        MeterKernel::Heap(kernel) => kernel.clone(),
        MeterKernel::Bucket(_) | MeterKernel::Window(_) => unreachable!("logs live on the heap"),
    }
}

impl Heap {
    /// Charges one unit, or says when there will be room.
    fn charge(&self, now: u64, fingerprint: u64) -> Result<bool, Micros> {
        let verdict = self.ask(Verb::Charge, now, fingerprint);
        if verdict.degraded { Err(Micros::new(now).saturating_add(verdict.retry_after)) } else { Ok(verdict.allowed) }
    }

    fn ask(&self, verb: Verb, now: u64, fingerprint: u64) -> Verdict {
        let (meter, key, now) = (meter(), Key::from("key"), Micros::new(now));
        let check = Check::new(&meter, &key, verb, 1).expect("a cost of one");
        let mut bucket = self.lock(self.bucket(fingerprint));
        if let Some(entry) = Heap::find(&mut bucket, fingerprint) {
            let (verdict, changed) = decide(&*kernel(), entry.decoded(&kernel()), now, verb, 1);
            if changed {
                entry.renew(&kernel());
            }
            return verdict;
        }
        drop(bucket);
        // As a round does it with a new key.
        let number = self.bucket(fingerprint);
        let mut held = Held { locks: smallvec![(0, number, Shelf::lock(self, number))] };
        let placement = Placement::Unneeded;
        let step = Step { check, fingerprint, label: None, shelf: 0, placement, is_loaded: true };
        let claimed = if verb == Verb::Charge { self.claim(&mut held, &step, now) } else { Ok(()) };
        if let Err(full) = claimed {
            let retry_after = full.until.saturating_since(now);
            return Verdict { degraded: true, retry_after, ..Verdict::default() };
        }
        let mut state = AnyState::Fresh;
        let (verdict, changed) = decide(&*kernel(), &mut state, self.recall(now), verb, 1);
        if let (true, Lock::Bucket(bucket)) = (changed, &mut held.locks[0].2) {
            let entry = Heap::find(bucket, fingerprint).expect("it was claimed");
            entry.set(&kernel(), state, Micros::ZERO);
            entry.renew(&kernel());
        }
        verdict
    }

    fn count(&self, now: u64) -> usize {
        let mut count = 0;
        self.for_each(Micros::new(now), |_| count += 1);
        count
    }
}

/// A heap of one bucket, full of keys that are forgotten one microsecond after the other.
fn full(overflow: Overflow) -> Heap {
    let heap = Heap::new(1, overflow);
    for number in 0..MAX_KEYS as u64 {
        assert_eq!(heap.charge(100 + number, number), Ok(true));
    }
    heap
}

#[test]
fn there_is_a_bucket_for_every_eight_keys_and_keys_are_spread_over_all() {
    assert_eq!([1, 8, 9, 8_000].map(|keys| Heap::new(keys, Overflow::Share).buckets.len()), [1, 1, 2, 1_000]);
    let heap = Heap::new(32, Overflow::Share);
    assert_eq!([0, 1 << 62, 1 << 63, 3 << 62, u64::MAX].map(|fingerprint| heap.bucket(fingerprint)), [0, 1, 2, 3, 3]);
}

#[test]
fn a_full_bucket_says_when_the_first_key_is_forgotten_and_has_room_then() {
    let heap = full(Overflow::Share);
    assert_eq!(heap.charge(200, 99), Err(Micros::new(100 + HOUR)));
    assert_eq!(heap.count(200), MAX_KEYS);
    assert_eq!(heap.charge(100 + HOUR - 1, 99), Err(Micros::new(100 + HOUR)));
    assert_eq!(heap.charge(100 + HOUR, 99), Ok(true));
    assert_eq!((heap.count(100 + HOUR), heap.evicted()), (MAX_KEYS, 0));
}

#[test]
fn a_key_that_has_a_place_needs_no_room_and_is_decided_by_its_state() {
    let heap = full(Overflow::Refuse);
    assert_eq!(heap.charge(200, 0), Ok(false));
    assert_eq!(heap.charge(100 + HOUR, 0), Ok(true));
    assert_eq!(heap.count(119 + HOUR), 1, "and is kept for as long as its new state matters");
}

#[test]
fn a_peek_takes_no_room() {
    let heap = Heap::new(32, Overflow::Refuse);
    assert!(heap.ask(Verb::Peek, 100, 3 << 62).allowed);
    assert!(heap.lock(3).is_empty());
}

#[test]
fn the_first_to_be_forgotten_makes_room_where_it_is_to() {
    let heap = full(Overflow::EvictOldest);
    // The first one becomes the last one.
    assert_eq!(heap.charge(100 + HOUR, 0), Ok(true));
    assert_eq!(heap.charge(100 + HOUR, 99), Ok(true));
    assert_eq!((heap.evicted(), heap.count(100 + HOUR)), (1, MAX_KEYS));
    assert_eq!(heap.charge(100 + HOUR, 2), Ok(false), "the third is still there");
    assert_eq!(heap.charge(100 + HOUR, 1), Ok(true), "the second is not");
    assert_eq!(heap.evicted(), 2);
    assert_eq!(heap.recall(Micros::new(1)), Micros::new(1), "nothing was forgotten in time");
}

#[test]
fn overwritten_states_are_remembered_by_their_latest_expiry() {
    let heap = full(Overflow::Refuse);
    let recalled = |at: u64| heap.recall(Micros::new(at)).get();
    assert_eq!(recalled(1), 1);
    // Two are dropped: the later one counts.
    let latest = 101 + HOUR;
    assert_eq!(heap.charge(latest, 99), Ok(true));
    assert_eq!([latest - 1, latest, latest + 1].map(recalled), [latest, latest, latest + 1]);
    assert_eq!([101, 100].map(recalled), [latest, 100], "a clock that went back by more than an hour was set");
    // A key that was forgotten begins at that time, whatever the clock says.
    assert_eq!(heap.charge(latest - 10, 0), Ok(true));
    assert_eq!(heap.count(latest + HOUR - 1), 2);
}

#[test]
fn every_new_key_sweeps_a_bucket_and_memory_comes_back() {
    let heap = Heap::new(32, Overflow::Refuse);
    let in_bucket = |bucket: u64, number: u64| bucket << 62 | number;
    for bucket in 0..4 {
        assert_eq!(heap.charge(1, in_bucket(bucket, 1)), Ok(true));
    }
    let kept = || {
        [0, 1, 2, 3].map(|number| {
            let bucket = heap.lock(number);
            (bucket.len(), bucket.capacity() > 0)
        })
    };
    assert_eq!(kept(), [(1, true); 4]);
    // Each sweeps one, in turn; the hand has gone round once.
    let now = 1 + HOUR;
    assert_eq!(heap.charge(now, in_bucket(3, 2)), Ok(true));
    assert_eq!(kept(), [(0, false), (1, true), (1, true), (2, true)]);
    assert_eq!(heap.charge(now, in_bucket(3, 3)), Ok(true));
    assert_eq!(kept(), [(0, false), (0, false), (1, true), (3, true)]);
    // A bucket that another thread has locked is left for the next time.
    let busy = heap.lock(2);
    assert_eq!(heap.charge(now, in_bucket(3, 4)), Ok(true));
    drop(busy);
    assert_eq!(heap.charge(now, in_bucket(3, 5)), Ok(true));
    assert_eq!(kept(), [(0, false), (0, false), (1, true), (4, true)]);
    assert_eq!(heap.count(now), 4);
}

#[test]
fn a_bucket_in_which_a_kernel_panicked_is_swept_like_any_other() {
    let heap = Heap::new(9, Overflow::Refuse);
    assert_eq!(heap.charge(100, 1), Ok(true));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _bucket = heap.lock(0);
        panic!("a custom kernel");
    }));
    assert!(panicked.is_err());
    for fingerprint in [u64::MAX, u64::MAX - 1] {
        assert_eq!(heap.charge(200 + HOUR, fingerprint), Ok(true));
    }
    assert_eq!(heap.count(0), 2, "the first is forgotten");
}

#[test]
fn a_restored_key_takes_room_like_any_other() {
    let heap = Heap::new(1, Overflow::Refuse);
    let mut bytes = Vec::new();
    let mut state = AnyState::Fresh;
    kernel().charge(&mut state, Micros::new(100), 1);
    kernel().encode(&state, &mut bytes);
    for number in 0..MAX_KEYS as u64 {
        assert!(heap.restore(number, Micros::new(100 + HOUR), &bytes).is_ok());
    }
    assert!(heap.restore(99, Micros::new(100 + HOUR), &bytes).is_err_and(|full| full.until.get() == 100 + HOUR));
    assert_eq!(heap.charge(200, 0), Ok(false), "its state is the one that was kept");
    assert_eq!(heap.charge(100 + HOUR, 1), Ok(true));
    heap.for_each(Micros::ZERO, |entry| {
        let mut encoded = Vec::new();
        entry.encode(&mut encoded);
        assert_eq!(encoded.len(), bytes.len(), "asked for or not, it can be kept again");
        assert!(entry.label().is_none());
    });
}
