//! Whether a report is an answer: one of a log that could not be read, or not be
//! decided, must not be taken for "nothing is refused".

use super::words::{count, share};
use super::{MAX_EXAMPLES, Report, UndecidedReport};

impl Report {
    /// Whether no more is refused than the share that was asked for, in a sentence; none if no share was, or the
    /// report is [inconclusive](Report::inconclusive).
    #[must_use]
    pub fn verdict(&self) -> Option<String> {
        let at_most = self.at_most.filter(|_| self.inconclusive.is_none())?;
        let (verdict, decided) = (if self.refuses_too_many() { "FAIL" } else { "PASS" }, self.admitted + self.refused);
        let refused = share(self.refused, decided);
        Some(format!(
            "{verdict}: {refused} refused ({} of {}), at most {at_most} wanted",
            count(self.refused),
            count(decided)
        ))
    }

    /// What each policy could not decide, under a title.
    pub(super) fn undecided_by_policy(&self) -> impl Iterator<Item = (&'static str, &[UndecidedReport])> {
        let old = self.against.as_ref().map_or(&[][..], |old| &*old.undecided_reasons);
        let all = [
            ("Could not be decided", &*self.undecided_reasons),
            ("Could not be decided by the policy to compare with", old),
        ];
        all.into_iter().filter(|(_, reasons)| !reasons.is_empty())
    }

    /// Why this is no answer, and what to do about it.
    pub(crate) fn shortfall(&self) -> Option<String> {
        for source in &self.sources {
            if let Some(problem) = &source.problem {
                return Some(format!(
                    "{} could not be read to its end: {problem}\ngive a whole log, or pipe in the part that can be read",
                    source.name
                ));
            }
        }
        if self.lines == 0 {
            let names: Vec<&str> = self.sources.iter().map(|source| &*source.name).collect();
            let names = names.join(", ");
            return Some(format!("0 lines were read, so nothing was decided: {names}\ngive a log that has requests"));
        }
        let undecided = self.undecided.max(self.against.as_ref().map_or(0, |old| old.undecided));
        let lost = self.broken + undecided;
        if lost < self.lines && lost <= self.tolerate.of(self.lines) {
            return None;
        }
        let mut text = format!("{} of {} lines could not be read or decided", count(lost), count(self.lines));
        if lost < self.lines {
            text += &format!(", more than the {} that are tolerated", self.tolerate);
        }
        if let Some(broken) = self.broken_examples.first() {
            text += &format!("\n{} could not be read: {broken}", count(self.broken));
        }
        for (title, reasons) in self.undecided_by_policy() {
            for UndecidedReport { lines, example, .. } in reasons.iter().take(MAX_EXAMPLES) {
                text += &format!("\n{} {}: {example}", count(*lines), title.to_lowercase());
            }
        }
        text += "\nname the format by --format and fields by --map ATTRIBUTE=FIELD, change the policy, or accept more by \
                 --tolerate SHARE";
        Some(text)
    }
}
