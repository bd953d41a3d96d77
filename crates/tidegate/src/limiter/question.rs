//! A request as the checks that a policy makes of it.

use super::current::Current;
use crate::decision::Decision;
use crate::few::Few;
use crate::kernel::{Verb, Verdict};
use crate::policy::{Applied, Resolution};
use crate::store::{Check, CheckError, RequestId, StoreError};
use crate::time::Micros;

/// A request as checks, and room for their verdicts.
pub(super) struct Question<'a> {
    resolution: &'a Resolution<'a, 'a>,
    /// None if nobody needs to be asked.
    pub(super) checks: Option<Few<Check<'a>>>,
    pub(super) verdicts: Few<Verdict>,
}

impl<'a> Question<'a> {
    pub(super) fn new(
        resolution: &'a Resolution<'a, 'a>,
        verb: Verb,
        id: Option<RequestId<'a>>,
    ) -> Result<Question<'a>, CheckError> {
        let enforced = if resolution.blocked_by.is_some() { &[] } else { &*resolution.enforced };
        let verdicts = Few::filled(Verdict::default(), enforced.len());
        let Some(first) = enforced.first() else { return Ok(Question { resolution, checks: None, verdicts }) };
        // Whoever takes nothing from any limit can do it twice.
        let id = id.filter(|_| enforced.iter().any(|applied| applied.cost > 0));
        let check = |applied: &'a Applied<'a, 'a>| {
            let check = applied.check(verb)?;
            Ok::<_, CheckError>(match id {
                Some(id) => check.with_id(id),
                None => check,
            })
        };
        let mut checks = Few::filled(check(first)?, enforced.len());
        for (slot, applied) in checks.as_mut_slice().iter_mut().zip(enforced).skip(1) {
            *slot = check(applied)?;
        }
        Ok(Question { resolution, checks: Some(checks), verdicts })
    }

    pub(super) fn checks(&self) -> &[Check<'a>] {
        self.checks.as_ref().map_or(&[], Few::as_slice)
    }

    /// When the store decided, or whoever stands in for it.
    pub(super) fn decided(
        &mut self,
        current: &Current,
        answer: Result<Micros, StoreError>,
    ) -> Result<Micros, StoreError> {
        match (answer, &current.stand_ins, &self.checks) {
            (Err(error), Some(stand_ins), Some(checks)) => {
                let numbers: Vec<usize> = self.resolution.enforced.iter().map(|applied| applied.number).collect();
                stand_ins.decide(checks.as_slice(), &numbers, self.verdicts.as_mut_slice(), error)
            }
            (answer, _, _) => answer,
        }
    }

    /// The decision of the limit that binds.
    pub(super) fn decision(&self) -> Decision {
        if let Some(rule) = self.resolution.blocked_by {
            return Decision::blocked(rule);
        }
        let decisions = self.checks().iter().zip(self.verdicts.as_slice());
        let decisions = decisions.map(|(check, verdict)| check.decision(*verdict));
        decisions.reduce(Decision::and).unwrap_or_else(Decision::unlimited)
    }
}

/// What those limits are asked that only watch: a refused request is charged
/// to none of them either, and one that was answered before was watched then.
pub(super) fn shadows<'q>(
    resolution: &'q Resolution<'_, 'q>,
    verb: Verb,
    decision: Decision,
) -> impl Iterator<Item = (&'q Applied<'q, 'q>, Check<'q>)> {
    let verb = if verb == Verb::Charge && !decision.is_allowed() { Verb::Peek } else { verb };
    let watching = if decision.is_repeated() { &[] } else { &*resolution.shadows };
    // A cost that can never pass is refused by a shadow, too: there is nothing to ask.
    watching.iter().filter_map(move |shadow| Some((shadow, shadow.check(verb).ok()?)))
}
