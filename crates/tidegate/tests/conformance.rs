//! The memory store keeps every promise of the design; so does the oracle,
//! by which the suite itself is tested.

use tidegate::{ManualClock, MemoryStore};
use tidegate_testkit::{OracleStore, conformance};

conformance!(memory, || {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
    (store.expect("valid settings"), clock)
});

conformance!(oracle, || {
    let clock = ManualClock::default();
    (OracleStore::new(clock.clone()), clock)
});
