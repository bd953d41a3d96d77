//! Servers beside each other: processes of their own, one client, the same questions.
//!
//! The client is one thread with several connections: it sends a pipeline on each, then
//! receives the answers of each. Servers and client share all cores, as they do on a
//! machine that has both. What a server takes of them is told by the kernel.
//!
//! throttlecrab-server sends every answer by itself with Nagle's algorithm on, so a
//! pipeline waits for the client's delayed acknowledgement, some 40 ms. Its processor
//! time is the fairer figure there.

mod client;
mod processes;

use std::time::Duration;

use self::client::{Client, Lap};
use self::processes::{Contestant, LEAST, REDIS, THROTTLECRAB, TIDEGATE};
use crate::measure::Series;
use crate::report::{Goal, Reading, Table};
use crate::session::Session;

/// How much one client asks at a time.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    connections: usize,
    pipeline: usize,
}

const LOADS: [Load; 2] = [
    Load { name: "server, RESP, 16 connections x 50 at a time", connections: 16, pipeline: 50 },
    Load { name: "server, RESP, 16 connections, one at a time", connections: 16, pipeline: 1 },
];

/// Long enough that a pause of the machine does not decide a round.
const SLICE: Duration = Duration::from_millis(700);
const WARM_UP: Duration = Duration::from_millis(200);

pub(crate) fn server(session: &mut Session) {
    if !LOADS.iter().any(|load| session.wants(load.name)) {
        return;
    }
    let contestants = match processes::start_all() {
        Ok(contestants) => contestants,
        Err(reason) => return println!("no servers to measure: {reason}\n"),
    };
    for load in LOADS.into_iter().filter(|load| session.wants(load.name)).collect::<Vec<_>>() {
        measure(session, load, &contestants);
    }
}

fn measure(session: &mut Session, load: Load, contestants: &[Contestant]) {
    let mut clients: Vec<Client> =
        contestants.iter().map(|contestant| Client::connect(contestant, load.connections, load.pipeline)).collect();
    let rounds = session.pace.fills.max(5);
    let mut laps: Vec<Vec<Lap>> = contestants.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for place in 0..contestants.len() {
            let index = (round + place) % contestants.len();
            clients[index].run(WARM_UP, &contestants[index]);
            laps[index].push(clients[index].run(SLICE, &contestants[index]));
        }
    }
    let series = |read: fn(&Lap) -> f64| {
        let each = contestants.iter().zip(&laps);
        each.map(|(contestant, laps)| Series { name: contestant.name, rounds: laps.iter().map(read).collect() })
            .collect()
    };
    let below = |theirs, times| Goal::TimesBelow { ours: TIDEGATE, theirs, times };
    let no_worse = |theirs| Goal::AtMostTimes { ours: TIDEGATE, theirs, times: 1.0 };
    let goals = if load.pipeline > 1 { vec![below(REDIS, 3.0), below(THROTTLECRAB, 2.0)] } else { Vec::new() };
    let name = |what: &str| format!("{}: {what}", load.name);
    session.add(Table::of_checks(&name("time per decision"), series(|lap| lap.nanos_per_decision), goals));
    session.add(Table {
        name: name("p99 of an answer"),
        unit: "us",
        reading: Reading::Median,
        series: series(|lap| lap.p99_micros),
        goals: vec![no_worse(REDIS), no_worse(THROTTLECRAB)],
    });
    let goals = vec![no_worse(REDIS), no_worse(LEAST), no_worse(THROTTLECRAB)];
    session.add(Table::of_checks(
        &name("processor time of the server per decision"),
        series(|lap| lap.server_nanos_per_decision),
        goals,
    ));
}
