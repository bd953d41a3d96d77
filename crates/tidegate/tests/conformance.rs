//! The memory store keeps every promise of the design; so does the oracle,
//! by which the suite itself is tested.

use tidegate::{ManualClock, MemoryStore};
use tidegate_testkit::{OracleStore, conformance};

fn in_memory() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
    (store.expect("valid settings"), clock)
}

conformance!(memory, in_memory);

#[test]
fn fixed_windows_of_one_period_count_together() {
    conformance::fixed_windows_of_one_period_count_together(&in_memory);
}

conformance!(oracle, || {
    let clock = ManualClock::default();
    (OracleStore::new(clock.clone()), clock)
});
