//! The store in this process's memory.
//!
//! Bounded, without a thread, and fast because it touches one cache line:
//! a key's fingerprint and state sit side by side, the line is asked for
//! before the clock is read, and a state that has become zero is a free slot.
//! It never keeps a key's text unless keys are to be [listed](MemoryStoreBuilder::list_keys).

mod healing;
mod heap;
mod ids;
mod labels;
mod line_lock;
mod lines;
mod marks;
mod overflow;
mod pack;
mod plan;
mod round;
#[cfg(all(test, loom))]
mod schedules;
mod seeds;
mod shelf;
mod single;
mod snapshot;
mod step;
mod table;
mod timepiece;

use std::sync::OnceLock;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use self::heap::Heap;
use self::ids::{DEFAULT_IDS_FOR, Ids};
use self::labels::Label;
use self::marks::Marks;
pub use self::overflow::Overflow;
use self::overflow::Shared;
use self::seeds::Seeds;
pub use self::snapshot::SnapshotError;
use self::table::Table;
use self::timepiece::Timepiece;
use crate::error::ConfigError;
use crate::kernel::Verdict;
use crate::name::Name;
use crate::request::Key;
use crate::store::{Check, ImmediateStore, Store, StoreError};
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Clock, Micros, SystemClock};

/// Keeps states in memory: exact, bounded, nanoseconds.
///
/// ```
/// use tidegate::{Limit, Limiter, ManualClock, MemoryStore};
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build()?;
/// let limiter = Limiter::with_store(Limit::per_second(1), store)?;
/// assert!(limiter.allow("alice"));
/// assert!(!limiter.allow("alice"));
/// clock.advance(std::time::Duration::from_secs(1));
/// assert!(limiter.allow("alice"));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
///
/// # Memory
/// A table takes 22 bytes for each of [`max_keys`](MemoryStoreBuilder::max_keys), once,
/// page by page as keys arrive, and never more. That is for token and leaky
/// buckets whose reduced count is at most 2048 (`count` and the period in
/// microseconds divided by their gcd) and fixed windows of up to 2047; other
/// buckets, windows and the sliding counter take 64 bytes in a table of their
/// own, and a sliding log about 220 bytes and, from the fifth on, 16 to 32 for
/// each remembered instant. A key under several rules counts once for each.
///
/// # Keys
/// A key is known by 64 bits of a hash keyed at random for each store. Among n
/// live keys any two are taken for one with a probability below n² / 2^65: one
/// in 37 million for a million keys. Two such keys share a limit; nothing else happens.
pub struct MemoryStore {
    clock: Timepiece,
    seeds: Seeds,
    /// A namespace, and the fingerprint of the empty key in it.
    of_empty: OnceLock<(u64, u64)>,
    max_keys: usize,
    overflow: Overflow,
    listed: bool,
    narrow: Table<1>,
    wide: OnceLock<Box<Table<3>>>,
    heap: OnceLock<Box<Heap>>,
    shared: OnceLock<Shared>,
    overflowed: AtomicU64,
    ids: OnceLock<Box<Ids>>,
    ids_for: Duration,
    marks: OnceLock<Box<Marks>>,
}

/// Settings of a [`MemoryStore`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, Overflow};
///
/// let store = MemoryStore::builder()
///     .max_keys(100_000)
///     .overflow(Overflow::Refuse)
///     .remember_ids_for(Duration::from_secs(60))
///     .build()?;
/// assert_eq!(store.count_keys(), 0);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct MemoryStoreBuilder {
    clock: Option<Timepiece>,
    max_keys: usize,
    overflow: Overflow,
    listed: bool,
    ids_for: Duration,
}

/// How many live keys a store is made for unless told otherwise.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;
const LARGEST_MAX_KEYS: usize = 1 << 32;

impl MemoryStoreBuilder {
    /// How many live keys to make room for: 1,000,000 unless set. A key is
    /// live until its state has become that of a key never seen; under several
    /// rules it counts once for each.
    ///
    /// ```
    /// use tidegate::MemoryStore;
    ///
    /// assert!(MemoryStore::builder().max_keys(10_000).build().is_ok());
    /// assert!(MemoryStore::builder().max_keys(0).build().is_err());
    /// ```
    pub fn max_keys(mut self, keys: usize) -> MemoryStoreBuilder {
        self.max_keys = keys;
        self
    }

    /// What to do with a new key when there is no room.
    ///
    /// ```
    /// use tidegate::{MemoryStore, Overflow};
    ///
    /// let store = MemoryStore::builder().overflow(Overflow::EvictOldest).build()?;
    /// # let _ = store;
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn overflow(mut self, overflow: Overflow) -> MemoryStoreBuilder {
        self.overflow = overflow;
        self
    }

    /// The clock to decide by: [`SystemClock`] unless set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, ManualClock, MemoryStore};
    ///
    /// let clock = ManualClock::default();
    /// let limiter = Limiter::with_store(Limit::per_hour(1), MemoryStore::builder().clock(clock.clone()).build()?)?;
    /// assert!(limiter.allow("alice") && !limiter.allow("alice"));
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.allow("alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn clock(mut self, clock: impl Clock) -> MemoryStoreBuilder {
        self.clock = Some(Timepiece::new(clock));
        self
    }

    /// Keeps the text of every key, so that [`MemoryStore::keys`] can list
    /// them. It costs an allocation per new key, and memory for the texts.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::with_store(Limit::per_hour(1), MemoryStore::builder().list_keys().build()?)?;
    /// assert!(limiter.allow("alice"));
    /// assert_eq!(limiter.store().keys()[0].1.to_string(), "alice");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn list_keys(mut self) -> MemoryStoreBuilder {
        self.listed = true;
        self
    }

    /// For how long the [ids](crate::Request::id) of requests are remembered:
    /// five minutes unless set. At most 131,072 are: 2,048 in each of 64 shards.
    /// Where one is full, the key that has most ids in it loses its oldest, so a
    /// key that sends many forgets its own before those of keys that send few.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::MemoryStore;
    ///
    /// let store = MemoryStore::builder().remember_ids_for(Duration::from_secs(3_600)).build()?;
    /// # let _ = store;
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn remember_ids_for(mut self, time: Duration) -> MemoryStoreBuilder {
        self.ids_for = time;
        self
    }

    /// Makes the store.
    ///
    /// ```
    /// use tidegate::MemoryStore;
    ///
    /// let store = MemoryStore::builder().build()?;
    /// assert_eq!(store.count_keys(), 0);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If it is to hold no keys, or more than 2^32.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        self.build_with(Seeds::random())
    }

    fn build_with(self, seeds: Seeds) -> Result<MemoryStore, ConfigError> {
        let MemoryStoreBuilder { clock, max_keys, overflow, listed, ids_for } = self;
        check_max_keys(max_keys)?;
        Ok(MemoryStore {
            clock: clock.unwrap_or_else(|| Timepiece::new(SystemClock::new())),
            seeds,
            of_empty: OnceLock::new(),
            max_keys,
            overflow,
            listed,
            narrow: Table::new(max_keys, overflow, listed),
            wide: OnceLock::new(),
            heap: OnceLock::new(),
            shared: OnceLock::new(),
            overflowed: AtomicU64::new(0),
            ids: OnceLock::new(),
            ids_for,
            marks: OnceLock::new(),
        })
    }
}

fn check_max_keys(keys: usize) -> Result<(), ConfigError> {
    match keys {
        0 => Err(ConfigError::Zero { field: "max_keys" }),
        1..=LARGEST_MAX_KEYS => Ok(()),
        _ => {
            let (value, bound) = (keys as u128, LARGEST_MAX_KEYS as u64);
            Err(ConfigError::TooLarge { field: "max_keys", value, bound })
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::builder().build().expect("the default settings are valid")
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Begins a store with other settings than the default ones.
    ///
    /// ```
    /// use tidegate::MemoryStore;
    ///
    /// let store = MemoryStore::builder().max_keys(1_000).build()?;
    /// # let _ = store;
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: None,
            max_keys: DEFAULT_MAX_KEYS,
            overflow: Overflow::default(),
            listed: false,
            ids_for: DEFAULT_IDS_FOR,
        }
    }

    /// How many keys are live: counts them, which takes a while.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(1));
    /// assert!(limiter.allow("alice") && limiter.allow("bob"));
    /// assert_eq!(limiter.store().count_keys(), 2);
    /// # let _ = MemoryStore::default();
    /// ```
    #[must_use]
    pub fn count_keys(&self) -> usize {
        let mut keys = 0;
        self.for_each_key(|_| keys += 1);
        keys
    }

    /// The rule and key of every live state, in no order; none unless the
    /// store was built to [list](MemoryStoreBuilder::list_keys) them.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::with_store(Limit::per_hour(1), MemoryStore::builder().list_keys().build()?)?;
    /// assert!(limiter.allow("alice"));
    /// let (rule, key) = &limiter.store().keys()[0];
    /// assert_eq!((rule.as_str(), key.to_string().as_str()), ("1/h", "alice"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<(Name, Key<'static>)> {
        let mut keys = Vec::new();
        self.for_each_key(|key| keys.extend(key));
        keys
    }

    /// How often a check found no room for its key, so that the
    /// [`Overflow`] policy answered.
    ///
    /// ```
    /// use tidegate::MemoryStore;
    ///
    /// assert_eq!(MemoryStore::default().overflowed(), 0);
    /// ```
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        let evicted = [
            self.narrow.evicted(),
            self.wide.get().map_or(0, |wide| wide.evicted()),
            self.heap.get().map_or(0, |heap| heap.evicted()),
        ];
        self.overflowed.load(Ordering::Relaxed) + evicted.iter().sum::<u64>()
    }

    fn for_each_key(&self, mut visit: impl FnMut(Option<(Name, Key<'static>)>)) {
        let now = self.clock.now();
        self.narrow.for_each(now, |_, _, label| visit(label));
        if let Some(wide) = self.wide.get() {
            wide.for_each(now, |_, _, label| visit(label));
        }
        if let Some(heap) = self.heap.get() {
            heap.for_each(now, |entry| visit(entry.label()));
        }
    }

    #[inline(always)]
    fn fingerprint(&self, check: Check<'_>) -> u64 {
        let (meter, key) = (check.meter(), check.key());
        if key.is_empty() {
            return self.fingerprint_of_empty(meter.identity());
        }
        // A composite key is another key than the same bytes in one part.
        self.seeds.fingerprint(meter.identity() ^ u64::from(key.is_composite()), key.as_bytes())
    }

    /// A limiter without keys asks for the same fingerprint again and again: that of the first
    /// such limit is kept, since the line cannot be asked for before it is known.
    #[inline(always)]
    fn fingerprint_of_empty(&self, namespace: u64) -> u64 {
        match self.of_empty.get() {
            Some((known, fingerprint)) if *known == namespace => *fingerprint,
            Some(_) => self.seeds.fingerprint(namespace, &[]),
            None => {
                let fingerprint = self.seeds.fingerprint(namespace, &[]);
                let _ = self.of_empty.set((namespace, fingerprint));
                fingerprint
            }
        }
    }

    fn label<'a>(&self, check: Check<'a>) -> Option<Label<'a>> {
        self.listed.then(|| (check.meter().name(), check.key()))
    }

    /// Decides several checks without an id.
    fn decide_several(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match self.charge_all(checks, |index, verdict| verdicts[index] = verdict) {
            Ok((_, now)) => Ok(now),
            Err(at) => self.decide_together(checks, verdicts, at),
        }
    }

    #[inline]
    fn wide(&self) -> &Table<3> {
        self.wide.get_or_init(|| Box::new(Table::new(self.max_keys, self.overflow, self.listed)))
    }

    fn heap(&self) -> &Heap {
        self.heap.get_or_init(|| Box::new(Heap::new(self.max_keys, self.overflow)))
    }
}

#[inline(always)]
fn has_id(checks: &[Check<'_>]) -> bool {
    checks.iter().any(|check| check.id().is_some())
}

impl ImmediateStore for MemoryStore {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match (checks, verdicts) {
            ([check], [verdict]) => self.decide_one_now(*check, verdict),
            (checks, verdicts) if has_id(checks) => self.decide_once(checks, verdicts),
            (checks, verdicts) => self.decide_several(checks, verdicts),
        }
    }

    #[inline]
    fn admits_all_now(&self, checks: &[Check<'_>]) -> Result<bool, StoreError> {
        let verdicts = || -> SmallVec<[Verdict; 4]> { smallvec![Verdict::default(); checks.len()] };
        let are_admitted = |verdicts: &[Verdict]| verdicts.iter().all(|verdict| verdict.allowed);
        if has_id(checks) {
            let mut verdicts = verdicts();
            self.decide_once(checks, &mut verdicts)?;
            return Ok(are_admitted(&verdicts));
        }
        match self.charge_all(checks, |_, _| {}) {
            Ok((are_charged, _)) => Ok(are_charged),
            Err(at) => {
                let mut verdicts = verdicts();
                self.decide_together(checks, &mut verdicts, at)?;
                Ok(are_admitted(&verdicts))
            }
        }
    }

    #[inline(always)]
    fn decide_one_now(&self, check: Check<'_>, verdict: &mut Verdict) -> Result<Micros, StoreError> {
        if check.id().is_some() {
            return self.decide_once(&[check], std::slice::from_mut(verdict));
        }
        if !check.former().is_empty() {
            return self.decide_several(&[check], std::slice::from_mut(verdict));
        }
        Ok(self.decide_one(check, verdict))
    }

    #[inline(always)]
    fn admits_now(&self, check: Check<'_>) -> Result<bool, StoreError> {
        if check.id().is_some() {
            let mut verdict = Verdict::default();
            self.decide_once(&[check], std::slice::from_mut(&mut verdict))?;
            return Ok(verdict.allowed);
        }
        if !check.former().is_empty() {
            return self.admits_all_now(&[check]);
        }
        if check.key().is_empty() {
            return Ok(self.admits_without_key(check));
        }
        let mut admitted = false;
        self.decide_one(check, &mut admitted);
        Ok(admitted)
    }

    fn admits_each_now(&self, checks: &[Check<'_>], admitted: &mut [bool]) -> Result<(), StoreError> {
        if !has_id(checks) {
            if !checks.is_empty() {
                self.decide_each(checks, admitted);
            }
            return Ok(());
        }
        for (check, admitted) in checks.iter().zip(admitted) {
            *admitted = self.admits_now(*check)?;
        }
        Ok(())
    }

    fn decide_each_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        if has_id(checks) {
            let mut now = self.clock.now();
            for (check, verdict) in checks.iter().zip(verdicts) {
                now = self.decide_one_now(*check, verdict)?;
            }
            return Ok(now);
        }
        Ok(self.decide_each(checks, verdicts))
    }
}

impl Store for MemoryStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        match &self.clock {
            Timepiece::System(clock) => clock,
            Timepiece::Coarse(clock) => clock,
            Timepiece::Other(clock) => &**clock,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
