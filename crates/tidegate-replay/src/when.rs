//! Times as logs spell them, and back.
//!
//! A time is microseconds since the Unix epoch. What is finer is cut off;
//! without a zone it is UTC; days are those of the Gregorian calendar. Limits
//! know no time before 1970, nor after [`Micros::LATEST`].

use std::fmt;

use tidegate::Micros;

const SECOND: i64 = 1_000_000;
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Why a text is not a time that limits know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    #[error(
        "the time cannot be read: expected one such as 10/Oct/2000:13:55:36 -0700, 2000-10-10T20:55:36Z or 971211336"
    )]
    Unreadable,
    #[error("the time is before 1970 or after 2112, which limits do not know")]
    OutOfRange,
}

/// The instant that a text means.
///
/// | spelling | as in |
/// |---|---|
/// | `10/Oct/2000:13:55:36 -0700` | the common log format |
/// | `2000-10-10T20:55:36.123Z`, `2000-10-10 20:55:36,123+02:00` | ISO 8601, RFC 3339 |
/// | `Tue, 10 Oct 2000 20:55:36 GMT` | HTTP |
/// | `971211336`, `971211336.123`, and in thousandths, millionths, billionths | seconds since 1970 |
pub(crate) fn parse(text: &[u8]) -> Result<Micros, TimeError> {
    let text = text.trim_ascii();
    let micros = match text {
        [_, _, b'/', ..] => common(text),
        [_, _, _, _, b'-', ..] => iso(text),
        [_, _, _, b',', b' ', rest @ ..] => http(rest),
        _ => epoch(text),
    };
    let micros = u64::try_from(micros.ok_or(TimeError::Unreadable)?).map_err(|_| TimeError::OutOfRange)?;
    if micros > Micros::LATEST.get() { Err(TimeError::OutOfRange) } else { Ok(Micros::new(micros)) }
}

/// `10/Oct/2000:13:55:36 -0700`
fn common(text: &[u8]) -> Option<i64> {
    let mut text = Reader(text);
    let (days, clock) = text.day_first(b"//:")?;
    at(days, clock, text.zone()?)
}

/// `2000-10-10T20:55:36.123Z`
fn iso(text: &[u8]) -> Option<i64> {
    let mut text = Reader(text);
    let year = text.digits(4)?;
    text.expect(b'-')?;
    let month = text.digits(2)?;
    text.expect(b'-')?;
    let day = text.digits(2)?;
    let clock = match text.0 {
        [] => 0,
        [b'T' | b't' | b' ', rest @ ..] => {
            text.0 = rest;
            text.clock()?
        }
        _ => return None,
    };
    let zone = text.zone()?;
    at(days(year, month, day)?, clock, zone)
}

/// `10 Oct 2000 20:55:36 GMT`
fn http(text: &[u8]) -> Option<i64> {
    let mut text = Reader(text);
    let (days, clock) = text.day_first(b"   ")?;
    (text.0 == b" GMT").then_some(())?;
    at(days, clock, 0)
}

/// Since the epoch, in a unit that the size of the number tells: seconds up to
/// the year 5138, then thousandths, millionths, billionths.
fn epoch(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut text = Reader(text);
    let whole = text.number()?;
    let fraction = text.fraction(b".")?;
    text.0.is_empty().then_some(())?;
    let micros = match whole {
        0..100_000_000_000 => whole * SECOND + fraction,
        100_000_000_000..100_000_000_000_000 => whole * 1_000 + fraction / 1_000,
        100_000_000_000_000..100_000_000_000_000_000 => whole,
        _ => whole / 1_000,
    };
    Some(if negative { -micros } else { micros })
}

/// What of a text is still to be read.
struct Reader<'t>(&'t [u8]);

impl Reader<'_> {
    /// The day and the time of `10/Oct/2000:13:55:36`, with these bytes between its parts.
    fn day_first(&mut self, between: &[u8; 3]) -> Option<(i64, i64)> {
        let day = self.digits(2)?;
        self.expect(between[0])?;
        let month = self.month()?;
        self.expect(between[1])?;
        let year = self.digits(4)?;
        self.expect(between[2])?;
        Some((days(year, month, day)?, self.clock()?))
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == byte).then_some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        let digit = |number: i64, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'));
        digits.iter().try_fold(0, digit)
    }

    fn number(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        // None and too many are not a number.
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn month(&mut self) -> Option<i64> {
        let (name, rest) = self.0.split_first_chunk::<3>()?;
        self.0 = rest;
        MONTHS.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, month)| month)
    }

    /// Microseconds after midnight. A leap second is the first of the next
    /// minute, as it is in Unix time.
    fn clock(&mut self) -> Option<i64> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        let mut second = 0;
        if let [b':', rest @ ..] = self.0 {
            self.0 = rest;
            second = self.digits(2)?;
        }
        (hour < 24 && minute < 60 && second <= 60).then_some(())?;
        Some(((hour * 60 + minute) * 60 + second) * SECOND + self.fraction(b".,")?)
    }

    /// A fraction of a second in microseconds, if one of these points begins it.
    fn fraction(&mut self, points: &[u8]) -> Option<i64> {
        let Some((_, digits)) = self.0.split_first().filter(|(first, _)| points.contains(first)) else {
            return Some(0);
        };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = digits.split_at(count);
        (!digits.is_empty()).then_some(())?;
        self.0 = rest;
        let six = digits.iter().copied().chain(std::iter::repeat(b'0')).take(6);
        Some(six.fold(0, |micros, digit| micros * 10 + i64::from(digit - b'0')))
    }

    /// The rest, as microseconds east of Greenwich.
    fn zone(&mut self) -> Option<i64> {
        let text = self.0.trim_ascii_start();
        let (sign, text) = match text {
            b"" | b"Z" | b"z" | b"UTC" | b"GMT" => return Some(0),
            [b'+', rest @ ..] => (1, rest),
            [b'-', rest @ ..] => (-1, rest),
            _ => return None,
        };
        let mut text = Reader(text);
        let hours = text.digits(2)?;
        if let [b':', rest @ ..] = text.0 {
            text.0 = rest;
        }
        let minutes = if text.0.is_empty() { 0 } else { text.digits(2)? };
        (text.0.is_empty() && hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60 * SECOND)
    }
}

fn at(days: i64, clock: i64, zone: i64) -> Option<i64> {
    Some(days * 86_400 * SECOND + clock - zone)
}

/// Days since the epoch. Years are counted from March, so that the leap day is
/// the last of its year; 400 of them have 146,097 days.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=length).contains(&day).then_some(())?;
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
    Some(cycle * 146_097 + year * 365 + year / 4 - year / 100 + of_year - 719_468)
}

/// An instant in UTC, as RFC 3339 has it, to the second or as fine as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc(pub Micros);

impl Utc {
    /// Year, month, day.
    #[must_use]
    pub fn date(self) -> (i64, i64, i64) {
        let days = (self.0.get() / 86_400_000_000) as i64 + 719_468;
        let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let march = (5 * of_year + 2) / 153;
        let month = if march < 10 { march + 3 } else { march - 9 };
        (cycle * 400 + year + i64::from(month <= 2), month, of_year - (153 * march + 2) / 5 + 1)
    }

    /// Hour, minute, second.
    #[must_use]
    pub fn clock(self) -> (u64, u64, u64) {
        let seconds = self.0.get() / 1_000_000 % 86_400;
        (seconds / 3_600, seconds / 60 % 60, seconds % 60)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.clock());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match self.0.get() % 1_000_000 {
            0 => {}
            micros if micros % 1_000 == 0 => write!(f, ".{:03}", micros / 1_000)?,
            micros => write!(f, ".{micros:06}")?,
        }
        f.write_str("Z")
    }
}

impl serde::Serialize for Utc {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        parse(text.as_bytes()).map_or_else(|error| format!("{error:?}"), |at| Utc(at).to_string())
    }

    #[test]
    fn every_usual_spelling_is_the_same_instant() {
        for text in [
            "10/Oct/2000:13:55:36 -0700",
            "2000-10-10T20:55:36Z",
            "2000-10-10 20:55:36",
            "2000-10-10T22:55:36+02:00",
            "2000-10-11T02:25:36+0530",
            "Tue, 10 Oct 2000 20:55:36 GMT",
            "971211336",
            "971211336.0",
            "971211336000",
            "971211336000000",
            "971211336000000000",
        ] {
            assert_eq!(shown(text), "2000-10-10T20:55:36Z", "{text}");
        }
    }

    #[test]
    fn fractions_are_kept_to_the_microsecond() {
        for (text, shows) in [
            ("2024-02-29T23:59:59.9", "2024-02-29T23:59:59.900Z"),
            ("2024-02-29 23:59:59,123456789 +00:00", "2024-02-29T23:59:59.123456Z"),
            ("1709251199.123456", "2024-02-29T23:59:59.123456Z"),
            ("1709251199123", "2024-02-29T23:59:59.123Z"),
            ("1709251199123456789", "2024-02-29T23:59:59.123456Z"),
            ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
            ("2024-03-01", "2024-03-01T00:00:00Z"),
            ("2024-03-01T10:20Z", "2024-03-01T10:20:00Z"),
        ] {
            assert_eq!(shown(text), shows, "{text}");
        }
    }

    #[test]
    fn times_out_of_range_are_reported_separately() {
        for text in
            ["31/Dec/1969:23:59:59 +0000", "1970-01-01T00:00:00+00:01", "-1", "2113-01-01", "0001-01-01T00:00:00Z"]
        {
            assert_eq!(parse(text.as_bytes()), Err(TimeError::OutOfRange), "{text}");
        }
        for text in [
            "",
            "-",
            "now",
            "30/Feb/2024:00:00:00 +0000",
            "29/Feb/2023:00:00:00 +0000",
            "2024-13-01",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00+25:00",
            "1e9",
            "12345678901234567890",
            "2024-01-01T00:00:00.Z",
            "29/Feb/2100:00:00:00 +0000",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(TimeError::Unreadable), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(micros in 0..=Micros::LATEST.get()) {
            let at = Micros::new(micros);
            prop_assert_eq!(parse(Utc(at).to_string().as_bytes()), Ok(at));
        }

        #[test]
        fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn nothing_like_a_time_makes_it_panic(text in "[0-9]{1,4}[-/][0-9A-Za-z]{2,3}[-/][0-9]{2,4}[T: ][0-9:.,+-]{0,30}") {
            let _ = parse(text.as_bytes());
        }
    }
}
