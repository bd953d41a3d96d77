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

use foldhash::fast::RandomState;
use tidegate::Micros;
use tidegate::store::Check;

pub(super) use self::account::{Account, Grant, Loan, Next, Return, Served, Wanting};
pub(super) use self::waiter::{Answer, Subject, Waiter};

/// Keys on lease at a time; others are decided by the servers.
const MAX_KEYS: usize = 100_000;
const SHARDS: usize = 64;

/// Accounts by the names of their states.
type Shard = HashMap<Box<[u8]>, Account, RandomState>;

pub(super) struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
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
    pub(super) fn new() -> Ledger {
        Ledger { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    fn shard(&self, state_key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(state_key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the account of a state; nothing comes of it if there is none.
    pub(super) fn with<R: Default>(&self, state_key: &[u8], ask: impl FnOnce(&mut Account) -> R) -> R {
        self.shard(state_key).get_mut(state_key).map(ask).unwrap_or_default()
    }

    /// What a check is about to take.
    pub(super) fn portion<'c>(&self, state_key: &'c [u8], check: &'c Check<'c>, chunk: u64) -> Portion<'c> {
        Portion { state_key, check, chunk, resets: self.with(state_key, |account| account.resets()) }
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
            return account.take_or_wait(check, now);
        }
        if !is_frequent() || shard.len() >= MAX_KEYS / SHARDS {
            return Wanting::NoLease;
        }
        let account = shard.entry(state_key.into()).or_insert_with(|| Account::new(Arc::new(Subject::of(check))));
        account.take_or_wait(check, now)
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
