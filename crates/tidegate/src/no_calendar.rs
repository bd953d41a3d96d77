//! In place of calendars, where the feature `calendar` is off: there are none.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;
use crate::time::Micros;

/// None exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calendar {}

impl Calendar {
    pub(crate) const fn nominal(self) -> u64 {
        match self {}
    }

    pub(crate) const fn unit_name(self) -> &'static str {
        match self {}
    }

    pub(crate) fn show(self, _at: Micros) -> String {
        match self {}
    }

    pub(crate) fn edges(self, _at: u64) -> (u64, u64) {
        match self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl FromStr for Calendar {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Calendar, ConfigError> {
        let expected = "no calendar: build tidegate with the feature calendar, or leave out the time zone";
        Err(ConfigError::Unreadable { text: text.to_owned(), expected, found: text.to_owned() })
    }
}
