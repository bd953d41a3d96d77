//! What this process has on lease: units charged on the servers beforehand,
//! to be handed out here.
//!
//! This is the pure part: who holds how much until when, and which grant is
//! the one that was asked for. It asks nobody anything.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate::kernel::Verdict;
use tidegate::{Key, Meter, Micros};

#[cfg(feature = "internals")]
use crate::planted::{Defect, is_planted};

/// Lets a process borrow units of a limit and answer by itself while they last.
///
/// # Bound
/// A unit is charged on the servers before anyone is admitted for it. Since the
/// start, therefore, no more is admitted than the limit allows. In any one
/// interval up to [`excess`](Lease::excess) more can be: units that were
/// borrowed before it began. A process that dies keeps what it had borrowed
/// from being used, at most one chunk for each key, and so does a lost reply to
/// a request for more or to one that gives them back, and a lease that ends
/// after another process has moved on to a changed limit. Where a request of several
/// limits borrows more than a chunk and another limit refuses it, the rest
/// goes back up to a second later, and counts beside the chunk until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Units to borrow at a time; no more than the limit holds.
    pub chunk: u64,
    /// When to give back what was not used.
    pub ttl: Duration,
}

impl Lease {
    /// What so many processes together can admit in one interval, for one
    /// key, beyond what the limit alone would.
    #[must_use]
    pub fn excess(&self, processes: u64) -> u64 {
        self.chunk.saturating_mul(processes)
    }
}

/// Keys on lease at a time; others are decided by the servers.
const MOST_KEYS: usize = 100_000;
const SHARDS: usize = 64;

/// Accounts by the names of their states.
type Shard = HashMap<Box<[u8]>, Account, RandomState>;

pub(crate) struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

/// The lease of one state.
pub(crate) struct Account {
    meter: Meter,
    key: Key<'static>,
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
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What came of taking units.
pub(crate) enum Taking {
    Taken(Verdict),
    /// There are too few: so many.
    Short(u64),
    /// There is no lease, or it is over.
    None,
}

/// What came of a grant.
pub(crate) enum Granted {
    /// The one who asked has taken its cost, and the rest is held.
    Taken(Verdict),
    /// Others have taken meanwhile what was there: it does not suffice, and is
    /// not held.
    Short,
    /// It is not what was asked for last.
    Refused,
}

/// Units to be given back to the servers.
pub(crate) struct Return {
    pub(crate) meter: Meter,
    pub(crate) key: Key<'static>,
    pub(crate) units: u64,
}

/// Units that the servers have charged.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) units: u64,
    /// What the one who asked takes of them at once.
    pub(crate) cost: u64,
    /// How many may be held then: what is put back meanwhile may be too much.
    pub(crate) chunk: u64,
    /// What the servers said.
    pub(crate) verdict: Verdict,
    pub(crate) at: Micros,
    pub(crate) until: Micros,
}

/// A request for units that is under way.
pub(crate) struct Loan {
    pub(crate) number: u64,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        Ledger { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    fn shard(&self, state_key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(state_key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `cost` of what is on lease.
    pub(crate) fn take(&self, state_key: &[u8], cost: u64, now: Micros) -> Taking {
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
    pub(crate) fn peek(&self, state_key: &[u8], cost: u64, now: Micros) -> Option<Verdict> {
        let shard = self.shard(state_key);
        let account = shard.get(state_key).filter(|account| account.is_current(now))?;
        (account.units >= cost && cost > 0).then(|| account.verdict(now))
    }

    /// Units that can be taken now.
    pub(crate) fn held(&self, state_key: &[u8], now: Micros) -> u64 {
        let shard = self.shard(state_key);
        shard.get(state_key).filter(|account| account.is_current(now)).map_or(0, |account| account.units)
    }

    /// Puts back what was taken a moment ago. Others may have borrowed since
    /// then: what is more than a chunk is not held but given back.
    pub(crate) fn put_back(&self, state_key: &[u8], cost: u64, chunk: u64) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            account.hold(cost, chunk);
        }
    }

    /// Keeps what was taken for somebody who has left, as far as it fits into a
    /// chunk. The rest is lost: given back later, it would let more pass in an
    /// interval than a chunk.
    pub(crate) fn keep(&self, state_key: &[u8], cost: u64, chunk: u64) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            account.units = account.units.saturating_add(cost).min(chunk.max(account.units));
        }
    }

    /// The turn of whoever asks the servers for this state; `None` if too
    /// many states are on lease.
    pub(crate) fn turn(&self, state_key: &[u8], meter: &Meter, key: &Key<'_>) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut shard = self.shard(state_key);
        if let Some(account) = shard.get(state_key) {
            return Some(Arc::clone(&account.turn));
        }
        if shard.len() >= MOST_KEYS / SHARDS {
            return None;
        }
        let account = Account::new(meter.clone(), Key::from(key).into_owned());
        let turn = Arc::clone(&account.turn);
        shard.insert(state_key.into(), account);
        Some(turn)
    }

    /// Notes that units are being asked for. What is left of a lease that is
    /// over is to be given back.
    pub(crate) fn begin(&self, state_key: &[u8], now: Micros) -> Option<(Loan, Option<Return>)> {
        let mut shard = self.shard(state_key);
        let account = shard.get_mut(state_key)?;
        let over = account.units + account.surplus > 0 && !account.is_current(now);
        let left = over.then(|| account.give_up());
        account.requests += 1;
        account.awaited = Some(account.requests);
        Some((Loan { number: account.requests }, left))
    }

    /// Notes that nothing came of a request for units.
    pub(crate) fn end(&self, state_key: &[u8], loan: &Loan) {
        let mut shard = self.shard(state_key);
        if let Some(account) = shard.get_mut(state_key).filter(|account| account.awaited == Some(loan.number)) {
            account.awaited = None;
        }
    }

    /// Adds what was granted, if it is what was asked for last, and takes the
    /// cost: a grant that comes late or twice is refused.
    pub(crate) fn grant(&self, state_key: &[u8], loan: &Loan, grant: Grant) -> Granted {
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
    pub(crate) fn cancel(&self, state_key: &[u8]) {
        if let Some(account) = self.shard(state_key).get_mut(state_key) {
            (account.units, account.surplus, account.awaited) = (0, 0, None);
        }
    }

    /// Gives up the lease of one state: its limit is no longer in force.
    pub(crate) fn leave(&self, state_key: &[u8]) -> Option<Return> {
        let mut shard = self.shard(state_key);
        shard.get_mut(state_key).filter(|account| account.units + account.surplus > 0).map(Account::give_up)
    }

    /// Keeps what could not be given back yet. Nobody can take it meanwhile.
    pub(crate) fn owe(&self, state_key: &[u8], left: Return) {
        let mut shard = self.shard(state_key);
        let has_room = shard.len() < MOST_KEYS / SHARDS;
        let Return { meter, key, units } = left;
        match shard.get_mut(state_key) {
            Some(account) => account.surplus = account.surplus.saturating_add(units),
            None if has_room => {
                shard.insert(state_key.into(), Account { surplus: units, ..Account::new(meter, key) });
            }
            None => {}
        }
    }

    /// Gives up the leases that are over at `now` and what is too much of
    /// others, and forgets idle states. In the order of the keys, which does
    /// not depend on how they are hashed.
    pub(crate) fn expired(&self, now: Micros) -> Vec<Return> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, account| {
                let is_needed =
                    account.is_current(now) || account.awaited.is_some() || Arc::strong_count(&account.turn) > 1;
                let kept = if is_needed { std::mem::take(&mut account.units) } else { 0 };
                if account.units + account.surplus > 0 {
                    returns.push(account.give_up());
                }
                account.units = kept;
                is_needed
            });
        }
        returns.sort_by(|one: &Return, other| one.key.as_bytes().cmp(other.key.as_bytes()));
        returns
    }

    /// Units on lease now.
    pub(crate) fn units(&self) -> u64 {
        let units = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().map(|account| account.units + account.surplus).sum::<u64>()
        });
        units.sum()
    }
}

impl Account {
    fn new(meter: Meter, key: Key<'static>) -> Account {
        Account {
            meter,
            key,
            units: 0,
            surplus: 0,
            until: Micros::ZERO,
            granted: Verdict::default(),
            granted_at: Micros::ZERO,
            requests: 0,
            awaited: None,
            turn: Arc::default(),
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
            return Return { meter: self.meter.clone(), key: self.key.clone(), units: self.units };
        }
        let units = std::mem::take(&mut self.units).saturating_add(std::mem::take(&mut self.surplus));
        Return { meter: self.meter.clone(), key: self.key.clone(), units }
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Limit, Name};

    use super::*;

    const STATE: &[u8] = b"state";
    const NOW: Micros = Micros::new(1_000_000);
    const UNTIL: Micros = Micros::new(2_000_000);

    fn ledger() -> Ledger {
        let ledger = Ledger::new();
        let meter = Meter::new(Name::literal("rule"), Limit::per_second(100));
        ledger.turn(STATE, &meter, &Key::from("alice")).expect("there is room");
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
    fn what_is_left_when_the_time_is_over_is_given_back_once() {
        let ledger = ledger();
        borrow(&ledger, 3);
        assert!(taken(&ledger, 1, NOW));
        assert!(!taken(&ledger, 1, UNTIL), "it is over");
        let returned: Vec<u64> = ledger.expired(UNTIL).iter().map(|left| left.units).collect();
        assert_eq!(returned, [2]);
        assert!(ledger.expired(UNTIL).is_empty() && ledger.units() == 0);
    }

    #[test]
    fn what_is_left_is_given_back_before_more_is_borrowed() {
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
    fn of_what_nobody_waits_for_a_chunk_is_kept() {
        let (ledger, chunk) = (ledger(), 3);
        borrow(&ledger, 7);
        assert!(taken(&ledger, 7, NOW));
        ledger.keep(STATE, 7, chunk);
        assert_eq!(ledger.units(), chunk);
        assert!(ledger.expired(NOW).is_empty(), "nothing is given back");
    }

    /// Somebody takes what is there while another asks for the rest of its cost.
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
    fn what_is_put_back_beyond_a_chunk_is_given_back() {
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
