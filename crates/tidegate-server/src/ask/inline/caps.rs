//! How large a limit that comes with a request may be.
//!
//! The caller chooses its numbers, so the operator caps them: a long period, or
//! a bucket that takes long to refill, is a state that stays live as long.

use std::time::Duration;

use tidegate::{Algorithm, ConfigError, Limit};

use crate::settings::Settings;

/// What the operator permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    is_off: bool,
    max_period: Duration,
    max_count: u64,
}

/// Why a limit that came with a request is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InlineError {
    /// It is no limit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// None is.
    #[error("this server takes no limits from requests (--no-inline): leave the limit out, and the policy decides")]
    Off,
    /// Its period is too long.
    #[error("the limit's period is {period:?}: this server takes at most {bound:?} (--inline-max-period)")]
    Period {
        /// What was given.
        period: Duration,
        /// The longest that is taken.
        bound: Duration,
    },
    /// Its bucket is too large for its rate.
    #[error("the limit's bucket takes {refill:?} to refill: this server takes at most {bound:?} (--inline-max-period)")]
    Refill {
        /// What was given.
        refill: Duration,
        /// The longest that is taken.
        bound: Duration,
    },
    /// It is too high.
    #[error("the limit's count or burst is {count}: this server takes at most {bound} (--inline-max-count)")]
    Count {
        /// What was given.
        count: u64,
        /// The largest that is taken.
        bound: u64,
    },
}

impl Caps {
    pub(crate) fn of(settings: &Settings) -> Caps {
        let Settings { no_inline, inline_max_period, inline_max_count, .. } = *settings;
        Caps { is_off: no_inline, max_period: inline_max_period, max_count: inline_max_count }
    }

    /// Whether a limit is within all of them.
    pub(super) fn check(&self, limit: Limit) -> Result<(), InlineError> {
        self.check_count(limit.count().max(limit.capacity()))?;
        let (period, bound) = (limit.period(), self.max_period);
        if period > bound {
            return Err(InlineError::Period { period, bound });
        }
        let refill = refill(limit);
        if refill > bound { Err(InlineError::Refill { refill, bound }) } else { Ok(()) }
    }

    /// Whether a count is within its cap, whatever the period.
    pub(crate) fn check_count(&self, count: u64) -> Result<(), InlineError> {
        match count {
            _ if self.is_off => Err(InlineError::Off),
            _ if count > self.max_count => Err(InlineError::Count { count, bound: self.max_count }),
            _ => Ok(()),
        }
    }
}

/// How long a full bucket takes to be as new; for others, the period.
fn refill(limit: Limit) -> Duration {
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let micros = limit.period().as_micros() * u128::from(limit.capacity()) / u128::from(limit.count());
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        }
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => limit.period(),
    }
}

#[cfg(test)]
impl Default for Caps {
    fn default() -> Caps {
        Caps::of(&Settings::default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn limits_within_the_caps_are_taken_and_no_others() {
        let caps = Caps::default();
        let check = |words: &str| caps.check(words.parse().unwrap());
        for words in ["1/day", "1000000/day", "1/h burst 24", "leaky 1/h queue 24", "sliding 5/day", "fixed 1/24h"] {
            assert_eq!(check(words), Ok(()), "{words}");
        }
        for (words, flag) in [
            ("1/2d", "--inline-max-period"),
            ("fixed 1/week", "--inline-max-period"),
            ("1/h burst 25", "--inline-max-period"),
            ("leaky 1/h queue 25", "--inline-max-period"),
            ("1000001/s", "--inline-max-count"),
            ("1000000/s burst 1000001", "--inline-max-count"),
        ] {
            let error = check(words).unwrap_err().to_string();
            assert!(error.contains(flag), "{words}: {error}");
        }
    }

    #[test]
    fn a_server_that_takes_none_says_so_whatever_comes() {
        let caps = Caps::of(&Settings { no_inline: true, ..Settings::default() });
        assert_eq!(caps.check("1/s".parse().unwrap()), Err(InlineError::Off));
        assert_eq!(caps.check_count(u64::MAX), Err(InlineError::Off));
    }
}
