//! Calendars in words: `month in Europe/Berlin from day 31`.

use std::fmt;
use std::str::FromStr;

use super::{Calendar, CalendarUnit, Weekday};
use crate::error::ConfigError;

const UNITS: [(CalendarUnit, &[&str]); 6] = [
    (CalendarUnit::Hour, &["hour", "h"]),
    (CalendarUnit::Day, &["day", "d"]),
    (CalendarUnit::Week, &["week", "w"]),
    (CalendarUnit::Month, &["month", "mo"]),
    (CalendarUnit::Quarter, &["quarter"]),
    (CalendarUnit::Year, &["year"]),
];

const WEEKDAYS: [(Weekday, &str); 7] = [
    (Weekday::Monday, "monday"),
    (Weekday::Tuesday, "tuesday"),
    (Weekday::Wednesday, "wednesday"),
    (Weekday::Thursday, "thursday"),
    (Weekday::Friday, "friday"),
    (Weekday::Saturday, "saturday"),
    (Weekday::Sunday, "sunday"),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The name of a month, from 1.
pub(super) fn month(number: u8) -> &'static str {
    MONTHS[usize::from(number.saturating_sub(1)).min(11)]
}

/// The name of a day, from 1.
pub(super) fn weekday(number: u8) -> &'static str {
    WEEKDAYS[usize::from(number.saturating_sub(1)).min(6)].1
}

impl CalendarUnit {
    pub(super) const fn name(self) -> &'static str {
        UNITS[self as usize].1[0]
    }

    /// From what its periods can go.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            CalendarUnit::Hour => "leave it out",
            CalendarUnit::Day => "give an hour, such as from 06:00",
            CalendarUnit::Week => "give a day of the week, such as from monday or from monday 06:00",
            CalendarUnit::Month => "give a day, such as from day 31 or from day 1 06:00",
            CalendarUnit::Quarter => "give a month and a day, such as from 02-01, or a day, such as from day 15",
            CalendarUnit::Year => "give a month and a day, such as from 07-01",
        }
    }
}

impl fmt::Display for CalendarUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.unit, self.zone())?;
        let anchor = match (self.unit, self.month, self.day) {
            (CalendarUnit::Hour | CalendarUnit::Day, ..) | (_, 1, 1) => String::new(),
            (CalendarUnit::Week, _, day) => format!(" {}", weekday(day)),
            (CalendarUnit::Month, _, day) => format!(" day {day}"),
            (CalendarUnit::Quarter | CalendarUnit::Year, month, day) => format!(" {month:02}-{day:02}"),
        };
        let hour = if self.hour == 0 { String::new() } else { format!(" {:02}:00", self.hour) };
        if anchor.is_empty() && hour.is_empty() { Ok(()) } else { write!(f, " from{anchor}{hour}") }
    }
}

impl FromStr for Calendar {
    type Err = ConfigError;

    /// A unit, a zone and an anchor, in this order or with the anchor before the zone.
    fn from_str(text: &str) -> Result<Calendar, ConfigError> {
        let mut words = text.split_whitespace().peekable();
        let unreadable = |expected, found: &str| ConfigError::Unreadable {
            text: text.to_owned(),
            expected,
            found: found.to_owned(),
        };
        let unit = words.next().unwrap_or_default();
        let Some((unit, _)) = UNITS.into_iter().find(|(_, names)| names.contains(&unit)) else {
            return Err(unreadable("one hour, day, week, month, quarter or year of the calendar", unit));
        };
        let (mut zone, mut anchors) = (None, None);
        while let Some(word) = words.next() {
            match word {
                "in" if zone.is_none() => zone = words.next(),
                "from" if anchors.is_none() => {
                    let mut named = Vec::new();
                    while let Some(word) = words.next_if(|word| *word != "in") {
                        named.push(word);
                    }
                    anchors = Some(named);
                }
                other => return Err(unreadable("in and a time zone, from and an anchor, or the end", other)),
            }
        }
        let Some(zone) = zone else { return Err(unreadable("in and a time zone, such as in Europe/Berlin", "")) };
        let calendar = Calendar::new(unit, zone)?;
        match anchors {
            None => Ok(calendar),
            Some(anchors) if anchors.is_empty() => Err(unreadable("an anchor after from", "")),
            Some(anchors) => calendar.anchored_by(&anchors),
        }
    }
}

impl Calendar {
    fn anchored_by(self, anchors: &[&str]) -> Result<Calendar, ConfigError> {
        let number = |digits: &str| digits.parse::<u8>().ok().filter(|_| digits.len() <= 2);
        let (unit, hint) = (self.unit.name(), self.unit.hint());
        let unknown = || ConfigError::Anchor { unit, anchor: anchors.join(" "), hint };
        let (calendar, rest) = match anchors {
            ["day", day, rest @ ..] => (self.from_day(number(day).ok_or_else(unknown)?)?, rest),
            [word, rest @ ..] => match (WEEKDAYS.iter().find(|(_, name)| name == word), word.split_once('-')) {
                (Some((day, _)), _) => (self.from_weekday(*day)?, rest),
                (None, Some((month, day))) => {
                    let (month, day) = number(month).zip(number(day)).ok_or_else(unknown)?;
                    (self.from_date(month, day)?, rest)
                }
                (None, None) => (self, anchors),
            },
            [] => (self, anchors),
        };
        match rest {
            [] => Ok(calendar),
            [hour] => calendar.at_hour(hour.strip_suffix(":00").and_then(number).ok_or_else(unknown)?),
            _ => Err(unknown()),
        }
    }
}
