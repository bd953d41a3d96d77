//! Clocks that are set: the store's, a client's, the server's.
//!
//! Redis tells the time of its decisions itself, so it is Redis whose clock is
//! shifted while it runs; what only its wall clock does, no other clock notices.

use std::thread;
use std::time::{Duration, Instant};

use tidegate::{Algorithm, Limit};
use tidegate_testkit::servers::{Load, Program, Server, Tally};

use crate::bound::{Damage, allowance};
use crate::client::Client;
use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::pressure::{Pressure, judge_load};
use crate::shim::ShiftedClock;
use crate::tidegate_process::{HttpCallers, Tidegate};
use crate::trial::{SLACK, Trial};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new(
        "store-clock-forward",
        "the store's clock steps forwards: by 1 ms, 1 s, 1 min, 1 h, a day, a year",
        "what the step would have earned, a burst at most",
        store_forward,
    )
    .needs(Needs::Compiler),
    Fault::new(
        "store-clock-back",
        "the store's clock steps back: by 1 ms, 1 s, 1 min, 1 h, a day, a year",
        "nothing; no key is locked out for longer than two horizons",
        store_back,
    )
    .needs(Needs::Compiler),
    Fault::new(
        "client-clock",
        "the wall clock of a client with a lease is set, forwards and back",
        "its lease beside the bound",
        client_clock,
    )
    .needs(Needs::Compiler),
    Fault::new(
        "suspend",
        "the wall clock of the server tidegate jumps, as after a suspend, and back",
        "nothing",
        suspend,
    )
    .needs(Needs::TidegateAndCompiler),
];

const STEPS: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_secs(1),
    Duration::from_secs(60),
    Duration::from_secs(3_600),
    Duration::from_secs(86_400),
    Duration::from_secs(365 * 86_400),
];

fn micros(step: Duration) -> i64 {
    i64::try_from(step.as_micros()).expect("a year of microseconds")
}

/// After how long a key is as if never seen: P11 of `PROMISES.md`.
fn horizon(limit: &Limit) -> Duration {
    let period = limit.period();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            period * u32::try_from(limit.capacity()).unwrap_or(u32::MAX) / u32::try_from(limit.count()).unwrap_or(1)
        }
        Algorithm::FixedWindow | Algorithm::SlidingLog => period,
        Algorithm::SlidingCounter => 2 * period,
    }
}

/// Every step once, each under a load of its own; `set` is what it does to the shift.
fn stepped(trial: &mut Trial, set: fn(i64, i64) -> i64, damage: impl Fn(Duration) -> Damage) -> Findings {
    let clock = ShiftedClock::new();
    let server = Server::start_on(&clock.program(&Program::from_environment()), &[]);
    let mut shift = 0;
    let steps = STEPS.map(|step| {
        server.command(&["FLUSHALL"]);
        let pressure = Pressure::greedy(trial, &trial.store(&server.url()));
        pressure.settle();
        shift = set(shift, micros(step));
        clock.set(shift);
        let began = Instant::now();
        pressure.recover();
        let (locked_out, horizon) = (began.elapsed(), horizon(pressure.limit()));
        let longest = horizon + horizon.max(Duration::from_secs(1)) + SLACK;
        let mut findings = pressure.judge(damage(step));
        findings.notes.push(format!("a step of {step:?}"));
        findings.claim(locked_out <= longest, || {
            format!("after a step of {step:?} it took {locked_out:?} until a request passed, of {longest:?} at most")
        });
        findings
    });
    steps.into_iter().reduce(Findings::and).unwrap_or_default()
}

fn store_forward(trial: &mut Trial) -> Findings {
    stepped(trial, |shift, step| shift + step, |step| Damage { step, ..Damage::NONE })
}

fn store_back(trial: &mut Trial) -> Findings {
    stepped(trial, |shift, step| shift - step, |_| Damage::NONE)
}

fn client_clock(trial: &mut Trial) -> Findings {
    let (server, clock) = (Server::start(), ShiftedClock::new());
    let chunk = trial.random.within(10..=40);
    let limit = Limit::token_bucket(trial.random.within(60..=150), Duration::from_secs(1)).burst(50);
    let began = Instant::now();
    let words = clock.words();
    let mut client = Client::start_by(&words.each_ref().map(String::as_str), &server.url(), limit, Some(chunk));
    client.wait_for_admitted(60);
    for step in STEPS.map(micros) {
        for shift in [step, -step, 0] {
            clock.set(shift);
            thread::sleep(Duration::from_millis(60));
        }
    }
    let before = client.diary().admissions.len();
    client.wait_for_admitted(before + 60);
    client.finish();
    // Its own times are of no use; ours are.
    let (admitted, most) = (client.diary().admissions.len() as u64, allowance(&limit, began.elapsed()) + chunk);
    let mut findings = Findings { notes: vec![format!("{limit}, lease {chunk}")], ..Findings::default() };
    findings.count(&Tally { admitted, ..Tally::default() }, most);
    findings.claim(admitted <= most, || format!("{admitted} were admitted, of {most} at most"));
    findings
}

fn suspend(trial: &mut Trial) -> Findings {
    let clock = ShiftedClock::new();
    let words = clock.words();
    let tidegate = Tidegate::start_by(&words.each_ref().map(String::as_str), &[]);
    let limit = trial.limit();
    let callers = HttpCallers::new(tidegate.address(), limit);
    let load = Load::start(4, Duration::from_millis(4), move |turn| callers.ask(turn));
    load.wait_until("the limit to be used up", |tally| tally.admitted > 0 && tally.refused > 20);
    for step in STEPS.map(micros) {
        for shift in [step, -step, 0] {
            clock.set(shift);
            thread::sleep(Duration::from_millis(60));
        }
    }
    load.wait_for_answers(50);
    judge_load(load, &limit, Damage::NONE).without_errors()
}
