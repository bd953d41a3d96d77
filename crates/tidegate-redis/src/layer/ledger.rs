//! What this process has on lease: units charged on the servers beforehand,
//! to be handed out here.
//!
//! This is the pure part: which state has how much until when, and which grant
//! is the one that was asked for. It sends nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tidegate::kernel::Verdict;
use tidegate::store::{Check, Former, Meter};
use tidegate::{Key, Micros};

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
    /// Held by the one who asks for more, while others wait for the same.
    step: Arc<tokio::sync::Mutex<()>>,
}

/// What came of taking units.
pub(super) enum Taking {
    Taken(Verdict),
    /// There are too few: so many.
    Short(u64),
    /// There is no lease, or it is over.
    None,
}

/// What came of a grant.
pub(super) enum Granted {
    /// The one who asked has taken its cost, and the rest is held.
    Taken(Verdict),
    /// Others have taken meanwhile what was there: it does not suffice, and is
    /// not held.
    Short,
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
    /// What the one who asked takes of them at once.
    pub(super) cost: u64,
    /// How many may be held then: what is put back meanwhile may be too much.
    pub(super) chunk: u64,
    /// What the servers said.
    pub(super) verdict: Verdict,
    pub(super) at: Micros,
    pub(super) until: Micros,
}

/// A request for units that is under way.
pub(super) struct Loan {
    pub(super) number: u64,
}

impl Ledger {
    pub(super) fn new() -> Ledger {
        Ledger { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    fn shard(&self, state_key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(state_key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a lease, or was one a moment ago.
    pub(super) fn knows(&self, state_key: &[u8]) -> bool {
        self.shard(state_key).contains_key(state_key)
    }

    /// Takes `cost` of what is on lease.
    pub(super) fn take(&self, state_key: &[u8], cost: u64, now: Micros) -> Taking {
        let mut shard = self.shard(state_key);
        let Some(account) = shard.get_mut(state_key).filter(|account| account.is_current(now)) else {
            return Taking::None;
        };
        if account.units < cost {
            return Taking::Short(account.units);
        }
        account.units -= cost;
        Taking::Taken(account.verdict(now))
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

    /// The step of the request that asks the servers for this state; `None` if
    /// too many states are on lease.
    pub(super) fn step(&self, state_key: &[u8], check: &Check<'_>) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut shard = self.shard(state_key);
        if let Some(account) = shard.get(state_key) {
            return Some(Arc::clone(&account.step));
        }
        if shard.len() >= MAX_KEYS / SHARDS {
            return None;
        }
        let account = Account::new(Subject::of(check));
        let step = Arc::clone(&account.step);
        shard.insert(state_key.into(), account);
        Some(step)
    }

    /// Notes that units are being asked for. What is left of a lease that is
    /// over is to be given back.
    pub(super) fn begin(&self, state_key: &[u8], now: Micros) -> Option<(Loan, Option<Return>)> {
        let mut shard = self.shard(state_key);
        let account = shard.get_mut(state_key)?;
        let over = account.units + account.surplus > 0 && !account.is_current(now);
        let left = over.then(|| account.give_up());
        account.requests += 1;
        account.awaited = Some(account.requests);
        Some((Loan { number: account.requests }, left))
    }

    /// Notes that nothing came of a request for units.
    pub(super) fn end(&self, state_key: &[u8], loan: &Loan) {
        let mut shard = self.shard(state_key);
        if let Some(account) = shard.get_mut(state_key).filter(|account| account.awaited == Some(loan.number)) {
            account.awaited = None;
        }
    }

    /// Adds what was granted, if it is what was asked for last, and takes the
    /// cost: a grant that comes late or twice is refused.
    pub(super) fn grant(&self, state_key: &[u8], loan: &Loan, grant: Grant) -> Granted {
        let mut shard = self.shard(state_key);
        let account = shard.get_mut(state_key).filter(|account| account.awaited == Some(loan.number));
        let Some(account) = account else { return Granted::Refused };
        let Grant { units, cost, chunk, verdict, at, until } = grant;
        account.awaited = None;
        if account.units.saturating_add(units) < cost {
            return Granted::Short;
        }
        account.hold(units, chunk.saturating_add(cost));
        account.units -= cost;
        #[cfg(feature = "internals")]
        if is_planted(Defect::GrantsTwice) {
            account.hold(units, u64::MAX);
        }
        (account.granted, account.granted_at, account.until) = (verdict, at, until);
        Granted::Taken(account.verdict(at))
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
                let is_needed =
                    account.is_current(now) || account.awaited.is_some() || Arc::strong_count(&account.step) > 1;
                let kept = if is_needed { std::mem::take(&mut account.units) } else { 0 };
                if account.units + account.surplus > 0 {
                    returns.push(account.give_up());
                }
                account.units = kept;
                is_needed
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
            step: Arc::default(),
        }
    }

    fn is_current(&self, now: Micros) -> bool {
        now < self.until
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
mod tests {
    use tidegate::kernel::Verb;
    use tidegate::{Limit, Name};

    use super::*;

    const STATE: &[u8] = b"state";
    const NOW: Micros = Micros::new(1_000_000);
    const UNTIL: Micros = Micros::new(2_000_000);

    fn ledger() -> Ledger {
        let ledger = Ledger::new();
        let meter = Meter::new(Name::literal("rule"), Limit::per_second(100));
        let alice = Key::from("alice");
        let check = Check::new(&meter, &alice, Verb::Charge, 1).expect("a cost of one");
        ledger.step(STATE, &check).expect("there is room");
        ledger
    }

    fn grant(units: u64) -> Grant {
        Grant { units, cost: 0, chunk: 100, verdict: Verdict::default(), at: NOW, until: UNTIL }
    }

    fn granted(ledger: &Ledger, loan: &Loan, grant: Grant) -> bool {
        matches!(ledger.grant(STATE, loan, grant), Granted::Taken(_))
    }

    fn borrow(ledger: &Ledger, units: u64) -> Loan {
        let (loan, _) = ledger.begin(STATE, NOW).expect("the account is there");
        assert!(granted(ledger, &loan, grant(units)));
        loan
    }

    fn taken(ledger: &Ledger, cost: u64, now: Micros) -> bool {
        matches!(ledger.take(STATE, cost, now), Taking::Taken(_))
    }

    #[test]
    fn hands_out_what_was_granted_and_no_more() {
        let ledger = ledger();
        assert!(!taken(&ledger, 1, NOW));
        borrow(&ledger, 3);
        assert!(taken(&ledger, 2, NOW) && !taken(&ledger, 2, NOW) && taken(&ledger, 1, NOW) && !taken(&ledger, 1, NOW));
    }

    #[test]
    fn a_grant_that_comes_twice_or_late_is_refused() {
        let ledger = ledger();
        let first = borrow(&ledger, 3);
        assert!(!granted(&ledger, &first, grant(3)), "twice");
        let (late, _) = ledger.begin(STATE, NOW).expect("the account is there");
        let (current, _) = ledger.begin(STATE, NOW).expect("the account is there");
        assert!(!granted(&ledger, &late, grant(3)), "late");
        assert!(granted(&ledger, &current, grant(3)));
        assert_eq!(ledger.units(), 6);
    }

    #[test]
    fn the_rest_of_an_expired_lease_is_returned_once() {
        let ledger = ledger();
        borrow(&ledger, 3);
        assert!(taken(&ledger, 1, NOW));
        assert!(!taken(&ledger, 1, UNTIL), "it is over");
        let returned: Vec<u64> = ledger.expired(UNTIL).iter().map(|left| left.units).collect();
        assert_eq!(returned, [2]);
        assert!(ledger.expired(UNTIL).is_empty() && ledger.units() == 0);
    }

    #[test]
    fn the_rest_of_a_lease_is_returned_before_more_is_borrowed() {
        let ledger = ledger();
        borrow(&ledger, 3);
        let (_, left) = ledger.begin(STATE, UNTIL).expect("the account is there");
        assert_eq!(left.map(|left| left.units), Some(3));
    }

    #[test]
    fn a_reset_leaves_nothing_to_hand_out() {
        let ledger = ledger();
        borrow(&ledger, 3);
        let (under_way, _) = ledger.begin(STATE, NOW).expect("the account is there");
        ledger.cancel(STATE);
        assert!(!granted(&ledger, &under_way, grant(3)));
        assert!(!taken(&ledger, 1, NOW));
    }

    #[test]
    fn of_a_grant_without_a_caller_a_chunk_is_kept() {
        let (ledger, chunk) = (ledger(), 3);
        borrow(&ledger, 7);
        assert!(taken(&ledger, 7, NOW));
        ledger.keep(STATE, 7, chunk);
        assert_eq!(ledger.units(), chunk);
        assert!(ledger.expired(NOW).is_empty(), "nothing is given back");
    }

    /// One request takes what is there while another asks for the rest of its cost.
    #[test]
    fn a_grant_that_does_not_suffice_any_more_is_not_held() {
        let ledger = ledger();
        borrow(&ledger, 1);
        let (loan, _) = ledger.begin(STATE, NOW).expect("the account is there");
        assert!(taken(&ledger, 1, NOW));
        assert!(matches!(ledger.grant(STATE, &loan, Grant { cost: 10, chunk: 3, ..grant(9) }), Granted::Short));
        assert_eq!(ledger.units(), 0);
    }

    #[test]
    fn a_state_that_was_refused_units_is_forgotten_like_others() {
        let ledger = ledger();
        let (loan, _) = ledger.begin(STATE, NOW).expect("the account is there");
        ledger.end(STATE, &loan);
        assert!(ledger.expired(NOW).is_empty());
        assert!(ledger.begin(STATE, NOW).is_none(), "the account is gone");
    }

    /// Requests of several limits take, borrow beside each other, and put back
    /// when another limit refuses: a chunk is all that is held then.
    #[test]
    fn units_beyond_a_chunk_are_returned_to_the_servers() {
        let (ledger, chunk) = (ledger(), 3);
        borrow(&ledger, chunk);
        assert!(taken(&ledger, 3, NOW));
        borrow(&ledger, chunk);
        ledger.put_back(STATE, 2, chunk);
        assert_eq!(ledger.units(), 5, "two of them to be given back");
        assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 1, NOW), "no more than a chunk can be taken");
        let returned: Vec<u64> = ledger.expired(NOW).iter().map(|left| left.units).collect();
        assert_eq!((returned, ledger.units()), (vec![2], 2), "the lease itself goes on");
        // The other way round: what was put back first leaves less room for the grant.
        let (loan, _) = ledger.begin(STATE, NOW).expect("the account is there");
        ledger.put_back(STATE, 1, chunk);
        assert!(granted(&ledger, &loan, Grant { cost: 1, chunk, ..grant(chunk) }));
        assert!(!taken(&ledger, 4, NOW) && taken(&ledger, 3, NOW), "the one who asked had one, a chunk is left");
    }
}
