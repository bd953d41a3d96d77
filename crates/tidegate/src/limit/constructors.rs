//! Constructors and settings of a limit: literals, which fail to compile on invalid
//! numbers, and the `try_` ones.

use std::time::Duration;

use super::{Form, Limit, valid};
use crate::algorithm::Algorithm;
use crate::error::ConfigError;

impl Limit {
    /// A token bucket of `count` per second, all of which may come at once.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(2));
    /// assert!(limiter.allow("alice") && limiter.allow("alice") && !limiter.allow("alice"));
    /// ```
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
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_minute(100).to_string(), "100/min");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn per_minute(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(60))
    }

    /// A token bucket of `count` per hour.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_hour(100).to_string(), "100/h");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn per_hour(count: u64) -> Limit {
        Limit::token_bucket(count, Duration::from_secs(3_600))
    }

    /// A token bucket of `count` per day of 24 hours.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_day(100).to_string(), "100/day");
    /// ```
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
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// const API: Limit = Limit::token_bucket(10, Duration::from_secs(5)).burst(20);
    /// assert_eq!(API.to_string(), "10/5s burst 20");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn token_bucket(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(Algorithm::TokenBucket, count, period))
    }

    /// A leaky bucket: the same bound as a token bucket whose burst is the
    /// [`queue`](Limit::queue) (the count unless set), and every admitted
    /// request is told the [`delay`](crate::Decision::delay) that makes the
    /// outflow even.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::leaky_bucket(2, Duration::from_secs(1)).queue(3));
    /// let delays = limiter.check_many(["printer"; 2])?.iter().map(|d| d.delay()).collect::<Vec<_>>();
    /// assert!(delays[0].is_zero() && delays[1] > Duration::from_millis(400));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn leaky_bucket(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(Algorithm::LeakyBucket, count, period))
    }

    /// A fixed window: at most `count` in every window of the clock, and so
    /// up to twice that across an edge.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::fixed_window(1_000, Duration::from_secs(3_600)).to_string(), "fixed 1000/h");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn fixed_window(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(Algorithm::FixedWindow, count, period))
    }

    /// A sliding window log: at most `count` in any period, wherever it
    /// starts. Keeps up to `count` entries for every key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::sliding_log(5, Duration::from_secs(10)).to_string(), "sliding-log 5/10s");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn sliding_log(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(Algorithm::SlidingLog, count, period))
    }

    /// A sliding window counter: the log, approximated by two counters. At
    /// most `count` in every window of the clock; an adversary can get
    /// `2 * count` into some period, while most traffic sees a few percent of
    /// error. Under steady pressure every window gets its count.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::sliding_counter(5, Duration::from_secs(60)).to_string(), "sliding-counter 5/min");
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn sliding_counter(count: u64, period: Duration) -> Limit {
        valid(Limit::checked(Algorithm::SlidingCounter, count, period))
    }

    /// A limit on requests in flight: at most `count` at a time. A request holds a permit
    /// from when it is [reserved](crate::Limiter::reserve) until it is settled, released, or
    /// `expiry` has passed since it was reserved or renewed. It is a
    /// [sliding log](Limit::sliding_log) of permits, so it keeps up to `count` entries for
    /// every key, and `retry_after` is when the next permits expire: others may be given
    /// back sooner. Every request takes one permit, whatever it costs; one of cost zero
    /// takes nothing and only asks.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::in_flight(1, Duration::from_secs(60)));
    /// let call = limiter.reserve("alice")?.made().expect("admitted");
    /// assert!(limiter.reserve("alice")?.made().is_none());
    /// call.release()?;
    /// assert!(limiter.reserve("alice")?.made().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::try_in_flight(20, Duration::from_secs(60))?.to_string(), "in-flight 20 for 1min");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_in_flight(count: u64, expiry: Duration) -> Result<Limit, ConfigError> {
        let log = Limit::try_sliding_log(count, expiry)?;
        Ok(Limit { form: Form::InFlight, debt: 0, ..log })
    }

    /// [`per_second`](Limit::per_second) of a number that comes from elsewhere.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::try_per_second(100)?, "100/s".parse()?);
    /// assert!(Limit::try_per_second(0).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_second(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(1))
    }

    /// [`per_minute`](Limit::per_minute) of a number that comes from elsewhere.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::try_per_minute(100)?, "100/min".parse()?);
    /// assert!(Limit::try_per_minute(0).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_minute(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(60))
    }

    /// [`per_hour`](Limit::per_hour) of a number that comes from elsewhere.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::try_per_hour(100)?, "100/h".parse()?);
    /// assert!(Limit::try_per_hour(0).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_hour(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(3_600))
    }

    /// [`per_day`](Limit::per_day) of a number that comes from elsewhere.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::try_per_day(100)?, "100/day".parse()?);
    /// assert!(Limit::try_per_day(0).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the number is out of bounds.
    pub fn try_per_day(count: u64) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(count, Duration::from_secs(86_400))
    }

    /// [`token_bucket`](Limit::token_bucket) for numbers that are not literals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::try_token_bucket(5, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "5/10s");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_token_bucket(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(Algorithm::TokenBucket, count, period)
    }

    /// [`leaky_bucket`](Limit::leaky_bucket) for numbers that are not literals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::try_leaky_bucket(5, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "leaky 5/10s");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_leaky_bucket(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(Algorithm::LeakyBucket, count, period)
    }

    /// [`fixed_window`](Limit::fixed_window) for numbers that are not literals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::try_fixed_window(5, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "fixed 5/10s");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_fixed_window(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(Algorithm::FixedWindow, count, period)
    }

    /// [`sliding_log`](Limit::sliding_log) for numbers that are not literals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::try_sliding_log(5, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "sliding-log 5/10s");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_sliding_log(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(Algorithm::SlidingLog, count, period)
    }

    /// [`sliding_counter`](Limit::sliding_counter) for numbers that are not literals.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// let limit = Limit::try_sliding_counter(5, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "sliding-counter 5/10s");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_sliding_counter(count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Limit::try_new(Algorithm::SlidingCounter, count, period)
    }

    /// The factory: a limit of an algorithm chosen at run time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Limit};
    ///
    /// for algorithm in Algorithm::ALL {
    ///     let limit = Limit::try_new(algorithm, 100, Duration::from_secs(60))?;
    ///     assert_eq!(limit.capacity(), 100);
    /// }
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number is zero or out of bounds.
    pub fn try_new(algorithm: Algorithm, count: u64, period: Duration) -> Result<Limit, ConfigError> {
        Ok(Limit::checked(algorithm, count, period)?)
    }

    /// Lets a token bucket save up `burst` instead of its count.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(1).burst(3));
    /// assert_eq!(limiter.peek("alice")?.remaining(), Some(3));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second), and on another algorithm.
    #[must_use]
    pub const fn burst(self, burst: u64) -> Limit {
        valid(self.with_capacity("burst", Algorithm::TokenBucket, burst))
    }

    /// [`burst`](Limit::burst) for a number that is not a literal.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// let limit: Limit = "fixed 5/s".parse()?;
    /// assert!(limit.try_burst(10).is_err(), "only a token bucket has a burst");
    /// assert_eq!(Limit::per_second(5).try_burst(10)?.capacity(), 10);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If it is zero or out of bounds, or this is not a token bucket.
    pub fn try_burst(self, burst: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_capacity("burst", Algorithm::TokenBucket, burst)?)
    }

    /// Lets a leaky bucket hold `queue` units instead of its count, the one
    /// that is leaving included.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// const PRINTER: Limit = Limit::leaky_bucket(2, Duration::from_secs(1)).queue(8);
    /// assert_eq!((PRINTER.count(), PRINTER.capacity()), (2, 8));
    /// ```
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second), and on another algorithm.
    #[must_use]
    pub const fn queue(self, queue: u64) -> Limit {
        valid(self.with_capacity("queue", Algorithm::LeakyBucket, queue))
    }

    /// [`queue`](Limit::queue) for a number that is not a literal.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// let limit: Limit = "leaky 2/s".parse()?;
    /// assert_eq!(limit.try_queue(8)?.to_string(), "leaky 2/s queue 8");
    /// assert!(limit.try_queue(0).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If it is zero or out of bounds, or this is no leaky bucket.
    pub fn try_queue(self, queue: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_capacity("queue", Algorithm::LeakyBucket, queue)?)
    }

    /// Lets a fixed window start with its first request instead of at a
    /// multiple of the period since the epoch.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::Limit;
    ///
    /// const TRIAL: Limit = Limit::fixed_window(100, Duration::from_secs(86_400)).from_first_request();
    /// assert_eq!(TRIAL.to_string(), "fixed 100/day from-first");
    /// ```
    ///
    /// # Panics
    /// On another algorithm: in a `const`, at compile time.
    #[must_use]
    pub const fn from_first_request(self) -> Limit {
        valid(self.starting_with_first_request())
    }

    /// [`from_first_request`](Limit::from_first_request) without the panic.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert!(Limit::per_second(5).try_from_first_request().is_err());
    /// ```
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
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10).debt(5));
    /// let reported = limiter.report(Request::new("alice").cost(20))?;
    /// assert_eq!(reported.unrecorded(), 5);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Panics
    /// As [`per_second`](Limit::per_second).
    #[must_use]
    pub const fn debt(self, debt: u64) -> Limit {
        valid(self.with_debt(debt))
    }

    /// [`debt`](Limit::debt) for a number that is not a literal.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert_eq!(Limit::per_hour(10).try_debt(5)?.max_debt(), 5);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If it is out of bounds.
    pub fn try_debt(self, debt: u64) -> Result<Limit, ConfigError> {
        Ok(self.with_debt(debt)?)
    }
}
