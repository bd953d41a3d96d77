//! What a rule asks of a request's attributes before it applies.

use std::fmt;
use std::net::IpAddr;

use super::glob;
use super::network::Network;
use crate::request::Part;

/// A test of one attribute's value.
///
/// ```
/// use tidegate::{Condition, Limit, Rule};
///
/// let rule = Rule::new("exports", Limit::per_hour(3))
///     .when("path", Condition::Matches("/tenants/*/export".into()))
///     .when("ip", Condition::Within("10.0.0.0/8".parse()?))
///     .when("trace", Condition::Absent);
/// # let _ = rule;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// It is exactly this.
    Equals(String),
    /// It begins with this.
    StartsWith(String),
    /// It matches this pattern: `*` for anything, `?` for one character.
    ///
    /// A rule is tried only if the literal pieces of its patterns, the texts
    /// between `*` and `?`, occur in the values of the request. So ten thousand
    /// patterns cost about as much as ten, and one pass over the value. A pattern
    /// of nothing but `*` and `?` has no such piece: its rule is tried on every
    /// request that has the attribute, at a cost in the order of the lengths of
    /// the pattern and the value multiplied.
    Matches(String),
    /// It is an address in this network.
    Within(Network),
    /// It is there, whatever it is.
    Present,
    /// It is not there.
    Absent,
}

impl Condition {
    /// Whether it holds for what the attribute is.
    pub(super) fn holds(&self, value: Option<Part<'_>>) -> bool {
        let Some(value) = value else { return matches!(self, Condition::Absent) };
        match self {
            Condition::Equals(wanted) => value.with_bytes(|bytes| bytes == wanted.as_bytes()),
            Condition::StartsWith(prefix) => value.with_bytes(|bytes| bytes.starts_with(prefix.as_bytes())),
            Condition::Matches(pattern) => value.with_bytes(|bytes| glob::matches_bytes(pattern, bytes)),
            Condition::Within(network) => address(value).is_some_and(|address| network.contains(address)),
            Condition::Present => true,
            Condition::Absent => false,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Equals(wanted) => write!(f, "is {wanted:?}"),
            Condition::StartsWith(prefix) => write!(f, "starts with {prefix:?}"),
            Condition::Matches(pattern) => write!(f, "matches {pattern:?}"),
            Condition::Within(network) => write!(f, "is within {network}"),
            Condition::Present => f.write_str("is present"),
            Condition::Absent => f.write_str("is absent"),
        }
    }
}

/// An attribute as an address, if it is one.
pub(super) fn address(value: Part<'_>) -> Option<IpAddr> {
    match value {
        Part::Address(address) => Some(address),
        Part::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Part::Number(_) | Part::Negative(_) | Part::Uuid(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_holds_for_what_it_says() {
        let text = |text: &'static str| Some(Part::Bytes(text.as_bytes()));
        let network = Condition::Within("10.0.0.0/8".parse().expect("a network"));
        for (condition, value, holds) in [
            (Condition::Equals("a".into()), text("a"), true),
            (Condition::Equals("a".into()), text("A"), false),
            (Condition::Equals("7".into()), Some(Part::Number(7)), true),
            (Condition::Equals(String::new()), None, false),
            (Condition::StartsWith("/api/".into()), text("/api/x"), true),
            (Condition::StartsWith("/api/".into()), text("/ap"), false),
            (Condition::Matches("/api/*/x".into()), text("/api/v1/x"), true),
            (Condition::Matches("*".into()), None, false),
            (network.clone(), text("10.1.2.3"), true),
            (network.clone(), Some(Part::Address([10, 0, 0, 1].into())), true),
            (network.clone(), text("11.1.2.3"), false),
            (network, text("alice"), false),
            (Condition::Present, text(""), true),
            (Condition::Present, None, false),
            (Condition::Absent, None, true),
            (Condition::Absent, text(""), false),
        ] {
            assert_eq!(condition.holds(value), holds, "{condition} of {value:?}");
        }
    }
}
