//! What this process has on lease: units charged on the servers beforehand,
//! to be handed out here.
//!
//! This is the pure part: which state has how much until when, which callers
//! wait for more of it, and which grant is the one that was asked for. It asks
//! the servers nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate::kernel::Verdict;
use tidegate::store::{Check, Former, Meter, StoreError};
use tidegate::{Key, Micros};
use tokio::sync::oneshot;
use tokio::time::Instant;

#[cfg(feature = "internals")]
use crate::planted::{Defect, is_planted};

/// Keys on lease at a time; others are decided by the servers.
const MAX_KEYS: usize = 100_000;
const SHARDS: usize = 64;

/// Accounts by the names of their states.
type Shard = HashMap<Box<[u8]>, Account, RandomState>;

pub(super) struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// How long a caller waits for units.
    deadline: Duration,
}

/// One limit of one key, with the limits that it replaced: a check that
/// borrows nothing, for what is asked in the background.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) meter: Meter,
    pub(super) key: Key<'static>,
    former: Vec<(Meter, Micros)>,
}

impl Subject {
    pub(super) fn of(check: &Check<'_>) -> Subject {
        let former = check.former().iter().map(|former| (former.meter.clone(), former.until));
        Subject { meter: check.meter().clone(), key: Key::from(check.key()).into_owned(), former: former.collect() }
    }

    /// Whether it says of a check of the same state all that the servers are told.
    fn is_of(&self, check: &Check<'_>) -> bool {
        let has_former = !self.former.is_empty() || !check.former().is_empty();
        !has_former && self.meter.thresholds() == check.meter().thresholds()
    }

    /// The limits that its limit replaced.
    pub(super) fn former(&self) -> Vec<Former<'_>> {
        self.former.iter().map(|(meter, until)| Former { meter, until: *until }).collect()
    }
}

/// The lease of one state.
struct Account {
    subject: Subject,
    units: u64,
    /// Units beyond what may be held, to be given back.
    surplus: u64,
    until: Micros,
    /// What the servers said when they last granted anything.
    granted: Verdict,
    granted_at: Micros,
    /// Counts the requests for units; the number of the one under way, if any.
    requests: u64,
    awaited: Option<u64>,
    /// Callers that what is held does not suffice for, in the order in which they came.
    waiters: VecDeque<Waiter>,
    /// Held by the task that asks the servers for all of them.
    turn: Weak<()>,
}

/// What a caller is told that waited for units.
pub(super) type Answer = Result<(Verdict, Micros), StoreError>;

/// A caller that waits for units.
pub(super) struct Waiter {
    pub(super) cost: u64,
    expires: Instant,
    /// `None` if it was told that this takes too long.
    tell: Option<oneshot::Sender<Answer>>,
}

impl Waiter {
    /// Whether the caller was there to hear it.
    pub(super) fn tell(self, answer: Answer) -> bool {
        self.tell.is_some_and(|tell| tell.send(answer).is_ok())
    }

    fn is_gone(&self) -> bool {
        self.tell.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// What a caller does that wants units.
pub(super) enum Wanting {
    /// There were enough.
    Taken(Verdict),
    /// It waits for the answer; if it has the turn, units must be asked for.
    Waits(oneshot::Receiver<Answer>, Option<Arc<()>>),
    /// There is no lease: the servers decide.
    NoLease,
}

/// What came of a grant.
pub(super) enum Granted {
    /// These callers have taken their costs, one after the other.
    Taken {
        waiters: Vec<Waiter>,
        /// How things stood before the first one.
        verdict: Verdict,
        /// Units that are not held, because they are for a caller that needs more.
        at_hand: u64,
    },
    /// It is not what was asked for last.
    Refused,
}

/// Units to be given back to the servers.
pub(super) struct Return {
    pub(super) subject: Subject,
    pub(super) units: u64,
}

/// Units that the servers have charged.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    pub(super) units: u64,
    /// How many may be held then: what is put back meanwhile may be too much.
    pub(super) chunk: u64,
    /// What the servers said.
    pub(super) verdict: Verdict,
    pub(super) at: Micros,
    pub(super) until: Micros,
}

/// A request for units that is under way, for all that waited when it began.
pub(super) struct Loan {
    pub(super) number: u64,
    pub(super) subject: Subject,
    /// What each of those lacks together with all before it, in their order.
    pub(super) short: Vec<u64>,
}

impl Loan {
    /// What the first one lacks.
    pub(super) fn least(&self) -> u64 {
        self.short.first().copied().unwrap_or(0).max(1)
    }

    /// How much to ask for where there are `most` units: a chunk, or what callers lack if that is
    /// more. Then less than a chunk is left when they have taken their costs.
    pub(super) fn wanted(&self, chunk: u64, most: u64) -> u64 {
        let lacking = self.short.iter().rev().find(|short| **short <= most);
        lacking.copied().unwrap_or(0).max(chunk.min(most)).max(self.least())
    }
}

impl Ledger {
    pub(super) fn new(deadline: Duration) -> Ledger {
        Ledger { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default(), deadline }
    }

    fn shard(&self, state_key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(state_key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `cost` of what is on lease.
    pub(super) fn take(&self, state_key: &[u8], cost: u64, now: Micros) -> Option<Verdict> {
        self.shard(state_key).get_mut(state_key)?.take(cost, now)
    }

    /// What a charge of `cost` would be answered, if the lease alone decides.
    pub(super) fn peek(&self, state_key: &[u8], cost: u64, now: Micros) -> Option<Verdict> {
        let shard = self.shard(state_key);
        let account = shard.get(state_key).filter(|account| account.is_current(now))?;
        (account.units >= cost && cost > 0).then(|| account.verdict(now))
    }

    /// Units that can be taken now.
    pub(super) fn held(&self, state_key: &[u8], now: Micros) -> u64 {
        let shard = self.shard(state_key);
        shard.get(state_key).filter(|account| account.is_current(now)).map_or(0, |account| account.units)
    }

    /// Puts back what was taken a moment ago. Others may have borrowed since
    /// then: what is more than a chunk is not held but given back.
    pub(super) fn put_back(&self, state_key: &[u8], cost: u64, chunk: u64) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            account.hold(cost, chunk);
        }
    }

    /// Keeps what was taken for a caller that is gone, as far as it fits into a
    /// chunk. The rest is lost: given back later, it would let more pass in an
    /// interval than a chunk.
    pub(super) fn keep(&self, state_key: &[u8], cost: u64, chunk: u64) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            account.units = account.units.saturating_add(cost).min(chunk.max(account.units));
        }
    }

    /// Takes the cost of a check, or waits for it: the first that waits asks the servers. A state
    /// without a lease gets one if its key `is_frequent` and not too many have one.
    pub(super) fn take_or_wait(
        &self,
        state_key: &[u8],
        check: &Check<'_>,
        now: Micros,
        is_frequent: impl FnOnce() -> bool,
    ) -> Wanting {
        let mut shard = self.shard(state_key);
        if let Some(account) = shard.get_mut(state_key) {
            return account.take_or_wait(check, now, self.deadline);
        }
        if !is_frequent() || shard.len() >= MAX_KEYS / SHARDS {
            return Wanting::NoLease;
        }
        let account = shard.entry(state_key.into()).or_insert_with(|| Account::new(Subject::of(check)));
        account.take_or_wait(check, now, self.deadline)
    }

    /// Notes that units are being asked for, beside so many that are at hand and not held. What
    /// is left of a lease that is over is to be given back. `None` if no caller waits: then the
    /// turn is over.
    pub(super) fn begin(&self, state_key: &[u8], at_hand: u64, now: Micros) -> Option<(Loan, Option<Return>)> {
        let mut shard = self.shard(state_key);
        let account = shard.get_mut(state_key)?;
        account.waiters.retain(|waiter| !waiter.is_gone());
        if account.waiters.is_empty() {
            account.turn = Weak::new();
            return None;
        }
        let over = account.units + account.surplus > 0 && !account.is_current(now);
        let left = over.then(|| account.give_up());
        account.requests += 1;
        account.awaited = Some(account.requests);
        let (has, mut wanted) = (account.units.saturating_add(at_hand), 0_u64);
        let short = account.waiters.iter().map(|waiter| {
            wanted = wanted.saturating_add(waiter.cost);
            wanted.saturating_sub(has)
        });
        Some((Loan { number: account.requests, short: short.collect(), subject: account.subject.clone() }, left))
    }

    /// Ends a turn that was not over: those that wait hear that there is no answer.
    pub(super) fn abandon(&self, state_key: &[u8], turn: &Arc<()>) {
        let is_its = |account: &&mut Account| account.turn.ptr_eq(&Arc::downgrade(turn));
        if let Some(account) = self.shard(state_key).get_mut(state_key).filter(is_its) {
            (account.turn, account.awaited) = (Weak::new(), None);
            account.waiters.clear();
        }
    }

    /// The callers that have waited for too long at `now`, and when the next one will have.
    pub(super) fn late(&self, state_key: &[u8], now: Instant) -> (Vec<oneshot::Sender<Answer>>, Option<Instant>) {
        let mut shard = self.shard(state_key);
        let waiters = shard.get_mut(state_key).into_iter().flat_map(|account| &mut account.waiters);
        let mut waiters = waiters.filter(|waiter| waiter.tell.is_some()).peekable();
        let mut late = Vec::new();
        while let Some(waiter) = waiters.next_if(|waiter| waiter.expires <= now) {
            late.extend(waiter.tell.take());
        }
        (late, waiters.peek().map(|waiter| waiter.expires))
    }

    /// Notes that nothing came of a request for units. Returns the callers that it was for: all, or
    /// if it was refused those of the first one's cost.
    pub(super) fn end(&self, state_key: &[u8], loan: &Loan, is_refused: bool) -> Vec<Waiter> {
        let mut shard = self.shard(state_key);
        let Some(account) = shard.get_mut(state_key) else { return Vec::new() };
        if account.awaited == Some(loan.number) {
            account.awaited = None;
        }
        let cost = account.waiters.front().map_or(0, |waiter| waiter.cost);
        let waited: Vec<Waiter> = account.waiters.drain(..loan.short.len().min(account.waiters.len())).collect();
        let (told, others): (Vec<Waiter>, Vec<Waiter>) =
            waited.into_iter().partition(|waiter| !is_refused || waiter.cost == cost);
        for waiter in others.into_iter().rev() {
            account.waiters.push_front(waiter);
        }
        told
    }

    /// Adds what was granted, if it is what was asked for last, for those that waited for it to take
    /// their costs: a grant that comes late or twice is refused.
    pub(super) fn grant(&self, state_key: &[u8], loan: &Loan, grant: Grant) -> Granted {
        let mut shard = self.shard(state_key);
        let account = shard.get_mut(state_key).filter(|account| account.awaited == Some(loan.number));
        let Some(account) = account else { return Granted::Refused };
        let Grant { units, chunk, verdict, at, until } = grant;
        account.awaited = None;
        account.units = account.units.saturating_add(units);
        (account.granted, account.granted_at, account.until) = (verdict, at, until);
        let (verdict, mut left) = (account.verdict(at), std::mem::take(&mut account.units));
        let enough = account.waiters.iter().take_while(|waiter| {
            let rest = left.checked_sub(waiter.cost);
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let enough = enough.count();
        let waiters = account.waiters.drain(..enough).collect();
        // Others have taken meanwhile what was there: it is for a caller that it does not suffice for.
        if loan.short.get(enough).is_some_and(|short| *short <= units) {
            return Granted::Taken { waiters, verdict, at_hand: left };
        }
        account.hold(left, chunk);
        #[cfg(feature = "internals")]
        if is_planted(Defect::GrantsTwice) {
            account.hold(units, u64::MAX);
        }
        Granted::Taken { waiters, verdict, at_hand: 0 }
    }

    /// Gives up the lease of one state without a word: it was reset.
    pub(super) fn cancel(&self, state_key: &[u8]) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            (account.units, account.surplus, account.awaited) = (0, 0, None);
        }
    }

    /// Gives up the lease of one state: its limit is no longer in force.
    pub(super) fn leave(&self, state_key: &[u8]) -> Option<Return> {
        let mut shard = self.shard(state_key);
        shard.get_mut(state_key).filter(|account| account.units + account.surplus > 0).map(Account::give_up)
    }

    /// Keeps what could not be given back yet. No request can take it meanwhile.
    pub(super) fn owe(&self, state_key: &[u8], left: Return) {
        let mut shard = self.shard(state_key);
        let has_room = shard.len() < MAX_KEYS / SHARDS;
        let Return { subject, units } = left;
        match shard.get_mut(state_key) {
            Some(account) => account.surplus = account.surplus.saturating_add(units),
            None if has_room => {
                shard.insert(state_key.into(), Account { surplus: units, ..Account::new(subject) });
            }
            None => {}
        }
    }

    /// Gives up the leases that are over at `now` and what is too much of
    /// others, and forgets idle states. In the order of the keys, which does
    /// not depend on how they are hashed.
    pub(super) fn expired(&self, now: Micros) -> Vec<Return> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, account| {
                let is_in_use = account.is_current(now) || account.awaited.is_some();
                let kept = if is_in_use { std::mem::take(&mut account.units) } else { 0 };
                if account.units + account.surplus > 0 {
                    returns.push(account.give_up());
                }
                account.units = kept;
                is_in_use || account.turn.strong_count() > 0
            });
        }
        returns.sort_by(|one: &Return, other| one.subject.key.as_bytes().cmp(other.subject.key.as_bytes()));
        returns
    }

    /// Units on lease now.
    pub(super) fn units(&self) -> u64 {
        let units = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().map(|account| account.units + account.surplus).sum::<u64>()
        });
        units.sum()
    }
}

impl Account {
    fn new(subject: Subject) -> Account {
        Account {
            subject,
            units: 0,
            surplus: 0,
            until: Micros::ZERO,
            granted: Verdict::default(),
            granted_at: Micros::ZERO,
            requests: 0,
            awaited: None,
            waiters: VecDeque::new(),
            turn: Weak::new(),
        }
    }

    fn is_current(&self, now: Micros) -> bool {
        now < self.until
    }

    fn take(&mut self, cost: u64, now: Micros) -> Option<Verdict> {
        if !self.is_current(now) || self.units < cost {
            return None;
        }
        self.units -= cost;
        Some(self.verdict(now))
    }

    fn take_or_wait(&mut self, check: &Check<'_>, now: Micros, deadline: Duration) -> Wanting {
        if let Some(verdict) = self.take(check.cost(), now) {
            return Wanting::Taken(verdict);
        }
        if !self.subject.is_of(check) {
            self.subject = Subject::of(check);
        }
        let (tell, told) = oneshot::channel();
        self.waiters.push_back(Waiter { cost: check.cost(), expires: Instant::now() + deadline, tell: Some(tell) });
        let turn = (self.turn.strong_count() == 0).then(|| Arc::new(()));
        if let Some(turn) = &turn {
            self.turn = Arc::downgrade(turn);
        }
        Wanting::Waits(told, turn)
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

    /// Adds units, of which no more than `most` are held.
    fn hold(&mut self, units: u64, most: u64) {
        let held = self.units + units;
        self.units = held.min(most.max(self.units));
        self.surplus += held - self.units;
    }

    fn give_up(&mut self) -> Return {
        #[cfg(feature = "internals")]
        if is_planted(Defect::KeepsWhatItGaveBack) {
            return Return { subject: self.subject.clone(), units: self.units };
        }
        let units = std::mem::take(&mut self.units).saturating_add(std::mem::take(&mut self.surplus));
        Return { subject: self.subject.clone(), units }
    }
}

#[cfg(test)]
mod tests;
