//! What a run of many faults has shown: a table to read, and a file to keep.

use std::fmt::Write as _;
use std::time::Duration;

use crate::attempt::Verdict;
use crate::fault::{Family, Fault};
use crate::findings::Findings;

/// A fault, made once by chance of a seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which.
    pub fault: Fault,
    /// Of which family.
    pub family: Family,
    /// The seed.
    pub seed: u64,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub verdict: Verdict,
}

/// All runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    runs: Vec<Run>,
}

impl Run {
    /// Whether it was made and something promised was not so.
    pub fn is_broken(&self) -> bool {
        matches!(&self.verdict, Verdict::Run(findings) if !findings.broken.is_empty())
    }

    /// A line for a terminal.
    pub fn line(&self) -> String {
        let Run { fault, family, seed, took, verdict } = self;
        let head = format!("{family:<9} {:<28}", fault.name);
        match verdict {
            Verdict::NotRun { reason } => format!("{head} not run: {reason}"),
            Verdict::Run(findings) => {
                let Findings {
                    calls,
                    admitted,
                    refused,
                    errors,
                    degraded,
                    bound,
                    lost,
                    slowest,
                    gap,
                    claims,
                    broken,
                    ..
                } = &**findings;
                let mut line = format!(
                    "{head} {:>5} s  {calls:>6} calls  {admitted:>5} of {bound:<6} {refused:>6} refused  {errors:>5} errors  \
                     {degraded:>5} degraded  {lost:>5} lost  slowest {:>5}  gap {:>6}  ",
                    seconds(*took),
                    ms(*slowest),
                    ms(*gap),
                );
                if broken.is_empty() {
                    let _ = write!(line, "{claims} claims hold");
                }
                for what in broken {
                    let _ = write!(line, "\n    BROKEN by seed {seed}: {what}");
                }
                if !broken.is_empty() {
                    let _ = write!(line, "\n    it was: {}", findings.notes.join("; "));
                }
                line
            }
        }
    }
}

impl Report {
    /// Adds a run.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// The runs in which a promise was broken.
    pub fn broken(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.is_broken())
    }

    /// Everything in a sentence.
    pub fn summary(&self) -> String {
        let made = || self.runs.iter().filter_map(Run::findings);
        let sum = |field: fn(&Findings) -> u64| made().map(field).sum::<u64>();
        format!(
            "{} kinds of faults made in {} runs, {} not run; {} calls, {} claims held, {} runs broken",
            self.kinds(|run| run.findings().is_some()),
            made().count(),
            self.kinds(|run| run.findings().is_none()),
            sum(|findings| findings.calls),
            sum(|findings| findings.claims) - sum(|findings| findings.broken.len() as u64),
            self.broken().count(),
        )
    }

    fn kinds(&self, is: impl Fn(&Run) -> bool) -> usize {
        let mut names: Vec<&str> = self.runs.iter().filter(|run| is(run)).map(|run| run.fault.name).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The whole of it as Markdown: `about` says what was run, where and when.
    pub fn markdown(&self, about: &str) -> String {
        let mut text = format!("# Faults under load\n\n{about}\n\n{}.\n", self.summary());
        for family in Family::ALL {
            let runs: Vec<&Run> = self.runs.iter().filter(|run| run.family == family).collect();
            if runs.is_empty() {
                continue;
            }
            let _ = write!(
                text,
                "\n## {family}\n\n| fault | may cost | seed | calls | admitted | bound | refused | errors | degraded | charges lost | slowest | longest gap | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
            );
            for run in runs {
                text.push_str(&run.row());
            }
        }
        text
    }
}

impl Run {
    fn findings(&self) -> Option<&Findings> {
        match &self.verdict {
            Verdict::Run(findings) => Some(findings),
            Verdict::NotRun { .. } => None,
        }
    }

    fn row(&self) -> String {
        let head = format!("| {}: {} | {} | {} ", self.fault.name, self.fault.what, self.fault.costs, self.seed);
        match &self.verdict {
            Verdict::NotRun { reason } => format!("{head}||||||||||not run: {reason} |\n"),
            Verdict::Run(findings) => {
                let outcome = match findings.broken.is_empty() {
                    true => format!("{} claims hold", findings.claims),
                    false => format!("**broken**: {}", findings.broken.join("; ")),
                };
                format!(
                    "{head}| {} | {} | {} | {} | {} | {} | {} | {} | {} | {outcome} |\n",
                    findings.calls,
                    findings.admitted,
                    findings.bound,
                    findings.refused,
                    findings.errors,
                    findings.degraded,
                    findings.lost,
                    ms(findings.slowest),
                    ms(findings.gap),
                )
            }
        }
    }
}

fn ms(length: Duration) -> String {
    format!("{} ms", length.as_millis())
}

fn seconds(length: Duration) -> String {
    format!("{:.1}", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    fn run(verdict: Verdict) -> Run {
        let (family, fault) = faults::all()[0];
        Run { fault, family, seed: 7, took: Duration::from_secs(1), verdict }
    }

    #[test]
    fn what_was_not_run_never_counts_as_passed() {
        let mut report = Report::default();
        report.add(run(Verdict::NotRun { reason: "no root".into() }));
        assert!(report.summary().starts_with("0 kinds of faults made in 0 runs, 1 not run"), "{}", report.summary());
        assert!(report.markdown("").contains("not run: no root"));
    }

    #[test]
    fn a_broken_promise_is_named_with_its_seed() {
        let mut report = Report::default();
        let mut findings = Findings::default();
        findings.claim(true, String::new);
        findings.claim(false, || "the sky fell".into());
        report.add(run(Verdict::Run(Box::new(findings))));
        assert_eq!(report.broken().count(), 1);
        assert!(report.summary().ends_with("1 claims held, 1 runs broken"), "{}", report.summary());
        let line = report.broken().next().map(Run::line).unwrap_or_default();
        assert!(line.contains("BROKEN by seed 7: the sky fell"), "{line}");
    }
}
