//! Times as a trace writes them: a decimal number and a unit, exact to the
//! microsecond.

use std::fmt;

use tidegate::Micros;

/// The units, and their microseconds.
const UNITS: [(&str, u64); 5] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000)];

/// What to say where a time is missing.
pub(super) const A_TIME: &str = "a time such as 0ms, 1.9s or 1500us";

/// Reads a time; none if it is not one, is finer than a microsecond, or is
/// beyond [`Micros::MAX`].
pub(super) fn read(word: &str) -> Option<Micros> {
    let split = word.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = word.split_at(split);
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| if is_number(text) { text.parse::<u64>().ok() } else { None };
    let scale = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = digits(fraction)?.checked_mul(*unit)?;
    if !fraction.is_multiple_of(scale) {
        return None;
    }
    let micros = digits(whole)?.checked_mul(*unit)?.checked_add(fraction / scale)?;
    (micros <= Micros::MAX.get()).then(|| Micros::new(micros))
}

/// Whether a text is digits, and nothing else.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A time, to be printed in the unit of its size: `0s`, `1500us`, `1.9s`.
pub(super) struct Time(pub(super) Micros);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.get();
        let (unit, size, places) = match micros {
            0 | 1_000_000.. => ("s", 1_000_000, 6),
            1_000..1_000_000 => ("ms", 1_000, 3),
            1..1_000 => ("us", 1, 0),
        };
        write!(f, "{}", micros / size)?;
        if !micros.is_multiple_of(size) {
            let fraction = format!("{:0places$}", micros % size);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str(unit)
    }
}

#[cfg(test)]
mod tests {
    use tidegate::Micros;

    use super::{Time, read};

    #[test]
    fn times_are_read_to_the_microsecond() {
        let table = [
            ("0ms", 0),
            ("1.9s", 1_900_000),
            ("1500us", 1_500),
            ("0.000001s", 1),
            ("2min", 120_000_000),
            ("1.5h", 5_400_000_000),
            ("9007199254740991us", (1 << 53) - 1),
        ];
        for (text, micros) in table {
            assert_eq!(read(text), Some(Micros::new(micros)), "{text}");
        }
        for text in ["", "5", "s", ".5s", "5.s", "1.2.3s", "-1s", "1e3s", "0.5us", "9007199254740992us", "1 s", "1ns"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_printed_in_the_unit_of_their_size() {
        let table = [
            (0, "0s"),
            (7, "7us"),
            (1_500, "1.5ms"),
            (160_000, "160ms"),
            (1_900_000, "1.9s"),
            (3_600_000_001, "3600.000001s"),
        ];
        for (micros, text) in table {
            assert_eq!(Time(Micros::new(micros)).to_string(), text);
            assert_eq!(read(text), Some(Micros::new(micros)));
        }
    }
}
