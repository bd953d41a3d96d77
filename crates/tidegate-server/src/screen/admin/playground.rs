//! The playground: a limit and some traffic, and what all five algorithms make
//! of it, decided by the real kernels in virtual time. Traffic is all that `tidegate simulate` takes:
//! several clients and classes, and requests that last. A limit on requests in flight is the only one then.
//!
//! Answers come as lines of JSON while they are made: how it begins, what
//! happened in each slice of time, how it ended.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{Request, Response};
use serde::{Deserialize, Serialize};
use tidegate::{Limit, Micros};
use tidegate_simulate::{Scenario, Simulation, Traffic, every_algorithm, read_time};
use tokio::sync::mpsc;

use super::candidate::place;
use crate::screen::Screen;
use crate::wire::http::body;
use crate::wire::http::problem::Problem;
use crate::wire::http::reply::uncached;
use crate::wire::json::{self, FromObject, Shape, Whole};

/// Requests of one simulation; it ends there.
const MAX_REQUESTS: u64 = 1_000_000;

/// The longest virtual time: a week.
const MAX_LENGTH: Micros = Micros::new(7 * 24 * 3_600 * 1_000_000);

/// The longest limit and the longest traffic, in bytes.
const MAX_WORDS: usize = 1_000;

/// Classes of traffic: each is measured under each algorithm.
const MAX_CLASSES: usize = 8;

/// Slices of time that are told.
const SLICES: u64 = 160;

/// Marks of what leaves: finer, as it is the distance between them that is looked at.
const MARKS: u64 = 960;

/// Lines that wait for a client that reads slowly: all there are, so that a simulation always ends.
const MAX_UNREAD: usize = SLICES as usize + 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    limit: String,
    traffic: String,
    /// In words, such as `30s`.
    duration: String,
    #[serde(default)]
    seed: Whole<{ u64::MAX }>,
}

impl Shape for Asked {
    const EXPECTED: &'static str = "an object with limit, traffic, duration and seed";
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begin(Begin),
    Slice(Slice),
    End(End),
}

#[derive(Serialize)]
struct Begin {
    length_us: u64,
    period_us: u64,
    slices: u64,
    algorithms: Vec<AlgorithmOutcome>,
    /// What each class of the traffic leaves to others, such as `50%`; one, if all do alike.
    floors: Vec<String>,
}

#[derive(Serialize)]
struct AlgorithmOutcome {
    name: &'static str,
    limit: String,
}

/// What came in a slice of time and what each algorithm admitted of it, in
/// units of cost.
#[derive(Serialize)]
struct Slice {
    number: u64,
    offered: u64,
    admitted: Vec<u64>,
    /// The same of each class, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassSlice>,
}

#[derive(Clone, Serialize)]
struct ClassSlice {
    offered: u64,
    admitted: Vec<u64>,
}

#[derive(Serialize)]
struct End {
    requests: u64,
    /// Whether it had more requests than one simulation may have.
    cut_short: bool,
    /// For each algorithm, one for each class.
    outcomes: Vec<ClassOutcome>,
}

#[derive(Serialize)]
struct ClassOutcome {
    /// What the class leaves to others, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<String>,
    admitted: u64,
    refused: u64,
    /// What the smallest token bucket would have to hold to let the same pass.
    burst: u64,
    /// The most that passed of one client within one period, and when that began.
    worst_window: u64,
    worst_window_from_us: u64,
    /// In thousandths; null if nothing passed.
    smoothness: Option<u32>,
    longest_delay_us: u64,
    /// Of one client, where requests last: the most that had come and not ended, and how long one that had
    /// taken more than was left had to wait for the next unit.
    most_in_flight: u64,
    longest_debt_us: u64,
    /// What leaves, in short slices; empty where it leaves as it is admitted.
    leaving: Vec<u64>,
}

/// Plays through what is asked for.
pub(super) async fn play(State(screen): State<Screen>, request: Request<Body>) -> Result<Response<Body>, Problem> {
    let simulation = read(&body::read_json(request, &screen.app).await?)?;
    let place = place(&screen)?;
    let (lines, unread) = mpsc::channel(MAX_UNREAD);
    // Deciding a million requests is no work for a thread that serves.
    tokio::task::spawn_blocking(move || {
        run(simulation, &lines);
        drop(place);
    });
    let lines = unfold(unread, |mut unread| async {
        let line = unread.recv().await?;
        Some((Ok::<_, Infallible>(line), unread))
    });
    Ok(uncached("application/x-ndjson", Body::from_stream(lines)))
}

fn read(body: &[u8]) -> Result<Simulation, Problem> {
    let FromObject(asked): FromObject<Asked> = json::read(body)?;
    let Asked { limit, traffic, duration, seed: Whole(seed) } = asked;
    for (what, text) in [("limit", &limit), ("traffic", &traffic), ("duration", &duration)] {
        if text.len() > MAX_WORDS {
            return Err(Problem::TextTooLong { what, found: text.len(), bound: MAX_WORDS });
        }
    }
    let limit: Limit = limit.parse()?;
    let traffic: Traffic = traffic.parse()?;
    let found = traffic.classes().len();
    if found > MAX_CLASSES {
        return Err(Problem::TooManyClasses { found, bound: MAX_CLASSES });
    }
    let length = read_time(&duration).filter(|length| (Micros::new(1)..=MAX_LENGTH).contains(length));
    let length = length.ok_or(Problem::PlayTime { found: duration, longest: "7d" })?;
    let limits = if limit.is_in_flight() { vec![limit] } else { every_algorithm(limit)? };
    let scenario = Scenario::new(traffic).limits(limits).seed(seed);
    Ok(scenario.lasting(length.to_duration()).start()?)
}

/// Decides all requests, or stops when the client has gone.
fn run(mut simulation: Simulation, lines: &mpsc::Sender<Bytes>) {
    let begin = begin(&simulation);
    let (length, limits, classes) = (begin.length_us, begin.algorithms.len(), begin.floors.len());
    let mut is_read = tell(lines, &Line::Begin(begin));
    // Of the end of a slice, the product fits: a week has 2^40 microseconds.
    let end_of = |slice: u64| Micros::new((length * (slice + 1)).div_ceil(SLICES));
    let mark_of = |at: u64| (at * MARKS / length) as usize;
    let mut leaving = vec![vec![0; MARKS as usize]; limits * classes];
    let mut requests = 0;
    for number in 0..SLICES {
        let mut slices = vec![ClassSlice { offered: 0, admitted: vec![0; limits] }; classes];
        while let Some(answer) = simulation.step_before(end_of(number)) {
            let class = answer.arrival.class as usize;
            slices[class].offered += answer.arrival.cost;
            for (limit, verdict) in answer.verdicts.iter().enumerate().filter(|(_, verdict)| verdict.allowed) {
                slices[class].admitted[limit] += answer.arrival.cost;
                let leaves = answer.arrival.at.saturating_add(verdict.delay).get();
                if leaves < length {
                    leaving[limit * classes + class][mark_of(leaves)] += answer.arrival.cost;
                }
            }
            requests += 1;
            if requests >= MAX_REQUESTS {
                break;
            }
        }
        is_read = is_read && tell(lines, &Line::Slice(Slice::new(number, slices)));
        if !is_read {
            return;
        }
        if requests >= MAX_REQUESTS {
            break;
        }
    }
    tell(lines, &Line::End(end(&simulation, requests, leaving)));
}

impl Slice {
    fn new(number: u64, classes: Vec<ClassSlice>) -> Slice {
        let offered = classes.iter().map(|class| class.offered).sum();
        let limits = classes.first().map_or(0, |class| class.admitted.len());
        let admitted = (0..limits).map(|limit| classes.iter().map(|class| class.admitted[limit]).sum()).collect();
        Slice { number, offered, admitted, classes: if classes.len() > 1 { classes } else { Vec::new() } }
    }
}

fn begin(simulation: &Simulation) -> Begin {
    let report = simulation.report();
    let floors: Vec<String> = report.traffic.classes().iter().map(ToString::to_string).collect();
    let algorithm = |outcome: &tidegate_simulate::Outcome| AlgorithmOutcome {
        name: outcome.name(),
        limit: outcome.limit.to_string(),
    };
    let period = report.outcomes.first().map_or(Micros::ZERO, |outcome| Micros::from_duration(outcome.limit.period()));
    Begin {
        length_us: report.length.get(),
        period_us: period.get(),
        slices: SLICES,
        algorithms: report.outcomes.iter().step_by(floors.len().max(1)).map(algorithm).collect(),
        floors,
    }
}

fn end(simulation: &Simulation, requests: u64, leaving: Vec<Vec<u64>>) -> End {
    let outcomes = simulation.report().outcomes.into_iter().zip(leaving).map(|(outcome, leaving)| ClassOutcome {
        floor: outcome.class.as_ref().map(|class| class.floor.to_string()),
        admitted: outcome.flow.passed.units,
        refused: outcome.refused().units,
        burst: outcome.flow.burst,
        worst_window: outcome.flow.worst_window.units,
        worst_window_from_us: outcome.flow.worst_window.from.get(),
        smoothness: outcome.flow.smoothness,
        longest_delay_us: outcome.flow.longest_delay.get(),
        most_in_flight: outcome.flow.most_in_flight,
        longest_debt_us: outcome.flow.longest_debt.get(),
        leaving: if outcome.flow.longest_delay == Micros::ZERO { Vec::new() } else { leaving },
    });
    End { requests, cut_short: simulation.next_at().is_some(), outcomes: outcomes.collect() }
}

/// Sends a line; false when the client has gone.
fn tell(lines: &mpsc::Sender<Bytes>, line: &Line) -> bool {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    lines.blocking_send(bytes.into()).is_ok()
}
