//! Which thresholds of a meter a charge crosses, and which of them are to be told.
//!
//! A charge crosses a threshold if less was used before it and at least as much after
//! it, in whole units. The charges of one state are made one after the other, so exactly
//! one of them sees each crossing. In a fixed window that is once per window. Where use
//! drains away all the time it can cross again and again: there a store also keeps a
//! mark, for one period, of what was told.

use super::Check;
use super::meter::Meter;
use crate::algorithm::Algorithm;
use crate::kernel::Verdict;
use crate::limit::Limit;
use crate::time::Micros;

impl Meter {
    /// Of each threshold, the percentage and the units that reach it: rounded up.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::store::{Meter, Thresholds};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).notify(Thresholds::new([50, 85])?);
    /// assert!(meter.threshold_units().eq([(50, 5), (85, 9)]));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    pub fn threshold_units(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        let units = |percent: u8| (u128::from(self.capacity()) * u128::from(percent)).div_ceil(100);
        let thresholds = self.thresholds().percents().iter();
        thresholds.map(move |percent| (*percent, u64::try_from(units(*percent)).unwrap_or(u64::MAX)))
    }

    /// The thresholds that so much use has reached, a bit for each.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::store::{Meter, Thresholds};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).notify(Thresholds::new([50, 85])?);
    /// assert_eq!((meter.reached(4), meter.reached(5), meter.reached(10)), (0b00, 0b01, 0b11));
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn reached(&self, used: u64) -> u8 {
        self.threshold_units().enumerate().fold(0, |bits, (index, (_, units))| bits | u8::from(used >= units) << index)
    }

    /// What is used at least, by what the limit says: what it keeps back from a class is not used. Of a limit
    /// that warms up, what the present step leaves tells nothing of that.
    pub(crate) fn used_at_least(&self, said: &Verdict) -> u64 {
        if self.warm_up().is_some() { 0 } else { self.used_by(said) }
    }

    /// What is used by what the limit says: where a class has nothing left, at least so much; while
    /// it warms up, at most, as a step leaves less than is free.
    #[must_use]
    pub fn used_by(&self, said: &Verdict) -> u64 {
        self.capacity().saturating_sub(said.remaining.saturating_add(self.floor()))
    }

    /// The thresholds that a change of use crosses upwards, a bit for each.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::store::{Meter, Thresholds};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).notify(Thresholds::new([50, 85])?);
    /// assert_eq!(meter.crossed(6, 9), 0b10);
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn crossed(&self, before: u64, after: u64) -> u8 {
        self.reached(after) & !self.reached(before)
    }

    /// Whether a store has to mark what it told: use that drains away may cross a
    /// threshold several times in one period. In a fixed window it only rises.
    ///
    /// ```
    /// use tidegate::Limit;
    /// use tidegate::store::{Meter, Thresholds};
    ///
    /// let meter = Meter::new("orders", Limit::per_hour(10)).notify(Thresholds::new([50, 85])?);
    /// assert!(meter.needs_marks(), "the use of a bucket falls within a period");
    /// # Ok::<(), tidegate::ConfigError>(())
    /// ```
    #[must_use]
    pub fn needs_marks(&self) -> bool {
        let is_fixed = |limit: Limit| limit.algorithm() == Algorithm::FixedWindow;
        !self.thresholds().is_empty() && !self.nominal_limit().is_some_and(is_fixed)
    }

    /// For how long a mark says that a threshold was told: a period of the limit. A custom
    /// kernel has none, and is given its [horizon](Meter::horizon).
    #[must_use]
    pub fn mark_lasts(&self) -> Micros {
        self.nominal_limit().map_or_else(|| self.horizon(), |limit| Micros::from_duration(limit.period()))
    }
}

/// Whether a mark is in force. One that ends later than this clock explains is of a clock
/// that was wrong.
///
/// ```
/// use tidegate::Micros;
/// use tidegate::store::is_marked;
///
/// let [now, lasts] = [1_000, 100].map(Micros::new);
/// assert!(is_marked(Micros::new(1_050), now, lasts) && !is_marked(now, now, lasts));
/// ```
#[must_use]
pub fn is_marked(until: Micros, now: Micros, lasts: Micros) -> bool {
    now < until && until.saturating_since(now) <= lasts.saturating_add(lasts)
}

/// Which thresholds of a state were told, and until when: for stores that keep them beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Each threshold by its percentage.
    until: Vec<(u8, Micros)>,
}

impl Marks {
    /// Of the thresholds that a check crossed, those that are to be told now: they are marked. What gives back removes
    /// the marks of those above what is used then.
    pub(crate) fn tell(&mut self, check: &Check<'_>, used: u64, crossed: u8, now: Micros) -> u8 {
        let meter = check.meter();
        let unmarked = if check.act().gives_back() { !meter.reached(used) } else { 0 };
        let mut told = 0;
        for (index, percent) in meter.thresholds().percents().iter().enumerate() {
            let bit = 1 << index;
            let known = self.until.iter().find(|(marked, _)| marked == percent).map(|(_, until)| *until);
            if crossed & bit != 0 && !known.is_some_and(|until| is_marked(until, now, meter.mark_lasts())) {
                told |= bit;
            }
            if (told | unmarked) & bit != 0 {
                self.until.retain(|(marked, _)| marked != percent);
            }
            if told & bit != 0 {
                self.until.push((*percent, now.saturating_add(meter.mark_lasts())));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::store::Thresholds;

    fn meter(words: &str, percents: &[u8]) -> Meter {
        let thresholds = Thresholds::new(percents.iter().copied()).expect("thresholds");
        Meter::new(Name::literal("rule"), words.parse::<Limit>().expect("a limit")).notify(thresholds)
    }

    #[test]
    fn a_threshold_is_crossed_when_its_units_are_reached_rounded_up() {
        let meter = meter("fixed 7/min", &[50, 80, 100]);
        assert_eq!(meter.threshold_units().collect::<Vec<_>>(), [(50, 4), (80, 6), (100, 7)]);
        let crossings = [(0, 3, 0), (3, 4, 1), (4, 4, 0), (4, 5, 0), (3, 6, 3), (0, 9, 7), (7, 8, 0), (7, 3, 0)];
        for (before, after, crossed) in crossings {
            assert_eq!(meter.crossed(before, after), crossed, "{before} to {after}");
        }
        assert_eq!(meter.share(std::num::NonZeroU32::MIN).thresholds(), &Thresholds::default());
    }

    #[test]
    fn only_use_that_drains_away_needs_marks() {
        for (words, needs) in
            [("fixed 7/min", false), ("fixed 7/min from-first", false), ("7/min", true), ("sliding-log 7/min", true)]
        {
            assert_eq!(meter(words, &[50]).needs_marks(), needs, "{words}");
            assert!(!meter(words, &[]).needs_marks(), "{words}");
            assert_eq!(meter(words, &[50]).mark_lasts(), Micros::new(60_000_000), "{words}");
        }
        let lasts = Micros::new(10);
        let marked = |until| is_marked(Micros::new(until), Micros::new(100), lasts);
        assert_eq!([100, 101, 120, 121].map(marked), [false, true, true, false]);
    }

    #[test]
    fn thresholds_change_neither_the_state_nor_its_name() {
        let (plain, told) = (meter("7/min", &[]), meter("7/min", &[50]));
        assert!(plain.is_same_as(&told) && plain.identity() == told.identity() && plain != told);
        assert!(plain.is_simple() && !told.is_simple());
    }
}
