//! A limit with a name, made ready to decide.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::erased::erase;
use super::failure_mode::FailureMode;
use super::meter_kernel::MeterKernel;
use super::thresholds::Thresholds;
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::fnv::Fnv;
use crate::kernel::{Kernel, LimitKernel, MIN_GRACE, Verdict};
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::time::Micros;
use crate::warm_up::{WarmUp, Warming};

/// How long a kernel of the user's own may remember something, in
/// microseconds: a day, since it does not say.
const CUSTOM_HORIZON: u64 = 86_400_000_000;

/// For how long after its limit was replaced a permit can be renewed.
const HELD_FOR: u64 = 86_400_000_000;

/// A named limit, or a kernel of the user's own, with all that can be
/// computed beforehand.
///
/// The state of a key belongs to the name *and* the limit: the same key
/// under two meters is two states.
///
/// ```
/// use tidegate::store::Meter;
/// use tidegate::Limit;
///
/// let meter = Meter::new("orders", Limit::per_hour(10));
/// assert_eq!((meter.name().as_str(), meter.capacity(), meter.meaning()), ("orders", 10, "10/h"));
/// ```
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
    /// Units that are left to others.
    floor: u64,
    /// The kernel of the whole limit, if some of it is left to others.
    whole: Option<Box<MeterKernel>>,
    thresholds: Thresholds,
    /// What is counted, unless it is requests.
    unit: Option<Arc<str>>,
    /// Whether a state is one word, and nothing else is to be looked at.
    is_simple: bool,
}

impl Meter {
    /// A limit under a name.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::new("orders", Limit::per_hour(10)).name().as_str(), "orders");
    /// ```
    #[must_use]
    pub fn new(name: impl Into<Name>, limit: Limit) -> Meter {
        let kernel = match limit.kernel() {
            LimitKernel::Bucket(bucket) => MeterKernel::Bucket(bucket),
            LimitKernel::Window(window) => MeterKernel::Window(window),
            LimitKernel::Log(log) => MeterKernel::Heap(erase(log)),
        };
        let meaning = limit.to_string().into();
        Meter::made_of(name.into(), limit.capacity(), meaning, Some(limit), kernel)
    }

    /// A limit under its own words, such as `100/min`.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::unnamed(Limit::per_hour(10)).name().as_str(), "10/h");
    /// ```
    #[must_use]
    pub fn unnamed(limit: Limit) -> Meter {
        Meter::new(limit.to_string(), limit)
    }

    /// An algorithm of the user's own under a name, which no other kernel of
    /// the same type may have on the same store.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::kernel::LimitKernel;
    /// use tidegate::store::Meter;
    /// use tidegate::{Limit, Limiter, Policy};
    ///
    /// let LimitKernel::Log(log) = Limit::sliding_log(2, Duration::from_secs(1)).kernel() else { panic!("a log") };
    /// let limiter = Limiter::new(Policy::new().meter(Meter::custom("log", log)));
    /// assert_eq!(limiter.check("alice")?.remaining(), Some(1));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn custom<K: Kernel>(name: impl Into<Name>, kernel: K) -> Meter {
        let capacity = kernel.capacity();
        let meaning = std::any::type_name::<K>().into();
        Meter::made_of(name.into(), capacity, meaning, None, MeterKernel::Heap(erase(kernel)))
    }

    /// The same limit, on keys that are made of these attributes, each the first
    /// of some: keys of others are not taken for them.
    pub(crate) fn keyed_by<'n>(mut self, attributes: impl IntoIterator<Item = &'n [String]>) -> Meter {
        let mut attributes = attributes.into_iter().peekable();
        let by = if attributes.peek().is_some() { "by" } else { "for all" };
        let mut meaning = format!("{} {by}", self.meaning);
        let escaped = |name: &String| name.replace('\\', "\\\\").replace(' ', "\\ ").replace('|', "\\|");
        for names in attributes {
            let names: Vec<String> = names.iter().map(escaped).collect();
            meaning.extend([" ", &names.join("|")]);
        }
        self.identity = identity(&self.name, &meaning);
        self.meaning = meaning.into();
        self
    }

    fn made_of(name: Name, capacity: u64, meaning: Arc<str>, limit: Option<Limit>, kernel: MeterKernel) -> Meter {
        let identity = identity(&name, &meaning);
        let is_simple = kernel.is_narrow();
        let (largest_cost, on_failure, warm_up) = (kernel.capacity(), None, None);
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
            floor: 0,
            whole: None,
            thresholds: Thresholds::default(),
            unit: None,
            is_simple,
        }
    }

    /// The same limit, on the same states, for a class of requests that leaves so many units
    /// to others: its charges are admitted while more than that is left, and
    /// [`remaining`](Verdict::remaining) is what the class may still take. Of all units or more,
    /// nothing is ever admitted. A check that costs nothing is not held back, and neither is
    /// one that reports, refunds, settles, renews or resets.
    ///
    /// Of a limit that new keys have to climb to, the same share is left at every step, rounded
    /// up. Of a custom kernel, a charge is admitted if the kernel would admit the cost and the
    /// floor together.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).with_floor(4);
    /// assert_eq!((meter.capacity(), meter.floor(), meter.largest_cost()), (10, 4, 6));
    /// ```
    #[must_use]
    pub fn with_floor(mut self, units: u64) -> Meter {
        let whole = self.whole.take().map_or_else(|| self.kernel.clone(), |whole| *whole);
        let warming = self.limit.zip(self.warm_up).and_then(|(limit, warm_up)| Warming::new(limit, warm_up));
        self.kernel = match warming {
            Some(warming) => MeterKernel::Heap(erase(warming.with_floor(units))),
            None => whole.with_floor(units),
        };
        self.largest_cost = self.kernel.capacity();
        self.floor = units;
        self.whole = (units > 0).then(|| Box::new(whole));
        self
    }

    /// The same meter with another kernel for the whole limit.
    fn with_kernel(self, kernel: MeterKernel) -> Meter {
        let floor = self.floor;
        Meter { kernel, whole: None, ..self }.with_floor(floor)
    }

    /// The same limit, to which new keys have to climb. A limit of no more
    /// than the start stays as it is, and so does a custom kernel.
    ///
    /// A new key gets `start` units per period, and more in ten even steps, the
    /// whole after the given time. A key is new if nothing was charged to it
    /// for that long. No cost may be above what a new key can be charged at
    /// once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::store::Meter;
    /// use tidegate::{Limit, WarmUp};
    ///
    /// let climb = WarmUp::new(2, Duration::from_secs(60))?;
    /// let meter = Meter::new("orders", Limit::per_hour(10)).warming_up(climb);
    /// assert_eq!(meter.warm_up(), Some(climb));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn warming_up(mut self, warm_up: WarmUp) -> Meter {
        if let Some(warming) = self.limit.and_then(|limit| Warming::new(limit, warm_up)) {
            self.warm_up = Some(warm_up);
            self.is_simple = false;
            self.meaning = format!("{} warming up from {warm_up}", self.meaning).into();
            self.identity = identity(&self.name, &self.meaning);
            self = self.with_kernel(MeterKernel::Heap(erase(warming)));
        }
        self
    }

    /// The same fixed window, which counts together with those of the same name
    /// and period, whatever their counts: what a key uses of one of them is used
    /// of each. For limits whose number comes with the request. Other limits stay
    /// as they are.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let window = |count| Limit::fixed_window(count, std::time::Duration::from_secs(60));
    /// let [five, ten] = [5, 10].map(|count| Meter::new("own", window(count)).by_period());
    /// assert_eq!(five.identity(), ten.identity());
    /// ```
    #[must_use]
    pub fn by_period(mut self) -> Meter {
        if let (MeterKernel::Window(window), Some(limit)) = (&self.kernel, self.limit) {
            if limit.algorithm() == Algorithm::FixedWindow {
                let window = window.with_floor(0).of_any_count();
                self.is_simple = false;
                self.meaning = self.meaning.replacen(&limit.count().to_string(), "any", 1).into();
                self.identity = identity(&self.name, &self.meaning);
                self = self.with_kernel(MeterKernel::Window(window));
            }
        }
        self
    }

    /// Whether it counts [by its period](Meter::by_period), together with others.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let window = Meter::new("own", Limit::fixed_window(5, std::time::Duration::from_secs(60)));
    /// assert!(!window.is_by_period() && window.by_period().is_by_period());
    /// ```
    #[must_use]
    pub fn is_by_period(&self) -> bool {
        matches!(&self.kernel, MeterKernel::Window(window) if window.is_of_any_count())
    }

    /// The part of the limit that one of so many processes keeps by itself; a
    /// custom kernel's is all of it.
    pub(crate) fn share(&self, processes: NonZeroU32) -> Meter {
        let Some(limit) = self.limit else { return self.clone() };
        let share = Meter::new(&self.name, limit.share(processes));
        let share = if self.is_by_period() { share.by_period() } else { share };
        match self.floor {
            0 => share,
            floor => share.with_floor(floor.div_ceil(processes.get().into())),
        }
    }

    /// Says what answers for this limit when the store cannot, in place of
    /// what the limiter says for all.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::{FailureMode, Limit};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).on_failure(FailureMode::Open);
    /// assert_eq!(meter.failure_mode(), Some(FailureMode::Open));
    /// ```
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> Meter {
        self.on_failure = Some(mode);
        self
    }

    /// The same limit, whose verdicts say which of these thresholds were crossed. The
    /// states stay the same.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::store::{Meter, Thresholds};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).notify(Thresholds::new([80])?);
    /// assert_eq!(meter.thresholds().percents(), [80]);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn notify(mut self, thresholds: Thresholds) -> Meter {
        self.is_simple &= thresholds.is_empty();
        self.thresholds = thresholds;
        self
    }

    /// At which shares of the limit observers are told.
    #[must_use]
    #[inline(always)]
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// The same limit on the same states, which counts this; requests if `None`.
    pub(crate) fn counting(self, unit: Option<&str>) -> Meter {
        Meter { unit: unit.map(Into::into), ..self }
    }

    /// The [unit](crate::Rule::unit) that the limit counts, if its rule names another than
    /// `requests`.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// A verdict on this limit, as a decision.
    #[inline]
    pub(crate) fn decision(&self, verdict: Verdict) -> Decision {
        Decision::new(self.name.clone(), self.limit(), self.capacity, self.floor, verdict)
    }

    /// The name that decisions carry.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// What can pass at once, of a key that has used nothing: by the whole limit, whatever is
    /// left to others.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::unnamed(Limit::per_hour(10).burst(20)).capacity(), 20);
    /// ```
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The largest cost that can pass at once, of any key: less than the
    /// capacity if new keys have to warm up, or if some of it is [left to
    /// others](Meter::with_floor).
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::unnamed(Limit::per_hour(10)).largest_cost(), 10);
    /// ```
    #[must_use]
    #[inline]
    pub fn largest_cost(&self) -> u64 {
        self.largest_cost
    }

    /// How many units the class of requests that this meter is for leaves to others.
    #[must_use]
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The largest cost that can pass at once of any class.
    pub(crate) fn largest_of_all(&self) -> u64 {
        self.whole.as_ref().map_or(self.largest_cost, |whole| whole.capacity())
    }

    /// The kernel of the whole limit, whatever is left to others: what a former limit counts
    /// does not depend on the class of a request.
    pub(crate) fn whole_kernel(&self) -> &MeterKernel {
        self.whole.as_deref().unwrap_or(&self.kernel)
    }

    /// The limit whose kernel decides; none for a custom kernel, and for a
    /// limit with a [warm-up](Meter::warm_up).
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::unnamed(Limit::per_hour(10)).limit(), Some(Limit::per_hour(10)));
    /// ```
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.limit.filter(|_| self.warm_up.is_none())
    }

    /// Whether its kernel is the user's own.
    #[inline]
    pub(crate) fn is_custom(&self) -> bool {
        self.limit.is_none()
    }

    /// The limit, warm-up or not.
    pub(crate) fn nominal_limit(&self) -> Option<Limit> {
        self.limit
    }

    /// For how long what is charged to a window or a log counts at most; nothing for a custom kernel.
    pub(crate) fn period(&self) -> Micros {
        self.limit.map_or(Micros::ZERO, |limit| Micros::from_duration(limit.period()))
    }

    /// What tells the state of a key from every other, the same in every process.
    pub(crate) fn subject(&self, key: &Key<'_>) -> u64 {
        let mut hash = Fnv::default();
        hash.write(&self.identity.to_le_bytes());
        hash.write(&[u8::from(key.is_composite())]);
        hash.write(key.as_bytes());
        hash.finish()
    }

    /// How new keys climb to the limit, if they have to.
    #[must_use]
    pub fn warm_up(&self) -> Option<WarmUp> {
        self.warm_up
    }

    /// What the limit means: its words, or the type of a custom kernel. With
    /// the name, this tells a state from those of every other meter.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Meter::new("orders", Limit::per_hour(10)).meaning(), "10/h");
    /// ```
    #[must_use]
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// What answers when the store cannot, if this limit has a say of its own.
    #[must_use]
    pub fn failure_mode(&self) -> Option<FailureMode> {
        self.on_failure
    }

    /// Refuses a sliding log that may keep more entries for a key than this,
    /// with or without a warm-up.
    pub(crate) fn check_log_entries(&self, bound: u64) -> Result<(), ConfigError> {
        match self.limit {
            Some(limit) => limit.check_log_entries(self.name.as_str(), bound),
            None => Ok(()),
        }
    }

    /// For how long after the last charge anything of it matters, with a second
    /// for clocks that differ. A custom kernel does not say, and is given a day. A permit
    /// that is renewed again and again matters for a day more.
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let horizon = Meter::unnamed(Limit::per_hour(10)).horizon().to_duration();
    /// assert!(horizon.as_secs() >= 3_600);
    /// ```
    #[must_use]
    pub fn horizon(&self) -> Micros {
        let horizon = match self.limit.map(|limit| limit.kernel()) {
            Some(LimitKernel::Bucket(bucket)) => bucket.horizon(),
            Some(LimitKernel::Window(window)) => window.horizon(),
            Some(LimitKernel::Log(log)) => log.period(),
            None => CUSTOM_HORIZON,
        };
        let climb = self.warm_up.map_or(Micros::ZERO, |warm_up| warm_up.over());
        let is_bucket = self.limit.is_some_and(|limit| matches!(limit.kernel(), LimitKernel::Bucket(_)));
        // While a bucket climbs, it drains more slowly.
        let longest =
            if is_bucket { Micros::new(horizon).saturating_add(climb) } else { Micros::new(horizon).max(climb) };
        let held = Micros::new(if self.is_in_flight() { HELD_FOR } else { 0 });
        longest.saturating_add(held).saturating_add(Micros::new(MIN_GRACE))
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
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let identity = |name: &'static str| Meter::new(name, Limit::per_hour(10)).identity();
    /// assert_eq!(identity("orders"), identity("orders"));
    /// assert_ne!(identity("orders"), identity("items"));
    /// ```
    #[must_use]
    #[inline]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether it limits [requests in flight](Limit::in_flight).
    ///
    /// ```
    /// use tidegate::store::Meter;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::in_flight(5, std::time::Duration::from_secs(60));
    /// assert!(Meter::unnamed(limit).is_in_flight());
    /// ```
    pub fn is_in_flight(&self) -> bool {
        self.limit.is_some_and(|limit| limit.is_in_flight())
    }

    #[inline]
    pub(crate) fn kernel(&self) -> &MeterKernel {
        &self.kernel
    }
}

/// The same limit under the same name, or the very same custom kernel.
impl PartialEq for Meter {
    fn eq(&self, other: &Meter) -> bool {
        let same_kernel = match (self.whole_kernel(), other.whole_kernel()) {
            (MeterKernel::Heap(own), MeterKernel::Heap(other)) if self.limit.is_none() => Arc::ptr_eq(own, other),
            (_, _) => self.limit == other.limit,
        };
        let settings = |meter: &Meter| (meter.on_failure, meter.floor);
        let same_settings = settings(self) == settings(other) && self.thresholds == other.thresholds;
        same_kernel && self.is_same_as(other) && same_settings && self.unit == other.unit
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
        if self.floor > 0 {
            shown.field("floor", &self.floor);
        }
        shown.finish()
    }
}

/// The same in every process. It is not keyed: only the policy's
/// author chooses what goes in.
fn identity(name: &Name, limit: &str) -> u64 {
    let mut hash = Fnv::default();
    hash.write(&(name.as_str().len() as u64).to_le_bytes());
    hash.write(name.as_str().as_bytes());
    hash.write(limit.as_bytes());
    hash.finish()
}

#[cfg(test)]
mod tests;
