//! States of any size: the sliding log's, and those of custom kernels.
//!
//! Keys are spread over small buckets with a lock each. A bucket holds a
//! bounded number of keys and drops expired ones when it needs room; every
//! insertion also sweeps one bucket further on, so that memory comes back
//! without a thread and without a pause.

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
const MAX_KEYS: usize = 20;

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
        if bucket.len() >= MAX_KEYS {
            self.drop_forgettable(bucket, now);
        }
        if bucket.len() < MAX_KEYS {
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

    /// Drops what has become forgettable in the next bucket, unless another thread has locked it.
    /// `held` is the bucket of the number `own`, which the caller has locked.
    pub(super) fn sweep(&self, own: usize, held: &mut Bucket, now: Micros) {
        let next = self.hand.fetch_add(1, Ordering::Relaxed) as usize % self.buckets.len();
        if next == own {
            return self.drop_forgettable(held, now);
        }
        if let Some(mut bucket) = try_lock(&self.buckets[next]) {
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
        let recalls = latest > now.get() && latest - now.get() <= super::table::MAX_CLOCK_STEP_BACK;
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
        let label = label.map(|(rule, key)| Box::new((rule.clone(), key.clone().into_owned())));
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
mod tests;
