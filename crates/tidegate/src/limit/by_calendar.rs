//! Limits by the calendar.

use std::time::Duration;

#[cfg(feature = "calendar")]
use super::valid;
use super::{Form, Invalid, Limit};
use crate::algorithm::Algorithm;
use crate::calendar::Calendar;
#[cfg(feature = "calendar")]
use crate::error::ConfigError;
use crate::time::Micros;

impl Limit {
    /// At most `count` in every period of the calendar: a fixed window whose edges are
    /// those of a month, or a day, in a time zone.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Limit};
    ///
    /// let month = Calendar::new(CalendarUnit::Month, "UTC")?;
    /// assert_eq!(Limit::calendar(1_000, month).to_string(), "1000/month in UTC");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// See [`per_second`](Limit::per_second).
    #[cfg(feature = "calendar")]
    #[must_use]
    pub const fn calendar(count: u64, calendar: Calendar) -> Limit {
        valid(Limit::by_calendar(count, calendar))
    }

    /// [`calendar`](Limit::calendar) for a number that is not a literal.
    ///
    /// ```
    /// use tidegate::{Calendar, CalendarUnit, Limit};
    ///
    /// let month = Calendar::new(CalendarUnit::Month, "UTC")?;
    /// assert!(Limit::try_calendar(0, month).is_err());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the number is zero or out of bounds.
    #[cfg(feature = "calendar")]
    pub fn try_calendar(count: u64, calendar: Calendar) -> Result<Limit, ConfigError> {
        Ok(Limit::by_calendar(count, calendar)?)
    }

    /// Whether its windows are periods of the calendar, which differ in length.
    ///
    /// ```
    /// use tidegate::Limit;
    ///
    /// assert!(!Limit::per_day(1_000).is_by_calendar(), "a day of 24 hours");
    /// # #[cfg(feature = "calendar")]
    /// assert!("1000/month in UTC".parse::<Limit>()?.is_by_calendar());
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub const fn is_by_calendar(&self) -> bool {
        matches!(self.form, Form::Calendar(_))
    }

    /// When the period that holds an instant is over, as clocks in the limit's time zone show it:
    /// of a limit by the calendar.
    ///
    /// ```
    /// use tidegate::{Limit, Micros};
    ///
    /// let at = Micros::new(1_771_000_000_000_000);
    /// assert_eq!(Limit::per_day(1_000).resets_on(at), None);
    /// # #[cfg(feature = "calendar")]
    /// assert_eq!("1000/month in UTC".parse::<Limit>()?.resets_on(at).as_deref(), Some("1 March 2026, 00:00 UTC"));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn resets_on(&self, at: Micros) -> Option<String> {
        match self.form {
            Form::Calendar(calendar) => Some(calendar.show(Micros::new(calendar.edges(at.get()).1))),
            Form::Usual | Form::FromFirst | Form::InFlight => None,
        }
    }

    /// Whose periods the limit counts by, of a [calendar limit](Limit::calendar).
    #[cfg(feature = "calendar")]
    #[must_use]
    pub const fn resets_by(&self) -> Option<Calendar> {
        match self.form {
            Form::Calendar(calendar) => Some(calendar),
            Form::Usual | Form::FromFirst | Form::InFlight => None,
        }
    }

    pub(super) const fn by_calendar(count: u64, calendar: Calendar) -> Result<Limit, Invalid> {
        let period = Duration::from_micros(calendar.nominal());
        match Limit::checked(Algorithm::FixedWindow, count, period) {
            Ok(limit) => Ok(Limit { form: Form::Calendar(calendar), ..limit }),
            Err(invalid) => Err(invalid),
        }
    }
}
