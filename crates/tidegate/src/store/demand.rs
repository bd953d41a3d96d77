//! What callers of a store need to make one slice of several requests, and to take it back.

use super::{Check, Store};
use crate::kernel::{Verb, Verdict};
use crate::time::Micros;

/// What several requests ask of one state. No slice has two checks of a state.
///
/// ```
/// use tidegate::kernel::Verb;
/// use tidegate::store::Demand;
///
/// let mut demand = Demand::default();
/// assert!(demand.add(Verb::Charge, 5) && demand.add(Verb::Refund, 2) && demand.add(Verb::Peek, 4));
/// assert_eq!((demand.change(), demand.look()), (Some((Verb::Charge, 3)), (Verb::Peek, 4)));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    charge: Option<u64>,
    report: Option<u64>,
    refund: Option<u64>,
    /// The largest cost that was only looked at.
    peek: Option<u64>,
    resets: bool,
}

impl Demand {
    /// Adds what a request asks for; false if it cannot be asked beside the others: a
    /// state is reset by itself.
    pub fn add(&mut self, verb: Verb, cost: u64) -> bool {
        let sum = |so_far: Option<u64>| Some(so_far.unwrap_or(0).saturating_add(cost));
        match verb {
            Verb::Charge => self.charge = sum(self.charge),
            Verb::Report => self.report = sum(self.report),
            Verb::Refund => self.refund = sum(self.refund),
            Verb::Peek => self.peek = self.peek.max(Some(cost)),
            Verb::Reset => self.resets = true,
            // A reservation is corrected by itself.
            Verb::Settle(_) | Verb::Renew(_) => return false,
        }
        !self.resets || [self.charge, self.report, self.refund, self.peek] == [None; 4]
    }

    /// All that is charged, less what is given back; what is reported beside a charge is
    /// charged with it. None if nothing but peeks was asked for.
    #[must_use]
    pub fn change(&self) -> Option<(Verb, u64)> {
        let spent = match (self.charge, self.report) {
            (None, None) => None,
            (charge, report) => Some(charge.unwrap_or(0).saturating_add(report.unwrap_or(0))),
        };
        let verb = if self.charge.is_some() { Verb::Charge } else { Verb::Report };
        match (spent, self.refund) {
            _ if self.resets => Some((Verb::Reset, 0)),
            (None, refund) => Some((Verb::Refund, refund?)),
            (Some(spent), Some(refund)) if refund > spent => Some((Verb::Refund, refund - spent)),
            (Some(spent), refund) => Some((verb, spent - refund.unwrap_or(0))),
        }
    }

    /// The peek that says whether all of it would be admitted: the larger cost has to fit.
    #[must_use]
    pub fn look(&self) -> (Verb, u64) {
        let peek = self.peek.unwrap_or(0);
        match self.change() {
            Some((Verb::Charge, cost)) => (Verb::Peek, cost.max(peek)),
            Some(_) | None => (Verb::Peek, peek),
        }
    }
}

/// Gives back what checks have charged by limits that are no longer in force, so that they can
/// be asked anew. A fallback has charged nothing. What cannot be given back was charged in
/// vain: against the caller.
///
/// Returns each charge with what its limit says now, the thresholds that the charge crossed and
/// other charges have reached meanwhile, and when that was; nothing if the store did not answer.
pub async fn refund_charges<'a>(
    store: &impl Store,
    decided: impl IntoIterator<Item = (Check<'a>, Verdict)> + Send,
) -> Vec<(Check<'a>, Verdict, Micros)> {
    let is_charged = |(check, verdict): &(Check<'_>, Verdict)| check.verb() == Verb::Charge && !verdict.degraded;
    let charged: Vec<_> = decided.into_iter().filter(is_charged).collect();
    let refunds: Vec<_> = charged.iter().map(|(check, _)| check.as_refund()).collect();
    let mut left = vec![Verdict::default(); refunds.len()];
    if refunds.is_empty() {
        return Vec::new();
    }
    let Ok(at) = store.decide(&refunds, &mut left).await else { return Vec::new() };
    let still = charged.into_iter().zip(left).map(|((check, charged), left)| {
        let reached = check.meter().reached(check.meter().used_by(&left));
        (check, Verdict { crossed: charged.crossed & reached, ..left }, at)
    });
    still.collect()
}
