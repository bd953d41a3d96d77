//! What a class of requests leaves to others.

use super::{Style, View, Window};

impl Window {
    /// The same windows for a class of requests that leaves so many units, at most all, to
    /// others: its charges are admitted while more than that is left.
    #[must_use]
    pub const fn with_floor(self, units: u64) -> Window {
        Window { admits: self.count.saturating_sub(units), ..self }
    }

    /// What is left of the first `admits` units.
    #[inline]
    pub(super) fn remaining(&self, view: &View, admits: u64) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => admits.saturating_sub(view.current),
            Style::Sliding => ((admits + 1) * self.period - 1).saturating_sub(self.weight(view, 0)) / self.period,
        }
    }
}
