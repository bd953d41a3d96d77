//! Limits in words: what a file says and a log shows.
//!
//! ```text
//! [algorithm] COUNT/[NUMBER]UNIT [burst N | queue N | from-first] [debt N]
//! ```
//! or, for requests in flight, `in-flight COUNT for [NUMBER]UNIT`; or, by the
//! calendar, `COUNT/UNIT in ZONE [from ANCHOR] [debt N]`.
//! The algorithm is `token-bucket` unless named. `per` and spaces may stand for
//! the slash, and `k` and `M` for thousands and millions. Printing gives the
//! shortest words that parse back to the same limit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Form, Limit, ONE_CAPACITY};
use crate::algorithm::Algorithm;
use crate::calendar::Calendar;
use crate::error::ConfigError;

/// What an algorithm is called, the name to print first.
const fn names(algorithm: Algorithm) -> [&'static str; 2] {
    match algorithm {
        Algorithm::TokenBucket => ["token-bucket", "token"],
        Algorithm::LeakyBucket => ["leaky", "leaky-bucket"],
        Algorithm::FixedWindow => ["fixed", "fixed-window"],
        Algorithm::SlidingLog => ["sliding-log", "log"],
        Algorithm::SlidingCounter => ["sliding-counter", "sliding"],
    }
}

/// What a limit on requests in flight begins with.
const IN_FLIGHT: &str = "in-flight";

/// What a unit is called, the name to print first, and its microseconds; the
/// longest first.
const UNITS: [(&[&str], u64); 7] = [
    (&["week", "weeks", "w"], 604_800_000_000),
    (&["day", "days", "d"], 86_400_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["min", "minute", "minutes", "m"], 60_000_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["us", "microsecond", "microseconds"], 1),
];

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names(*self)[0])
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::InFlight => write!(f, "{IN_FLIGHT} {} for ", self.count)?,
            Form::Calendar(calendar) => write!(f, "{}/{calendar}", self.count)?,
            Form::Usual | Form::FromFirst if self.algorithm == Algorithm::TokenBucket => {
                write!(f, "{}/", self.count)?;
            }
            Form::Usual | Form::FromFirst => write!(f, "{} {}/", self.algorithm, self.count)?,
        }
        // A microsecond divides every period, so there is always a unit.
        let is_calendar = matches!(self.form, Form::Calendar(_));
        for (unit, micros) in UNITS.into_iter().filter(|_| !is_calendar) {
            if self.period % micros == 0 {
                match self.period / micros {
                    1 if !self.is_in_flight() => f.write_str(unit[0])?,
                    number => write!(f, "{number}{}", unit[0])?,
                }
                break;
            }
        }
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket if self.capacity == self.count => {}
            Algorithm::TokenBucket => write!(f, " burst {}", self.capacity)?,
            Algorithm::LeakyBucket => write!(f, " queue {}", self.capacity)?,
            Algorithm::FixedWindow if self.starts_with_first_request() => f.write_str(" from-first")?,
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => {}
        }
        if self.debt == ONE_CAPACITY || self.is_in_flight() { Ok(()) } else { write!(f, " debt {}", self.debt) }
    }
}

impl FromStr for Limit {
    type Err = ConfigError;

    /// ```
    /// use tidegate::Limit;
    ///
    /// for words in ["100/min", "10/s burst 20", "sliding-log 5/10s", "leaky 2/s queue 8 debt 4", "fixed 9/day from-first"] {
    ///     assert_eq!(words.parse::<Limit>()?.to_string(), words);
    /// }
    /// let error = "100/fortnight".parse::<Limit>().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"cannot read "100/fortnight" as a limit: expected a unit (us, ms, s, min, h, day, week), found "fortnight""#,
    /// );
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    fn from_str(text: &str) -> Result<Limit, ConfigError> {
        Limit::parse(text)
    }
}

impl Limit {
    /// A limit from words.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// for words in ["5/min", "5 / min", "5 per minute"] {
    ///     assert_eq!(Limit::parse(words)?, Limit::per_minute(5));
    /// }
    /// assert_eq!(Limit::parse("2k/s burst 1M")?, Limit::per_second(2_000).burst(1_000_000));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the words are no limit, or its numbers are out of bounds.
    pub fn parse(text: &str) -> Result<Limit, ConfigError> {
        let slashed = |(index, word)| if index > 0 && word == "per" { "/" } else { word };
        let joined = text
            .split_whitespace()
            .enumerate()
            .map(slashed)
            .collect::<Vec<_>>()
            .join(" ")
            .replace(" / ", "/")
            .replace("/ ", "/")
            .replace(" /", "/");
        Parser { text, words: joined.split_whitespace().peekable() }.limit()
    }
}

const A_RATE: &str = "a rate such as 100/min";

struct Parser<'t> {
    text: &'t str,
    words: std::iter::Peekable<std::str::SplitWhitespace<'t>>,
}

impl<'t> Parser<'t> {
    fn limit(&mut self) -> Result<Limit, ConfigError> {
        if self.words.next_if_eq(&IN_FLIGHT).is_some() {
            return self.in_flight();
        }
        if self.words.clone().any(|word| word == "in") {
            return self.calendar();
        }
        let algorithm = self.algorithm()?;
        let (count, period) = self.rate()?;
        let limit = Limit::try_new(algorithm, count, period)?;
        let (limit, word) = match self.words.next() {
            Some("burst") => (limit.try_burst(self.number("a number after burst", None)?)?, self.words.next()),
            Some("queue") => (limit.try_queue(self.number("a number after queue", None)?)?, self.words.next()),
            Some("from-first") => (limit.try_from_first_request()?, self.words.next()),
            Some(other) if other != "debt" => {
                return Err(self.unreadable("burst N, queue N, from-first, debt N or the end", other));
            }
            word => (limit, word),
        };
        self.ending(limit, word)
    }

    /// The limit, with a debt if that is the next word, and then the end.
    fn ending(&mut self, limit: Limit, word: Option<&'t str>) -> Result<Limit, ConfigError> {
        let limit = match word {
            None => limit,
            Some("debt") => limit.try_debt(self.number("a number after debt", None)?)?,
            Some(other) => return Err(self.unreadable("debt N or the end", other)),
        };
        match self.words.next() {
            None => Ok(limit),
            Some(other) => Err(self.unreadable("the end", other)),
        }
    }

    /// What comes after `in-flight`.
    fn in_flight(&mut self) -> Result<Limit, ConfigError> {
        const EXPIRY: &str = "for and a time after which a permit expires, such as for 60s";
        let count = self.number("a number after in-flight", None)?;
        let (word, period) = (self.words.next().unwrap_or_default(), self.words.next());
        let Some(period) = period.filter(|_| word == "for") else {
            return Err(self.unreadable(EXPIRY, word));
        };
        let limit = Limit::try_in_flight(count, self.period(period)?)?;
        match self.words.next() {
            None => Ok(limit),
            Some(other) => Err(self.unreadable("the end", other)),
        }
    }

    /// A rate by the calendar, which is a fixed window.
    fn calendar(&mut self) -> Result<Limit, ConfigError> {
        if let Some(word) = self.words.next_if(|word| word.starts_with(|first: char| first.is_ascii_alphabetic())) {
            if !names(Algorithm::FixedWindow).contains(&word) {
                return Err(self.unreadable("fixed, or no algorithm, before a limit by the calendar", word));
            }
        }
        let word = self.words.next().unwrap_or_default();
        let Some((count, unit)) = word.split_once('/') else { return Err(self.unreadable(A_RATE, word)) };
        let count = self.number(A_RATE, Some(count))?;
        let mut words = vec![unit];
        while let Some(word) = self.words.next_if(|word| *word != "debt") {
            words.push(word);
        }
        let limit = Limit::by_calendar(count, words.join(" ").parse::<Calendar>()?)?;
        let word = self.words.next();
        self.ending(limit, word)
    }

    fn algorithm(&mut self) -> Result<Algorithm, ConfigError> {
        match self.words.peek().copied() {
            Some(word) if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                self.words.next();
                Algorithm::ALL.into_iter().find(|kind| names(*kind).contains(&word)).ok_or_else(|| {
                    let expected = "an algorithm (token-bucket, leaky, fixed, sliding-log, sliding-counter), in-flight or a \
                                    rate";
                    self.unreadable(expected, word)
                })
            }
            Some(_) | None => Ok(Algorithm::TokenBucket),
        }
    }

    fn rate(&mut self) -> Result<(u64, Duration), ConfigError> {
        let word = self.words.next().unwrap_or_default();
        let Some((count, period)) = word.split_once('/') else {
            return Err(self.unreadable(A_RATE, word));
        };
        Ok((self.number(A_RATE, Some(count))?, self.period(period)?))
    }

    /// A number, or one, and a unit of time.
    fn period(&mut self, period: &'t str) -> Result<Duration, ConfigError> {
        let unit = period.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '_');
        let number = match &period[..period.len() - unit.len()] {
            "" => 1,
            number => self.number("a period such as 10s", Some(number))?,
        };
        let Some((_, micros)) = UNITS.iter().find(|(names, _)| names.contains(&unit)) else {
            let expected = match unit {
                "month" | "quarter" | "year" => "a time zone as well, such as 1000/month in Europe/Berlin or in UTC",
                _ => "a unit (us, ms, s, min, h, day, week)",
            };
            return Err(self.unreadable(expected, unit));
        };
        // Too long a period saturates, and is then refused with its bound.
        Ok(Duration::from_micros(number.saturating_mul(*micros)))
    }

    /// A number: `word`, or else the next one.
    fn number(&mut self, expected: &'static str, word: Option<&'t str>) -> Result<u64, ConfigError> {
        let word = word.or_else(|| self.words.next()).unwrap_or_default();
        let (number, times) = match word.strip_suffix(['k', 'M']) {
            Some(number) if word.ends_with('k') => (number, 1_000),
            Some(number) => (number, 1_000_000),
            None => (word, 1),
        };
        let digits: String = number.chars().filter(|digit| *digit != '_').collect();
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(self.unreadable(expected, word));
        }
        // Only overflow is left: refuse it like any other number too large.
        Ok(digits.parse().unwrap_or(u64::MAX).saturating_mul(times))
    }

    fn unreadable(&self, expected: &'static str, found: &str) -> ConfigError {
        ConfigError::Unreadable { text: self.text.to_owned(), expected, found: found.to_owned() }
    }
}
