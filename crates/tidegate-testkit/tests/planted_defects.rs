//! Stores with a defect each: the comparison with the oracle finds it, and
//! shows it by a trace of a few lines.

use std::future::Future;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{Algorithm, Clock, ManualClock, Micros};
use tidegate_testkit::{Differential, OracleStore, Reproduction};

/// What is wrong with a store.
type Defect = fn(&Check<'_>, &mut Verdict);

/// The oracle, but for one defect.
struct Defective {
    right: OracleStore,
    defect: Defect,
}

impl Store for Defective {
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
        let answer = self.right.decide_now(checks, verdicts);
        checks.iter().zip(verdicts).for_each(|(check, verdict)| (self.defect)(check, verdict));
        std::future::ready(answer)
    }

    fn clock(&self) -> &dyn Clock {
        self.right.clock()
    }
}

#[test]
fn every_planted_defect_is_found_and_shown_by_a_short_trace() {
    let defects: [(&str, Defect); 6] = [
        ("a wait one microsecond short", |_, verdict| {
            verdict.retry_after = Micros::new(verdict.retry_after.get().saturating_sub(1));
        }),
        ("a wait one microsecond long", |_, verdict| {
            if !verdict.allowed {
                verdict.retry_after = Micros::new(verdict.retry_after.get() + 1);
            }
        }),
        ("one unit too many after a refund", |check, verdict| {
            verdict.remaining += u64::from(check.verb() == Verb::Refund && verdict.remaining > 0);
        }),
        ("a fraction of a unit counted as a whole one", |_, verdict| {
            verdict.remaining += u64::from(verdict.remaining == 0 && verdict.reset_after > Micros::new(1_000_000));
        }),
        ("no reset time after a peek", |check, verdict| {
            if check.verb() == Verb::Peek {
                verdict.reset_after = Micros::ZERO;
            }
        }),
        ("a delay where there is none", |check, verdict| {
            if check.cost() > 1 && verdict.allowed {
                verdict.delay = Micros::from_duration(Duration::from_secs(1));
            }
        }),
    ];
    for (name, defect) in defects {
        for algorithm in Algorithm::ALL {
            let store = || {
                let clock = ManualClock::default();
                (Defective { right: OracleStore::new(clock.clone()), defect }, clock)
            };
            let differential = Differential { algorithms: &[algorithm], decisions: 100_000, seed: 31 };
            let difference = differential.run(store).expect_err(name);
            match &difference.reproduction {
                Reproduction::Trace(trace) => assert!(trace.steps().len() <= 4, "{name}: {difference}"),
                Reproduction::History(_) => panic!("{name}: {difference}"),
            }
        }
    }
}
