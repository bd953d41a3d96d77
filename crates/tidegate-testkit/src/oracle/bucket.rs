//! The token bucket and the leaky bucket, by the instant at which they run
//! empty.

use super::ratio::Ratio;
use super::{Account, MIN_GRACE, Moment, Undone, ceil_div};

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// In ticks; zero for a bucket never used.
    empty_at: Ratio,
}

impl Bucket {
    pub(super) fn fresh() -> Bucket {
        Bucket { empty_at: Ratio::ZERO }
    }

    /// The units in the bucket.
    fn level(&self, at: Moment<'_>) -> Ratio {
        ((self.empty_at - Ratio::from(at.tick())) * at.terms.rate).max(Ratio::ZERO)
    }
}

impl Account for Bucket {
    fn heal(&self, at: Moment<'_>) -> Option<Box<dyn Account>> {
        let refill = Ratio::from(at.terms.capacity) / at.terms.rate;
        let grace = refill.ceil().max(ceil_div(MIN_GRACE, at.terms.tick));
        let reach = (Ratio::from(at.terms.ceiling) / at.terms.rate).ceil();
        if self.empty_at.floor() <= at.tick() + reach + grace {
            return None;
        }
        Some(Box::new(Bucket { empty_at: Ratio::from(at.tick()) + refill }))
    }

    fn retry_after(&self, at: Moment<'_>, cost: i128) -> i128 {
        // level(u) + cost <= capacity, solved for the tick u.
        let from = self.empty_at - Ratio::from(at.terms.capacity - cost) / at.terms.rate;
        at.until(from.ceil())
    }

    fn delay(&self, at: Moment<'_>) -> i128 {
        if at.terms.queues { self.reset_after(at) } else { 0 }
    }

    fn charge(&mut self, at: Moment<'_>, cost: i128) {
        self.empty_at = Ratio::from(at.tick()) + (self.level(at) + Ratio::from(cost)) / at.terms.rate;
    }

    fn report(&mut self, at: Moment<'_>, cost: i128) -> i128 {
        let level = self.level(at);
        let room = (Ratio::from(at.terms.ceiling) - level).max(Ratio::ZERO);
        if room > Ratio::ZERO {
            let taken = Ratio::from(cost).min(room);
            self.empty_at = Ratio::from(at.tick()) + (level + taken) / at.terms.rate;
        }
        (cost - room.floor()).max(0)
    }

    fn refund(&mut self, at: Moment<'_>, cost: i128) {
        let tick = Ratio::from(at.tick());
        if self.empty_at >= tick {
            self.empty_at = (self.empty_at - Ratio::from(cost) / at.terms.rate).max(tick);
        }
    }

    fn undo(&mut self, at: Moment<'_>, charged_at: i128, Undone { charged, kept }: Undone) {
        let passed = (at.tick() - charged_at.div_euclid(at.terms.tick)).max(0);
        let drained = Ratio::from(passed) * at.terms.rate;
        // All that has drained was of this charge, and what is kept of it went first.
        let gone = (drained - Ratio::from(kept)).max(Ratio::ZERO);
        let back = (Ratio::from(charged - kept) - gone).max(Ratio::ZERO);
        let tick = Ratio::from(at.tick());
        if self.empty_at >= tick {
            self.empty_at = (self.empty_at - back / at.terms.rate).max(tick);
        }
    }

    fn used(&self, at: Moment<'_>) -> i128 {
        self.level(at).ceil()
    }

    fn reset_after(&self, at: Moment<'_>) -> i128 {
        at.until(self.empty_at.ceil())
    }

    fn copy(&self) -> Box<dyn Account> {
        Box::new(self.clone())
    }
}
