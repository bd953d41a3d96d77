//! One ask of a slice on its way: what is used of its limit and of those that it replaced.

use std::sync::Arc;

use tidegate::Micros;
use tidegate::kernel::{Charged, Verb};

use super::{Account, Ask, Moment, RuleName, Terms, Undone, ask_more, instant, rule_name};

/// One ask of a slice, and what is found out about it.
pub(super) struct Step<'a> {
    pub(super) ask: Ask<'a>,
    pub(super) own: Holding,
    /// What the key has used of the limits that this one replaced, the newest first.
    pub(super) former: Vec<Holding>,
    pub(super) allowed: bool,
    pub(super) delay: i128,
    pub(super) retry_after: i128,
    pub(super) unrecorded: i128,
    pub(super) ahead: i128,
    pub(super) crossed: u8,
}

impl Step<'_> {
    /// What former limits count.
    fn beside(&self, now: i128) -> i128 {
        self.former.iter().map(|held| held.used(now)).sum()
    }

    /// The sum: what is used of the limit and of its former ones, and the cost, fit into the limit.
    pub(super) fn admits(&self, now: i128) -> bool {
        self.own.used(now) + self.beside(now) + self.ask.needs() <= self.own.terms.capacity
    }

    /// How much of the limit is left beside what former limits count.
    pub(super) fn left(&self, now: i128) -> i128 {
        (self.own.account.remaining(self.own.at(now)) - self.beside(now)).max(0)
    }

    /// A request that a leaky bucket delays waits for the queues of former ones first.
    pub(super) fn delay(&self, now: i128) -> i128 {
        let delay = |held: &Holding| held.account.delay(held.at(now));
        let former = self.former.iter().map(delay).max().unwrap_or(0);
        delay(&self.own) + if self.own.terms.queues { former } else { 0 }
    }

    pub(super) fn reset_after(&self, now: i128) -> i128 {
        let reset_after = |held: &Holding| held.account.reset_after(held.at(now));
        self.former.iter().map(reset_after).fold(reset_after(&self.own), i128::max)
    }

    /// The waiting time of a refusal, proven to be the least one.
    pub(super) fn tried_retry_after(&self, now: i128) -> i128 {
        let needs = self.ask.needs();
        assert!(needs <= self.own.terms.capacity, "a check's cost is at most the capacity above its floor");
        let passes_after = |wait: i128| self.admits(now + wait);
        let is_alone = self.beside(now) == 0;
        let wait = if is_alone { self.own.account.retry_after(self.own.at(now), needs) } else { least(passes_after) };
        assert!(wait > 0 && passes_after(wait), "{:?} does not pass after {wait}", self.own);
        assert!(!passes_after(wait - 1), "{:?} passes before {wait}", self.own);
        wait
    }

    /// A permit of a former limit has to end before that is forgotten.
    pub(super) fn can_renew(&self, charged: Charged, now: i128) -> bool {
        self.corrected().is_some_and(|held| {
            let at = held.at(now);
            let is_remembered = at.now + at.terms.period_in_micros <= instant(held.until);
            held.account.holds(at, instant(charged.at), i128::from(charged.cost)) && is_remembered
        })
    }

    /// What a correction is about, if it still matters; else what the ask is about.
    pub(super) fn corrected(&self) -> Option<&Holding> {
        let Some(meter) = self.ask.corrected else { return Some(&self.own) };
        let name = rule_name(meter)?;
        self.former.iter().find(|held| held.name == name)
    }

    fn corrected_mut(&mut self) -> Option<&mut Holding> {
        let Some(meter) = self.ask.corrected else { return Some(&mut self.own) };
        let name = rule_name(meter)?;
        self.former.iter_mut().find(|held| held.name == name)
    }

    pub(super) fn carry_out(&mut self, now: i128) {
        let (verb, cost) = (self.ask.verb, i128::from(self.ask.cost));
        match verb {
            Verb::Charge => self.own.change(now, |account, at| account.charge(at, cost)),
            Verb::Report => self.unrecorded = self.own.change(now, |account, at| account.report(at, cost)),
            Verb::Refund => self.refund(now, cost),
            Verb::Reset => {
                for held in self.former.iter_mut().chain([&mut self.own]) {
                    (held.account, held.is_changed) = (held.terms.fresh(), true);
                }
            }
            Verb::Settle(charged) => {
                let undone = Undone { charged: i128::from(charged.cost), kept: cost };
                // What was used beyond the charge is used now, and of the limit in force.
                match (ask_more(cost, charged), self.corrected_mut()) {
                    (more @ 1.., _) => self.unrecorded = self.own.change(now, |account, at| account.report(at, more)),
                    (_, Some(held)) => held.change(now, |account, at| account.undo(at, instant(charged.at), undone)),
                    (_, None) => {}
                }
            }
            Verb::Renew(charged) => {
                let cost = i128::from(charged.cost);
                let renew = |account: &mut dyn Account, at: Moment<'_>| {
                    account.undo(at, instant(charged.at), Undone { charged: cost, kept: 0 });
                    account.charge(at, cost);
                };
                if let Some(held) = self.corrected_mut() {
                    held.change(now, renew);
                }
            }
            Verb::Peek => {}
        }
        if matches!(verb, Verb::Charge | Verb::Renew(_)) {
            self.ahead = self.corrected().map_or(0, |held| held.account.ahead(held.at(now)));
        }
    }

    /// Gives back to the newest state first, and to older ones what the newer ones did not count.
    fn refund(&mut self, now: i128, cost: i128) {
        let mut left = (cost - self.own.used(now)).max(0);
        self.own.change(now, |account, at| account.refund(at, cost));
        for held in &mut self.former {
            let used = held.used(now);
            if left > 0 {
                held.change(now, |account, at| account.refund(at, left));
            }
            left = (left - used).max(0);
        }
    }
}

/// What a key has used of a limit, and until when that limit is remembered.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) name: RuleName,
    pub(super) terms: Arc<Terms>,
    pub(super) account: Box<dyn Account>,
    pub(super) until: Micros,
    pub(super) is_changed: bool,
}

impl Holding {
    fn at(&self, now: i128) -> Moment<'_> {
        self.terms.at(now)
    }

    fn used(&self, now: i128) -> i128 {
        self.account.used(self.at(now))
    }

    fn change<T>(&mut self, now: i128, change: impl FnOnce(&mut dyn Account, Moment<'_>) -> T) -> T {
        self.is_changed = true;
        change(&mut *self.account, self.terms.at(now))
    }
}

/// The least number from which on something holds; at zero it does not.
fn least(holds: impl Fn(i128) -> bool) -> i128 {
    let (mut fails, mut found) = (0, 1);
    while !holds(found) {
        (fails, found) = (found, 2 * found);
    }
    while found - fails > 1 {
        let middle = fails + (found - fails) / 2;
        if holds(middle) { found = middle } else { fails = middle }
    }
    found
}
