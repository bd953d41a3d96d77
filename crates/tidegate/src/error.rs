//! Why something cannot be made of what was given.

use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::name::Name;

/// Why a limit, a rule or a store cannot be made of what was given.
///
/// ```
/// use tidegate::{ConfigError, Limit};
///
/// let error = "0/s".parse::<Limit>().expect_err("no limit");
/// assert_eq!(error, ConfigError::Zero { field: "count" });
/// assert_eq!(error.to_string(), "count is zero: give at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number that must be at least one was zero.
    #[error("{field} is zero: give at least 1")]
    Zero {
        /// Which number.
        field: &'static str,
    },
    /// A number above what is sensible, or what exact arithmetic can hold.
    #[error("{field} is {value}: give at most {bound}")]
    TooLarge {
        /// Which number.
        field: &'static str,
        /// What was given.
        value: u128,
        /// The largest that is taken.
        bound: u64,
    },
    /// A bucket that would take longer than 71 years to refill.
    #[error(
        "a burst of {burst} at {count} per {period:?} takes more than 71 years to refill: lower the burst or raise the rate"
    )]
    TooSlow {
        /// The bucket's size.
        burst: u64,
        /// What refills it.
        count: u64,
        /// In this time.
        period: Duration,
    },
    /// The algorithm has no such setting.
    #[error("{field} does not apply to {algorithm}: leave it out, or choose {instead}")]
    NotApplicable {
        /// The setting.
        field: &'static str,
        /// The algorithm, in the words of the parser.
        algorithm: Algorithm,
        /// The algorithm that has it.
        instead: Algorithm,
    },
    /// Words that are no limit.
    #[error("cannot read {text:?} as a limit: expected {expected}, found {found:?}")]
    Unreadable {
        /// The whole text.
        text: String,
        /// What could have stood there.
        expected: &'static str,
        /// What stood there.
        found: String,
    },
    /// A time zone that the IANA database does not have.
    #[error(
        "{zone:?} is not a time zone: give one of the IANA database, such as UTC or Europe/Berlin, spelled as it is there"
    )]
    UnknownZone {
        /// What was given.
        zone: String,
    },
    /// Periods of the calendar that cannot begin there.
    #[error("calendar periods of one {unit} cannot start from {anchor}: {hint}")]
    Anchor {
        /// The unit.
        unit: &'static str,
        /// What was given.
        anchor: String,
        /// What could be.
        hint: &'static str,
    },
    /// Two rules of one policy with the same name.
    #[error("two rules are named {name:?}: give each a name of its own")]
    DuplicateRule {
        /// The name.
        name: Name,
    },
    /// A policy without any limit.
    #[error("the policy has no limit: give at least one")]
    EmptyPolicy,
    /// Words that are not a network.
    #[error("cannot read {text:?} as a network: expected an address and perhaps a length, such as 10.0.0.0/8")]
    UnreadableNetwork {
        /// The text.
        text: String,
    },
    /// A value of an address attribute that no address is equal to.
    #[error(
        "{text:?} is not an IP address, so attribute {attribute:?} is never equal to it: give an address, or match a network by cidr"
    )]
    NotAnAddress {
        /// The attribute.
        attribute: String,
        /// The value.
        text: String,
    },
    /// Words that are no warm-up.
    #[error("cannot read {text:?} as a warm-up: expected a start and a time, such as 10 over 5min")]
    UnreadableWarmUp {
        /// The text.
        text: String,
    },
    /// Words that are no floor.
    #[error("cannot read {text:?} as a floor: expected a share below 100%, such as 20%, or a number of units")]
    UnreadableFloor {
        /// The text.
        text: String,
    },
    /// A class of requests that could take nothing of a limit.
    #[error(
        "rule {rule:?}: the floor of class {class} leaves it nothing of {limit}: lower the floor, raise the limit, or \
         block the class by an override"
    )]
    FloorTooHigh {
        /// The rule.
        rule: Box<str>,
        /// The limit, in words.
        limit: Box<str>,
        /// The class and its floor, in words such as `low (100%)`.
        class: Box<str>,
    },
    /// A threshold was given more than once.
    #[error("a threshold of {percent}% is given twice: give each once")]
    DuplicateThreshold {
        /// The threshold.
        percent: u8,
    },
    /// More attributes in one policy than can be numbered.
    #[error("a policy cannot ask for more than {bound} different attributes")]
    TooManyAttributes {
        /// The number that is allowed.
        bound: usize,
    },
    /// A rule was given too many different limits within too short a time.
    #[error(
        "rule {rule:?} had {bound} other limits whose use still counts: change it again when they have been forgotten"
    )]
    TooManyChanges {
        /// The rule.
        rule: Name,
        /// The number that is allowed.
        bound: usize,
    },
    /// A sliding log whose count, and so the entries that it may keep for a key,
    /// is above the bound.
    #[error(
        "rule {rule:?}: {limit} may keep {entries} entries for each key, and at most {bound} are allowed: use a \
         sliding counter, lower the count, or raise max_log_entries"
    )]
    TooManyLogEntries {
        /// The rule.
        rule: Box<str>,
        /// Its limit.
        limit: Box<str>,
        /// The entries of a key.
        entries: u64,
        /// The number that is allowed.
        bound: u64,
    },
}
