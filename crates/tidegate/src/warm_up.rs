//! Warm-up: from how much to how much a new key's limit climbs, and in what time.

mod kernel;

use std::fmt;
use std::str::FromStr;

pub(crate) use self::kernel::Warming;
use crate::error::ConfigError;
use crate::limit::Limit;
use crate::time::Micros;

/// How a new key's limit climbs: from `start` units per period, evenly, to
/// the whole limit after some time.
///
/// ```
/// use tidegate::WarmUp;
///
/// let climb: WarmUp = "10 over 5min".parse()?;
/// assert_eq!((climb.start(), climb.over().to_duration().as_secs()), (10, 300));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarmUp {
    start: u64,
    over: Micros,
}

impl WarmUp {
    /// A climb from `start` over this time, which is also how long an
    /// idle key is remembered.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::WarmUp;
    ///
    /// assert_eq!(WarmUp::new(10, Duration::from_secs(300))?.to_string(), "10 over 5min");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If `start` or the time is zero, or above the bounds of a [`Limit`].
    pub fn new(start: u64, over: std::time::Duration) -> Result<WarmUp, ConfigError> {
        // What is no limit is no warm-up, for the same reasons.
        Limit::try_token_bucket(start, over)?;
        Ok(WarmUp { start, over: Micros::from_duration(over) })
    }

    /// Units per period of a new key.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How long it takes.
    ///
    /// ```
    /// use tidegate::WarmUp;
    ///
    /// assert_eq!("10 over 5min".parse::<WarmUp>()?.over().to_duration().as_secs(), 300);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn over(&self) -> Micros {
        self.over
    }
}

/// In words: `10 over 5min`.
impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The words of a limit say a time as people do.
        match Limit::try_fixed_window(self.start, self.over.to_duration()).map(|limit| limit.to_string()) {
            Ok(words) => {
                let time = words.rsplit('/').next().unwrap_or_default();
                let one = if time.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
                write!(f, "{} over {one}{time}", self.start)
            }
            Err(_) => Err(fmt::Error),
        }
    }
}

/// From words such as `10 over 5min`.
impl FromStr for WarmUp {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<WarmUp, ConfigError> {
        let unreadable = || ConfigError::UnreadableWarmUp { text: text.to_owned() };
        let (start, over) = text.split_once(" over ").ok_or_else(unreadable)?;
        let is_time = over.trim_start().starts_with(|first: char| first.is_ascii_digit());
        let words = if is_time { format!("{}/{}", start.trim(), over.trim()) } else { return Err(unreadable()) };
        let limit: Limit = words.parse().map_err(|error| match error {
            ConfigError::Unreadable { .. } => unreadable(),
            error => error,
        })?;
        WarmUp::new(limit.count(), limit.period())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn words_are_read_and_printed() {
        for words in ["10 over 5min", "1 over 90s", "1000 over 1day"] {
            let warm_up: WarmUp = words.parse().expect("a warm-up");
            assert_eq!(warm_up.to_string().parse(), Ok(warm_up), "{words}");
        }
        assert_eq!(WarmUp::new(10, Duration::from_secs(300)).map(|w| w.to_string()).as_deref(), Ok("10 over 5min"));
        for words in [
            "",
            "10",
            "10 over",
            "over 5min",
            "10 over min",
            "0 over 5min",
            "10 over 0s",
            "10 over 5 parsecs",
            "1/s 2 over 5s",
        ] {
            assert!(words.parse::<WarmUp>().is_err(), "{words}");
        }
    }
    #[test]
    fn a_warm_up_says_what_it_was_made_of() {
        let warm_up: WarmUp = "10 over 5min".parse().expect("a warm-up");
        assert_eq!((warm_up.start(), warm_up.over()), (10, Micros::new(300_000_000)));
    }
}
