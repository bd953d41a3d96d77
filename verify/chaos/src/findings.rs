//! What came of one fault: numbers, and whether all that was claimed is so.

use std::time::Duration;

use tidegate_testkit::servers::Tally;

/// What was counted, and what turned out not to be so.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Requests that callers asked.
    pub calls: u64,
    /// Those that passed, by the store's own word, of limits that refill.
    pub admitted: u64,
    /// Those that did not.
    pub refused: u64,
    /// Those that ended in an error.
    pub errors: u64,
    /// Those that the fallback decided.
    pub degraded: u64,
    /// How many could have passed at most.
    pub bound: u64,
    /// Of the calls whose every charge is accounted for, how many charges were lost.
    pub lost: u64,
    /// The longest that a request took.
    pub slowest: Duration,
    /// The longest time without an answer of the store.
    pub gap: Duration,
    /// What was claimed and looked at.
    pub claims: u64,
    /// What was claimed and is not so.
    pub broken: Vec<String>,
    /// What chance decided, for the report.
    pub notes: Vec<String>,
}

impl Findings {
    /// Says something that has to be so; `otherwise` tells what is the case if not.
    pub(crate) fn claim(&mut self, is_so: bool, otherwise: impl FnOnce() -> String) {
        self.claims += 1;
        if !is_so {
            self.broken.push(otherwise());
        }
    }

    /// Adds what became of callers of a limit that refills, and the bound of it.
    pub(crate) fn count(&mut self, tally: &Tally, bound: u64) {
        self.admitted += tally.admitted;
        self.refused += tally.refused;
        self.bound = self.bound.saturating_add(bound);
        self.count_calls(tally);
    }

    /// Adds callers whose admissions are accounted for elsewhere.
    pub(crate) fn count_calls(&mut self, tally: &Tally) {
        self.calls += tally.asked();
        self.errors += tally.in_doubt + tally.turned_away;
        self.degraded += tally.degraded_admitted + tally.degraded_refused;
        self.slowest = self.slowest.max(tally.longest);
        self.gap = self.gap.max(tally.longest_gap);
    }

    /// Puts both together: two parts of one fault.
    pub(crate) fn and(mut self, other: Findings) -> Findings {
        self.calls += other.calls;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.errors += other.errors;
        self.degraded += other.degraded;
        self.bound = self.bound.saturating_add(other.bound);
        self.lost += other.lost;
        self.slowest = self.slowest.max(other.slowest);
        self.gap = self.gap.max(other.gap);
        self.claims += other.claims;
        self.broken.extend(other.broken);
        self.notes.extend(other.notes);
        self
    }

    /// Where there is no fault unless something was forgotten.
    pub(crate) fn with_losses(mut self) -> Findings {
        let lost = self.lost;
        self.claim(lost > 0, || "nothing was lost: this was not the fault that it is meant to be".into());
        self
    }

    /// Where not even an error is to be expected.
    pub(crate) fn without_errors(mut self) -> Findings {
        let (errors, degraded) = (self.errors, self.degraded);
        self.claim(errors + degraded == 0, || format!("{errors} had no answer, and {degraded} the fallback's"));
        self
    }
}
