//! What this process has on lease: units charged on the servers beforehand,
//! to be handed out here.
//!
//! This is the pure part, an [account](account) for each state behind the locks of
//! its shard. It asks the servers nothing.

mod account;
mod waiter;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate::Micros;
use tidegate::kernel::Verdict;
use tidegate::store::Check;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::account::Account;
pub(super) use self::account::{Grant, Leaving, Loan, Next, Return, Served, Wanting};
pub(super) use self::waiter::{Answer, Subject, Waiter, after};

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

/// What a check takes, and may have to put back.
pub(super) struct Portion<'c> {
    state_key: &'c [u8],
    check: &'c Check<'c>,
    chunk: u64,
    /// How often its state had been reset before.
    resets: u64,
}

impl Ledger {
    pub(super) fn new(deadline: Duration) -> Ledger {
        Ledger { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default(), deadline }
    }

    fn shard(&self, state_key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(state_key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the account of a state, if it has one.
    fn with<R>(&self, state_key: &[u8], look: impl FnOnce(&mut Account) -> R) -> Option<R> {
        self.shard(state_key).get_mut(state_key).map(look)
    }

    /// Takes `cost` of what is on lease.
    pub(super) fn take(&self, state_key: &[u8], cost: u64, now: Micros) -> Option<Verdict> {
        self.with(state_key, |account| account.take(cost, now))?
    }

    /// What a charge of `cost` would be answered, if the lease alone decides.
    pub(super) fn peek(&self, state_key: &[u8], cost: u64, now: Micros) -> Option<Verdict> {
        self.with(state_key, |account| account.peek(cost, now))?
    }

    /// Units that can be taken now.
    pub(super) fn held(&self, state_key: &[u8], now: Micros) -> u64 {
        self.with(state_key, |account| account.held(now)).unwrap_or(0)
    }

    /// What a check is about to take.
    pub(super) fn portion<'c>(&self, state_key: &'c [u8], check: &'c Check<'c>, chunk: u64) -> Portion<'c> {
        Portion { state_key, check, chunk, resets: self.with(state_key, |account| account.resets()).unwrap_or(0) }
    }

    /// Puts back what was taken a moment ago, unless the state was reset since then. Others may have
    /// borrowed meanwhile: what is more than a chunk is not held but given back, and so is all of it
    /// where the lease was given up.
    pub(super) fn put_back(&self, Portion { state_key, check, chunk, resets }: &Portion<'_>) {
        let mut shard = self.shard(state_key);
        match shard.get_mut(*state_key) {
            Some(account) if account.resets() == *resets => account.hold(check.cost(), *chunk),
            Some(_) => {}
            None => {
                drop(shard);
                self.owe(state_key, Return { subject: Arc::new(Subject::of(check)), units: check.cost() });
            }
        }
    }

    /// Keeps what was taken for a caller that is gone, as far as it fits into a chunk and unless the
    /// state was reset since then.
    pub(super) fn keep(&self, state_key: &[u8], gone: &Waiter, chunk: u64) {
        self.with(state_key, |account| {
            if account.resets() == gone.resets {
                account.keep(gone.cost, chunk);
            }
        });
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
        let account = shard.entry(state_key.into()).or_insert_with(|| Account::new(Arc::new(Subject::of(check))));
        account.take_or_wait(check, now, self.deadline)
    }

    /// What is to be done for those that wait; `None` if no caller waits, and the turn is over.
    pub(super) fn next(&self, state_key: &[u8], chunk: u64, now: Micros) -> Option<Next> {
        self.with(state_key, |account| account.next(chunk, now))?
    }

    /// Adds what was granted, if it is what was asked for last.
    pub(super) fn grant(&self, state_key: &[u8], loan: &Loan, grant: Grant) -> Option<Served> {
        self.with(state_key, |account| account.grant(loan, grant))?
    }

    /// Notes that nothing came of a request for units. Returns the callers to be told.
    pub(super) fn end(&self, state_key: &[u8], loan: &Loan, is_refused: bool, chunk: u64) -> Vec<Waiter> {
        self.with(state_key, |account| account.end(loan, is_refused, chunk)).unwrap_or_default()
    }

    /// Ends a turn before it is over: those that wait hear that there is no answer.
    pub(super) fn abandon(&self, state_key: &[u8], turn: &Arc<()>, chunk: u64) {
        self.with(state_key, |account| account.abandon(turn, chunk));
    }

    /// The callers whose deadline is over at `now`, and when that of the next one is.
    pub(super) fn late(&self, state_key: &[u8], now: Instant) -> (Vec<oneshot::Sender<Answer>>, Option<Instant>) {
        self.with(state_key, |account| account.late(now)).unwrap_or_default()
    }

    /// Forgets the units of one state: it was reset.
    pub(super) fn cancel(&self, state_key: &[u8]) {
        self.with(state_key, Account::cancel);
    }

    /// Gives up the lease of one state: its limit is no longer in force. `None` if nothing of it is
    /// on its way back.
    pub(super) fn leave(&self, state_key: &[u8]) -> Option<Leaving> {
        self.with(state_key, Account::leave)?
    }

    /// Keeps what could not be given back yet. No request can take it meanwhile.
    pub(super) fn owe(&self, state_key: &[u8], Return { subject, units }: Return) {
        let mut shard = self.shard(state_key);
        let has_room = shard.len() < MAX_KEYS / SHARDS;
        match shard.get_mut(state_key) {
            Some(account) => account.owe(units),
            None if has_room => shard.entry(state_key.into()).or_insert_with(|| Account::new(subject)).owe(units),
            None => tracing::warn!(units, "borrowed units are not given back: too many keys are on lease"),
        }
    }

    /// The states of which something is to be given up at `now`, in an order that does not depend on
    /// how they are hashed. Forgets idle states.
    pub(super) fn expired(&self, now: Micros) -> Vec<Box<[u8]>> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|state_key, account| {
                let has_expired = account.has_expired(now);
                expired.extend(has_expired.then(|| state_key.clone()));
                has_expired || account.is_in_use(now)
            });
        }
        expired.sort_unstable();
        expired
    }

    /// Gives up the lease of a state if it is over at `now`, and else what is too much of it. Until
    /// then its units are in its account, where a reset finds them.
    pub(super) fn give_up_expired(&self, state_key: &[u8], now: Micros) -> Option<Return> {
        self.with(state_key, |account| account.give_up_expired(now))?
    }

    /// Units on lease now.
    pub(super) fn units(&self) -> u64 {
        let units = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().map(Account::owed).sum::<u64>()
        });
        units.sum()
    }
}

#[cfg(test)]
mod tests;
