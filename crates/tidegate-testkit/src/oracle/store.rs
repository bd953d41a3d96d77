//! The oracle behind the seam of a store, so that whatever is run on a store
//! can be run on the oracle: traces, limiters, the conformance suite.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Store, StoreError};
use tidegate::{Clock, ManualClock, Micros, Name};

use super::{Ask, Oracle};

/// An [`Oracle`] with a clock: a store that is slow and right. It knows limits as
/// they are: no warm-up, and nothing of those in whose place they came.
#[derive(Debug)]
pub struct OracleStore {
    clock: ManualClock,
    oracle: Mutex<Oracle>,
    /// What requests with ids were answered, for good.
    answers: Mutex<HashMap<Owned, Answer>>,
}

/// An id: by the verb, by whom, and in its own words.
type Owned = (Verb, Vec<u8>, String);

#[derive(Debug)]
struct Answer {
    payload: u64,
    at: Micros,
    verdicts: Vec<Verdict>,
}

impl OracleStore {
    /// An empty store that decides by `clock`.
    #[must_use]
    pub fn new(clock: ManualClock) -> OracleStore {
        OracleStore { clock, oracle: Mutex::default(), answers: Mutex::default() }
    }
}

impl OracleStore {
    fn decide_anew(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut asks: Vec<Ask<'_>> = Vec::with_capacity(checks.len());
        for check in checks {
            let rule = check.meter().name();
            let ask = Ask::of(check)
                .ok_or_else(|| StoreError::Failed { source: Box::new(CustomKernel { rule: rule.clone() }) })?;
            if asks.iter().any(|other| (other.rule, other.limit, other.key) == (ask.rule, ask.limit, ask.key)) {
                return Err(StoreError::SameStateTwice { rule: rule.clone() });
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
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let Some((check, id)) = checks.first().and_then(|check| Some((check, check.id()?))) else {
            return self.decide_anew(checks, verdicts);
        };
        let owner = check.key().parts().next().unwrap_or_default().to_vec();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match answers.entry((check.verb(), owner, id.text.to_owned())) {
            Entry::Occupied(known) if known.get().payload != id.payload => {
                Err(StoreError::IdReused { id: id.text.to_owned() })
            }
            Entry::Occupied(known) => {
                let given = known.get().verdicts.iter().map(|given| Verdict { repeated: true, ..*given });
                verdicts.iter_mut().zip(given).for_each(|(verdict, given)| *verdict = given);
                Ok(known.get().at)
            }
            Entry::Vacant(vacant) => {
                let at = self.decide_anew(checks, verdicts)?;
                if verdicts.iter().all(|verdict| verdict.allowed) {
                    vacant.insert(Answer { payload: id.payload, at, verdicts: verdicts.to_vec() });
                }
                Ok(at)
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}

impl ImmediateStore for OracleStore {}

/// The oracle knows the five algorithms, and no other.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule:?} has a kernel of its own: the oracle knows the five algorithms only")]
pub struct CustomKernel {
    rule: Name,
}
