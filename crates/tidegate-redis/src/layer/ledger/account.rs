//! The lease of one state: how many units it has until when, who waits for more
//! of them in which order, and which grant is the one that was asked for.
//!
//! Units are in one of three places: free for any caller, reserved for the
//! first that waits because it needs more than there is, or surplus, which no
//! caller takes and which goes back to the servers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tidegate::Micros;
use tidegate::kernel::Verdict;
use tidegate::store::Check;
use tokio::sync::oneshot;

use super::waiter::{Answer, Subject, Waiter};
#[cfg(feature = "internals")]
use crate::planted::{Defect, is_planted};

/// Callers that wait for units of one key at a time; others are decided by the servers.
pub(super) const MAX_WAITERS: usize = 16_384;

pub(in crate::layer) struct Account {
    /// Of the check that last had to wait.
    subject: Arc<Subject>,
    units: u64,
    /// Units for the first that waits, which needs more.
    reserved: u64,
    /// Units beyond what may be held, to be given back.
    surplus: u64,
    until: Micros,
    /// What the servers said when they last granted anything.
    granted: Verdict,
    granted_at: Micros,
    /// Counts the resets of the state.
    resets: u64,
    /// Counts the requests for units; the number of the one under way, if any.
    requests: u64,
    awaited: Option<u64>,
    /// Callers that what was held did not suffice for, in the order in which they came.
    waiters: VecDeque<Waiter>,
    /// Held by the task that asks the servers for all of them.
    turn: Weak<()>,
    /// The thresholds that loans have crossed, if no caller was told yet.
    crossed: u8,
}

/// What becomes of a caller that wants units.
pub(in crate::layer) enum Wanting {
    /// There were enough.
    Taken(Verdict),
    /// It waits for the answer; if it has the turn, units must be asked for.
    Waits(oneshot::Receiver<Answer>, Option<Arc<()>>),
    /// There is no lease: the servers decide.
    NoLease,
}

/// Callers of one limit that have taken their costs, one after the other.
pub(in crate::layer) struct Served {
    pub(in crate::layer) waiters: Vec<Waiter>,
    /// How things stood before the first one.
    pub(in crate::layer) verdict: Verdict,
}

/// What is to be done next for those that wait.
pub(in crate::layer) enum Next {
    /// There was enough for these.
    Tell(Served),
    /// Units are to be asked for, and what is left of a lease that is over is to be given back.
    Ask(Loan, Option<Return>),
}

/// A request for units that is under way, for those that waited for the same limit when it began.
pub(in crate::layer) struct Loan {
    pub(in crate::layer) number: u64,
    pub(in crate::layer) subject: Arc<Subject>,
    /// What each of those lacks together with all before it, in their order.
    pub(in crate::layer) short: Vec<u64>,
}

/// Units that the servers have charged.
#[derive(Clone, Copy)]
pub(in crate::layer) struct Grant {
    pub(in crate::layer) units: u64,
    /// How many may be held then: what is put back meanwhile may be too much.
    pub(in crate::layer) chunk: u64,
    /// What the servers said.
    pub(in crate::layer) verdict: Verdict,
    pub(in crate::layer) at: Micros,
    pub(in crate::layer) until: Micros,
}

/// Units to be given back to the servers.
pub(in crate::layer) struct Return {
    pub(in crate::layer) subject: Arc<Subject>,
    pub(in crate::layer) units: u64,
}

impl Loan {
    /// What the first one lacks.
    pub(in crate::layer) fn least(&self) -> u64 {
        self.short.first().copied().unwrap_or(0).max(1)
    }

    /// How much to ask for where there are `most` units: a chunk, or what callers lack if that is
    /// more. Then less than a chunk is left when they have taken their costs, since each lacks something.
    pub(in crate::layer) fn wanted(&self, chunk: u64, most: u64) -> u64 {
        let lacking = self.short.iter().rev().find(|short| **short <= most);
        lacking.copied().unwrap_or(0).max(chunk.min(most)).max(self.least())
    }
}

impl Account {
    pub(super) fn new(subject: Arc<Subject>) -> Account {
        Account {
            subject,
            units: 0,
            reserved: 0,
            surplus: 0,
            until: Micros::ZERO,
            granted: Verdict::default(),
            granted_at: Micros::ZERO,
            resets: 0,
            requests: 0,
            awaited: None,
            waiters: VecDeque::new(),
            turn: Weak::new(),
            crossed: 0,
        }
    }

    fn is_current(&self, now: Micros) -> bool {
        now < self.until
    }

    /// Whether it is still wanted: it is current, or units are being asked for.
    pub(super) fn is_in_use(&self, now: Micros) -> bool {
        self.is_current(now) || self.awaited.is_some() || self.turn.strong_count() > 0
    }

    /// Units that can be taken now.
    pub(in crate::layer) fn held(&self, now: Micros) -> u64 {
        if self.is_current(now) { self.units } else { 0 }
    }

    /// All that the servers were charged for and that was not used.
    pub(super) fn owed(&self) -> u64 {
        self.units.saturating_add(self.reserved).saturating_add(self.surplus)
    }

    pub(in crate::layer) fn take(&mut self, cost: u64, now: Micros) -> Option<Verdict> {
        if !self.is_current(now) || self.units < cost {
            return None;
        }
        self.units -= cost;
        Some(self.verdict(now))
    }

    /// What a charge of `cost` would be answered, if the lease alone decides.
    pub(in crate::layer) fn peek(&self, cost: u64, now: Micros) -> Option<Verdict> {
        (self.held(now) >= cost && cost > 0).then(|| self.verdict(now))
    }

    /// Takes the cost of a check, or waits for it: the first that waits asks the servers.
    pub(super) fn take_or_wait(&mut self, check: &Check<'_>, now: Micros) -> Wanting {
        if let Some(verdict) = self.take(check.cost(), now) {
            return Wanting::Taken(verdict);
        }
        if self.waiters.len() >= MAX_WAITERS {
            return Wanting::NoLease;
        }
        if !self.subject.is_of(check) {
            (self.subject, self.crossed) = (Arc::new(Subject::of(check)), 0);
        }
        let (tell, told) = oneshot::channel();
        let (cost, subject) = (check.cost(), Arc::clone(&self.subject));
        self.waiters.push_back(Waiter { cost, subject, lacked: None, resets: 0, tell });
        let turn = (self.turn.strong_count() == 0).then(|| Arc::new(()));
        if let Some(turn) = &turn {
            self.turn = Arc::downgrade(turn);
        }
        Wanting::Waits(told, turn)
    }

    /// What is to be done for those that wait. A request for units is noted as the one under way. `None` if
    /// no caller waits: then the turn is over.
    pub(in crate::layer) fn next(&mut self, chunk: u64, now: Micros) -> Option<Next> {
        self.waiters.retain(|waiter| !waiter.is_gone());
        let Some(first) = self.waiters.front() else {
            self.turn = Weak::new();
            self.keep_reserved(chunk);
            return None;
        };
        let subject = Arc::clone(&first.subject);
        if self.is_current(now) {
            let served = self.serve(now);
            if !served.waiters.is_empty() {
                return Some(Next::Tell(served));
            }
        }
        let left = if self.is_current(now) { None } else { self.give_up() };
        self.requests += 1;
        self.awaited = Some(self.requests);
        let (has, mut wanted, mut short) = (self.units.saturating_add(self.reserved), 0_u64, Vec::new());
        for waiter in self.waiters.iter_mut().take_while(|waiter| Arc::ptr_eq(&waiter.subject, &subject)) {
            wanted = wanted.saturating_add(waiter.cost);
            let lacks = wanted.saturating_sub(has);
            waiter.lacked = Some(lacks);
            short.push(lacks);
        }
        Some(Next::Ask(Loan { number: self.requests, short, subject }, left))
    }

    /// Adds what was granted, if it is what was asked for last, for those that waited for it to take
    /// their costs: a grant that comes late or twice is refused.
    pub(in crate::layer) fn grant(&mut self, loan: &Loan, grant: Grant) -> Option<Served> {
        if self.awaited != Some(loan.number) {
            return None;
        }
        let Grant { units, chunk, mut verdict, at, until } = grant;
        self.awaited = None;
        self.crossed |= std::mem::take(&mut verdict.crossed);
        self.units = self.units.saturating_add(units);
        (self.granted, self.granted_at, self.until) = (verdict, at, until);
        let mut lost = 0_u64;
        self.waiters.retain(|waiter| {
            let is_lost = waiter.is_gone() && waiter.was_asked_for();
            lost = if is_lost { lost.saturating_add(waiter.cost) } else { lost };
            !waiter.is_gone()
        });
        let served = self.serve(at);
        // Others have taken meanwhile what was there: it is for a caller that it does not suffice for.
        let lacked = self.waiters.front().and_then(|waiter| waiter.lacked);
        if lacked.is_some_and(|lacked| lacked <= units) {
            self.reserved = self.reserved.saturating_add(std::mem::take(&mut self.units));
        } else {
            // What callers waited for that are gone is lost, as far as it does not fit into a chunk.
            let left = std::mem::take(&mut self.units).saturating_add(std::mem::take(&mut self.reserved));
            self.hold(left - lost.min(left.saturating_sub(chunk)), chunk);
        }
        self.waiters.iter_mut().for_each(|waiter| waiter.lacked = None);
        #[cfg(feature = "internals")]
        if is_planted(Defect::GrantsTwice) {
            self.hold(units, u64::MAX);
        }
        Some(served)
    }

    /// Notes that nothing came of a request for units. Returns the callers to be told: if it was
    /// refused those of the first one's cost, or else all that it was for. What is held may still
    /// suffice for the others, which go on waiting.
    pub(in crate::layer) fn end(&mut self, loan: &Loan, is_refused: bool, chunk: u64) -> Vec<Waiter> {
        if self.awaited == Some(loan.number) {
            self.awaited = None;
        }
        let reserved = std::mem::take(&mut self.reserved);
        self.hold(reserved, chunk);
        let (cost, mut left) = (self.waiters.front().map_or(0, |waiter| waiter.cost), self.units);
        let (mut told, mut others) = (Vec::new(), VecDeque::new());
        for mut waiter in self.waiters.drain(..) {
            let is_of_it = waiter.was_asked_for() && (!is_refused || waiter.cost == cost);
            let rest = left.checked_sub(waiter.cost).filter(|_| is_of_it);
            left = rest.unwrap_or(left);
            if is_of_it && rest.is_none() {
                told.push(waiter);
            } else {
                waiter.lacked = None;
                others.push_back(waiter);
            }
        }
        self.waiters = others;
        told
    }

    /// Ends this turn before it is over: those that wait hear that there is no answer.
    pub(in crate::layer) fn abandon(&mut self, turn: &Arc<()>, chunk: u64) {
        if self.turn.ptr_eq(&Arc::downgrade(turn)) {
            (self.turn, self.awaited) = (Weak::new(), None);
            self.keep_reserved(chunk);
            self.waiters.clear();
        }
    }

    fn verdict(&self, now: Micros) -> Verdict {
        let elapsed = now.saturating_since(self.granted_at);
        Verdict {
            allowed: true,
            remaining: self.units.saturating_add(self.granted.remaining),
            retry_after: Micros::ZERO,
            reset_after: self.granted.reset_after.saturating_since(elapsed),
            ..self.granted
        }
    }

    /// Has those that wait take their costs as far as what is held suffices for them, up to one of
    /// another limit.
    fn serve(&mut self, now: Micros) -> Served {
        let verdict = self.verdict(now);
        let remaining = verdict.remaining.saturating_add(self.reserved);
        let mut left = self.units.saturating_add(self.reserved);
        let subject = self.waiters.front().map(|waiter| Arc::clone(&waiter.subject));
        let enough = self.waiters.iter().take_while(|waiter| {
            let is_of_it = subject.as_ref().is_some_and(|subject| Arc::ptr_eq(&waiter.subject, subject));
            let rest = left.checked_sub(waiter.cost).filter(|_| is_of_it);
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let enough = enough.count();
        self.reserved = self.reserved.min(left);
        self.units = left - self.reserved;
        let resets = self.resets;
        let waiters = self.waiters.drain(..enough).map(|waiter| Waiter { resets, ..waiter });
        let crossed = if enough > 0 { std::mem::take(&mut self.crossed) } else { 0 };
        Served { waiters: waiters.collect(), verdict: Verdict { remaining, crossed, ..verdict } }
    }

    /// Adds units, of which no more than `most` are held; the rest is surplus.
    pub(super) fn hold(&mut self, units: u64, most: u64) {
        let held = self.units + units;
        self.units = held.min(most.max(self.units));
        self.surplus += held - self.units;
    }

    /// Has the next caller told of thresholds that none was told of.
    pub(in crate::layer) fn untold(&mut self, crossed: u8) {
        self.crossed |= crossed;
    }

    /// Keeps what was taken for a caller that is gone, unless the state was reset since then.
    pub(in crate::layer) fn keep_taken(&mut self, cost: u64, resets: u64, chunk: u64) {
        if self.resets == resets {
            self.keep(cost, chunk);
        }
    }

    /// Adds units as far as they fit into a chunk. The rest is lost: given back later, it would let
    /// more pass in an interval than a chunk.
    fn keep(&mut self, units: u64, chunk: u64) {
        self.units = self.units.saturating_add(units).min(chunk.max(self.units));
    }

    /// Keeps what was reserved for callers that are gone.
    fn keep_reserved(&mut self, chunk: u64) {
        let reserved = std::mem::take(&mut self.reserved);
        self.keep(reserved, chunk);
    }

    /// Adds units that no caller may take, to be given back.
    pub(super) fn owe(&mut self, units: u64) {
        self.surplus = self.surplus.saturating_add(units);
    }

    /// Forgets all units: the state was reset.
    pub(in crate::layer) fn cancel(&mut self) {
        (self.units, self.reserved, self.surplus, self.awaited) = (0, 0, 0, None);
        self.resets += 1;
    }

    pub(super) fn resets(&self) -> u64 {
        self.resets
    }

    /// Whether there is something to [give up](Account::give_up_expired) at `now`.
    pub(super) fn has_expired(&self, now: Micros) -> bool {
        self.surplus > 0 || (!self.is_current(now) && self.owed() > 0)
    }

    /// Gives up all units of a lease that is over at `now`, and what is too much of another.
    pub(in crate::layer) fn give_up_expired(&mut self, now: Micros) -> Option<Return> {
        if !self.is_current(now) {
            return self.give_up();
        }
        let kept = (std::mem::take(&mut self.units), std::mem::take(&mut self.reserved));
        let surplus = self.give_up();
        (self.units, self.reserved) = kept;
        surplus
    }

    /// Gives up all units, if there are any.
    fn give_up(&mut self) -> Option<Return> {
        let (subject, units) = (Arc::clone(&self.subject), self.owed());
        #[cfg(feature = "internals")]
        if is_planted(Defect::KeepsWhatItGaveBack) {
            return (units > 0).then_some(Return { subject, units: self.units });
        }
        (self.units, self.reserved, self.surplus) = (0, 0, 0);
        (units > 0).then_some(Return { subject, units })
    }
}
