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

/// A time to three digits, in the unit that suits it; [`read_time`] may not
/// take it.
#[must_use]
pub fn print_rounded(time: Micros) -> String {
    let micros = time.get();
    let step = 10u64.pow(micros.max(1).ilog10().saturating_sub(2));
    // Above a minute digits after the point are of another base.
    let step = if micros > 60_000_000 { step.max(1_000_000) } else { step };
    let rounded = micros.saturating_add(step / 2) / step * step;
    match rounded {
        0..1_000 => format!("{rounded}us"),
        1_000..1_000_000 => decimal(rounded, 1_000, "ms"),
        1_000_000..60_000_000 => decimal(rounded, 1_000_000, "s"),
        _longer => print_time(Micros::new(rounded)),
    }
}

pub(crate) fn decimal(value: u64, unit: u64, name: &str) -> String {
    let (whole, rest) = (value / unit, value % unit * 1_000 / unit);
    let fraction = format!("{rest:03}");
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{name}"),
        digits => format!("{whole}.{digits}{name}"),
    }
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
    #[test]
    fn times_are_rounded_to_be_read() {
        let times = [17, 1_234, 999_600, 12_345_678, 119_600_000].map(Micros::new).map(print_rounded);
        assert_eq!(times, ["17us", "1.23ms", "1s", "12.3s", "2min"]);
    }
}
