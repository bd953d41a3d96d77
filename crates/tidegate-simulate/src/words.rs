//! Rates and times in the words that limits have: `50/s`, `10min`, `400ms`.
//!
//! Limits read and print them already; here is only what stands around that.

use std::time::Duration;

use tidegate::{Limit, Micros};

/// So many in such a time, both at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    /// Microseconds.
    pub(crate) period: u64,
}

impl Rate {
    /// A rate such as `50/s`.
    pub(crate) fn read(word: &str) -> Option<Rate> {
        // One word, so that it can only be a rate.
        let limit: Limit = word.parse().ok().filter(|_| !word.contains(char::is_whitespace))?;
        Some(Rate { count: limit.count(), period: Micros::from_duration(limit.period()).get() })
    }

    pub(crate) fn print(self) -> String {
        Limit::try_token_bucket(self.count, Duration::from_micros(self.period))
            .map_or_else(|_| format!("{}/{}us", self.count, self.period), |limit| limit.to_string())
    }
}

/// A time in words, such as `90s`, `400ms` or `2h`: up to ten years, in
/// microseconds.
#[must_use]
pub fn read_time(word: &str) -> Option<Micros> {
    Rate::read(&format!("1/{word}")).map(|rate| Micros::new(rate.period))
}

/// A time in the words that [`read_time`] reads: the largest unit that it is a
/// whole number of.
#[must_use]
pub fn print_time(time: Micros) -> String {
    if time == Micros::ZERO {
        return "0s".to_owned();
    }
    let rate = Rate { count: 1, period: time.get() }.print();
    let words = rate.strip_prefix("1/").unwrap_or(&rate);
    let number = if words.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
    format!("{number}{words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_they_are_read() {
        for words in ["1s", "90s", "400ms", "2h", "1day", "1week", "17us", "0s"] {
            let time = read_time(words).unwrap_or_default();
            assert_eq!(print_time(time), words);
        }
        assert_eq!(print_time(Micros::new(120_000_000)), "2min");
        for words in ["", "s s", "5", "5 s", "1/5s", "-1s", "0s", "1.5s", "1000000weeks"] {
            assert_eq!(read_time(words), None, "{words}");
        }
    }
}
