//! `CL.THROTTLE` as redis-cell answers it, and `THROTTLE` as throttlecrab does.
//!
//! Both name a token bucket by three numbers and a key. They differ in all else:
//! redis-cell lets one more than `max_burst` pass at once, begins its answer with
//! whether the caller is *limited*, and rounds seconds up from a millisecond on;
//! throttlecrab lets `max_burst` pass, begins with whether the caller is *allowed*,
//! has the last two numbers the other way round, and rounds seconds down.
//!
//! Each set of numbers is a limit of its own: a key
//! whose numbers change begins with a full bucket.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::{ConfigError, Decision, Limit, Micros};

use super::frame::{Arguments, Span};
use super::reply::Replies;
use crate::ask::inline::InlineError;
use crate::ask::request::MAX_TEXT;

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `CL.THROTTLE`.
    RedisCell,
    /// `THROTTLE`.
    Throttlecrab,
}

/// A limit as a command has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// What may pass at once.
    pub capacity: u64,
    /// How many per period.
    pub count: u64,
    /// Seconds.
    pub period: u64,
}

impl Numbers {
    /// The token bucket that they mean.
    ///
    /// # Errors
    /// If one of them is out of the bounds of a [`Limit`].
    pub fn limit(self) -> Result<Limit, ConfigError> {
        Limit::try_token_bucket(self.count, Duration::from_secs(self.period))?.try_burst(self.capacity)
    }
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Whose bucket.
    pub key: Span,
    /// Which bucket.
    pub numbers: Numbers,
    quantity: i64,
    dialect: Dialect,
}

/// Why a command cannot be answered, beginning as the one whose command it is begins its errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThrottleError {
    /// Too few arguments, or too many.
    #[error("Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")]
    Usage,
    /// An argument that is not a whole number.
    #[error("Cell error: Couldn't parse as integer: {0}")]
    NoInteger(String),
    /// A number below its bound.
    #[error("Cell error: {field} is {value}: give at least {least}")]
    TooSmall {
        /// Which.
        field: &'static str,
        /// What was given.
        value: i64,
        /// What would do.
        least: i64,
    },
    /// Numbers of which no limit can be made.
    #[error("Cell error: {0}")]
    NoLimit(InlineError),
    /// Too few arguments, or too many.
    #[error("ERR wrong number of arguments for 'throttle' command")]
    Arity,
    /// An argument that is not a whole number.
    #[error("ERR invalid {field}")]
    Invalid {
        /// Which.
        field: &'static str,
    },
    /// Less than nothing was asked for.
    #[error("ERR negative quantity: {0}")]
    NegativeQuantity(i64),
    /// Zero or less where there must be some.
    #[error("ERR invalid rate limit parameters")]
    InvalidParameters,
    /// Numbers of which no limit can be made.
    #[error("ERR {0}")]
    InvalidLimit(InlineError),
    /// The key is too long.
    #[error("{begin} the key has {found} bytes: give at most {MAX_TEXT}")]
    KeyTooLong {
        /// How errors of the command begin.
        begin: &'static str,
        /// How long it is.
        found: usize,
    },
    /// The client may not give back.
    #[error("{0}")]
    NotPermitted(&'static str),
    /// A quantity for which no wait would be long enough.
    #[error("ERR a quantity of {quantity} can never fit a burst of {burst}: ask for less or raise the burst")]
    Unsatisfiable {
        /// What was asked for.
        quantity: u64,
        /// The most that can pass.
        burst: u64,
    },
}

impl Throttle {
    /// Whether it gives back.
    #[inline]
    #[must_use]
    pub fn is_refund(&self) -> bool {
        self.quantity < 0
    }

    /// Reads the arguments of a command, whose name is the first of them.
    ///
    /// # Errors
    /// If they are not those of the command.
    #[inline]
    pub fn parse(dialect: Dialect, arguments: Arguments<'_>) -> Result<Throttle, ThrottleError> {
        let found = arguments.get(1).map_or(0, <[u8]>::len);
        if found > MAX_TEXT {
            let begin = if dialect == Dialect::RedisCell { "Cell error:" } else { "ERR" };
            return Err(ThrottleError::KeyTooLong { begin, found });
        }
        match dialect {
            Dialect::RedisCell => Throttle::parse_redis_cell(arguments),
            Dialect::Throttlecrab => Throttle::parse_throttlecrab(arguments),
        }
    }

    #[inline]
    fn parse_redis_cell(arguments: Arguments<'_>) -> Result<Throttle, ThrottleError> {
        let (5 | 6, Some(key)) = (arguments.count(), arguments.span(1)) else { return Err(ThrottleError::Usage) };
        let number = |at| {
            let text = arguments.get(at).unwrap_or_default();
            parse_integer(text).ok_or_else(|| ThrottleError::NoInteger(String::from_utf8_lossy(text).into_owned()))
        };
        let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
        let quantity = if arguments.count() == 6 { number(5)? } else { 1 };
        let at_least = |field, value: i64, least: i64| {
            let enough = u64::try_from(value).ok().filter(|_| value >= least);
            enough.ok_or(ThrottleError::TooSmall { field, value, least })
        };
        let numbers = Numbers {
            capacity: at_least("max_burst", max_burst, 0)? + 1,
            count: at_least("count per period", count, 1)?,
            period: at_least("period", period, 1)?,
        };
        Ok(Throttle { key, numbers, quantity, dialect: Dialect::RedisCell })
    }

    fn parse_throttlecrab(arguments: Arguments<'_>) -> Result<Throttle, ThrottleError> {
        let (5 | 6, Some(key)) = (arguments.count(), arguments.span(1)) else { return Err(ThrottleError::Arity) };
        let number = |at, field| arguments.get(at).and_then(parse_integer).ok_or(ThrottleError::Invalid { field });
        let numbers = [number(2, "max_burst")?, number(3, "count_per_period")?, number(4, "period")?];
        let quantity = if arguments.count() == 6 { number(5, "quantity")? } else { 1 };
        if quantity < 0 {
            return Err(ThrottleError::NegativeQuantity(quantity));
        }
        let [capacity, count, period] = numbers.map(|number| u64::try_from(number).unwrap_or(0));
        if capacity == 0 || count == 0 || period == 0 {
            return Err(ThrottleError::InvalidParameters);
        }
        if quantity.unsigned_abs() > capacity {
            return Err(ThrottleError::Unsatisfiable { quantity: quantity.unsigned_abs(), burst: capacity });
        }
        let numbers = Numbers { capacity, count, period };
        Ok(Throttle { key, numbers, quantity, dialect: Dialect::Throttlecrab })
    }

    /// Why there is no such limit, in the words of the dialect.
    #[must_use]
    pub fn no_limit(&self, error: InlineError) -> ThrottleError {
        match self.dialect {
            Dialect::RedisCell => ThrottleError::NoLimit(error),
            Dialect::Throttlecrab => ThrottleError::InvalidLimit(error),
        }
    }

    /// What to ask of the limit. A quantity that can never pass only looks,
    /// and a negative one gives back.
    #[inline]
    #[must_use]
    pub fn verb_and_cost(&self) -> (Verb, u64) {
        let cost = self.quantity.unsigned_abs();
        if self.quantity < 0 {
            (Verb::Refund, cost.min(self.numbers.capacity))
        } else if self.never_passes() {
            (Verb::Peek, 0)
        } else {
            (Verb::Charge, cost)
        }
    }

    #[inline]
    fn never_passes(&self) -> bool {
        self.quantity > 0 && self.quantity.unsigned_abs() > self.numbers.capacity
    }

    /// Writes the result.
    #[inline]
    pub fn answer(&self, verdict: &ThrottleResult, replies: &mut Replies) {
        let limit = signed(self.numbers.capacity);
        let remaining = signed(verdict.remaining);
        replies.five(match self.dialect {
            Dialect::RedisCell => {
                let allowed = verdict.allowed && !self.never_passes();
                let waits = !allowed && !self.never_passes();
                let retry_after = if waits { seconds_of_redis_cell(verdict.retry_after) } else { -1 };
                [i64::from(!allowed), limit, remaining, retry_after, seconds_of_redis_cell(verdict.reset_after)]
            }
            Dialect::Throttlecrab => {
                let retry_after = signed(verdict.retry_after.get() / SECOND);
                [i64::from(verdict.allowed), limit, remaining, self.reset_of_throttlecrab(verdict), retry_after]
            }
        });
    }

    /// throttlecrab counts from when the last unit of the bucket would go at an
    /// even pace, and adds the whole tolerance: later than the bucket is
    /// full again, by all units but two.
    fn reset_of_throttlecrab(&self, verdict: &ThrottleResult) -> i64 {
        let Numbers { capacity, count, period } = self.numbers;
        let (count, period) = (i128::from(count), i128::from(period) * i128::from(SECOND));
        let counted = i128::from(verdict.reset_after.get()) * count + (i128::from(capacity) - 2) * period;
        i64::try_from(counted.max(0) / count / i128::from(SECOND)).unwrap_or(i64::MAX)
    }
}

/// What both ways of asking a store have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleResult {
    /// Whether it may pass.
    pub allowed: bool,
    /// How many more would.
    pub remaining: u64,
    /// When it would.
    pub retry_after: Micros,
    /// When the bucket is full again.
    pub reset_after: Micros,
}

impl From<&Verdict> for ThrottleResult {
    #[inline]
    fn from(verdict: &Verdict) -> ThrottleResult {
        let Verdict { allowed, remaining, retry_after, reset_after, .. } = *verdict;
        ThrottleResult { allowed, remaining, retry_after, reset_after }
    }
}

impl From<Decision> for ThrottleResult {
    fn from(decision: Decision) -> ThrottleResult {
        ThrottleResult {
            allowed: decision.is_allowed(),
            remaining: decision.remaining().unwrap_or(u64::MAX),
            retry_after: decision.retry_after().map_or(Micros::MAX, Micros::from_duration),
            reset_after: decision.reset_after().map_or(Micros::MAX, Micros::from_duration),
        }
    }
}

const SECOND: u64 = 1_000_000;
const MILLISECOND: u64 = 1_000;

/// A part of a second counts as a whole one, if it is a millisecond.
#[inline]
fn seconds_of_redis_cell(time: Micros) -> i64 {
    let time = time.get();
    signed(time / SECOND + u64::from(time % SECOND >= MILLISECOND))
}

#[inline]
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A whole number as Rust's `parse` takes it, which both modules use.
#[inline]
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    match text {
        [] => None,
        // No number of up to 18 digits is too large.
        [b'0'..=b'9', ..] if text.len() <= 18 => text.iter().try_fold(0, |number, digit| match digit {
            b'0'..=b'9' => Some(number * 10 + i64::from(digit - b'0')),
            _ => None,
        }),
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}
