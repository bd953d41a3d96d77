//! The store in this process's memory.
//!
//! Bounded, without a thread, and fast because it touches one cache line:
//! a key's fingerprint and state sit side by side, the line is asked for
//! before the clock is read, and a state that has become zero is a free slot.
//! It never keeps a key's text unless keys are to be [listed](Builder::list_keys).

mod heap;
mod labels;
mod line_lock;
mod lines;
mod overflow;
mod pack;
#[cfg(all(test, loom))]
mod schedules;
mod several;
mod snapshot;
mod table;

use std::any::Any;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use self::heap::Heap;
use self::labels::Label;
use self::line_lock::LockedLine;
pub use self::overflow::Overflow;
use self::overflow::{Full, Shared, Visit};
use self::pack::Pack;
pub use self::snapshot::SnapshotError;
use self::table::{Approach, Seat, Table};
use crate::kernel::{self, Bucket, Kernel, Verdict};
use crate::limit::ConfigError;
use crate::name::Name;
use crate::request::Key;
use crate::store::{AnyState, Check, HeapKernel, ImmediateStore, MeterKernel, MeterState, Store, StoreError};
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Clock, CoarseClock, Micros, SystemClock};

/// Keeps states in memory: exact, bounded, nanoseconds.
///
/// ```
/// use tidegate::{Limit, Limiter, ManualClock, MemoryStore};
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().max_keys(10_000).clock(clock.clone()).build()?;
/// let limiter = Limiter::with_store(Limit::per_second(1), store)?;
/// assert!(limiter.is_allowed("alice"));
/// assert!(!limiter.is_allowed("alice"));
/// clock.advance(std::time::Duration::from_secs(1));
/// assert!(limiter.is_allowed("alice"));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
///
/// # Memory
/// A table takes 22 bytes for each of [`max_keys`](Builder::max_keys), once,
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
    max_keys: usize,
    overflow: Overflow,
    listed: bool,
    narrow: Table<1>,
    wide: OnceLock<Box<Table<3>>>,
    heap: OnceLock<Box<Heap>>,
    shared: OnceLock<Shared>,
    overflowed: AtomicU64,
}

/// Settings of a [`MemoryStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    clock: Option<Timepiece>,
    max_keys: usize,
    overflow: Overflow,
    listed: bool,
}

/// How many live keys a store is made for unless told otherwise.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;
const LARGEST_MAX_KEYS: usize = 1 << 32;

impl Builder {
    /// How many live keys to make room for: 1,000,000 unless set. A key is
    /// live until its state has become that of a key never seen; under several
    /// rules it counts once for each.
    pub fn max_keys(mut self, keys: usize) -> Builder {
        self.max_keys = keys;
        self
    }

    /// What to do with a new key when there is no room.
    pub fn overflow(mut self, overflow: Overflow) -> Builder {
        self.overflow = overflow;
        self
    }

    /// The clock to decide by: [`SystemClock`] unless set.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Some(Timepiece::new(clock));
        self
    }

    /// Keeps the text of every key, so that [`MemoryStore::keys`] can list
    /// them. It costs an allocation per new key, and memory for the texts.
    pub fn list_keys(mut self) -> Builder {
        self.listed = true;
        self
    }

    /// Makes the store.
    ///
    /// # Errors
    /// If it is to hold no keys, or more than 2^32.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        self.build_with(Seeds::random())
    }

    fn build_with(self, seeds: Seeds) -> Result<MemoryStore, ConfigError> {
        let Builder { clock, max_keys, overflow, listed } = self;
        if max_keys == 0 {
            return Err(ConfigError::Zero { field: "max_keys" });
        }
        if max_keys > LARGEST_MAX_KEYS {
            let (value, bound) = (max_keys as u128, LARGEST_MAX_KEYS as u64);
            return Err(ConfigError::TooLarge { field: "max_keys", value, bound });
        }
        Ok(MemoryStore {
            clock: clock.unwrap_or_else(|| Timepiece::new(SystemClock::new())),
            seeds,
            max_keys,
            overflow,
            listed,
            narrow: Table::new(max_keys, overflow, listed),
            wide: OnceLock::new(),
            heap: OnceLock::new(),
            shared: OnceLock::new(),
            overflowed: AtomicU64::new(0),
        })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::builder().build().expect("the default settings are valid")
    }
}

impl MemoryStore {
    /// Begins a store with other settings than the default ones.
    pub fn builder() -> Builder {
        Builder { clock: None, max_keys: DEFAULT_MAX_KEYS, overflow: Overflow::default(), listed: false }
    }

    /// How many keys are live: counts them, which takes a while.
    #[must_use]
    pub fn count_keys(&self) -> usize {
        let mut keys = 0;
        self.for_each_key(|_| keys += 1);
        keys
    }

    /// The rule and key of every live state, in no order; none unless the
    /// store was built to [list](Builder::list_keys) them.
    #[must_use]
    pub fn keys(&self) -> Vec<(Name, Key<'static>)> {
        let mut keys = Vec::new();
        self.for_each_key(|key| keys.extend(key));
        keys
    }

    /// How often a check found no room for its key, so that the
    /// [`Overflow`] policy answered.
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
        // A composite key is another key than the same bytes in one part.
        let namespace = check.meter().identity() ^ u64::from(check.key().is_composite());
        self.seeds.fingerprint(namespace, check.key().as_bytes())
    }

    fn label<'a>(&self, check: Check<'a>) -> Option<Label<'a>> {
        self.listed.then(|| (check.meter().name(), check.key()))
    }

    /// Asks for the lines of a key before anything else is done.
    fn prefetch(&self, check: Check<'_>, fingerprint: u64) {
        match check.meter().kernel() {
            MeterKernel::Bucket(bucket) if bucket.is_narrow() => {
                self.narrow.approach(fingerprint);
            }
            MeterKernel::Window(window) if window.is_narrow() => {
                self.narrow.approach(fingerprint);
            }
            MeterKernel::Bucket(_) | MeterKernel::Window(_) => {
                self.wide().approach(fingerprint);
            }
            MeterKernel::Heap(_) => {}
        }
    }

    /// What nearly every check comes to: a charge to a bucket that sits in
    /// its home line. It is worth having at every call site, where what the
    /// caller does not look at is not computed.
    #[inline(always)]
    fn charge_narrow(
        &self,
        bucket: &Bucket,
        check: Check<'_>,
        fingerprint: u64,
        approach: Approach<'_>,
        now: Micros,
    ) -> Verdict {
        let cost = check.cost();
        let line = LockedLine::lock(approach.line);
        if let Some(slot) = Table::<1>::find(&line, approach.home.tag) {
            let mut state = bucket.unpack(Table::<1>::read(&line, slot));
            let filled = bucket.fill_if_room(&mut state, now, cost);
            if filled.is_some() {
                Table::<1>::write(&line, slot, bucket.pack(&state));
            }
            // What comes from the future never passes.
            if filled.is_some() || bucket.heal(&state, now).is_none() {
                drop(line);
                let (admission, reading) = bucket.tell(&state, now, cost, filled);
                return Verdict::new(admission, reading);
            }
        }
        self.charge_narrow_elsewhere(line, approach.home, check, fingerprint, now).field_by_field()
    }

    #[inline(never)]
    fn charge_narrow_elsewhere(
        &self,
        line: LockedLine<'_>,
        home: Seat,
        check: Check<'_>,
        fingerprint: u64,
        now: Micros,
    ) -> Verdict {
        match check.meter().kernel() {
            MeterKernel::Bucket(kernel) => {
                self.narrow.visit_from(line, home, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Window(_) | MeterKernel::Heap(_) => {
                drop(line);
                self.decide_anywhere(check, fingerprint, now)
            }
        }
    }

    #[inline(never)]
    fn decide_one(&self, check: Check<'_>, fingerprint: u64) -> (Verdict, Micros) {
        self.prefetch(check, fingerprint);
        let now = self.clock.now();
        (self.decide_anywhere(check, fingerprint, now), now)
    }

    #[inline(never)]
    fn decide_anywhere(&self, check: Check<'_>, fingerprint: u64, now: Micros) -> Verdict {
        match check.meter().kernel() {
            MeterKernel::Bucket(kernel) if kernel.is_narrow() => {
                self.narrow.visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Window(kernel) if kernel.is_narrow() => {
                self.narrow.visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Bucket(kernel) => {
                self.wide().visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Window(kernel) => {
                self.wide().visit(fingerprint, now, OneCheck { store: self, kernel, check, fingerprint, now })
            }
            MeterKernel::Heap(kernel) => {
                let visit = OneCheck { store: self, kernel, check, fingerprint, now };
                self.heap().visit(fingerprint, kernel, now, visit)
            }
        }
    }

    #[cold]
    fn without_room(&self, check: Check<'_>, full: Full, now: Micros) -> Verdict {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let allowed = self.overflow == Overflow::Allow;
        let wait = full.until.saturating_since(now).max(Micros::new(1));
        Verdict {
            allowed,
            remaining: if allowed { check.meter().capacity() - check.cost() } else { 0 },
            retry_after: if allowed { Micros::ZERO } else { wait },
            reset_after: if allowed { Micros::ZERO } else { wait },
            delay: Micros::ZERO,
            degraded: true,
        }
    }

    #[inline]
    fn wide(&self) -> &Table<3> {
        self.wide.get_or_init(|| Box::new(Table::new(self.max_keys, self.overflow, self.listed)))
    }

    fn shared(&self) -> &Shared {
        self.shared.get_or_init(Shared::new)
    }

    fn heap(&self) -> &Heap {
        self.heap.get_or_init(|| Box::new(Heap::new(self.max_keys, self.overflow)))
    }
}

/// One check, on whatever its state is kept in.
struct OneCheck<'a, K> {
    store: &'a MemoryStore,
    kernel: &'a K,
    check: Check<'a>,
    fingerprint: u64,
    now: Micros,
}

impl<K> OneCheck<'_, K> {
    #[inline(always)]
    fn decide<S: Kernel + ?Sized>(&self, kernel: &S, state: &mut S::State, at: Micros) -> (Verdict, bool) {
        let (verb, cost) = (self.check.verb(), self.check.cost());
        if kernel.heal(state, at).is_some() {
            return self.decide_again(kernel, state);
        }
        let (verdict, changed) = kernel::decide_healed(kernel, state, at, verb, cost);
        (seen_from(self.now, at, verdict), changed)
    }

    /// Decides on a state that seems to come from the future. It may only mean
    /// that this thread slept since it read the clock: ask again, now that the
    /// state is locked.
    #[cold]
    fn decide_again<S: Kernel + ?Sized>(&self, kernel: &S, state: &mut S::State) -> (Verdict, bool) {
        let at = self.store.clock.now();
        let (verdict, changed) = kernel::decide(kernel, state, at, self.check.verb(), self.check.cost());
        (seen_from(self.now, at, verdict), changed)
    }

    /// What a new key starts with: what it may have used while there was no
    /// room for it, and with it what its companions did.
    fn inherited(&self, at: Micros) -> MeterState {
        match self.store.shared.get() {
            Some(shared) if shared.matters(at) => {
                shared.lock(self.check.meter(), self.fingerprint).copy(self.check.meter().kernel())
            }
            Some(_) | None => MeterState::Fresh,
        }
    }

    /// Decides for a key that finds no room. Its lines are locked meanwhile,
    /// so that it cannot find room of its own before it is charged here.
    #[cold]
    fn spill(&self, full: Full, at: Micros) -> Verdict {
        if self.store.overflow != Overflow::Share {
            return self.store.without_room(self.check, full, self.now);
        }
        let mut shared = self.store.shared().lock(self.check.meter(), self.fingerprint);
        if let Err(full) = shared.make_room(at) {
            return self.store.without_room(self.check, full, self.now);
        }
        self.store.overflowed.fetch_add(1, Ordering::Relaxed);
        let kernel = self.check.meter().kernel();
        let mut state = shared.copy(kernel);
        let (verdict, changed) = self.decide(kernel, &mut state, at);
        if changed {
            shared.set(kernel, state);
        }
        verdict
    }
}

impl<const STATE: usize, K: Pack<STATE>> Visit<[u64; STATE]> for OneCheck<'_, K>
where
    MeterKernel: Pack<STATE>,
{
    type Answer = Verdict;

    fn step(&mut self, words: &mut [u64; STATE], at: Micros) -> (Verdict, bool) {
        let mut state = self.kernel.unpack(*words);
        let (verdict, changed) = self.decide(self.kernel, &mut state, at);
        if changed {
            *words = self.kernel.pack(&state);
        }
        (verdict, changed)
    }

    fn fresh(&mut self, at: Micros) -> [u64; STATE] {
        self.check.meter().kernel().pack(&self.inherited(at))
    }

    fn label(&self) -> Option<Label<'_>> {
        self.store.label(self.check)
    }

    fn without_room(&mut self, full: Full, at: Micros) -> Verdict {
        self.spill(full, at)
    }
}

impl Visit<AnyState> for OneCheck<'_, HeapKernel> {
    type Answer = Verdict;

    fn step(&mut self, state: &mut AnyState, at: Micros) -> (Verdict, bool) {
        self.decide(&**self.kernel, state, at)
    }

    fn fresh(&mut self, at: Micros) -> AnyState {
        std::mem::take(self.inherited(at).heap_mut())
    }

    fn label(&self) -> Option<Label<'_>> {
        self.store.label(self.check)
    }

    fn without_room(&mut self, full: Full, at: Micros) -> Verdict {
        self.spill(full, at)
    }
}

/// A verdict reached for a later time `at`, as the caller at `now` sees it.
#[inline(always)]
fn seen_from(now: Micros, at: Micros, verdict: Verdict) -> Verdict {
    if at <= now {
        return verdict;
    }
    let ahead = at.saturating_since(now);
    let later = |wait: Micros| if wait == Micros::ZERO { wait } else { wait.saturating_add(ahead) };
    Verdict {
        retry_after: later(verdict.retry_after),
        reset_after: later(verdict.reset_after),
        delay: later(verdict.delay),
        ..verdict
    }
}

/// Checks whose lines are asked for together.
const BATCH: usize = 32;

impl ImmediateStore for MemoryStore {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        match (checks, verdicts) {
            ([check], [verdict]) => self.decide_one_now(*check, verdict),
            (checks, verdicts) => self.decide_several(checks, verdicts),
        }
    }

    #[inline]
    fn decide_one_now(&self, check: Check<'_>, verdict: &mut Verdict) -> Result<Micros, StoreError> {
        let fingerprint = self.fingerprint(check);
        if let MeterKernel::Bucket(bucket) = check.meter().kernel() {
            if bucket.is_narrow() && check.is_charge() {
                // The clock takes as long to read as the line to arrive, and
                // would hold it up if it were read first.
                let approach = self.narrow.approach(fingerprint);
                let now = self.clock.now();
                *verdict = self.charge_narrow(bucket, check, fingerprint, approach, now);
                return Ok(now);
            }
        }
        let (decided, now) = self.decide_one(check, fingerprint);
        *verdict = decided.field_by_field();
        Ok(now)
    }

    fn decide_each_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut now = None;
        for (checks, verdicts) in checks.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            let mut fingerprints = [0; BATCH];
            for (check, fingerprint) in checks.iter().zip(&mut fingerprints) {
                *fingerprint = self.fingerprint(*check);
                self.prefetch(*check, *fingerprint);
            }
            let now = *now.get_or_insert_with(|| self.clock.now());
            for ((check, fingerprint), verdict) in checks.iter().zip(fingerprints).zip(verdicts) {
                *verdict = match check.meter().kernel() {
                    MeterKernel::Bucket(bucket) if bucket.is_narrow() && check.is_charge() => {
                        self.charge_narrow(bucket, *check, fingerprint, self.narrow.reach(fingerprint), now)
                    }
                    MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_) => {
                        self.decide_anywhere(*check, fingerprint, now)
                    }
                };
            }
        }
        Ok(now.unwrap_or_else(|| self.clock.now()))
    }
}

impl Store for MemoryStore {
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
        std::future::ready(self.decide_now(checks, verdicts))
    }

    fn clock(&self) -> &dyn Clock {
        match &self.clock {
            Timepiece::System(clock) => clock,
            Timepiece::Coarse(clock) => clock,
            Timepiece::Other(clock) => &**clock,
        }
    }
}

/// A clock of any type; reading the usual ones takes no indirect call.
enum Timepiece {
    System(SystemClock),
    Coarse(CoarseClock),
    Other(Box<dyn Clock>),
}

impl Timepiece {
    fn new<C: Clock>(clock: C) -> Timepiece {
        let any: &dyn Any = &clock;
        if let Some(system) = any.downcast_ref::<SystemClock>() {
            Timepiece::System(system.clone())
        } else if let Some(coarse) = any.downcast_ref::<CoarseClock>() {
            Timepiece::Coarse(coarse.clone())
        } else {
            Timepiece::Other(Box::new(clock))
        }
    }

    #[inline(always)]
    fn now(&self) -> Micros {
        match self {
            Timepiece::System(clock) => clock.now(),
            Timepiece::Coarse(clock) => clock.now(),
            Timepiece::Other(clock) => clock.now().min(Micros::LATEST),
        }
    }
}

/// What makes this store's fingerprints differ from every other's.
struct Seeds {
    hasher: u64,
    shared_seed: u64,
    shared: SharedSeed,
}

impl Seeds {
    fn random() -> Seeds {
        if cfg!(loom) {
            // The model checker repeats a run step by step.
            return Seeds::new(1, 2);
        }
        // The standard library seeds its hasher from the operating system.
        let random = || RandomState::new().build_hasher().finish();
        Seeds::new(random(), random())
    }

    fn new(hasher: u64, shared_seed: u64) -> Seeds {
        Seeds { hasher, shared_seed, shared: SharedSeed::from_u64(shared_seed) }
    }
    #[inline(always)]
    fn fingerprint(&self, namespace: u64, bytes: &[u8]) -> u64 {
        // The namespace is written, not mixed into the seed: foldhash mixes the
        // key there too, and a key could then be chosen to undo it.
        let mut hasher = FoldHasher::with_seed(self.hasher, &self.shared);
        hasher.write_u64(namespace);
        hasher.write(bytes);
        hasher.finish()
    }
}
