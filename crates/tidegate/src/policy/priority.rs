//! Classes of requests, and what each of them leaves to the others.
//!
//! A class with a floor takes from a limit only while more than the floor is left. All classes
//! charge the same state: the limit of a class is the same kernel with less to admit into.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use foldhash::fast::RandomState;

use super::values::{Attribute, Values};
use crate::error::ConfigError;
use crate::store::Meter;

/// How much of a limit a class of requests leaves to others: a share, or so many units.
///
/// ```
/// use tidegate::Floor;
///
/// assert_eq!("20%".parse(), Ok(Floor::Percent(20)));
/// assert_eq!("200".parse(), Ok(Floor::Units(200)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// Of what the limit lets pass at once, rounded up to whole units.
    Percent(u8),
    /// Of the limit's own units.
    Units(u64),
}

impl Floor {
    /// Nothing is left to others.
    pub const NONE: Floor = Floor::Units(0);

    /// In units of a limit that lets so many pass at once.
    ///
    /// ```
    /// use tidegate::Floor;
    ///
    /// assert_eq!((Floor::Percent(25).of(10), Floor::Units(4).of(10)), (3, 4));
    /// ```
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Floor::Units(units) => units,
            Floor::Percent(percent) => {
                let units = (u128::from(capacity) * u128::from(percent)).div_ceil(100);
                u64::try_from(units).unwrap_or(u64::MAX)
            }
        }
    }
}

/// In words: `20%` or `200`.
impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Floor::Percent(percent) => write!(f, "{percent}%"),
            Floor::Units(units) => write!(f, "{units}"),
        }
    }
}

/// From words such as `20%` or `200`.
impl FromStr for Floor {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Floor, ConfigError> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|digits| digits.parse::<u64>().ok());
        let floor = match (number, digits.len() < text.len()) {
            (Some(percent @ 0..100), true) => Some(Floor::Percent(percent as u8)),
            (Some(units), false) => Some(Floor::Units(units)),
            (_, _) => None,
        };
        floor.ok_or_else(|| ConfigError::UnreadableFloor { text: text.to_owned() })
    }
}

/// Classes of requests by an attribute, and what each of them leaves to the others.
///
/// A class is admitted only while more than its [floor](Floor) is left of the limit, so that
/// the rest is there for classes with a lower one. All classes charge the same limit. A request
/// with another value of the attribute, or without it, is of the class with the highest floor.
///
/// ```
/// use tidegate::{Floor, Limit, Limiter, PriorityClasses, Request, Rule};
///
/// let priority = PriorityClasses::by("priority").class("critical", Floor::NONE).class("normal", Floor::Percent(20));
/// let limiter = Limiter::new(Rule::new("api", Limit::per_hour(10)).priority(priority));
///
/// let request = |class| Request::new("acme").with("priority", class);
/// let admitted = (0..10).filter(|_| limiter.allow(request("normal"))).count();
/// assert_eq!(admitted, 8);
/// assert_eq!(limiter.peek(request("critical"))?.remaining(), Some(2));
/// assert!(limiter.allow(request("critical")));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct PriorityClasses {
    pub(super) attribute: String,
    classes: Vec<(String, Floor)>,
}

impl PriorityClasses {
    /// Classes by the value of this attribute, of which there are none yet.
    pub fn by(attribute: impl Into<String>) -> PriorityClasses {
        PriorityClasses { attribute: attribute.into(), classes: Vec::new() }
    }

    /// Requests whose attribute is exactly `name` leave so much to others.
    ///
    /// ```
    /// use tidegate::{Floor, PriorityClasses};
    ///
    /// let priority = PriorityClasses::by("class").class("batch", Floor::Percent(50)).class("user", Floor::NONE);
    /// assert_eq!(priority.classes().count(), 2);
    /// ```
    pub fn class(mut self, name: impl Into<String>, floor: Floor) -> PriorityClasses {
        self.classes.push((name.into(), floor));
        self
    }

    /// The attribute whose value is the class.
    #[must_use]
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// The classes and what they leave to others, as they were given.
    ///
    /// ```
    /// use tidegate::{Floor, PriorityClasses};
    ///
    /// let priority = PriorityClasses::by("class").class("batch", Floor::Percent(50));
    /// assert_eq!(priority.attribute(), "class");
    /// assert!(priority.classes().eq([("batch", Floor::Percent(50))]));
    /// ```
    pub fn classes(&self) -> impl Iterator<Item = (&str, Floor)> {
        self.classes.iter().map(|(name, floor)| (name.as_str(), *floor))
    }

    /// A meter for each class, in their order.
    ///
    /// # Errors
    /// [`ConfigError::FloorTooHigh`] if a class could take nothing at all.
    pub(super) fn meters(&self, whole: &Meter) -> Result<Vec<Meter>, ConfigError> {
        let meter = |(class, floor): (&str, Floor)| {
            let meter = whole.clone().with_floor(floor.of(whole.capacity()));
            if meter.largest_cost() > 0 {
                return Ok(meter);
            }
            let (rule, limit) = (whole.name().as_str().into(), whole.meaning().into());
            Err(ConfigError::FloorTooHigh { rule, limit, class: format!("{class} ({floor})").into() })
        };
        self.classes().map(meter).collect()
    }
}

/// The classes of a rule, made ready.
pub(super) struct Classes {
    attribute: Attribute,
    numbers: HashMap<Box<[u8]>, usize, RandomState>,
    words: Vec<(Box<str>, Floor)>,
    /// For each limit, by the number of its meter, that of its first class, and which of the
    /// classes has the highest floor.
    limits: HashMap<usize, (usize, usize), RandomState>,
}

impl Classes {
    pub(super) fn new(priority: &PriorityClasses, attribute: Attribute) -> Classes {
        let mut numbers = HashMap::default();
        for (number, (name, _)) in priority.classes().enumerate() {
            // Of a class that is there twice, the first counts.
            numbers.entry(name.as_bytes().into()).or_insert(number);
        }
        let words = priority.classes().map(|(name, floor)| (name.into(), floor)).collect();
        Classes { attribute, numbers, words, limits: HashMap::default() }
    }

    pub(super) fn knows(&self, limit: usize) -> bool {
        self.limits.contains_key(&limit)
    }

    /// Adds the meters of a limit's classes, the first of which has this number.
    pub(super) fn add(&mut self, limit: usize, first: usize, meters: &[Meter]) {
        let highest = |(number, meter): &(usize, &Meter)| (meter.floor(), std::cmp::Reverse(*number));
        if let Some((lowest, _)) = meters.iter().enumerate().max_by_key(highest) {
            self.limits.insert(limit, (first, lowest));
        }
    }

    /// The number of the meter by which a request is limited. Out of the way of rules without
    /// classes.
    #[inline(never)]
    pub(super) fn meter_of(&self, limit: usize, values: &Values<'_>) -> usize {
        self.of(limit, values).map_or(limit, |(_, meter)| meter)
    }

    /// The class of a request under a limit, and the number of its meter.
    pub(super) fn of(&self, limit: usize, values: &Values<'_>) -> Option<(usize, usize)> {
        let (first, lowest) = *self.limits.get(&limit)?;
        let named =
            values.get(self.attribute).and_then(|value| value.with_bytes(|name| self.numbers.get(name).copied()));
        let class = named.unwrap_or(lowest);
        Some((class, first + class))
    }

    /// What a class is called, and what it leaves to others.
    pub(super) fn words(&self, class: usize) -> String {
        self.words.get(class).map_or_else(String::new, |(name, floor)| format!("{name} ({floor})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_to_whole_units() {
        let units = |percent, capacity| Floor::Percent(percent).of(capacity);
        assert_eq!([units(0, 7), units(20, 10), units(20, 11), units(1, 1), units(99, 1_000)], [0, 2, 3, 1, 990]);
        assert_eq!((Floor::Units(7).of(3), Floor::NONE.of(3)), (7, 0));
        assert_eq!(Floor::Percent(u8::MAX).of(u64::MAX), u64::MAX);
    }

    #[test]
    fn words_are_read_and_printed() {
        for words in ["0%", "20%", "99%", "0", "200"] {
            assert_eq!(words.parse::<Floor>().map(|floor| floor.to_string()).as_deref(), Ok(words));
        }
        for words in ["", "%", "100%", "101%", "-1", "+1", "2.5%", "20 %", "20%%", "many", "99999999999999999999"] {
            assert!(matches!(words.parse::<Floor>(), Err(ConfigError::UnreadableFloor { .. })), "{words}");
        }
    }
}
