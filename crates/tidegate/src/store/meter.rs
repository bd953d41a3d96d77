//! A limit with a name, made ready to decide.

use std::fmt;
use std::sync::Arc;

use super::erased::erase;
use super::meter_kernel::MeterKernel;
use super::succession::{MOST_PREDECESSORS, Predecessor, horizon};
use crate::failure::FailureMode;
use crate::fnv::Fnv;
use crate::kernel::{Kernel, WarmUp, Warming};
use crate::limit::{ConfigError, Limit, LimitKernel};
use crate::name::Name;
use crate::time::Micros;

/// A named limit, or a kernel of the user's own, with all that can be
/// computed beforehand.
///
/// The state of a key belongs to the name *and* the limit: the same key
/// under two meters is two states.
#[derive(Clone)]
pub struct Meter {
    name: Name,
    capacity: u64,
    largest_cost: u64,
    /// What the limit means, in words.
    meaning: Arc<str>,
    /// Sets the keys of this meter apart from those of every other.
    identity: u64,
    on_failure: Option<FailureMode>,
    limit: Option<Limit>,
    warm_up: Option<WarmUp>,
    kernel: MeterKernel,
    predecessors: Option<Arc<[Predecessor]>>,
    /// Whether a state is one word, and nothing else is to be looked at.
    is_simple: bool,
}

impl Meter {
    /// A limit under a name.
    #[must_use]
    pub fn new(name: Name, limit: Limit) -> Meter {
        let kernel = match limit.kernel() {
            LimitKernel::Bucket(bucket) => MeterKernel::Bucket(bucket),
            LimitKernel::Window(window) => MeterKernel::Window(window),
            LimitKernel::Log(log) => MeterKernel::Heap(erase(log)),
        };
        let meaning = limit.to_string().into();
        Meter::made_of(name, limit.capacity(), meaning, Some(limit), kernel)
    }

    /// A limit under its own words, such as `100/min`.
    #[must_use]
    pub fn unnamed(limit: Limit) -> Meter {
        // Only a process that has configured 100,000 other names gets the
        // bare word.
        let name = Name::configured(&limit.to_string()).unwrap_or(Name::literal("limit"));
        Meter::new(name, limit)
    }

    /// An algorithm of the user's own under a name, which no other kernel of
    /// the same type may have on the same store.
    #[must_use]
    pub fn custom<K: Kernel>(name: Name, kernel: K) -> Meter {
        let capacity = kernel.capacity();
        let meaning = std::any::type_name::<K>().into();
        Meter::made_of(name, capacity, meaning, None, MeterKernel::Heap(erase(kernel)))
    }

    /// The same limit, on keys that are made of these attributes: keys of
    /// others are not taken for them.
    pub(crate) fn keyed_by<'n>(mut self, attributes: impl IntoIterator<Item = &'n str>) -> Meter {
        let mut attributes = attributes.into_iter().peekable();
        let by = if attributes.peek().is_some() { "by" } else { "for all" };
        let mut meaning = format!("{} {by}", self.meaning);
        for name in attributes {
            let name = name.replace('\\', "\\\\").replace(' ', "\\ ");
            meaning.extend([" ", &name]);
        }
        self.identity = identity(self.name, &meaning);
        self.meaning = meaning.into();
        self
    }

    fn made_of(name: Name, capacity: u64, meaning: Arc<str>, limit: Option<Limit>, kernel: MeterKernel) -> Meter {
        let identity = identity(name, &meaning);
        let is_simple = kernel.is_narrow();
        let (largest_cost, on_failure, warm_up, predecessors) = (kernel.capacity(), None, None, None);
        Meter {
            name,
            capacity,
            largest_cost,
            meaning,
            identity,
            on_failure,
            limit,
            warm_up,
            kernel,
            predecessors,
            is_simple,
        }
    }

    /// The same limit, to which new keys have to climb. A limit of no more
    /// than the start stays as it is, and so does a custom kernel.
    ///
    /// A new key gets `start` units per period, and more in ten even steps, the
    /// whole after the given time. A key is new if nothing was charged to it
    /// for that long. No cost may be above what a new key can be charged at
    /// once.
    #[must_use]
    pub fn warming_up(mut self, warm_up: WarmUp) -> Meter {
        if let Some(warming) = self.limit.and_then(|limit| Warming::new(limit, warm_up)) {
            self.largest_cost = warming.capacity();
            self.kernel = MeterKernel::Heap(erase(warming));
            self.warm_up = Some(warm_up);
            self.is_simple = false;
            self.meaning = format!("{} warming up from {warm_up}", self.meaning).into();
            self.identity = identity(self.name, &self.meaning);
        }
        self
    }

    /// The same limit, in the place of one that was in force until `now`, by
    /// the store's clock: what keys used of that one counts on.
    ///
    /// # Errors
    /// [`ConfigError::TooManyChanges`] if that one came in the place of so many
    /// others, whose use still counts, that this would be one too many.
    pub fn in_place_of(self, former: &Meter, now: Micros) -> Result<Meter, ConfigError> {
        let matters = |past: &&Predecessor| past.until() > now && !past.meter().is_same_as(&self);
        let mut past: Vec<Predecessor> = former.predecessors().iter().filter(matters).cloned().collect();
        if !former.is_same_as(&self) {
            let until = now.saturating_add(horizon(former));
            past.push(Predecessor::new(former.clone().succeeding(Vec::new()), until));
        }
        if past.len() > MOST_PREDECESSORS {
            return Err(ConfigError::TooManyChanges { rule: self.name.as_str(), bound: MOST_PREDECESSORS });
        }
        Ok(self.succeeding(past))
    }

    /// The same limit, in the place of others that were in force until now.
    pub(crate) fn succeeding(mut self, predecessors: Vec<Predecessor>) -> Meter {
        self.predecessors = (!predecessors.is_empty()).then(|| predecessors.into());
        self.is_simple = self.kernel.is_narrow() && self.predecessors.is_none();
        self
    }

    /// Says what answers for this limit when the store cannot, in place of
    /// what the limiter says for all.
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> Meter {
        self.on_failure = Some(mode);
        self
    }

    /// The name that decisions carry.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Name {
        self.name
    }

    /// What can pass at once, of a key that has used nothing.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The largest cost that can pass at once, of any key: less than the
    /// capacity if new keys have to warm up.
    #[must_use]
    #[inline]
    pub fn largest_cost(&self) -> u64 {
        self.largest_cost
    }

    /// The limit whose kernel decides; none for a custom kernel, and for a
    /// limit with a [warm-up](Meter::warm_up).
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.limit.filter(|_| self.warm_up.is_none())
    }

    /// The limit, warm-up or not.
    pub(crate) fn nominal_limit(&self) -> Option<Limit> {
        self.limit
    }

    /// How new keys climb to the limit, if they have to.
    #[must_use]
    pub fn warm_up(&self) -> Option<WarmUp> {
        self.warm_up
    }

    /// What the limit means: its words, or the type of a custom kernel. With
    /// the name, this tells a state from those of every other meter.
    #[must_use]
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// What answers when the store cannot, if this limit has a say of its own.
    #[must_use]
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.on_failure
    }

    /// The limits in whose place this one came, as far as they still matter:
    /// a store carries over what a key used of them when it is next asked
    /// about the key, and forgets it there.
    #[must_use]
    pub fn predecessors(&self) -> &[Predecessor] {
        self.predecessors.as_deref().unwrap_or_default()
    }

    /// For how long after the last charge anything of it matters, with a second
    /// for clocks that differ. A custom kernel does not say, and is given a day.
    #[must_use]
    pub fn horizon(&self) -> Micros {
        horizon(self)
    }

    /// Whether both have the same states.
    pub(crate) fn is_same_as(&self, other: &Meter) -> bool {
        self.name == other.name && self.meaning == other.meaning
    }

    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// A hash of the name and the meaning, the same in every process.
    #[must_use]
    #[inline]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    #[inline]
    pub(crate) fn kernel(&self) -> &MeterKernel {
        &self.kernel
    }
}

/// The same limit under the same name, or the very same custom kernel.
impl PartialEq for Meter {
    fn eq(&self, other: &Meter) -> bool {
        let same_kernel = match (&self.kernel, &other.kernel) {
            (MeterKernel::Heap(own), MeterKernel::Heap(other)) if self.limit.is_none() => Arc::ptr_eq(own, other),
            (_, _) => self.limit == other.limit,
        };
        same_kernel && self.is_same_as(other) && self.on_failure == other.on_failure
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Meter");
        shown.field("name", &self.name);
        match &self.limit {
            Some(limit) => shown.field("limit", &limit.to_string()),
            None => shown.field("kernel", &"custom"),
        };
        shown.finish()
    }
}

/// The same in every process. It is not keyed: only those who write the
/// policy choose what goes in.
fn identity(name: Name, limit: &str) -> u64 {
    let mut hash = Fnv::default();
    hash.write(&(name.as_str().len() as u64).to_le_bytes());
    hash.write(name.as_str().as_bytes());
    hash.write(limit.as_bytes());
    hash.finish()
}
