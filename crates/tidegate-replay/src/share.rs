//! A share of all requests: `0.1%`, exact to a millionth.

use std::fmt;
use std::str::FromStr;

/// So many of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    millionths: u64,
}

/// Words that are no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {text:?} as a share: expected one from 0% to 100% with up to four decimals, such as 0.1%")]
pub struct UnreadableShare {
    text: String,
}

impl Share {
    /// The share of lines that may be lost unless told otherwise: 5%.
    pub const TOLERATED: Share = Share { millionths: 50_000 };

    /// How many of `total` that is, rounded down.
    #[must_use]
    pub fn of(self, total: u64) -> u64 {
        (u128::from(total) * u128::from(self.millionths) / 1_000_000) as u64
    }
}

impl FromStr for Share {
    type Err = UnreadableShare;

    /// ```
    /// use tidegate_replay::Share;
    ///
    /// let share: Share = "0.1%".parse()?;
    /// assert_eq!((share.of(2_999), share.to_string()), (2, "0.1%".to_owned()));
    /// # Ok::<(), tidegate_replay::UnreadableShare>(())
    /// ```
    fn from_str(text: &str) -> Result<Share, UnreadableShare> {
        let read = || {
            let (whole, decimals) = text.strip_suffix('%')?.split_once('.').unwrap_or((text.strip_suffix('%')?, "0"));
            let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            (is_digits(whole) && is_digits(decimals) && decimals.len() <= 4).then_some(())?;
            let millionths = format!("{whole}{decimals:0<4}").parse().ok()?;
            (millionths <= 1_000_000).then_some(Share { millionths })
        };
        read().ok_or_else(|| UnreadableShare { text: text.to_owned() })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.millionths % 10_000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}%", self.millionths / 10_000),
            decimals => write!(f, "{}.{decimals}%", self.millionths / 10_000),
        }
    }
}

impl serde::Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_printed_exactly() {
        for text in ["0%", "0.1%", "12.3456%", "100%", "0.0001%", "50%"] {
            assert_eq!(text.parse::<Share>().map(|share| share.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "1", "%", ".1%", "1.%", "0.00001%", "100.0001%", "-1%", "+1%", "1e1%", "99999999999999999999%"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
