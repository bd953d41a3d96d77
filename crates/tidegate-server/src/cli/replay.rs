//! `tidegate replay`: an access log, decided by a policy.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tidegate::Policy;
use tidegate_config::Report as Mistakes;
use tidegate_replay::{Format, HELD_BACK, Progress, Replay, ReplayError, Report, Share, Source};

use super::{NO, NO_ANSWER, complain, print, warn};

/// How often the bar moves.
const STEP: Duration = Duration::from_millis(100);

pub(super) const HELP: &str = "\
Examples:
  tidegate replay access.log --policy new.toml
  tidegate replay access.log* --policy new.toml --against old.toml --html report.html
  zcat logs/*.gz | tidegate replay - --policy new.toml --map tenant=org.id --at-most 0.1%

Exit status:
  0  decided; with --at-most, no more than that is refused
  1  the policy refuses more than --at-most
  2  no answer: bad arguments, a file that cannot be read to its end, no line,
     or more lines than --tolerate that could not be read or decided";

#[derive(Args)]
pub(super) struct Arguments {
    /// Access logs, as they are or by gzip or zstd; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The policy to decide by: TOML or YAML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The policy that it would replace: tells who is newly refused and newly admitted
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// What lines look like: combined, envoy, json or csv; the first lines tell unless this does
    #[arg(long)]
    format: Option<Format>,
    /// Take a field of the log for an attribute of the requests, or for time, cost, id or key; can be repeated
    #[arg(long = "map", value_name = "ATTRIBUTE=FIELD", value_parser = mapping)]
    mappings: Vec<(String, String)>,
    /// Search the smallest limits that would refuse at most this share of requests, such as 0.1%
    #[arg(long, value_name = "SHARE")]
    at_most: Option<Share>,
    /// The share of lines that need not be read and decided: if more are lost, there is no answer
    #[arg(long, value_name = "SHARE", default_value_t = Share::TOLERATED)]
    tolerate: Share,
    /// How many lines are held back, so that earlier ones can still come
    #[arg(long, value_name = "LINES", default_value_t = HELD_BACK)]
    reorder: usize,
    /// How many live keys there is room for
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000)]
    max_keys: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say how long it took, and how many lines a second that is
    #[arg(long)]
    timings: bool,
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((attribute, field)) if !attribute.is_empty() && !field.is_empty() => Ok((attribute.into(), field.into())),
        _ => Err("expected an attribute and a field, such as user=remote_user".to_owned()),
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("cannot write {path}")]
    Page { path: String, source: io::Error },
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let policies = tidegate_config::load(&arguments.policy)
        .and_then(|policy| Ok((policy, arguments.against.as_ref().map(tidegate_config::load).transpose()?)));
    match policies {
        Ok(policies) => match report(arguments, policies) {
            Ok(report) => tell(arguments, &report),
            Err(failure) => complain(&failure),
        },
        Err(mistakes) => refuse(&mistakes),
    }
}

fn refuse(mistakes: &Mistakes) -> ExitCode {
    warn(mistakes);
    ExitCode::from(NO_ANSWER)
}

fn report(arguments: &Arguments, (policy, against): (Policy, Option<Policy>)) -> Result<Report, Failure> {
    let mut replay = Replay::new(policy).held_back(arguments.reorder).max_keys(arguments.max_keys);
    replay = replay.tolerate(arguments.tolerate);
    if let Some(policy) = against {
        replay = replay.against(policy);
    }
    if let Some(format) = arguments.format {
        replay = replay.format(format);
    }
    if let Some(share) = arguments.at_most {
        replay = replay.at_most(share);
    }
    for (attribute, field) in &arguments.mappings {
        replay = replay.map(attribute, field);
    }
    if io::stderr().is_terminal() {
        let mut bar = Bar::default();
        replay = replay.progress(move |progress| bar.tell(progress));
    }
    let report = replay.run(arguments.logs.iter().map(Source::path));
    if io::stderr().is_terminal() {
        eprint!("{CLEAR}");
    }
    let report = report?;
    if let Some(path) = &arguments.html {
        let shown = || path.display().to_string();
        fs::write(path, report.to_html()).map_err(|source| Failure::Page { path: shown(), source })?;
    }
    Ok(report)
}

fn tell(arguments: &Arguments, report: &Report) -> ExitCode {
    let printed = print(|out| match arguments.json {
        true => writeln!(out, "{}", report.to_json()),
        false => write!(out, "{report}"),
    });
    if arguments.timings {
        warn(&report.timings_in_words());
    }
    if let Some(why) = &report.inconclusive {
        warn(&format_args!("tidegate: {why}"));
        return ExitCode::from(NO_ANSWER);
    }
    if let Some(at_most) = report.at_most.filter(|_| printed == ExitCode::SUCCESS && report.refuses_too_many()) {
        let (refused, decided) = (report.refused, report.admitted + report.refused);
        warn(&format_args!("tidegate: {refused} of {decided} requests would be refused, more than {at_most}"));
        return ExitCode::from(NO);
    }
    printed
}

/// Back to the start of the line, and nothing on it.
const CLEAR: &str = "\r\x1b[2K";

/// A line on the terminal that says how far it has come.
#[derive(Default)]
struct Bar {
    began: Option<Instant>,
    moved: Option<Instant>,
}

impl Bar {
    fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if self.moved.is_some_and(|moved| now - moved < STEP) && !progress.searches {
            return;
        }
        self.moved = Some(now);
        eprint!("{CLEAR}{}", line(progress, now - began));
        // A bar that cannot be shown is no reason to stop.
        let _ = io::stderr().flush();
    }
}

fn line(progress: Progress, elapsed: Duration) -> String {
    const WIDTH: u64 = 30;
    let Progress { read, size, lines, searches, .. } = progress;
    if searches {
        return format!("{lines} lines read, searching the smallest limits");
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let Some(size) = size.filter(|size| *size > 0) else {
        return format!("{}, {lines} lines", megabytes(read));
    };
    let done = (read.min(size) * WIDTH / size) as usize;
    let bar = format!("{}{}", "━".repeat(done), "╌".repeat(WIDTH as usize - done));
    let left = elapsed.as_secs_f64() * (size as f64 / read.max(1) as f64 - 1.0).max(0.0);
    format!("{bar} {} of {}, {lines} lines, {left:.0} s left", megabytes(read), megabytes(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_an_attribute_and_a_field() {
        assert_eq!(mapping("user=a=b"), Ok(("user".into(), "a=b".into())));
        for text in ["user", "=a", "user=", ""] {
            assert!(mapping(text).is_err(), "{text}");
        }
    }
}
