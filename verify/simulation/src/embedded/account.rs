//! One key under one limit, on a store of its own.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store};
use tidegate::{Key, Limit, ManualClock, Micros, Name};
use tidegate_testkit::block_on;

use super::store::{EmbeddedStore, Settings, forget_at};

pub(super) struct Account {
    pub(super) store: EmbeddedStore,
    clock: ManualClock,
    meter: Meter,
    key: Key<'static>,
}

impl Account {
    pub(super) fn new(limit: Limit, settings: Settings) -> Account {
        let (store, clock) = EmbeddedStore::with(settings);
        Account { store, clock, meter: Meter::new(Name::literal("rule"), limit), key: Key::from("alice") }
    }

    pub(super) fn charge(&self, now: u64, cost: u64) -> Verdict {
        self.ask(now, Verb::Charge, cost)
    }

    pub(super) fn peek(&self, now: u64, cost: u64) -> Verdict {
        self.ask(now, Verb::Peek, cost)
    }

    pub(super) fn ask(&self, now: u64, verb: Verb, cost: u64) -> Verdict {
        self.set(now);
        let mut verdict = [Verdict::default()];
        match block_on(self.store.decide(&[self.check(verb, cost)], &mut verdict)) {
            Ok(at) => assert_eq!(at, Micros::new(now)),
            Err(error) => panic!("the store had no answer: {error:?}"),
        }
        verdict[0]
    }

    /// Takes back a charge of `cost`.
    pub(super) fn undo(&self, now: u64, cost: u64, charged_at: u64) -> Verdict {
        self.set(now);
        self.store.undo(self.check(Verb::Charge, cost), Micros::new(charged_at)).expect("an answer")
    }

    pub(super) fn check(&self, verb: Verb, cost: u64) -> Check<'_> {
        Check::new(&self.meter, &self.key, verb, cost).expect("a cost within the capacity")
    }

    /// What the server calls it.
    pub(super) fn key(&self) -> Vec<u8> {
        EmbeddedStore::key_of(&self.check(Verb::Peek, 0))
    }

    pub(super) fn set(&self, now: u64) {
        self.clock.set(Micros::new(now));
    }

    /// Until when the server keeps the key, if it holds it.
    pub(super) fn kept_until(&self) -> Option<Micros> {
        self.store.keyspace().kept_until(&self.key())
    }

    /// Until when the state matters.
    pub(super) fn forget_at(&self) -> Micros {
        let check = self.check(Verb::Peek, 0);
        let limit = check.meter().limit().expect("a limit of ours");
        forget_at(&self.store.keyspace(), &EmbeddedStore::key_of(&check), limit).expect("a state")
    }

    /// Whether the server holds anything for this key.
    pub(super) fn is_kept(&self) -> bool {
        self.store.keyspace().holds(&self.key())
    }
}
