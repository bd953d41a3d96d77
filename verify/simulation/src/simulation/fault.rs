//! A fault: what goes wrong, when, and for how long, drawn from the seed.

use tidegate_testkit::Random;

/// One fault, in milliseconds since the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) kind: Kind,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Network(Condition),
    /// The server stops, and goes on with what it was sent meanwhile.
    Stops,
    /// It is away, and comes back with its states
    Restarts,
    /// or without them.
    Crashes,
    Flushed,
    ScriptsFlushed,
    /// It answers in these words.
    Refuses(&'static str),
    /// A replica takes over.
    FailsOver {
        /// Whether the replica has everything.
        is_clean: bool,
        former: Former,
        /// How far its clock is ahead of the former primary's, in microseconds.
        ahead: i64,
    },
    /// The clock is set by so many microseconds.
    ClockSet {
        by: i64,
    },
    /// A process is started again, after it has given back what it borrowed or not.
    ProcessEnds {
        process: usize,
        gracefully: bool,
    },
}

/// What becomes of the primary that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Former {
    Dies,
    /// It knows that it was replaced.
    Follows,
    /// It goes on until the fault is over.
    HasNotHeard,
}

/// What is wrong with the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// For whom, if not for all.
    pub(super) process: Option<usize>,
    pub(super) trouble: Trouble,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// Each way takes up to so many milliseconds.
    Slow { most_ms: u64 },
    /// Something becomes of so many commands out of a hundred.
    Spoils { fate: Fate, percent: u64 },
    /// A new connection is refused.
    Refuses,
    /// A new connection is neither accepted nor refused.
    Hangs,
}

/// What becomes of a command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// The connection ends before it was carried out,
    CutBefore,
    /// or after.
    CutAfter,
    /// Nothing arrives any more,
    Lost,
    /// or nothing comes back.
    Swallowed,
}

const MOODS: [&str; 5] = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
];

/// The furthest that a clock is set: an hour.
const FURTHEST_US: u64 = 3_600_000_000;

impl Fault {
    pub(super) fn drawn(random: &mut Random, processes: usize, length_ms: u64) -> Fault {
        let from_ms = random.within(0..=length_ms - 1);
        let to_ms = (from_ms + random.magnitude(1..=2_000)).min(length_ms);
        let process = random.percent(50).then(|| random.within(0..=processes as u64 - 1) as usize);
        let network = |trouble| Kind::Network(Condition { process, trouble });
        let kind = match random.within(0..=16) {
            0 => network(Trouble::Slow { most_ms: random.within(5..=200) }),
            1 => network(Trouble::Refuses),
            2 => network(Trouble::Hangs),
            3..=6 => {
                let fate = random.choose(&[Fate::CutBefore, Fate::CutAfter, Fate::Lost, Fate::Swallowed]);
                network(Trouble::Spoils { fate, percent: random.within(5..=100) })
            }
            7 => Kind::Stops,
            8 => Kind::Restarts,
            9 => Kind::Crashes,
            10 => Kind::Flushed,
            11 => Kind::ScriptsFlushed,
            12 => Kind::Refuses(random.choose(&MOODS)),
            13 | 14 => {
                let former = random.choose(&[Former::Dies, Former::Follows, Former::HasNotHeard]);
                let is_clean = former != Former::HasNotHeard && random.percent(30);
                Kind::FailsOver { is_clean, former, ahead: if random.percent(50) { step(random) } else { 0 } }
            }
            15 => Kind::ClockSet { by: step(random) },
            _ => Kind::ProcessEnds {
                process: random.within(0..=processes as u64 - 1) as usize,
                gracefully: random.percent(50),
            },
        };
        Fault { from_ms, to_ms, kind }
    }
}

fn step(random: &mut Random) -> i64 {
    let by = random.magnitude(1_000..=FURTHEST_US) as i64;
    if random.percent(50) { by } else { -by }
}
