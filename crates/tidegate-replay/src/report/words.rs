//! Numbers and times as people read them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::headroom::OVER;

/// `1,234,567`
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12.3%`: with as many decimals as it takes to see it.
pub(super) fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0%".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part == whole => "100%".to_owned(),
        0.1.. => format!("{:.1}%", percent.min(99.9)),
        0.001.. => format!("{percent:.3}%"),
        _ => "<0.001%".to_owned(),
    }
}

/// What a key used of its limit.
pub(super) fn peak(thousandths: u16) -> String {
    if thousandths >= OVER { "refused".to_owned() } else { format!("{}%", thousandths / 10) }
}

/// `1 h 5 min`: the two largest units, and one below a second.
pub(super) fn duration(duration: Duration) -> String {
    const UNITS: [(&str, u128); 6] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    let micros = duration.as_micros();
    let Some(first) = UNITS.iter().position(|(_, unit)| micros >= *unit) else { return "0 s".to_owned() };
    let (name, unit) = UNITS[first];
    let mut text = format!("{} {name}", micros / unit);
    let next = UNITS.get(first + 1).filter(|(_, smaller)| unit > 1_000 && micros % unit >= *smaller);
    if let Some((name, smaller)) = next {
        text += &format!(" {} {name}", micros % unit / smaller);
    }
    text
}

/// `ip=192.0.2.1 method=GET`
pub(crate) fn in_words(attributes: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

/// The beginning of a text, within so many characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Text as it stands between tags, or in an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let shares = [(0, 5), (5, 5), (1, 3), (1, 1_000), (1, 1_000_000), (99_999, 100_000), (5, 100_000)];
        let read = ["0%", "100%", "33.3%", "0.1%", "<0.001%", "99.9%", "0.005%"];
        assert_eq!(shares.map(|(part, whole)| share(part, whole)), read);
        assert_eq!([0, 999, 1_000, 1_001].map(peak), ["0%", "99%", "100%", "refused"]);
        let durations = [0, 1, 1_500, 61_000_000, 90_000_000_000].map(Duration::from_micros);
        assert_eq!(durations.map(duration), ["0 s", "1 us", "1 ms", "1 min 1 s", "1 d 1 h"]);
        assert_eq!([short("abc", 3), short("abcd", 3)], ["abc", "ab…"]);
    }
}
