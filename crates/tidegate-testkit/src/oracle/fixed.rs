//! The fixed window: a count that is forgotten at the window's edge.

use tidegate::{Calendar, Micros};

use super::{Account, MIN_GRACE, Moment, Undone};

#[derive(Clone, Debug)]
pub(super) struct Fixed {
    /// In microseconds, as everything here: a fixed window is never coarse.
    start: i128,
    current: i128,
}

impl Fixed {
    pub(super) fn fresh() -> Fixed {
        Fixed { start: 0, current: 0 }
    }

    /// An empty window that the moment lies in.
    fn opened(at: Moment<'_>) -> Fixed {
        let start = match at.terms.calendar {
            Some(calendar) => edges(calendar, at.now).0,
            None if at.terms.from_first => at.now,
            None => at.now - at.now % at.terms.period,
        };
        Fixed { start, current: 0 }
    }

    fn end(&self, at: Moment<'_>) -> i128 {
        match at.terms.calendar {
            Some(calendar) => edges(calendar, self.start).1,
            None => self.start + at.terms.period,
        }
    }

    /// The window that counts. A clock before its start stands still.
    fn rolled(&self, at: Moment<'_>) -> Fixed {
        if self.current == 0 || at.now >= self.end(at) { Fixed::opened(at) } else { self.clone() }
    }
}

/// The period of a calendar that holds an instant.
fn edges(calendar: Calendar, at: i128) -> (i128, i128) {
    let (start, end) = calendar.period_of(Micros::new(u64::try_from(at).expect("an instant")));
    (i128::from(start.get()), i128::from(end.get()))
}

impl Account for Fixed {
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>> {
        let now = Fixed::opened(at);
        let grace = (now.end(at) - now.start).max(MIN_GRACE);
        if self.current == 0 || self.start <= at.now + grace {
            return None;
        }
        Some(Box::new(Fixed { current: at.terms.count, ..Fixed::opened(at) }))
    }

    fn retry_after(&self, at: Moment<'_>, _: i128) -> i128 {
        self.rolled(at).end(at) - at.now
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
        self.current -= cost.min(self.current);
    }

    fn undo(&mut self, at: Moment<'_>, charged_at: i128, Undone { charged, kept }: Undone) {
        *self = self.rolled(at);
        if charged_at >= self.start {
            self.current -= (charged - kept).min(self.current);
        }
    }

    fn ahead(&self, at: Moment<'_>) -> i128 {
        (self.start - at.now).max(0)
    }

    fn used(&self, at: Moment<'_>) -> i128 {
        self.rolled(at).current
    }

    fn reset_after(&self, at: Moment<'_>) -> i128 {
        let window = self.rolled(at);
        if window.current > 0 { window.end(at) - at.now } else { 0 }
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}
