//! Periods of the calendar: from one anchor to the next, in a time zone.
//!
//! A period begins when the clocks of its zone read its anchor: the first time, if they
//! read it twice, and as long after as they were put forward, if they skip it. So a day
//! may have 23 or 25 hours, and one that a zone skipped altogether has none. All of
//! this happens here, in the process that asks: a store is given the two edges.

use std::cell::Cell;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use crate::error::ConfigError;
use crate::time::Micros;

mod words;

/// Which periods a [calendar limit](crate::Limit::calendar) counts by: a unit, a time zone,
/// and from when in the unit a period goes.
///
/// ```
/// use tidegate::{Calendar, CalendarUnit, Limit, Micros};
///
/// let billing = Calendar::new(CalendarUnit::Month, "Europe/Berlin")?.from_day(31)?;
/// let quota = Limit::calendar(1_000_000, billing);
/// assert_eq!(quota.to_string(), "1000000/month in Europe/Berlin from day 31");
///
/// // In February the last day stands for the 31st.
/// let (start, end) = billing.period_of(Micros::new(1_771_000_000_000_000));
/// assert_eq!(billing.show(start), "31 January 2026, 00:00 Europe/Berlin");
/// assert_eq!(billing.show(end), "28 February 2026, 00:00 Europe/Berlin");
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    month: u8,
    /// Of the month, or of the week: Monday is 1.
    day: u8,
    hour: u8,
    zone: Zone,
}

/// How long a period of a [`Calendar`] is.
///
/// ```
/// use tidegate::{Calendar, CalendarUnit};
///
/// assert_eq!(Calendar::new(CalendarUnit::Quarter, "UTC")?.unit(), CalendarUnit::Quarter);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum CalendarUnit {
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

/// A day of the week, from which weeks go.
///
/// ```
/// use tidegate::{Calendar, CalendarUnit, Weekday};
///
/// let weeks = Calendar::new(CalendarUnit::Week, "UTC")?.from_weekday(Weekday::Sunday)?;
/// # let _ = weeks;
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Weekday {
    Monday = 1,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Calendar {
    /// Periods from the unit's own beginning: midnight, Monday, the first of the month.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit};
    ///
    /// assert!(Calendar::new(CalendarUnit::Day, "Europe/Berlin").is_ok());
    /// assert!(Calendar::new(CalendarUnit::Day, "Europe/Atlantis").is_err());
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::UnknownZone`] if the IANA time zone database has no such zone.
    pub fn new(unit: CalendarUnit, zone: &str) -> Result<Calendar, ConfigError> {
        Ok(Calendar { unit, month: 1, day: 1, hour: 0, zone: Zone::find(zone)? })
    }

    /// Months, or quarters, from this day on. Where a month is shorter, from its last day.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Limit};
    ///
    /// let billing = Calendar::new(CalendarUnit::Month, "UTC")?.from_day(15)?;
    /// assert_eq!(Limit::calendar(100, billing).to_string(), "100/month in UTC from day 15");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Anchor`] for a day that no month has, and for other units.
    pub fn from_day(self, day: u8) -> Result<Calendar, ConfigError> {
        let fits = matches!(self.unit, CalendarUnit::Month | CalendarUnit::Quarter) && (1..=31).contains(&day);
        self.anchored(fits, Calendar { day, ..self }, || format!("day {day}"))
    }

    /// Weeks from this day on.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Weekday};
    ///
    /// assert!(Calendar::new(CalendarUnit::Week, "UTC")?.from_weekday(Weekday::Sunday).is_ok());
    /// assert!(Calendar::new(CalendarUnit::Month, "UTC")?.from_weekday(Weekday::Sunday).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Anchor`] for other units.
    pub fn from_weekday(self, day: Weekday) -> Result<Calendar, ConfigError> {
        let fits = self.unit == CalendarUnit::Week;
        self.anchored(fits, Calendar { day: day as u8, ..self }, || words::weekday(day as u8).to_owned())
    }

    /// Years from this date on, or quarters from it and every third month after. Where a
    /// month is shorter, from its last day.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit};
    ///
    /// let fiscal = Calendar::new(CalendarUnit::Year, "UTC")?.from_date(4, 6)?;
    /// # let _ = fiscal;
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Anchor`] for a date that no year has, and for other units.
    pub fn from_date(self, month: u8, day: u8) -> Result<Calendar, ConfigError> {
        let is_date = (1..=12).contains(&month) && day >= 1 && day <= longest(month);
        let fits = matches!(self.unit, CalendarUnit::Quarter | CalendarUnit::Year) && is_date;
        self.anchored(fits, Calendar { month, day, ..self }, || format!("{month:02}-{day:02}"))
    }

    /// Periods from this hour of their first day on.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit};
    ///
    /// assert!(Calendar::new(CalendarUnit::Day, "UTC")?.at_hour(6).is_ok());
    /// assert!(Calendar::new(CalendarUnit::Day, "UTC")?.at_hour(24).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Anchor`] for an hour that no day has, and for hours.
    pub fn at_hour(self, hour: u8) -> Result<Calendar, ConfigError> {
        let fits = self.unit != CalendarUnit::Hour && hour < 24;
        self.anchored(fits, Calendar { hour, ..self }, || format!("{hour:02}:00"))
    }

    fn anchored(self, fits: bool, to: Calendar, anchor: impl Fn() -> String) -> Result<Calendar, ConfigError> {
        if fits {
            return Ok(to);
        }
        Err(ConfigError::Anchor { unit: self.unit.name(), anchor: anchor(), hint: self.unit.hint() })
    }

    /// The unit.
    #[must_use]
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The name of the time zone.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit};
    ///
    /// assert_eq!(Calendar::new(CalendarUnit::Day, "Europe/Berlin")?.zone(), "Europe/Berlin");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The period that holds an instant: its first microsecond, and the first after it. One
    /// that begins before the epoch begins there.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Micros};
    ///
    /// let days = Calendar::new(CalendarUnit::Day, "UTC")?;
    /// let (start, end) = days.period_of(Micros::new(1_700_000_000_000_000));
    /// assert_eq!(end.saturating_since(start).to_duration().as_secs(), 86_400);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn period_of(self, at: Micros) -> (Micros, Micros) {
        let (start, end) = self.edges(at.get());
        (Micros::new(start), Micros::new(end))
    }

    /// An instant as the zone's clocks and calendars show it.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Micros};
    ///
    /// let days = Calendar::new(CalendarUnit::Day, "UTC")?;
    /// assert_eq!(days.show(Micros::ZERO), "1 January 1970, 00:00 UTC");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn show(self, at: Micros) -> String {
        let seconds = i64::try_from(at.get() / 1_000_000).unwrap_or(i64::MAX);
        let local = self.zone.get().to_datetime(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX));
        let seconds = if local.second() == 0 { String::new() } else { format!(":{:02}", local.second()) };
        let (day, month, year) = (local.day(), words::month(local.month().unsigned_abs()), local.year());
        format!("{day} {month} {year}, {:02}:{:02}{seconds} {}", local.hour(), local.minute(), self.zone())
    }

    pub(crate) const fn unit_name(self) -> &'static str {
        self.unit.name()
    }

    /// As long as a period of the unit usually is at the longest, in microseconds.
    pub(crate) const fn nominal(self) -> u64 {
        let hours = match self.unit {
            CalendarUnit::Hour => 1,
            CalendarUnit::Day => 24,
            CalendarUnit::Week => 7 * 24,
            CalendarUnit::Month => 31 * 24,
            CalendarUnit::Quarter => 92 * 24,
            CalendarUnit::Year => 366 * 24,
        };
        hours * HOUR as u64
    }

    /// [`period_of`](Calendar::period_of) in numbers. Each thread remembers the latest of
    /// some calendars.
    #[inline(never)]
    pub(crate) fn edges(self, at: u64) -> (u64, u64) {
        RECENT.with(|recent| {
            let calendar = self.number_of_its_own();
            let place = &recent[(calendar.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize];
            let known = place.get();
            if known.calendar == calendar && known.start <= at && at < known.end {
                return (known.start, known.end);
            }
            let (start, end) = self.computed(at);
            place.set(Edges { calendar, start, end });
            (start, end)
        })
    }

    /// Never zero: days count from one.
    #[inline]
    fn number_of_its_own(self) -> u64 {
        let [low, high] = self.zone.0.to_le_bytes();
        u64::from_le_bytes([self.unit as u8, self.month, self.day, self.hour, low, high, 0, 0])
    }

    #[cold]
    fn computed(self, at: u64) -> (u64, u64) {
        let zone = self.zone.get();
        let instant = i64::try_from(at).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
        let instant = instant.unwrap_or(Timestamp::MAX);
        let local = local_micros(zone.to_datetime(instant));
        let edge = |number: i64| {
            let edge = zone.to_timestamp(datetime(self.anchor(number))).unwrap_or(Timestamp::MAX);
            u64::try_from(edge.as_microsecond()).unwrap_or(0)
        };
        // What the clocks read says which period it is, but for instants beside those at
        // which they were changed.
        let mut number = self.number(local);
        let mut start = edge(number);
        while start > at {
            number -= 1;
            start = edge(number);
        }
        let mut end = edge(number + 1);
        while end <= at && number < self.number(local_micros(DateTime::MAX)) {
            number += 1;
            (start, end) = (end, edge(number + 1));
        }
        (start, end)
    }

    /// The number of the period in which the clocks read this.
    fn number(self, local: i64) -> i64 {
        match self.step() {
            AnchorStep::Hours { every, first } => (local.div_euclid(HOUR) - first).div_euclid(every),
            AnchorStep::Months { every } => {
                let date = datetime(local);
                let months = i64::from(date.year()) * 12 + i64::from(date.month()) - i64::from(self.month);
                let number = months.div_euclid(every);
                if self.anchor(number) <= local { number } else { number - 1 }
            }
        }
    }

    /// What the clocks read when the period of this number begins.
    fn anchor(self, number: i64) -> i64 {
        match self.step() {
            AnchorStep::Hours { every, first } => (number * every + first) * HOUR,
            AnchorStep::Months { every } => {
                let months = number * every + i64::from(self.month) - 1;
                let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
                let (year, month) = (i16::try_from(year).unwrap_or(i16::MAX), i8::try_from(month).unwrap_or(1));
                let first = Date::new(year.clamp(-9999, 9999), month, 1).unwrap_or(Date::MAX);
                let days = i64::from(self.day).min(i64::from(first.days_in_month())) - 1;
                local_micros(first.into()) + (days * 24 + i64::from(self.hour)) * HOUR
            }
        }
    }

    fn step(self) -> AnchorStep {
        let hour = i64::from(self.hour);
        match self.unit {
            CalendarUnit::Hour => AnchorStep::Hours { every: 1, first: 0 },
            CalendarUnit::Day => AnchorStep::Hours { every: 24, first: hour },
            // The first of 1970 was a Thursday.
            CalendarUnit::Week => AnchorStep::Hours { every: 7 * 24, first: (i64::from(self.day) - 4) * 24 + hour },
            CalendarUnit::Month => AnchorStep::Months { every: 1 },
            CalendarUnit::Quarter => AnchorStep::Months { every: 3 },
            CalendarUnit::Year => AnchorStep::Months { every: 12 },
        }
    }
}

/// From one anchor to the next, as clocks and calendars read.
enum AnchorStep {
    Hours { every: i64, first: i64 },
    Months { every: i64 },
}

/// In microseconds.
const HOUR: i64 = 3_600_000_000;

/// What clocks read, in microseconds since they read the epoch.
fn local_micros(local: DateTime) -> i64 {
    Offset::UTC.to_timestamp(local).unwrap_or(Timestamp::MAX).as_microsecond()
}

fn datetime(local: i64) -> DateTime {
    Offset::UTC.to_datetime(Timestamp::from_microsecond(local).unwrap_or(Timestamp::MAX))
}

/// The days of a month, in a leap year.
fn longest(month: u8) -> u8 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The latest period of a calendar that a thread was asked for.
#[derive(Clone, Copy)]
struct Edges {
    /// Its number, or zero.
    calendar: u64,
    start: u64,
    end: u64,
}

/// Calendars of which a thread remembers a period: as many as six bits tell apart.
const REMEMBERED: usize = 1 << 6;

thread_local! {
    static RECENT: [Cell<Edges>; REMEMBERED] =
        const { [const { Cell::new(Edges { calendar: 0, start: 0, end: 0 }) }; REMEMBERED] };
}

/// A time zone, by its place among those of the database.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Zone(u16);

struct Known {
    name: String,
    zone: OnceLock<TimeZone>,
}

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

static ZONES: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let known = DATABASE.available().map(|name| Known { name: name.to_string(), zone: OnceLock::new() });
    let mut known: Vec<Known> = known.collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    known
});

impl Zone {
    fn find(name: &str) -> Result<Zone, ConfigError> {
        let place = ZONES.binary_search_by(|known| known.name.as_str().cmp(name)).ok();
        let place = place.and_then(|place| u16::try_from(place).ok());
        place.map(Zone).ok_or_else(|| ConfigError::UnknownZone { zone: name.to_owned() })
    }

    fn known(self) -> &'static Known {
        &ZONES[usize::from(self.0)]
    }

    fn name(self) -> &'static str {
        &self.known().name
    }

    fn get(self) -> &'static TimeZone {
        let Known { name, zone } = self.known();
        zone.get_or_init(|| DATABASE.get(name).unwrap_or(TimeZone::UTC))
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({self})")
    }
}

#[cfg(test)]
mod tests;
