//! What is allowed: an algorithm and its numbers, as a plain value.
//!
//! A `Limit` that exists is valid. Literals are made by `const` constructors,
//! which fail to compile on nonsense; numbers that come from elsewhere go
//! through the `try_` ones, or through the words that a `Limit` prints and
//! parses.

mod by_calendar;
mod constructors;
mod share;
mod words;

use std::time::Duration;

use crate::algorithm::Algorithm;
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
    algorithm: Algorithm,
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
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert!(Limit::try_per_second(Limit::MAX_COUNT).is_ok());
    /// assert!(Limit::try_per_second(Limit::MAX_COUNT + 1).is_err());
    /// ```
    pub const MAX_COUNT: u64 = 1_000_000_000_000;
    /// The longest period: ten years of 365 days.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::MAX_PERIOD.as_secs(), 315_360_000);
    /// assert!(Limit::try_fixed_window(1, Limit::MAX_PERIOD).is_ok());
    /// ```
    pub const MAX_PERIOD: Duration = Duration::from_secs(10 * 365 * 86_400);

    /// The most that a key can owe beyond the capacity: what [`debt`](Limit::debt) set,
    /// or one capacity more, or less where exact numbers have no room for that.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_hour(10).max_debt(), 10);
    /// assert_eq!(Limit::per_hour(10).debt(0).max_debt(), 0);
    /// ```
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
    ///
    /// ```
    /// use tidegate::{Algorithm, Limit};
    ///
    /// assert_eq!(Limit::per_second(5).algorithm(), Algorithm::TokenBucket);
    /// ```
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many per [`period`](Limit::period).
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_second(5).burst(20).count(), 5);
    /// ```
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// In what time; of a calendar limit, how long a period usually is at the
    /// longest.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_minute(5).period().as_secs(), 60);
    /// ```
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The largest cost that can pass at once: the burst, the queue, or the
    /// count of a window.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_second(5).capacity(), 5);
    /// assert_eq!(Limit::per_second(5).burst(20).capacity(), 20);
    /// ```
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether this is a fixed window that starts with its first request.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// let limit: Limit = "fixed 5/s from-first".parse()?;
    /// assert!(limit.starts_with_first_request());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub const fn starts_with_first_request(&self) -> bool {
        matches!(self.form, Form::FromFirst)
    }

    /// Whether this limits [requests in flight](Limit::in_flight).
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// let limit: Limit = "in-flight 20 for 60s".parse()?;
    /// assert!(limit.is_in_flight());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
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
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let log = Limit::sliding_log(1_000, Duration::from_secs(60));
    /// assert!(log.check_log_entries("api", 1_000).is_ok());
    /// assert!(log.check_log_entries("api", 999).is_err());
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::TooManyLogEntries`].
    pub fn check_log_entries(&self, rule: &str, bound: u64) -> Result<(), ConfigError> {
        let entries = self.count.min(self.period);
        if self.algorithm != Algorithm::SlidingLog || entries <= bound {
            return Ok(());
        }
        Err(ConfigError::TooManyLogEntries { rule: rule.into(), limit: self.to_string().into(), entries, bound })
    }

    /// The meaning of this limit.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::kernel::LimitKernel;
    ///
    /// assert!(matches!(Limit::per_second(5).kernel(), LimitKernel::Bucket(_)));
    /// ```
    #[must_use]
    pub const fn kernel(&self) -> LimitKernel {
        let style = match (self.algorithm, self.form) {
            (Algorithm::SlidingCounter, _) => Style::Sliding,
            (_, Form::FromFirst) => Style::FixedFromFirst,
            (_, Form::Calendar(calendar)) => Style::Calendar(calendar),
            (_, Form::Usual | Form::InFlight) => Style::FixedFromEpoch,
        };
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => match self.bucket() {
                Some(bucket) => LimitKernel::Bucket(bucket.with_debt(self.max_debt())),
                None => panic!("a limit that exists has been validated"),
            },
            Algorithm::FixedWindow | Algorithm::SlidingCounter => {
                LimitKernel::Window(Window::new(self.count, self.period, style).with_debt(self.max_debt()))
            }
            Algorithm::SlidingLog => LimitKernel::Log(Log::new(self.count, self.period).with_debt(self.max_debt())),
        }
    }

    /// The bucket of these numbers, unless it would take too long to drain.
    const fn bucket(&self) -> Option<Bucket> {
        let queues = matches!(self.algorithm, Algorithm::LeakyBucket);
        Bucket::new(self.count, self.period, self.capacity, queues)
    }

    const fn checked(algorithm: Algorithm, count: u64, period: Duration) -> Result<Limit, Invalid> {
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

    const fn with_capacity(mut self, field: &'static str, of: Algorithm, capacity: u64) -> Result<Limit, Invalid> {
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
            Algorithm::TokenBucket | Algorithm::LeakyBucket => match self.bucket() {
                Some(bucket) => bucket.debt_bound(),
                None => 0,
            },
            Algorithm::SlidingCounter => Window::new(self.count, self.period, Style::Sliding).debt_bound(),
            Algorithm::FixedWindow | Algorithm::SlidingLog => Limit::MAX_COUNT,
        };
        if bound < Limit::MAX_COUNT { bound } else { Limit::MAX_COUNT }
    }

    /// The same algorithm with other numbers, if they make a limit.
    pub(crate) fn with_numbers(self, count: u64, period: Duration, capacity: u64) -> Option<Limit> {
        let limit = Limit::checked(self.algorithm, count, period).ok()?;
        let limit = match self.algorithm {
            Algorithm::TokenBucket => limit.with_capacity("burst", Algorithm::TokenBucket, capacity).ok()?,
            Algorithm::LeakyBucket => limit.with_capacity("queue", Algorithm::LeakyBucket, capacity).ok()?,
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => limit,
        };
        let limit = Limit { form: self.form, ..limit };
        match self.debt {
            ONE_CAPACITY => Some(limit),
            debt => limit.with_debt(debt.min(limit.debt_bound())).ok(),
        }
    }

    const fn starting_with_first_request(mut self) -> Result<Limit, Invalid> {
        let (field, instead) = ("from-first", Algorithm::FixedWindow);
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
    NotApplicable { field: &'static str, algorithm: Algorithm, instead: Algorithm },
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
