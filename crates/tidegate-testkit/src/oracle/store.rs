//! The oracle behind the seam of a store, so that whatever is run on a store
//! can be run on the oracle: traces, limiters, the conformance suite.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use tidegate::kernel::{Charged, Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Purpose, Store, StoreError};
use tidegate::{Clock, ManualClock, Micros, Name};

use super::{Ask, Oracle};

/// An [`Oracle`] with a clock: a store that is slow and right. It knows limits as
/// they are, and those that they replaced, but no warm-up.
#[derive(Debug)]
pub struct OracleStore {
    clock: ManualClock,
    oracle: Mutex<Oracle>,
    /// What requests with ids were answered, for good.
    records: Mutex<HashMap<Owned, Record>>,
}

/// An id: by the verb, by whom, and in its own words.
type Owned = (Verb, Vec<u8>, String);

/// How a reservation was settled.
#[derive(Debug)]
struct Settled {
    at: Micros,
    subjects: Vec<u64>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct Record {
    payload: u64,
    at: Micros,
    verdicts: Vec<Verdict>,
    /// What each of the states was charged.
    charged: Vec<(u64, Charged)>,
    settled: Option<Settled>,
}

impl OracleStore {
    /// An empty store that decides by `clock`.
    #[must_use]
    pub fn new(clock: ManualClock) -> OracleStore {
        OracleStore { clock, oracle: Mutex::default(), records: Mutex::default() }
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

impl OracleStore {
    fn correct(
        &self,
        known: &mut Record,
        purpose: Purpose,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> Result<Micros, StoreError> {
        let subjects: Vec<u64> = checks.iter().map(Check::subject).collect();
        if let Some(settled) = &known.settled {
            // Of other limits, only that it was settled is known.
            let passed = Verdict { allowed: true, ..Verdict::default() };
            let is_same = settled.subjects == subjects;
            for (index, verdict) in verdicts.iter_mut().enumerate() {
                let given = if is_same { settled.verdicts[index] } else { passed };
                *verdict = Verdict { repeated: true, crossed: 0, ..given };
            }
            return Ok(settled.at);
        }
        let charge_of =
            |subject: u64| known.charged.iter().find(|charged| charged.0 == subject).map(|charged| charged.1);
        let corrections: Vec<Check<'_>> = checks.iter().map(|check| check.correcting(charge_of)).collect();
        let at = self.decide_anew(&corrections, verdicts)?;
        if verdicts.iter().any(|verdict| !verdict.allowed) {
            return Ok(at);
        }
        if purpose == Purpose::Settle {
            known.settled = Some(Settled { at, subjects, verdicts: verdicts.to_vec() });
        }
        for (check, verdict) in corrections.iter().zip(&*verdicts) {
            if matches!(check.verb(), Verb::Renew(_)) {
                let charged_check = Check::new(check.corrected(), check.key(), Verb::Peek, 0);
                let subject = charged_check.map_or(0, |check| check.subject());
                let charged = known.charged.iter_mut().filter(|charged| charged.0 == subject);
                charged.for_each(|charged| charged.1.at = at.saturating_add(verdict.ahead));
            }
        }
        Ok(at)
    }
}

impl Store for OracleStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let Some((check, id)) = checks.iter().find_map(|check| Some((check, check.id()?))) else {
            return self.decide_anew(checks, verdicts);
        };
        let owner = check.key().parts().next().unwrap_or_default().to_vec();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let verb = if id.purpose == Purpose::Once { check.verb() } else { Verb::Charge };
        let entry = records.entry((verb, owner, id.text.to_owned()));
        if id.purpose != Purpose::Once {
            let Entry::Occupied(mut known) = entry else {
                return Err(StoreError::NotReserved { id: id.text.to_owned() });
            };
            return self.correct(known.get_mut(), id.purpose, checks, verdicts);
        }
        match entry {
            Entry::Occupied(known) if known.get().payload != id.payload => {
                Err(StoreError::IdReused { id: id.text.to_owned() })
            }
            Entry::Occupied(known) => {
                let given = known.get().verdicts.iter().map(|given| Verdict { repeated: true, crossed: 0, ..*given });
                verdicts.iter_mut().zip(given).for_each(|(verdict, given)| *verdict = given);
                Ok(known.get().at)
            }
            Entry::Vacant(vacant) => {
                let at = self.decide_anew(checks, verdicts)?;
                if verdicts.iter().all(|verdict| verdict.allowed) {
                    let charged = |(check, verdict): (&Check<'_>, &Verdict)| {
                        let at = at.saturating_add(verdict.ahead);
                        (check.subject(), Charged { at, cost: check.cost() })
                    };
                    let charged = checks.iter().zip(&*verdicts).map(charged).collect();
                    let (payload, verdicts) = (id.payload, verdicts.to_vec());
                    vacant.insert(Record { payload, at, verdicts, charged, settled: None });
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
