//! States of any size: the sliding log's, and those of custom kernels.
//!
//! Keys are spread over small buckets with a lock each. A bucket holds a
//! bounded number of keys and drops those whose time has come when it needs
//! room; every insertion also sweeps one bucket further on, so that memory
//! comes back without a thread and without a pause.

use super::labels::{Label, Listed};
use super::overflow::{Full, Overflow};
use crate::store::{AnyState, HeapKernel};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock, try_lock};
use crate::time::Micros;

pub(super) struct Heap {
    buckets: Box<[Mutex<Bucket>]>,
    /// The bucket to be swept next.
    hand: AtomicU64,
    /// Until when, at the latest, a state mattered that was dropped.
    forgotten: AtomicU64,
    overflow: Overflow,
    evicted: AtomicU64,
}

pub(super) type Bucket = Vec<Entry>;

pub(super) struct Entry {
    fingerprint: u64,
    until: Micros,
    state: AnyState,
    /// Missing only in an entry restored from a snapshot and not changed since.
    kernel: Option<HeapKernel>,
    label: Option<Box<Listed>>,
}

/// Keys per bucket on average, when the store holds as many as it is made for.
const USUAL: usize = 8;
/// Keys per bucket at most: of 10,000 full buckets, one would want more.
const MOST: usize = 20;

impl Heap {
    pub(super) fn new(keys: usize, overflow: Overflow) -> Heap {
        let buckets = (0..keys.div_ceil(USUAL)).map(|_| Mutex::new(Vec::new())).collect();
        Heap { buckets, hand: AtomicU64::new(0), forgotten: AtomicU64::new(0), overflow, evicted: AtomicU64::new(0) }
    }

    /// How many keys have made room for others before their time.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn bucket(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.buckets.len() as u128) >> 64) as usize
    }

    pub(super) fn lock(&self, bucket: usize) -> MutexGuard<'_, Bucket> {
        lock(&self.buckets[bucket])
    }

    pub(super) fn find(bucket: &mut Bucket, fingerprint: u64) -> Option<&mut Entry> {
        bucket.iter_mut().find(|entry| entry.fingerprint == fingerprint)
    }

    /// Makes sure that one more key fits into the bucket.
    pub(super) fn make_room(&self, bucket: &mut Bucket, now: Micros) -> Result<(), Full> {
        if bucket.len() >= MOST {
            self.drop_forgettable(bucket, now);
        }
        if bucket.len() < MOST {
            return Ok(());
        }
        let soonest = bucket.iter().enumerate().min_by_key(|(_, entry)| entry.until);
        let (index, until) = soonest.map_or((0, now), |(index, entry)| (index, entry.until));
        if self.overflow == Overflow::EvictOldest {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            bucket.swap_remove(index);
            return Ok(());
        }
        Err(Full { until })
    }

    fn drop_forgettable(&self, bucket: &mut Bucket, now: Micros) {
        bucket.retain(|entry| {
            let matters = entry.until > now;
            if !matters {
                self.forgotten.fetch_max(entry.until.get(), Ordering::Relaxed);
            }
            matters
        });
    }

    /// Drops what has become forgettable in the next bucket, unless somebody
    /// is busy there.
    pub(super) fn sweep(&self, now: Micros) {
        let next = self.hand.fetch_add(1, Ordering::Relaxed) % self.buckets.len() as u64;
        if let Some(mut bucket) = try_lock(&self.buckets[next as usize]) {
            self.drop_forgettable(&mut bucket, now);
            if bucket.is_empty() {
                bucket.shrink_to_fit();
            }
        }
    }

    /// The time for a key that is not here: not before the last moment at
    /// which a state that was dropped could have mattered.
    pub(super) fn recall(&self, now: Micros) -> Micros {
        let latest = self.forgotten.load(Ordering::Relaxed);
        let recalls = latest > now.get() && latest - now.get() <= super::table::LONGEST_RECALL;
        if recalls { Micros::new(latest) } else { now }
    }

    /// Visits every key whose state matters at `now`.
    pub(super) fn for_each(&self, now: Micros, mut visit: impl FnMut(&Entry)) {
        for bucket in &self.buckets {
            lock(bucket).iter().filter(|entry| entry.until > now).for_each(&mut visit);
        }
    }

    /// Puts back what a snapshot kept.
    pub(super) fn restore(&self, fingerprint: u64, until: Micros, bytes: &[u8]) -> Result<(), Full> {
        let mut bucket = self.lock(self.bucket(fingerprint));
        self.make_room(&mut bucket, Micros::ZERO)?;
        bucket.push(Entry { fingerprint, until, state: AnyState::Encoded(bytes.into()), kernel: None, label: None });
        Ok(())
    }
}

impl Entry {
    pub(super) fn new(fingerprint: u64, kernel: &HeapKernel, state: AnyState, label: Option<Label<'_>>) -> Entry {
        let until = kernel.forget_at(&state);
        let label = label.map(|(rule, key)| Box::new((rule, key.clone().into_owned())));
        Entry { fingerprint, until, state, kernel: Some(kernel.clone()), label }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn until(&self) -> Micros {
        self.until
    }

    pub(super) fn set(&mut self, kernel: &HeapKernel, state: AnyState, until: Micros) {
        self.state = state;
        self.until = until;
        self.kernel.get_or_insert_with(|| kernel.clone());
    }

    /// Notes until when a state matters that was changed in its place.
    pub(super) fn renew(&mut self, kernel: &HeapKernel) {
        self.until = kernel.forget_at(&self.state);
        self.kernel.get_or_insert_with(|| kernel.clone());
    }

    /// Takes the state out, to be [set](Entry::set) again under the same lock.
    pub(super) fn take(&mut self, kernel: &HeapKernel) -> AnyState {
        std::mem::take(self.decoded(kernel))
    }

    /// The state; one of a snapshot is decoded once, and not for every check
    /// that changes nothing.
    pub(super) fn decoded(&mut self, kernel: &HeapKernel) -> &mut AnyState {
        if let AnyState::Encoded(bytes) = &self.state {
            self.state = kernel.decode(bytes).unwrap_or_default();
            self.kernel.get_or_insert_with(|| kernel.clone());
        }
        &mut self.state
    }

    /// Gives back what was [taken](Entry::take), when there is nobody to ask
    /// until when it matters.
    pub(super) fn put_back(&mut self, state: AnyState) {
        self.state = state;
    }

    pub(super) fn label(&self) -> Option<Listed> {
        self.label.as_deref().cloned()
    }

    /// The state as bytes.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match (&self.state, &self.kernel) {
            (AnyState::Encoded(encoded), _) => bytes.extend_from_slice(encoded),
            (AnyState::Known(_), Some(kernel)) => kernel.encode(&self.state, bytes),
            (AnyState::Fresh, _) | (AnyState::Known(_), None) => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::{Verb, Verdict};
    use crate::limit::Limit;
    use crate::name::Name;
    use crate::request::Key;
    use crate::store::memory::MemoryStore;
    use crate::store::memory::single::Single;
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
            if verdict.degraded {
                Err(Micros::new(now).saturating_add(verdict.retry_after))
            } else {
                Ok(verdict.allowed)
            }
        }

        fn ask(&self, verb: Verb, now: u64, fingerprint: u64) -> Verdict {
            let builder = MemoryStore::builder().max_keys(1).overflow(Overflow::Refuse);
            let store = builder.build().expect("valid settings");
            let (meter, key) = (meter(), Key::from("key"));
            let check = Check::new(&meter, &key, verb, 1).expect("a cost of one");
            Single { store: &store, check, fingerprint, now: Micros::new(now) }.decide_on_heap(self, &kernel())
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
        for number in 0..MOST as u64 {
            assert_eq!(heap.charge(100 + number, number), Ok(true));
        }
        heap
    }

    #[test]
    fn there_is_a_bucket_for_every_eight_keys_and_keys_are_spread_over_all() {
        assert_eq!([1, 8, 9, 8_000].map(|keys| Heap::new(keys, Overflow::Share).buckets.len()), [1, 1, 2, 1_000]);
        let heap = Heap::new(32, Overflow::Share);
        assert_eq!(
            [0, 1 << 62, 1 << 63, 3 << 62, u64::MAX].map(|fingerprint| heap.bucket(fingerprint)),
            [0, 1, 2, 3, 3]
        );
    }

    #[test]
    fn a_full_bucket_says_when_the_first_key_is_forgotten_and_has_room_then() {
        let heap = full(Overflow::Share);
        assert_eq!(heap.charge(200, 99), Err(Micros::new(100 + HOUR)));
        assert_eq!(heap.count(200), MOST);
        assert_eq!(heap.charge(100 + HOUR - 1, 99), Err(Micros::new(100 + HOUR)));
        assert_eq!(heap.charge(100 + HOUR, 99), Ok(true));
        assert_eq!((heap.count(100 + HOUR), heap.evicted()), (MOST, 0));
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
        assert_eq!((heap.evicted(), heap.count(100 + HOUR)), (1, MOST));
        assert_eq!(heap.charge(100 + HOUR, 2), Ok(false), "the third is still there");
        assert_eq!(heap.charge(100 + HOUR, 1), Ok(true), "the second is not");
        assert_eq!(heap.evicted(), 2);
        assert_eq!(heap.recall(Micros::new(1)), Micros::new(1), "nothing was forgotten in time");
    }

    #[test]
    fn what_was_forgotten_is_remembered_as_a_time() {
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
        // One where somebody is busy is left for the next time.
        let busy = heap.lock(2);
        assert_eq!(heap.charge(now, in_bucket(3, 4)), Ok(true));
        drop(busy);
        assert_eq!(heap.charge(now, in_bucket(3, 5)), Ok(true));
        assert_eq!(kept(), [(0, false), (0, false), (1, true), (4, true)]);
        assert_eq!(heap.count(now), 4);
    }

    #[test]
    fn a_bucket_in_which_somebody_panicked_is_swept_like_any_other() {
        let heap = Heap::new(9, Overflow::Refuse);
        assert_eq!(heap.charge(100, 1), Ok(true));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _bucket = heap.lock(0);
            panic!("a kernel of somebody's own");
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
        for number in 0..MOST as u64 {
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
}
