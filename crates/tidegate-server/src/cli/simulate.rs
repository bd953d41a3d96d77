//! `tidegate simulate`: what limits would do to traffic.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidegate::{Algorithm, ConfigError, Limit, Micros};
use tidegate_simulate::{
    Flow, Outcome, Report, Scenario, ScenarioError, Series, Traffic, TrafficError, print_rounded, print_time,
    read_time, with_algorithm,
};

use super::progress::Progress;
use super::{complain, print, print_text, warn};
#[cfg(not(feature = "png"))]
use crate::settings::absent::Absent;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate simulate
  tidegate simulate --limit '100/min burst 20' --traffic 'poisson 2/s' --for 10min
  tidegate simulate --limit 600/min --traffic '5 clients: 2/s' --svg picture.svg";

/// What can be written, in the help.
pub(super) const WORDS: &str = "\
Traffic:
  50/s                              evenly
  poisson 50/s                      by chance
  bursts 200 every 1min within 2s   again and again
  on-off 100/s 5s on 10s off        in turns
  diurnal 10/s to 100/s             by chance, with a noon; every 1h: a short day
Any of it may end in: from 10s, until 2min, cost 3. Joined by +, it is of one client.
Clients may have a name (\"alice: 5/s\") or a number (\"20 clients: 5/s\").
Requests that last are reservations, charged at their start and settled at
their end:
  poisson 5/s lasting 1s..5s                        by chance; or lasting 2s
  poisson 5/s floor 50%                             leaves half of the limit
  poisson 5/s cost 400 actual 100..900 lasting 2s   cost is an estimate then

Limits: 100/min burst 20, fixed 1000/day, sliding-log 5/10s, leaky 2/s queue 8,
  sliding-counter 10/s, in-flight 20 for 60s (a permit is held until its request
  ends or 60s have passed)

Exit status: 0 simulated, 2 if that cannot be simulated, or a file cannot be
written.";

/// What is simulated unless told otherwise.
const LESSON: Limit = Limit::per_second(10);

/// How many requests go by between two looks at the clock.
const BETWEEN_LOOKS: u64 = 4_096;

#[derive(Args)]
pub(super) struct Arguments {
    /// A limit in words, such as "100/min burst 20"; through every algorithm, unless it names one [default: 10/s]
    #[arg(long, value_name = "WORDS")]
    limit: Vec<NamedLimit>,
    /// What a client sends, in words such as "poisson 50/s"; several for several clients [default: a burst across the
    /// edge of a window, then twice the limit]
    #[arg(long, value_name = "WORDS")]
    traffic: Vec<Traffic>,
    /// Only this algorithm: token-bucket, leaky, fixed, sliding-log or sliding-counter
    #[arg(long, value_name = "NAME", value_parser = read_algorithm)]
    algorithm: Vec<Algorithm>,
    /// For how long, such as 10min [default: a minute; ten periods, or two rounds of the traffic, if that is longer]
    #[arg(long = "for", value_name = "TIME", value_parser = read_length)]
    length: Option<Micros>,
    /// Until so many requests have come
    #[arg(long, value_name = "NUMBER", conflicts_with = "length", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// What chance begins with: the same seed is the same traffic
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Draw what happened into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The same as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print what was offered and admitted over time as CSV
    #[arg(long)]
    csv: bool,
}

/// A limit, and whether its words name an algorithm.
#[derive(Clone, Copy)]
struct NamedLimit {
    limit: Limit,
    is_named: bool,
}

impl FromStr for NamedLimit {
    type Err = ConfigError;

    fn from_str(words: &str) -> Result<NamedLimit, ConfigError> {
        let is_named = words.trim_start().starts_with(|first: char| first.is_ascii_alphabetic());
        Ok(NamedLimit { limit: words.parse()?, is_named })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("expected token-bucket, leaky, fixed, sliding-log or sliding-counter")]
struct NoAlgorithm;

fn read_algorithm(word: &str) -> Result<Algorithm, NoAlgorithm> {
    // The words of limits know the names.
    format!("{word} 1/s").parse().map(|limit: Limit| limit.algorithm()).map_err(|_| NoAlgorithm)
}

#[derive(Debug, thiserror::Error)]
#[error("expected a time such as 90s, 10min or 1day, up to ten years")]
struct NoTime;

fn read_length(word: &str) -> Result<Micros, NoTime> {
    read_time(word).ok_or(NoTime)
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Limit(#[from] ConfigError),
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[cfg(feature = "png")]
    #[error(transparent)]
    Png(#[from] tidegate_simulate::PngError),
    #[cfg(not(feature = "png"))]
    #[error(transparent)]
    Png(#[from] Absent),
    #[error("cannot write {path:?}")]
    Unwritable { path: PathBuf, source: io::Error },
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match simulate(arguments) {
        Err(failure) => complain(&failure),
        Ok(report) if arguments.json => print(|out| writeln!(out, "{}", as_json(&report))),
        Ok(report) if arguments.csv => print(|out| out.write_all(as_csv(&report).as_bytes())),
        Ok(report) => {
            let is_lesson = arguments.limit.is_empty() && arguments.traffic.is_empty();
            let lesson = if is_lesson { format!("\n{}", lesson(&report)) } else { String::new() };
            print_text(&(in_words(&report) + &lesson))
        }
    }
}

fn simulate(arguments: &Arguments) -> Result<Report, Failure> {
    let mut simulation = scenario(arguments)?.start()?;
    let (mut progress, mut requests) = (Progress::start(), 0_u64);
    while simulation.step().is_some() {
        requests += 1;
        if requests.is_multiple_of(BETWEEN_LOOKS) {
            let share = simulation.now().get() as f64 / simulation.scenario().length().get() as f64;
            progress.show(Some(share), format_args!("{:.0}%, {requests} requests", share * 100.0));
        }
    }
    drop(progress);
    let report = simulation.report();
    let write = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).map_err(|source| Failure::Unwritable { path: path.to_owned(), source })?;
        warn(&format_args!("wrote {}", path.display()));
        Ok::<(), Failure>(())
    };
    if let Some(path) = &arguments.svg {
        write(path, report.picture().to_svg().as_bytes())?;
    }
    if let Some(path) = &arguments.png {
        write(path, &png(&report)?)?;
    }
    Ok(report)
}

#[cfg(feature = "png")]
fn png(report: &Report) -> Result<Vec<u8>, Failure> {
    Ok(report.picture().to_png()?)
}

#[cfg(not(feature = "png"))]
fn png(_: &Report) -> Result<Vec<u8>, Failure> {
    Err(Absent::new("--png", "png").into())
}

fn scenario(arguments: &Arguments) -> Result<Scenario, Failure> {
    let limits = limits(arguments)?;
    let mut traffic = arguments.traffic.iter().cloned();
    let scenario = match traffic.next() {
        None => Scenario::lesson(limits[0])?,
        Some(first) => {
            let traffic = traffic.try_fold(first, Traffic::and)?;
            let period = limits.iter().map(Limit::period).max().unwrap_or_default();
            let rounds = traffic.cycle().map_or(Duration::ZERO, |cycle| cycle.to_duration() * 2);
            let length = Duration::from_secs(60).max(period.saturating_mul(10)).max(rounds);
            Scenario::new(traffic).lasting(length.min(Scenario::MAX_LENGTH))
        }
    };
    let scenario = scenario.limits(limits).seed(arguments.seed);
    Ok(match (arguments.length, arguments.requests) {
        (Some(length), _) => scenario.lasting(length.to_duration()),
        (None, Some(requests)) => scenario.lasting_requests(requests)?,
        (None, None) => scenario,
    })
}

/// Limits that name their algorithm as they are, the others through all that
/// were chosen.
fn limits(arguments: &Arguments) -> Result<Vec<Limit>, Failure> {
    let lesson = [NamedLimit { limit: LESSON, is_named: false }];
    let given = if arguments.limit.is_empty() { &lesson } else { &*arguments.limit };
    let algorithms = if arguments.algorithm.is_empty() { &Algorithm::ALL } else { &*arguments.algorithm };
    let mut limits = Vec::new();
    for NamedLimit { limit, is_named } in given {
        let algorithms = if *is_named { &[limit.algorithm()] } else { algorithms };
        for algorithm in algorithms {
            limits.push(with_algorithm(*limit, *algorithm)?);
        }
    }
    Ok(limits)
}

fn in_words(report: &Report) -> String {
    let mut words = format!("{}, for {}", report.traffic, print_rounded(report.length));
    words += &format!(", seed {}\n\n{}\n{}", report.seed, report.table(), report.chart());
    words += "
longest burst: what a token bucket of the limit's rate must hold to let the same pass
worst window:  the most that was admitted of one client in any period, and how far above the limit that is
smoothness:    100% if every tenth of a period sees as much as any other
";
    if report.offered.most_in_flight > 0 {
        words += "most in flight: of one client, requests that had come and not ended\n";
    }
    if report.outcomes.iter().any(|outcome| outcome.flow.longest_debt > Micros::ZERO) {
        words += "longest debt:  how long a client that had taken more than was left had to wait for the next unit\n";
    }
    words
}

/// What the first run shows, and what to do next.
fn lesson(report: &Report) -> String {
    let mut words = String::new();
    let of = |algorithm| report.outcomes.iter().find(move |outcome| outcome.limit.algorithm() == algorithm);
    if let (Some(fixed), Some(log)) = (of(Algorithm::FixedWindow), of(Algorithm::SlidingLog)) {
        let (worst, count) = (fixed.flow.worst_window.units, fixed.limit.count());
        let period = print_time(Micros::from_duration(fixed.limit.period()));
        words += &format!(
            "The fixed window let {worst} pass within {period}, though its limit is {count}: it forgets what it counted \
             at the edge\nof its window, and the burst came across one. The sliding log kept to {}.\n\n",
            log.flow.worst_window.units,
        );
    }
    words
        + "Next:
  tidegate simulate --svg picture.svg                               # or --png, --json, --csv
  tidegate simulate --limit '100/min burst 20' --traffic 'poisson 2/s' --for 10min
  tidegate simulate --limit 600/min --traffic 'alice: diurnal 1/s to 20/s every 1h' --traffic '5 clients: 2/s'
  tidegate simulate --limit '10/s burst 20' --traffic 'poisson 12/s floor 50% + poisson 2/s'  # classes, by their floors
  tidegate simulate --limit 10/s --limit '10/s burst 1' --algorithm token-bucket --traffic 'bursts 30 every 5s'
  tidegate simulate --help
"
}

fn as_json(report: &Report) -> Value {
    json!({
        "traffic": report.traffic.to_string(),
        "seed": report.seed,
        "length_us": report.length.get(),
        "offered": flow_as_json(&report.offered),
        "limits": report.outcomes.iter().map(|outcome| outcome_as_json(outcome, &report.traffic)).collect::<Vec<_>>(),
    })
}

fn outcome_as_json(outcome: &Outcome, traffic: &Traffic) -> Value {
    let mut value = flow_as_json(&outcome.flow);
    let (refused, worst) = (outcome.refused(), outcome.flow.worst_window);
    value["limit"] = outcome.limit.to_string().into();
    value["algorithm"] = outcome.limit.algorithm().to_string().into();
    if let Some(class) = &outcome.class {
        value["floor"] = class.floor.to_string().into();
    }
    value["refused"] = json!({ "requests": refused.requests, "units": refused.units });
    value["worst_window"]["client"] = traffic.name(worst.client).into();
    value["longest_delay_us"] = outcome.flow.longest_delay.get().into();
    value["longest_debt_us"] = outcome.flow.longest_debt.get().into();
    value
}

fn flow_as_json(flow: &Flow) -> Value {
    let series = |values: fn(&tidegate_simulate::Bin) -> u64| flow.series.bins().iter().map(values).collect::<Vec<_>>();
    json!({
        "passed": { "requests": flow.passed.requests, "units": flow.passed.units },
        "longest_burst": flow.burst,
        "worst_window": { "units": flow.worst_window.units, "from_us": flow.worst_window.from.get() },
        "most_in_flight": flow.most_in_flight,
        "smoothness": flow.smoothness.map(|thousandths| f64::from(thousandths) / 1_000.0),
        "series": {
            "bin_us": flow.series.width().get(),
            "passed": series(|bin| bin.admitted),
            "leaving": series(|bin| bin.leaving),
            "fullest_window": series(|bin| bin.fullest_window),
            "in_flight": series(|bin| bin.in_flight),
        },
    })
}

/// A line for each column of the picture.
fn as_csv(report: &Report) -> String {
    let offered = report.offered.series.bars();
    let admitted: Vec<Series> = report.outcomes.iter().map(|outcome| outcome.flow.series.bars()).collect();
    let mut csv = String::from("from_us,offered");
    report.outcomes.iter().for_each(|outcome| {
        let class = outcome.class.as_ref().map_or_else(String::new, |class| format!(" floor {}", class.floor));
        csv += &format!(",{}{class}", outcome.limit);
    });
    csv += "\n";
    for (index, bin) in offered.bins().iter().enumerate() {
        csv += &format!("{},{}", index as u64 * offered.width().get(), bin.admitted);
        admitted.iter().for_each(|series| csv += &format!(",{}", series.bins()[index].admitted));
        csv += "\n";
    }
    csv
}
