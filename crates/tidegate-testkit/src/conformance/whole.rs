//! The whole of it: recorded traces, and random checks beside the oracle.

use tidegate::store::Store;
use tidegate::{Algorithm, ManualClock};

use crate::differential::Differential;
use crate::trace::RECORDED;

/// Every recorded trace, to the microsecond.
pub fn every_recorded_trace_is_answered<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for recorded in RECORDED {
        let trace = recorded.trace().unwrap_or_else(|error| panic!("{}.trace: {error}", recorded.name));
        let (store, clock) = make();
        if let Err(mismatch) = trace.replay_on(store, &clock) {
            panic!("{}.trace: {mismatch}", recorded.name);
        }
    }
}

/// Every field of every verdict, in some thousand random decisions: few
/// enough for a store that is a network away.
pub fn every_verdict_is_that_of_the_oracle<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    let differential = Differential { algorithms: &Algorithm::ALL, decisions: 5_000, seed: 23 };
    if let Err(difference) = differential.run(make) {
        panic!("{difference}");
    }
}
