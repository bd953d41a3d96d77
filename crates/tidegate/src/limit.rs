//! What is allowed: an algorithm and its numbers, as a plain value.
//!
//! A `Limit` that exists is valid. Literals are made by `const` constructors,
//! which fail to compile on nonsense; numbers that come from elsewhere go
//! through the `try_` ones, or through the words that a `Limit` prints and
//! parses.

mod by_calendar;
mod share;
mod words;

use std::time::Duration;

use crate::algorithm::AlgorithmKind;
use crate::calendar::Calendar;
use crate::error::ConfigError;
use crate::kernel::{Bucket, LimitKernel, Log, Style, Window};
use crate::time::Micros;

/// How much may pass, by which algorithm: `Copy`, comparable, printable.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limit;
///
/// const STEADY: Limit = Limit::per_second(10).burst(20);
/// let strict = Limit::sliding_log(100, Duration::from_secs(60));
/// let configured: Limit = "100/min burst 20".parse()?;
/// assert_eq!(configured.to_string(), "100/min burst 20");
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: AlgorithmKind,
    count: u64,
    /// Microseconds.
    period: u64,
    /// What passes at once; the count itself for windows and logs.
    capacity: u64,
    form: Form,
    /// What can be owed beyond the capacity, or [`ONE_CAPACITY`].
    debt: u64,
}

/// What an algorithm and its numbers leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Usual,
    /// Of a fixed window: it starts with its first request.
    FromFirst,
    /// Of a fixed window: it is a period of the calendar. The limit's own period is as long as
    /// one usually is at the longest.
    Calendar(Calendar),
    /// Of a log: its entries are permits, which are given back.
    InFlight,
}

/// A debt that was not set. Not an `Option`, which would be twice as large in every
/// decision.
const ONE_CAPACITY: u64 = u64::MAX;

impl Limit {
    /// The largest count, burst or queue.
    pub const MAX_COUNT: u64 = 1_000_000_000_000;
    /// The longest period: ten years of 365 days.
    pub const MAX_PERIOD: Duration = Duration::from_secs(10 * 365 * 86_400);

    /// A token bucket of `count` per second, all of which may come at once.
    ///
    /// # Panics
    /// Like every literal constructor, when the number is zero or above
    /// [`MAX_COUNT`](Limit::MAX_COUNT): in a `const`, at compile time. Numbers
    /// from elsewhere belong in [`try_token_bucket`](Limit::try_token_bucket).
    #[must_use]
    pub const fn per_second(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(1))
    }

    /// A token bucket of `count` per minute.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn per_minute(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(60))
    }

    /// A token bucket of `count` per hour.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn per_hour(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(3_600))
    }

    /// A token bucket of `count` per day of 24 hours.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn per_day(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(86_400))
    }

    /// A token bucket: in any interval of length t, at most
    /// `burst + count * t / period`. The burst is the count unless
    /// [`burst`](Limit::burst) says otherwise.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn token_bucket(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(AlgorithmKind::TokenBucket, count, period))
    }

    /// A leaky bucket: the same bound as a token bucket whose burst is the
    /// [`queue`](Limit::queue) (the count unless set), and every admitted
    /// request is told the [`delay`](crate::Decision::delay) that makes the
    /// outflow even.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn leaky_bucket(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(AlgorithmKind::LeakyBucket, count, period))
    }

    /// A fixed window: at most `count` in every window of the clock, and so
    /// up to twice that across an edge.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn fixed_window(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(AlgorithmKind::FixedWindow, count, period))
    }

    /// A sliding window log: at most `count` in any period, wherever it
    /// starts. Keeps up to `count` entries for every key.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn sliding_log(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(AlgorithmKind::SlidingLog, count, period))
    }

    /// A sliding window counter: the log, approximated by two counters. At
    /// most `count` in every window of the clock; an adversary can get
    /// `2 * count` into some period, while most traffic sees a few percent of
    /// error. Under steady pressure every window gets its count.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn sliding_counter(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(AlgorithmKind::SlidingCounter, count, period))
    }

    /// A limit on requests in flight: at most `count` at a time. A request holds a permit
    /// from when it is [reserved](crate::Limiter::reserve) until it is settled, released, or
    /// `expiry` has passed since it was reserved or renewed. It is a
    /// [sliding log](Limit::sliding_log) of permits, so it keeps up to `count` entries for
    /// every key, and `retry_after` is when the next permits expire: others may be given
    /// back sooner. Every request takes one permit, whatever it costs; one of cost zero
    /// takes nothing and only asks.
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn in_flight(count: u64, expiry: Duration) -> Limit {
        let log = Limit::sliding_log(count, expiry);
        Limit { form: Form::InFlight, debt: 0, ..log }
    }

    /// [`in_flight`](Limit::in_flight) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_in_flight(count: u64, expiry: Duration) -> Result<Limit, ConfigError> {
        let log = Limit::try_sliding_log(count, expiry)?;
        Ok(Limit { form: Form::InFlight, debt: 0, ..log })
    }

    /// [`per_second`](Limit::per_second) of a number that comes from elsewhere.
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_second(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(1))
    }

    /// [`per_minute`](Limit::per_minute) of a number that comes from elsewhere.
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_minute(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(60))
    }

    /// [`per_hour`](Limit::per_hour) of a number that comes from elsewhere.
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_hour(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(3_600))
    }

    /// [`per_day`](Limit::per_day) of a number that comes from elsewhere.
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_day(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(86_400))
    }

    /// [`token_bucket`](Limit::token_bucket) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_token_bucket(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(AlgorithmKind::TokenBucket, count, period)
    }

    /// [`leaky_bucket`](Limit::leaky_bucket) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_leaky_bucket(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(AlgorithmKind::LeakyBucket, count, period)
    }

    /// [`fixed_window`](Limit::fixed_window) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_fixed_window(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(AlgorithmKind::FixedWindow, count, period)
    }

    /// [`sliding_log`](Limit::sliding_log) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_sliding_log(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(AlgorithmKind::SlidingLog, count, period)
    }

    /// [`sliding_counter`](Limit::sliding_counter) for numbers that are not literals.
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_sliding_counter(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(AlgorithmKind::SlidingCounter, count, period)
    }

    /// The factory: a limit of an algorithm chosen at run time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{AlgorithmKind, Limit};
    ///
    /// for algorithm in AlgorithmKind::ALL {
    ///     let limit = Limit::try_new(algorithm, 100, Duration::from_secs(60))?;
    ///     assert_eq!(limit.capacity(), 100);
    /// }
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_new(algorithm: AlgorithmKind, count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Ok(Limit::checked(algorithm, count, period)?)
    }

    /// Lets a token bucket save up `burst` instead of its count.
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second), and on another algorithm.
    #[must_use]
    pub const fn burst(self, burst: u64) -> Limit {
        valid(self.with_capacity("burst", AlgorithmKind::TokenBucket, burst))
    }

    /// [`burst`](Limit::burst) for a number that is not a literal.
    ///
    /// # Errors
    /// If it is zero or out of bounds, or this is no token bucket.
    pub fn try_burst(self, burst: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_capacity("burst", AlgorithmKind::TokenBucket, burst)?)
    }

    /// Lets a leaky bucket hold `queue` units instead of its count, the one
    /// that is leaving included.
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second), and on another algorithm.
    #[must_use]
    pub const fn queue(self, queue: u64) -> Limit {
        valid(self.with_capacity("queue", AlgorithmKind::LeakyBucket, queue))
    }

    /// [`queue`](Limit::queue) for a number that is not a literal.
    ///
    /// # Errors
    /// If it is zero or out of bounds, or this is no leaky bucket.
    pub fn try_queue(self, queue: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_capacity("queue", AlgorithmKind::LeakyBucket, queue)?)
    }

    /// Lets a fixed window start with its first request instead of at a
    /// multiple of the period since the epoch.
    ///
    /// # Panics
    /// On another algorithm: in a `const`, at compile time.
    #[must_use]
    pub const fn from_first_request(self) -> Limit {
        valid(self.starting_with_first_request())
    }

    /// [`from_first_request`](Limit::from_first_request) without the panic.
    ///
    /// # Errors
    /// If this is no fixed window.
    pub fn try_from_first_request(self) -> Result<Limit, ConfigError> {
        Ok(self.starting_with_first_request()?)
    }

    /// Lets a key owe at most `debt` beyond the capacity, instead of one capacity
    /// more. Only [`report`](crate::Limiter::report) makes debt: it charges what has
    /// been spent already. Zero is allowed: what does not fit is then not recorded.
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn debt(self, debt: u64) -> Limit {
        valid(self.with_debt(debt))
    }

    /// [`debt`](Limit::debt) for a number that is not a literal.
    ///
    /// # Errors
    /// If it is out of bounds.
    pub fn try_debt(self, debt: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_debt(debt)?)
    }

    /// The most that a key can owe beyond the capacity: what [`debt`](Limit::debt) set,
    /// or one capacity more, or less where exact numbers have no room for that.
    #[must_use]
    pub const fn max_debt(&self) -> u64 {
        match self.debt {
            ONE_CAPACITY => {
                let bound = self.debt_bound();
                if bound < self.capacity { bound } else { self.capacity }
            }
            debt => debt,
        }
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> AlgorithmKind {
        self.algorithm
    }

    /// How many per [`period`](Limit::period).
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// In what time; of a calendar limit, how long a period usually is at the
    /// longest.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The largest cost that can pass at once: the burst, the queue, or the
    /// count of a window.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether this is a fixed window that starts with its first request.
    #[must_use]
    pub const fn starts_with_first_request(&self) -> bool {
        matches!(self.form, Form::FromFirst)
    }

    /// Whether this limits [requests in flight](Limit::in_flight).
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        matches!(self.form, Form::InFlight)
    }

    /// The step in which this limit sees time: a microsecond, or a power of
    /// ten of them where the exact products would not fit below 2^53.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_second(10).resolution(), Duration::from_micros(1));
    /// assert_eq!(Limit::per_day(999_983).resolution(), Duration::from_micros(10));
    /// ```
    #[must_use]
    pub const fn resolution(&self) -> Duration {
        Duration::from_micros(match self.kernel() {
            LimitKernel::Bucket(bucket) => bucket.tick(),
            LimitKernel::Window(window) => window.tick(),
            LimitKernel::Log(_) => 1,
        })
    }

    /// Refuses a sliding log that may keep more entries for a key than `bound`,
    /// for a rule of this name. It has one for each instant at which something
    /// was admitted: as many as its count, or as a period has microseconds. One
    /// that is in debt may have as many more as it owes.
    ///
    /// # Errors
    /// [`ConfigError::TooManyLogEntries`].
    pub fn check_log_entries(&self, rule: &str, bound: u64) -> Result<(), ConfigError> {
        let entries = self.count.min(self.period);
        if self.algorithm != AlgorithmKind::SlidingLog || entries <= bound {
            return Ok(());
        }
        Err(ConfigError::TooManyLogEntries { rule: rule.into(), limit: self.to_string().into(), entries, bound })
    }

    /// The meaning of this limit.
    #[must_use]
    pub const fn kernel(&self) -> LimitKernel {
        let style = match (self.algorithm, self.form) {
            (AlgorithmKind::SlidingCounter, _) => Style::Sliding,
            (_, Form::FromFirst) => Style::FixedFromFirst,
            (_, Form::Calendar(calendar)) => Style::Calendar(calendar),
            (_, Form::Usual | Form::InFlight) => Style::FixedFromEpoch,
        };
        match self.algorithm {
            AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => match self.bucket() {
                Some(bucket) => LimitKernel::Bucket(bucket.with_debt(self.max_debt())),
                None => panic!("a limit that exists has been validated"),
            },
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingCounter => {
                LimitKernel::Window(Window::new(self.count, self.period, style).with_debt(self.max_debt()))
            }
            AlgorithmKind::SlidingLog => LimitKernel::Log(Log::new(self.count, self.period).with_debt(self.max_debt())),
        }
    }

    /// The bucket of these numbers, unless it would take too long to drain.
    const fn bucket(&self) -> Option<Bucket> {
        let queues = matches!(self.algorithm, AlgorithmKind::LeakyBucket);
        Bucket::new(self.count, self.period, self.capacity, queues)
    }

    const fn checked(algorithm: AlgorithmKind, count: u64, period: Duration) -> Result<Limit, Invalid> {
        if let Some(invalid) = out_of_bounds("count", count as u128, Limit::MAX_COUNT) {
            return Err(invalid);
        }
        let micros = period.as_micros();
        let longest = Micros::from_duration(Limit::MAX_PERIOD).get();
        if let Some(invalid) = out_of_bounds("period in microseconds", micros, longest) {
            return Err(invalid);
        }
        let (period, capacity, form) = (micros as u64, count, Form::Usual);
        Ok(Limit { algorithm, count, period, capacity, form, debt: ONE_CAPACITY })
    }

    const fn with_capacity(mut self, field: &'static str, of: AlgorithmKind, capacity: u64) -> Result<Limit, Invalid> {
        if self.algorithm as u8 != of as u8 {
            return Err(Invalid::NotApplicable { field, algorithm: self.algorithm, instead: of });
        }
        if let Some(invalid) = out_of_bounds(field, capacity as u128, Limit::MAX_COUNT) {
            return Err(invalid);
        }
        self.capacity = capacity;
        match (self.bucket(), self.debt) {
            (Some(_), ONE_CAPACITY) => Ok(self),
            (Some(_), debt) => self.with_debt(debt),
            (None, _) => Err(Invalid::TooSlow { burst: capacity, count: self.count, period: self.period() }),
        }
    }

    const fn with_debt(mut self, debt: u64) -> Result<Limit, Invalid> {
        // A permit is held or not: there is nothing to owe.
        let bound = if self.is_in_flight() { 0 } else { self.debt_bound() };
        if debt > bound {
            return Err(Invalid::TooLarge { field: "debt", value: debt as u128, bound });
        }
        self.debt = debt;
        Ok(self)
    }

    /// The largest debt that this limit can count exactly.
    const fn debt_bound(&self) -> u64 {
        let bound = match self.algorithm {
            AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => match self.bucket() {
                Some(bucket) => bucket.debt_bound(),
                None => 0,
            },
            AlgorithmKind::SlidingCounter => Window::new(self.count, self.period, Style::Sliding).debt_bound(),
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingLog => Limit::MAX_COUNT,
        };
        if bound < Limit::MAX_COUNT { bound } else { Limit::MAX_COUNT }
    }

    /// The same algorithm with other numbers, if they make a limit.
    pub(crate) fn with_numbers(self, count: u64, period: Duration, capacity: u64) -> Option<Limit> {
        let limit = Limit::checked(self.algorithm, count, period).ok()?;
        let limit = match self.algorithm {
            AlgorithmKind::TokenBucket => limit.with_capacity("burst", AlgorithmKind::TokenBucket, capacity).ok()?,
            AlgorithmKind::LeakyBucket => limit.with_capacity("queue", AlgorithmKind::LeakyBucket, capacity).ok()?,
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingLog | AlgorithmKind::SlidingCounter => limit,
        };
        let limit = Limit { form: self.form, ..limit };
        match self.debt {
            ONE_CAPACITY => Some(limit),
            debt => limit.with_debt(debt.min(limit.debt_bound())).ok(),
        }
    }

    const fn starting_with_first_request(mut self) -> Result<Limit, Invalid> {
        let (field, instead) = ("from-first", AlgorithmKind::FixedWindow);
        if self.algorithm as u8 != instead as u8 {
            return Err(Invalid::NotApplicable { field, algorithm: self.algorithm, instead });
        }
        if let Form::Calendar(calendar) = self.form {
            return Err(Invalid::ByCalendar { unit: calendar.unit_name() });
        }
        self.form = Form::FromFirst;
        Ok(self)
    }
}

/// What can be wrong with numbers: those [`ConfigError`]s that are `Copy`, as
/// constant functions need them.
#[derive(Clone, Copy)]
enum Invalid {
    Zero { field: &'static str },
    TooLarge { field: &'static str, value: u128, bound: u64 },
    TooSlow { burst: u64, count: u64, period: Duration },
    NotApplicable { field: &'static str, algorithm: AlgorithmKind, instead: AlgorithmKind },
    ByCalendar { unit: &'static str },
}

impl From<Invalid> for ConfigError {
    fn from(invalid: Invalid) -> ConfigError {
        match invalid {
            Invalid::Zero { field } => ConfigError::Zero { field },
            Invalid::TooLarge { field, value, bound } => ConfigError::TooLarge { field, value, bound },
            Invalid::TooSlow { burst, count, period } => ConfigError::TooSlow { burst, count, period },
            Invalid::NotApplicable { field, algorithm, instead } => {
                ConfigError::NotApplicable { field, algorithm, instead }
            }
            Invalid::ByCalendar { unit } => {
                let (anchor, hint) = ("the first request".to_owned(), "they start by the calendar");
                ConfigError::Anchor { unit, anchor, hint }
            }
        }
    }
}

const fn out_of_bounds(field: &'static str, value: u128, bound: u64) -> Option<Invalid> {
    if value == 0 {
        Some(Invalid::Zero { field })
    } else if value > bound as u128 {
        Some(Invalid::TooLarge { field, value, bound })
    } else {
        None
    }
}

/// Unwraps at compile time, where a message can only be a constant.
const fn valid(limit: Result<Limit, Invalid>) -> Limit {
    match limit {
        Ok(limit) => limit,
        Err(Invalid::Zero { .. }) => panic!("a limit's count, period, burst or queue is zero"),
        Err(Invalid::TooLarge { .. }) => panic!("a limit's count, period, burst, queue or debt is too large"),
        Err(Invalid::TooSlow { .. }) => panic!("the bucket takes more than 71 years to refill"),
        Err(Invalid::NotApplicable { .. }) => panic!("the setting does not apply to this algorithm"),
        Err(Invalid::ByCalendar { .. }) => panic!("a calendar's periods do not start with a request"),
    }
}

#[cfg(test)]
mod tests;
