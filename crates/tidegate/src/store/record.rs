//! What a store remembers of a request with an id, and what it does with it.
//!
//! A request with an id is carried out once: sent again, it gets its verdicts again. What it charged can be corrected
//! once: by a settlement; and renewed until then. A store finds the record by its [name](Record::name), calls
//! [`Record::decide`] while no other request of that id is decided, and keeps the record that it returns.

use std::time::Duration;

use super::{Check, StoreError, remembered_for};
use crate::kernel::{Charged, Verb, Verdict};
use crate::request::Purpose;
use crate::time::Micros;

/// A request that was carried out under an id.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the caller said that the id stands for.
    payload: u64,
    /// The states that it is about.
    subjects: Box<[u64]>,
    at: Micros,
    lasts: Micros,
    until: Micros,
    verdicts: Box<[Verdict]>,
    /// What each state was charged.
    charged: Box<[(u64, Charged)]>,
    /// The answer to the settlement.
    settled: Option<Box<Record>>,
}

impl Record {
    /// What tells the record of a slice from every other: by whom, under which id, and whether it charges, reports or
    /// gives back. `None` without an id.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::store::{Check, Meter, Record, RequestId};
    /// use tidegate::{Key, Limit};
    ///
    /// let (meter, key, id) = (Meter::new("orders", Limit::per_hour(10)), Key::from("alice"), RequestId::once("a", 1));
    /// let check = Check::new(&meter, &key, Verb::Charge, 1)?;
    /// assert!(Record::name(&[check]).is_none() && Record::name(&[check.with_id(&id)]).is_some());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn name(checks: &[Check<'_>]) -> Option<Vec<u8>> {
        let (check, id) = checks.iter().find_map(|check| Some((check, check.id()?)))?;
        let owner = owner_of(check);
        let kind = match check.verb() {
            Verb::Report => 1,
            Verb::Refund => 2,
            Verb::Charge | Verb::Peek | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => 0,
        };
        Some([&[kind], &(owner.len() as u64).to_le_bytes()[..], owner, id.text.as_bytes()].concat())
    }

    /// Until when it is to be remembered.
    #[must_use]
    pub fn until(&self) -> Micros {
        self.until
    }

    /// Since when it is remembered.
    pub(crate) fn at(&self) -> Micros {
        self.at
    }

    /// Decides a slice with an id beside what is remembered under it, and says when, and what is to be remembered
    /// instead, if anything. An id is remembered for `usually`, unless it says for how long. `decide` decides checks
    /// without ids.
    ///
    /// # Errors
    /// If the id stands for another request, or a correction finds nothing to correct; or if `decide` fails.
    pub fn decide(
        known: Option<&Record>,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        usually: Duration,
        decide: impl FnOnce(&[Check<'_>], &mut [Verdict]) -> Result<Micros, StoreError>,
    ) -> Result<(Micros, Option<Record>), StoreError> {
        let anonymous = || checks.iter().map(Check::without_id).collect::<Vec<_>>();
        let Some(id) = checks.iter().find_map(Check::id) else {
            return Ok((decide(&anonymous(), verdicts)?, None));
        };
        match known {
            None if id.purpose != Purpose::Once => Err(StoreError::NotReserved { id: id.text.to_owned() }),
            Some(record) if id.purpose != Purpose::Once => record.correct(id.purpose, checks, verdicts, decide),
            Some(record) if record.payload != id.payload => Err(StoreError::IdReused { id: id.text.to_owned() }),
            Some(record) => {
                record.repeat(checks, verdicts);
                Ok((record.at, None))
            }
            None => {
                let at = decide(&anonymous(), verdicts)?;
                let lasts = Micros::from_duration(remembered_for(id, checks, usually));
                let record = Record { payload: id.payload, ..Record::new(checks, verdicts, at, lasts) };
                Ok((at, Some(record).filter(|_| !is_refused(checks, verdicts))))
            }
        }
    }

    pub(crate) fn new(checks: &[Check<'_>], verdicts: &[Verdict], at: Micros, lasts: Micros) -> Record {
        let subjects: Box<[u64]> = checks.iter().map(Check::subject).collect();
        let charged = |(check, verdict): (&Check<'_>, &Verdict)| match check.verb() {
            // What no state was charged cannot be given back.
            Verb::Charge if !verdict.degraded => Charged { at: at.saturating_add(verdict.ahead), cost: check.cost() },
            _ => Charged::default(),
        };
        let charged = subjects.iter().copied().zip(checks.iter().zip(verdicts).map(charged)).collect();
        let (until, verdicts) = (at.saturating_add(lasts), verdicts.into());
        Record { payload: 0, subjects, at, lasts, until, verdicts, charged, settled: None }
    }

    /// Gives the same verdicts again.
    fn repeat(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) {
        let same_limits = self.subjects.iter().copied().eq(checks.iter().map(Check::subject));
        for (index, verdict) in verdicts.iter_mut().enumerate() {
            // Of limits that were changed since, only that it passed is known.
            let given = self.verdicts.get(index).filter(|_| same_limits);
            let given = given.copied().unwrap_or(Verdict { allowed: true, ..Verdict::default() });
            *verdict = Verdict { repeated: true, crossed: 0, ..given };
        }
    }

    /// Corrects what was charged, once.
    fn correct(
        &self,
        purpose: Purpose,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        decide: impl FnOnce(&[Check<'_>], &mut [Verdict]) -> Result<Micros, StoreError>,
    ) -> Result<(Micros, Option<Record>), StoreError> {
        if let Some(settled) = &self.settled {
            settled.repeat(checks, verdicts);
            return Ok((settled.at, None));
        }
        let charge_of = |subject| self.place_of(subject).map(|place| self.charged[place].1);
        let corrections: Vec<Check<'_>> = checks.iter().map(|check| check.correcting(charge_of)).collect();
        let at = decide(&corrections, verdicts)?;
        if is_refused(&corrections, verdicts) {
            return Ok((at, None));
        }
        let mut corrected = self.clone();
        if purpose == Purpose::Settle {
            corrected.settled = Some(Box::new(Record::new(checks, verdicts, at, self.lasts)));
            return Ok((at, Some(corrected)));
        }
        corrected.until = self.until.max(at.saturating_add(self.lasts));
        for (correction, verdict) in corrections.iter().zip(&*verdicts) {
            let place = self.place_of(correction.corrected().subject(correction.key()));
            if let (Verb::Renew(_), Some(place)) = (correction.verb(), place) {
                corrected.charged[place].1.at = at.saturating_add(verdict.ahead);
            }
        }
        Ok((at, Some(corrected)))
    }

    fn place_of(&self, subject: u64) -> Option<usize> {
        self.charged.iter().position(|(charged, _)| *charged == subject)
    }
}

fn is_refused(checks: &[Check<'_>], verdicts: &[Verdict]) -> bool {
    checks.iter().zip(verdicts).any(|(check, verdict)| check.verb().can_refuse() && !verdict.allowed)
}

/// The first part of the key, by which the ids of one caller are told from those of others.
pub(crate) fn owner_of<'a>(check: &Check<'a>) -> &'a [u8] {
    check.key().parts().next().unwrap_or_default()
}
