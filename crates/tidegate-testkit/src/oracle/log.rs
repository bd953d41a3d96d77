//! The sliding window log: every charge, for as long as it counts.

use super::{Account, MIN_GRACE, Moment, Undone};

#[derive(Clone, Debug)]
pub(super) struct Log {
    /// The oldest first.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: i128,
    cost: i128,
}

impl Log {
    pub(super) fn fresh() -> Log {
        Log { entries: Vec::new() }
    }

    /// The time by which entries count: a clock that went back stands still
    /// at the newest of them.
    fn time(&self, at: Moment<'_>) -> i128 {
        self.entries.last().map_or(at.now, |newest| newest.at.max(at.now))
    }

    fn counting(&self, at: Moment<'_>) -> impl Iterator<Item = Entry> {
        let (time, period) = (self.time(at), at.terms.period);
        self.entries.iter().copied().filter(move |entry| entry.at + period > time)
    }
}

impl Account for Log {
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>> {
        let grace = at.terms.period.max(MIN_GRACE);
        let newest = self.entries.last()?;
        if newest.at <= at.now + grace {
            return None;
        }
        Some(Box::new(Log { entries: vec![Entry { at: at.now, cost: at.terms.count }] }))
    }

    fn retry_after(&self, at: Moment<'_>, cost: i128) -> i128 {
        let mut used = self.used(at);
        for entry in self.counting(at) {
            used -= entry.cost;
            if used + cost <= at.terms.count {
                return entry.at + at.terms.period - at.now;
            }
        }
        unreachable!("a cost within the capacity fits once every entry has gone")
    }

    fn charge(&mut self, at: Moment<'_>, cost: i128) {
        let time = self.time(at);
        self.entries = self.counting(at).collect();
        self.entries.push(Entry { at: time, cost });
    }

    fn report(&mut self, at: Moment<'_>, cost: i128) -> i128 {
        let taken = cost.min((at.terms.ceiling - self.used(at)).max(0));
        if taken > 0 {
            self.charge(at, taken);
        }
        cost - taken
    }

    fn refund(&mut self, at: Moment<'_>, cost: i128) {
        self.entries = self.counting(at).collect();
        let mut owed = cost;
        while let (1.., Some(newest)) = (owed, self.entries.last_mut()) {
            let given = owed.min(newest.cost);
            newest.cost -= given;
            owed -= given;
            if newest.cost == 0 {
                self.entries.pop();
            }
        }
    }

    fn undo(&mut self, at: Moment<'_>, charged_at: i128, Undone { charged, kept }: Undone) {
        if !self.counting(at).any(|entry| entry.at == charged_at) {
            return;
        }
        let mut owed = charged - kept;
        self.entries = self.counting(at).collect();
        for entry in self.entries.iter_mut().filter(|entry| entry.at == charged_at) {
            let given = owed.min(entry.cost);
            entry.cost -= given;
            owed -= given;
        }
        self.entries.retain(|entry| entry.cost > 0);
    }

    fn holds(&self, at: Moment<'_>, charged_at: i128, cost: i128) -> bool {
        let then = self.counting(at).filter(|entry| entry.at == charged_at);
        then.map(|entry| entry.cost).sum::<i128>() >= cost
    }

    fn ahead(&self, at: Moment<'_>) -> i128 {
        self.time(at) - at.now
    }

    fn used(&self, at: Moment<'_>) -> i128 {
        self.counting(at).map(|entry| entry.cost).sum()
    }

    fn reset_after(&self, at: Moment<'_>) -> i128 {
        self.entries.last().map_or(0, |newest| (newest.at + at.terms.period - at.now).max(0))
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}
