//! What became of every job, as a table; and the exit status that follows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::run::Failure;

/// What became of a job.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    /// The tests that failed, or what went wrong in a job that has none.
    pub(crate) failed: Vec<String>,
    /// What was not tested, and why.
    pub(crate) skipped: Vec<String>,
    /// Runs the failed tests, and only them.
    pub(crate) rerun: Option<String>,
}

impl Outcome {
    /// A job without tests of its own counts as one.
    pub(crate) fn of(outcome: Result<(), Failure>, rerun: &str) -> Outcome {
        match outcome {
            Ok(()) => Outcome { passed: 1, ..Outcome::default() },
            Err(failure) => Outcome { failed: vec![failure], rerun: Some(rerun.to_owned()), ..Outcome::default() },
        }
    }

    pub(crate) fn skipped(why: impl Into<String>) -> Outcome {
        Outcome { skipped: vec![why.into()], ..Outcome::default() }
    }

    /// In a few words.
    pub(crate) fn shown(&self) -> String {
        let mut shown = format!("{} passed", self.passed);
        if !self.failed.is_empty() {
            let _ = write!(shown, ", {} FAILED", self.failed.len());
        }
        if !self.skipped.is_empty() {
            let _ = write!(shown, ", {} SKIPPED", self.skipped.len());
        }
        shown
    }
}

/// All outcomes so far, by step.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// In the order in which their first jobs ended.
    steps: Vec<String>,
    rows: BTreeMap<String, Row>,
}

#[derive(Debug, Default)]
struct Row {
    took: Duration,
    passed: usize,
    failed: usize,
    skipped: usize,
    notes: Vec<String>,
}

impl Report {
    /// Runs a step by itself, with its output shown.
    pub(crate) fn run(&mut self, step: &str, rerun: &str, work: impl FnOnce() -> Result<(), Failure>) {
        let began = Instant::now();
        let outcome = Outcome::of(work(), rerun);
        self.add(step, began.elapsed(), &outcome);
    }

    /// Adds a job to the row of its step.
    pub(crate) fn add(&mut self, step: &str, took: Duration, outcome: &Outcome) {
        if !self.rows.contains_key(step) {
            self.steps.push(step.to_owned());
        }
        let row = self.rows.entry(step.to_owned()).or_default();
        row.took += took;
        row.passed += outcome.passed;
        row.failed += outcome.failed.len();
        row.skipped += outcome.skipped.len();
        row.notes.extend(outcome.failed.iter().map(|name| format!("FAILED  {name}")));
        row.notes.extend(outcome.rerun.iter().map(|command| format!("  again:  {command}")));
        row.notes.extend(outcome.skipped.iter().map(|why| format!("SKIPPED {why}")));
    }

    /// The table, and what failed and what was skipped.
    pub(crate) fn shown(&self) -> String {
        let mut shown = format!("\n{:<28} {:>7} {:>8} {:>8} {:>8}\n", "step", "seconds", "passed", "failed", "skipped");
        let rows = || self.steps.iter().map(|step| (step, &self.rows[step]));
        for (step, row) in rows() {
            let seconds = row.took.as_secs();
            let _ = writeln!(shown, "{step:<28} {seconds:>7} {:>8} {:>8} {:>8}", row.passed, row.failed, row.skipped);
        }
        for (step, row) in rows().filter(|(_, row)| !row.notes.is_empty()) {
            let _ = writeln!(shown, "\n{step}");
            for note in &row.notes {
                let _ = writeln!(shown, "  {}", note.replace('\n', "\n  "));
            }
        }
        shown
    }

    /// The closing line, with the sums.
    pub(crate) fn closing(&self) -> String {
        let sum = |of: fn(&Row) -> usize| self.rows.values().map(of).sum::<usize>();
        let (passed, failed, skipped) = (sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.skipped));
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// Adds the rows of another report.
    pub(crate) fn extend(&mut self, other: Report) {
        for step in other.steps {
            if !self.rows.contains_key(&step) {
                self.steps.push(step.clone());
            }
            let row = self.rows.entry(step.clone()).or_default();
            let more = &other.rows[&step];
            row.took += more.took;
            row.passed += more.passed;
            row.failed += more.failed;
            row.skipped += more.skipped;
            row.notes.extend(more.notes.iter().cloned());
        }
    }

    /// Each step with the seconds that it took.
    pub(crate) fn times(&self) -> Vec<(String, u64)> {
        self.steps.iter().map(|step| (step.clone(), self.rows[step].took.as_secs())).collect()
    }

    /// Where nothing may be skipped, what is skipped has failed.
    pub(crate) fn verdict(&self, may_skip: bool) -> Result<(), Failure> {
        let (failed, skipped) =
            self.rows.values().fold((0, 0), |(failed, skipped), row| (failed + row.failed, skipped + row.skipped));
        match (failed, skipped) {
            (0, 0) => Ok(()),
            (0, _) if may_skip => Ok(()),
            (0, skipped) => Err(format!("{skipped} skipped: with CI=true a skip is a failure")),
            (failed, _) => Err(format!("{failed} failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Outcome, Report};

    #[test]
    fn a_failure_is_named_with_the_command_that_repeats_it() {
        let mut report = Report::default();
        let second = Duration::from_secs(1);
        report.add("tests of one", second, &Outcome { passed: 3, ..Outcome::default() });
        let failed =
            Outcome { passed: 1, failed: vec!["b::c".into()], rerun: Some("again b::c".into()), ..Outcome::default() };
        report.add("tests of one", second, &failed);
        report.add("lints", second, &Outcome::of(Ok(()), "lint"));
        let shown = report.shown();
        assert!(shown.contains("tests of one                       2        4        1        0"), "{shown}");
        assert!(shown.contains("FAILED  b::c") && shown.contains("again:  again b::c"), "{shown}");
        assert_eq!(report.closing(), "5 passed, 1 failed, 0 skipped");
        assert_eq!(report.verdict(true), Err("1 failed".into()));
    }

    #[test]
    fn a_skip_fails_only_where_nothing_may_be_skipped() {
        let mut report = Report::default();
        report.add("tests of one", Duration::ZERO, &Outcome::skipped("dashboard: chromium is missing"));
        assert_eq!(report.verdict(true), Ok(()));
        assert!(report.verdict(false).is_err());
        assert!(report.shown().contains("SKIPPED dashboard: chromium is missing"));
    }
}
