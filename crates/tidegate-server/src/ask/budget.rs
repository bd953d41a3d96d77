//! How many keys of inline limits there may be where they share a store with
//! the policy's: on Redis, and where an Envoy descriptor file decides.
//!
//! A charge of such a key first takes an entry in a table of this process, which
//! lives at least as long as the key's state. A key that finds no entry is refused
//! before the store hears of it. The table has room for `--inline-max-keys` entries,
//! with spare slots: three for every eight, and all of them rounded up to a multiple
//! of 256. That is how many inline keys the charges of one server have live at a time,
//! and N servers N times as many; the rest of the store is the policy's. A restart
//! begins a new table, and the keys of the old one live on until their limits forget
//! them.
//!
//! An entry is a token bucket of two that gains one per life of the key's state. A
//! charge that it admits leaves at least one unit to drain, and one that it refuses
//! found more than one: either way the entry outlives the state.

use std::sync::Arc;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::memory::Overflow;
use tidegate::store::{Check, ImmediateStore, Meter, Store, StoreError};
use tidegate::{CheckError, Clock, ConfigError, Key, KeyPart, Limit, MemoryStore, Micros, Name};
use tidegate_redis::RedisStore;

const ENTRY: Name = Name::literal("inline-key");

/// The entries.
#[derive(Debug)]
pub(crate) struct Budget {
    entries: MemoryStore,
    max_keys: usize,
}

/// There is no entry for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all places for keys of limits that come with requests are taken ({max_keys}): retry later, use the policy, or \
     start the server with a larger --inline-max-keys"
)]
pub(crate) struct InlineFull {
    max_keys: usize,
}

impl From<InlineFull> for StoreError {
    fn from(full: InlineFull) -> StoreError {
        StoreError::Failed { source: Box::new(full) }
    }
}

impl InlineFull {
    /// Whether this is why there is no answer.
    pub(crate) fn is_cause_of(error: &CheckError) -> bool {
        matches!(error, CheckError::Store(StoreError::Failed { source }) if source.is::<InlineFull>())
    }
}

impl Budget {
    pub(crate) fn new(max_keys: usize, clock: impl Clock) -> Result<Budget, ConfigError> {
        let entries = MemoryStore::builder().max_keys(max_keys).overflow(Overflow::Refuse).clock(clock);
        Ok(Budget { entries: entries.build()?, max_keys })
    }

    /// Takes an entry for a key that is about to be charged, or keeps the one that it has.
    pub(crate) fn admit(&self, meter: &Meter, key: &Key<'_>) -> Result<(), InlineFull> {
        let life = meter.horizon().to_duration().min(Limit::MAX_PERIOD);
        let limit = Limit::try_token_bucket(1, life).and_then(|limit| limit.try_burst(2));
        let entry = limit.map(|limit| Meter::new(ENTRY, limit)).expect("one per life, and two at once");
        // As stores tell keys apart: by the limit, and by whether the key has parts.
        let whose = (meter.identity() ^ u64::from(key.is_composite())).to_le_bytes();
        let key = Key::of([KeyPart::from(&whose[..]), KeyPart::from(key.as_bytes())]);
        let check = Check::new(&entry, &key, Verb::Charge, 1).expect("a cost of one fits two");
        let mut verdict = Verdict::default();
        match self.entries.decide_one_now(check, &mut verdict) {
            Ok(_) if !verdict.degraded => Ok(()),
            Ok(_) | Err(_) => Err(InlineFull { max_keys: self.max_keys }),
        }
    }

    /// Entries that are taken: counts them, which takes a while.
    pub(crate) fn count_keys(&self) -> usize {
        self.entries.count_keys()
    }

    /// Keys that found none.
    pub(crate) fn refused(&self) -> u64 {
        self.entries.overflowed()
    }
}

/// Redis for inline limits: within a budget.
pub struct Bounded {
    store: RedisStore,
    budget: Arc<Budget>,
}

impl Bounded {
    pub(crate) fn new(store: RedisStore, budget: Arc<Budget>) -> Bounded {
        Bounded { store, budget }
    }

    pub(crate) fn redis(&self) -> &RedisStore {
        &self.store
    }
}

impl Store for Bounded {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        // What charges makes a key, and a renewal makes it live for longer.
        let charges = |verb| matches!(verb, Verb::Charge | Verb::Report | Verb::Settle(_) | Verb::Renew(_));
        for check in checks.iter().filter(|check| charges(check.verb())) {
            self.budget.admit(check.meter(), check.key())?;
        }
        self.store.decide(checks, verdicts).await
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tidegate::ManualClock;

    use super::*;

    const KEYS: usize = 1_000;

    #[test]
    fn an_entry_lives_as_long_as_the_state_that_it_stands_for() {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_800_000_000));
        let budget = Budget::new(KEYS, clock.clone()).unwrap();
        let meter = Meter::new(ENTRY, Limit::per_minute(1));
        let key = |number: usize| Key::of([KeyPart::from(number.to_string().as_str())]);
        let admitted =
            |from: usize| (from..from + 10 * KEYS).filter(|n| budget.admit(&meter, &key(*n)).is_ok()).count();
        let first = admitted(0);
        assert!((KEYS..=(KEYS * 11 / 8).next_multiple_of(256)).contains(&first), "{first} keys in a table for {KEYS}");
        assert_eq!(budget.refused(), (10 * KEYS - first) as u64);
        assert_eq!(admitted(10_000), 0);
        let known = (0..10 * KEYS).find(|number| budget.admit(&meter, &key(*number)).is_ok()).unwrap();
        // Charged again and again, it keeps its entry; the others lose theirs.
        for _ in 0..20 {
            clock.advance(meter.horizon().to_duration() - Duration::from_millis(1));
            budget.admit(&meter, &key(known)).unwrap();
            assert!(budget.count_keys() >= 1);
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(budget.count_keys(), 1);
        assert!(admitted(20_000) >= KEYS - 1);
    }

    #[test]
    fn limits_and_kinds_of_keys_have_entries_of_their_own() {
        let budget = Budget::new(KEYS, ManualClock::default()).unwrap();
        let (one, other) = ("5/min".parse().unwrap(), "6/min".parse().unwrap());
        let plain = Key::from("alice");
        for meter in [Meter::new(ENTRY, one), Meter::new(ENTRY, other)] {
            budget.admit(&meter, &plain).unwrap();
            budget.admit(&meter, &plain).unwrap();
            budget.admit(&meter, &Key::of([KeyPart::from("alice"), KeyPart::from("edge")])).unwrap();
        }
        assert_eq!(budget.count_keys(), 4);
    }
}
