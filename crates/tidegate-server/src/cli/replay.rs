//! `tidegate replay`: an access log, decided by a policy.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tidegate::Policy;
use tidegate_config::Report as Errors;
use tidegate_replay::{Format, HELD_BACK, Progress as SoFar, Replay, ReplayError, Report, Share, Source, Titles};

use super::progress::Progress;
use super::{NO, NO_ANSWER, complain, print, print_text, warn};
use crate::ask::policy::changes;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate replay access.log --policy new.toml
  tidegate replay access.log* --policy new.toml --against old.toml --html out.html
  zcat logs/*.gz | tidegate replay - --policy new.toml --map tenant=org.id
  tidegate replay a.json --policy new.toml --map duration=request_time";

pub(super) const HELP: &str = "\
Durations:
  --map duration=FIELD (seconds), or duration_ms, duration_us, duration_ns:
  requests are charged when they start and settled when they end, to
  --map actual=FIELD if there is one. The time of a line is that of the end, so
  a request started that much earlier; Envoy's start_time and Traefik's StartUTC
  are those of the start, and --map start=FIELD (such as start=time of Apache)
  says so.

Exit status:
  0  decided; with --at-most, no more than that is refused
  1  the policy refuses more than --at-most
  2  no answer: bad arguments, a file that cannot be read to its end, no line,
     or more lines than --tolerate that could not be read or decided";

#[derive(Args)]
pub(super) struct Arguments {
    /// Access logs, plain or compressed by gzip or zstd; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The policy to decide by: TOML or YAML
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The policy that it would replace: shows which keys are newly refused and newly admitted
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The format of lines: combined, envoy, json or csv [default: by the name and the first lines]
    #[arg(long)]
    format: Option<Format>,
    /// Take a field of the log for an attribute of the requests, or for time, start, duration, cost, actual, id or
    /// key; can be repeated
    #[arg(long = "map", value_name = "ATTRIBUTE=FIELD", value_parser = mapping)]
    mappings: Vec<(String, String)>,
    /// Search the smallest limits that would refuse at most this share of requests, such as 0.1%
    #[arg(long, value_name = "SHARE")]
    at_most: Option<Share>,
    /// The share of lines that may fail to be read or decided; with more there is no answer
    #[arg(long, value_name = "SHARE", default_value_t = Share::TOLERATED)]
    tolerate: Share,
    /// Lines to hold back, so that lines out of order are sorted
    #[arg(long, value_name = "LINES", default_value_t = HELD_BACK)]
    reorder: usize,
    /// Live keys that the memory store has room for
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000)]
    max_keys: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print how long it took, and the lines per second
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
        Err(errors) => refuse(&errors),
    }
}

fn refuse(errors: &Errors) -> ExitCode {
    warn(errors);
    ExitCode::from(NO_ANSWER)
}

fn report(arguments: &Arguments, (policy, against): (Policy, Option<Policy>)) -> Result<Report, Failure> {
    let changes = against.as_ref().map(|against| changes(against, &policy)).unwrap_or_default();
    let name = |path: &PathBuf| path.display().to_string();
    let against_name = arguments.against.as_ref().map(name).unwrap_or_default();
    let titles = Titles { policy: name(&arguments.policy), against: against_name, changes };
    let mut replay = Replay::new(policy).titles(titles).held_back(arguments.reorder).max_keys(arguments.max_keys);
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
    let mut bar = Progress::start();
    let report = replay.progress(move |so_far| show(&mut bar, so_far)).run(arguments.logs.iter().map(Source::path))?;
    if let Some(path) = &arguments.html {
        let shown = || path.display().to_string();
        fs::write(path, report.to_html()).map_err(|source| Failure::Page { path: shown(), source })?;
        warn(&format_args!("wrote {}", shown()));
    }
    Ok(report)
}

fn tell(arguments: &Arguments, report: &Report) -> ExitCode {
    let printed = match arguments.json {
        true => print(|out| writeln!(out, "{}", report.to_json())),
        false => print_text(&report.to_string()),
    };
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

/// Shows how much of the logs is read, if their size is known.
fn show(bar: &mut Progress, so_far: SoFar) {
    let SoFar { read, size, lines, searches, .. } = so_far;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    match size.filter(|size| *size > 0) {
        _ if searches => bar.show_now(None, format_args!("{lines} lines read, searching the smallest limits")),
        None => bar.show(None, format_args!("{:.1} MB, {lines} lines", megabytes(read))),
        Some(size) => {
            let words = format_args!("{:.1} MB of {:.1} MB, {lines} lines", megabytes(read), megabytes(size));
            bar.show(Some(read as f64 / size as f64), words);
        }
    }
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
