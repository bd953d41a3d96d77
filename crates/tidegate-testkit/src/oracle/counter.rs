//! The sliding window counter: the count of this window, and so many whole
//! units of the previous one's as are still within a period.

use super::ratio::Ratio;
use super::{Account, MIN_GRACE, Moment, Terms, Undone, ceil_div};

#[derive(Clone, Debug)]
pub(super) struct Counter {
    /// In ticks, as everything here.
    start: i128,
    current: i128,
    previous: i128,
}

impl Counter {
    pub(super) fn fresh() -> Counter {
        Counter { start: 0, current: 0, previous: 0 }
    }

    fn is_unused(&self) -> bool {
        self.current == 0 && self.previous == 0
    }

    /// The windows as they count. A clock before the start stands still.
    fn rolled(&self, at: Moment<'_>) -> Counter {
        let (tick, period) = (at.tick(), at.terms.period);
        if self.is_unused() || tick >= self.start + 2 * period {
            Counter { start: tick - tick % period, current: 0, previous: 0 }
        } else if tick >= self.start + period {
            Counter { start: self.start + period, current: 0, previous: self.current }
        } else {
            self.clone()
        }
    }

    /// How far a window has to go until no more than these units count.
    fn elapsed_for(terms: &Terms, Units { previous, room }: Units) -> i128 {
        if previous <= room {
            return 0;
        }
        // floor(previous * (period - e) / period) <= room, which is
        // previous * (period - e) / period < room + 1, solved for e.
        (Ratio::from(terms.period) - Ratio::from(room + 1) * Ratio::new(terms.period, previous)).floor() + 1
    }
}

/// What is in the previous window, and how much of it may count.
struct Units {
    previous: i128,
    room: i128,
}

impl Account for Counter {
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>> {
        let Moment { terms, .. } = at;
        let grace = (2 * terms.period).max(ceil_div(MIN_GRACE, terms.tick));
        if self.is_unused() || self.start <= at.tick() + grace {
            return None;
        }
        Some(Box::new(Counter { start: at.tick() - at.tick() % terms.period, current: terms.count, previous: 0 }))
    }

    fn retry_after(&self, at: Moment<'_>, cost: i128) -> i128 {
        let Moment { terms, .. } = at;
        let Counter { start, current, previous } = self.rolled(at);
        let room = terms.count - current - cost;
        at.until(if room >= 0 {
            // The previous window moves out far enough within this one; at
            // the latest it is gone when this one ends.
            start + Counter::elapsed_for(terms, Units { previous, room })
        } else {
            // This window is too full by itself: it has to become the
            // previous one, and to move out in its turn.
            let units = Units { previous: current, room: terms.count - cost };
            start + terms.period + Counter::elapsed_for(terms, units)
        })
    }

    fn charge(&mut self, at: Moment<'_>, cost: i128) {
        *self = self.rolled(at);
        self.current += cost;
    }

    fn report(&mut self, at: Moment<'_>, cost: i128) -> i128 {
        *self = self.rolled(at);
        let taken = cost.min((at.terms.ceiling - self.current).max(0));
        self.current += taken;
        cost - taken
    }

    fn refund(&mut self, at: Moment<'_>, cost: i128) {
        *self = self.rolled(at);
        let from_current = cost.min(self.current);
        self.current -= from_current;
        self.previous -= (cost - from_current).min(self.previous);
    }

    fn undo(&mut self, at: Moment<'_>, charged_at: i128, Undone { charged, kept }: Undone) {
        *self = self.rolled(at);
        let tick = charged_at.div_euclid(at.terms.tick);
        if tick >= self.start {
            self.current -= (charged - kept).min(self.current);
        } else if tick >= self.start - at.terms.period {
            self.previous -= (charged - kept).min(self.previous);
        }
    }

    fn ahead(&self, at: Moment<'_>) -> i128 {
        at.until(self.start)
    }

    /// `floor(previous * (period - elapsed) / period) + current`, as they count.
    fn used(&self, at: Moment<'_>) -> i128 {
        let Counter { start, current, previous } = self.rolled(at);
        let elapsed = (at.tick() - start).max(0);
        Ratio::new(previous * (at.terms.period - elapsed), at.terms.period).floor() + current
    }

    fn reset_after(&self, at: Moment<'_>) -> i128 {
        let Moment { terms, .. } = at;
        let Counter { start, current, previous } = self.rolled(at);
        let none_of = |previous| Counter::elapsed_for(terms, Units { previous, room: 0 });
        if current > 0 {
            at.until(start + terms.period + none_of(current))
        } else {
            at.until(start + none_of(previous))
        }
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}
