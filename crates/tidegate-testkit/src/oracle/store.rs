//! The oracle behind the seam of a store, so that whatever is run on a store
//! can be run on the oracle: traces, limiters, the conformance suite.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tidegate::kernel::Verdict;
use tidegate::{Check, Clock, ImmediateStore, ManualClock, Micros, Name, Store, StoreError};

use super::{Ask, Oracle};

/// An [`Oracle`] with a clock: a store that is slow and right.
#[derive(Debug)]
pub struct OracleStore {
    clock: ManualClock,
    oracle: Mutex<Oracle>,
}

impl OracleStore {
    /// An empty store that decides by `clock`.
    #[must_use]
    pub fn new(clock: ManualClock) -> OracleStore {
        OracleStore { clock, oracle: Mutex::default() }
    }
}

impl ImmediateStore for OracleStore {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut asks: Vec<Ask<'_>> = Vec::with_capacity(checks.len());
        for check in checks {
            let rule = check.meter().name();
            let ask = Ask::of(check).ok_or_else(|| StoreError::Failed { source: Box::new(CustomKernel { rule }) })?;
            if asks.iter().any(|other| (other.rule, other.limit, other.key) == (ask.rule, ask.limit, ask.key)) {
                return Err(StoreError::SameStateTwice { rule });
            }
            asks.push(ask);
        }
        let mut oracle = self.oracle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().min(Micros::LATEST);
        verdicts.copy_from_slice(&oracle.decide(&asks, now));
        Ok(now)
    }
}

impl Store for OracleStore {
    fn decide(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send {
        std::future::ready(self.decide_now(checks, verdicts))
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}

/// The oracle knows the five algorithms, and no other.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule:?} has a kernel of its own: the oracle knows the five algorithms only")]
pub struct CustomKernel {
    rule: Name,
}
