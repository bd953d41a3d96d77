//! Servers beside each other: processes of their own, one client, the same requests.
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
mod wire;

use std::time::Duration;

use self::client::{Client, Lap};
use self::processes::{Contestant, LEAST, REDIS, THROTTLECRAB, TIDEGATE};
use self::wire::Wire;
use crate::measure::Series;
use crate::report::{Goal, Table};
use crate::session::Session;

/// How much one client asks at a time.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    wire: Wire,
    connections: usize,
    pipeline: usize,
    /// How many times faster than which rival it is to be.
    goals: &'static [(&'static str, f64)],
}

const LOADS: [Load; 4] = [
    Load {
        name: "server, RESP, 16 connections x 50 at a time",
        wire: Wire::Resp,
        connections: 16,
        pipeline: 50,
        goals: &[(REDIS, 3.0), (THROTTLECRAB, 2.0)],
    },
    Load {
        name: "server, RESP, 16 connections, one at a time",
        wire: Wire::Resp,
        connections: 16,
        pipeline: 1,
        goals: &[],
    },
    Load {
        name: "server, HTTP, 16 connections kept alive",
        wire: Wire::Http,
        connections: 16,
        pipeline: 1,
        goals: &[(THROTTLECRAB, 1.5)],
    },
    Load {
        name: "server, gRPC, 4 connections x 16 streams",
        wire: Wire::Grpc,
        connections: 4,
        pipeline: 16,
        goals: &[(THROTTLECRAB, 1.0)],
    },
];

/// Long enough that a pause of the machine does not decide a round.
const SLICE: Duration = Duration::from_millis(700);
const WARM_UP: Duration = Duration::from_millis(200);

pub(crate) fn server(session: &mut Session) {
    for wire in [Wire::Resp, Wire::Http, Wire::Grpc] {
        let loads = LOADS.into_iter().filter(|load| load.wire == wire && session.wants(load.name));
        let loads: Vec<Load> = loads.collect();
        if loads.is_empty() {
            continue;
        }
        let contestants = match processes::start_all(wire) {
            Ok(contestants) => contestants,
            Err(reason) => return println!("no servers to measure: {reason}\n"),
        };
        for load in loads {
            measure(session, load, &contestants);
        }
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
    let rivals = || contestants.iter().map(|contestant| contestant.name).filter(|name| *name != TIDEGATE);
    let below = |(theirs, times): &(&'static str, f64)| Goal::TimesBelow { ours: TIDEGATE, theirs, times: *times };
    let no_worse = |theirs| Goal::AtMostTimes { ours: TIDEGATE, theirs, times: 1.0 };
    let goals = load.goals.iter().map(below).collect();
    let name = |what: &str| format!("{}: {what}", load.name);
    session.add(Table::of_checks(&name("time per decision"), series(|lap| lap.nanos_per_decision), goals));
    session.add(Table {
        name: name("p99 of an answer"),
        unit: "us",

        series: series(|lap| lap.p99_micros),
        goals: rivals().filter(|name| *name != LEAST).map(no_worse).collect(),
    });
    session.add(Table::of_checks(
        &name("processor time of the server per decision"),
        series(|lap| lap.server_nanos_per_decision),
        rivals().map(no_worse).collect(),
    ));
}
