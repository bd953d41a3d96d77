//! The paths whose instructions are counted, measured beside each other.

use tidegate_paths::{PATHS, TIMES};

use crate::measure::{Run, Stopwatch, race};
use crate::report::{Goal, Table};
use crate::session::Session;

/// What a path may take at most, in multiples of another.
const GOALS: [(&str, &str, f64); 23] = [
    ("changed-settled", "allow-short", 1.1),
    ("changed-with-former-use", "allow-hot", 4.0),
    ("limits-2", "allow-hot", 2.5),
    ("limits-3", "allow-hot", 4.8),
    ("limits-5", "allow-hot", 8.0),
    ("limits-10", "allow-hot", 16.0),
    ("limits-16", "allow-hot", 25.6),
    ("bucket-and-sliding", "limits-2", 2.0),
    ("bucket-log-and-fixed", "limits-3", 2.0),
    ("rule-by-user", "allow-hot", 2.0),
    ("floor-hot", "allow-hot", 1.05),
    ("rule-by-class", "rule-by-tier", 1.05),
    ("rules-3-of-1000", "three-direct", 2.5),
    ("globs-10000", "globs-10", 3.0),
    ("calendar-month", "fixed-window", 1.2),
    ("allow-ipv4", "allow-u64", 1.3),
    ("allow-ipv6", "allow-u64", 1.3),
    ("check-many", "allow-among-many", 1.0),
    ("check-many-hot", "check-hot", 1.0),
    ("allow-many", "allow-among-many", 1.0),
    ("allow-many-hot", "allow-hot", 1.0),
    ("check-hot", "allow-hot", 2.0),
    ("check-refused", "allow-refused", 2.0),
];

pub(crate) fn paths(session: &mut Session) {
    for (ours, theirs, times) in GOALS {
        let name = format!("path {ours}, beside {theirs}");
        if session.wants(&name) {
            let runs = [ours, theirs].into_iter().filter_map(turn).collect();
            let goals = vec![Goal::AtMostTimes { ours, theirs, times }];
            session.add(Table::of_checks(&name, race(session.pace.rounds, runs), goals));
        }
    }
}

fn turn(name: &'static str) -> Option<Run<'static>> {
    let (_, path) = PATHS.iter().find(|(known, _)| *known == name)?;
    let mut run = path();
    let runs = TIMES * 4;
    (0..TIMES).for_each(&mut run);
    Some(Run {
        name,
        run: Box::new(move || {
            let watch = Stopwatch::start();
            (0..runs).for_each(&mut run);
            watch.stop().nanos() / runs as f64
        }),
    })
}
