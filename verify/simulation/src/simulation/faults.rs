//! What goes wrong, when, and for how long: drawn from the seed beforehand.

use std::sync::Arc;
use std::time::Duration;

use tidegate_testkit::Random;
use tokio::time::{Instant, sleep_until};

use super::judge::{Event, What};
use super::network::{Condition, Fate, Trouble};
use super::process::Processes;
use super::server::READ_ONLY;
use super::world::{State, World};

/// One fault, in milliseconds since the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    from_ms: u64,
    to_ms: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
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
enum Former {
    Dies,
    /// It knows that it was replaced.
    Follows,
    /// It goes on until the fault is over.
    HasNotHeard,
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

/// Lets everything happen in its time.
pub(super) async fn happen(world: Arc<World>, processes: Processes) {
    let began = Instant::now();
    let faults = &world.scenario.faults;
    let begins = faults.iter().enumerate().map(|(number, fault)| (fault.from_ms, number, Phase::Begins));
    let ends = faults.iter().enumerate().map(|(number, fault)| (fault.to_ms, number, Phase::Ends));
    let mut moments: Vec<_> = begins.chain(ends).collect();
    moments.sort_by_key(|(at_ms, number, phase)| (*at_ms, *number, *phase == Phase::Ends));
    for (at_ms, number, phase) in moments {
        sleep_until(began + Duration::from_millis(at_ms)).await;
        let fault = faults[number];
        {
            let mut state = world.lock();
            state.note(format_args!("{phase:?}: {:?}", fault.kind));
            match phase {
                Phase::Begins => state.begin(number, &fault),
                Phase::Ends => state.finish(number, &fault),
            }
        }
        if let (Kind::ProcessEnds { process, gracefully }, Phase::Begins) = (fault.kind, phase) {
            processes.restart(process, gracefully).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    Ends,
}

impl State {
    fn begin(&mut self, number: usize, fault: &Fault) {
        self.tally.faults += 1;
        let primary = self.primary;
        let lasts = Duration::from_millis(fault.to_ms - fault.from_ms);
        match fault.kind {
            Kind::Network(condition) => self.conditions.push((number, condition)),
            Kind::Stops => self.servers[primary].stopped_until = Some(Instant::now() + lasts),
            Kind::Restarts | Kind::Crashes => {
                self.servers[primary].is_down = true;
                self.cut_all(primary);
                self.servers[primary].forget_scripts();
                if matches!(fault.kind, Kind::Crashes) {
                    self.lose();
                    let history = self.random.number();
                    self.servers[primary].lose_everything(history);
                }
            }
            Kind::Flushed => {
                self.lose();
                self.servers[primary].flush();
            }
            Kind::ScriptsFlushed => self.servers[primary].forget_scripts(),
            Kind::Refuses(words) => self.servers[primary].refuses = Some(words),
            Kind::FailsOver { is_clean, former, ahead } => self.fail_over(is_clean, former, ahead),
            Kind::ClockSet { by } => {
                self.servers[primary].ahead += by;
                self.clock_set(by);
            }
            Kind::ProcessEnds { .. } => {}
        }
    }

    fn finish(&mut self, number: usize, fault: &Fault) {
        match fault.kind {
            Kind::Network(_) => self.conditions.retain(|(other, _)| *other != number),
            Kind::Restarts | Kind::Crashes => self.servers.iter_mut().for_each(|server| server.is_down = false),
            Kind::Refuses(words) => {
                let over = self.servers.iter_mut().filter(|server| server.refuses == Some(words));
                over.for_each(|server| server.refuses = None);
            }
            Kind::FailsOver { former: Former::HasNotHeard, .. } => self.former_primaries_follow(),
            Kind::Stops
            | Kind::Flushed
            | Kind::ScriptsFlushed
            | Kind::FailsOver { .. }
            | Kind::ClockSet { .. }
            | Kind::ProcessEnds { .. } => {}
        }
    }

    fn fail_over(&mut self, is_clean: bool, former: Former, ahead: i64) {
        // Of several that were replaced, only the last one may not have heard.
        self.former_primaries_follow();
        let old = self.primary;
        if is_clean {
            self.servers[old].replicate();
        }
        let (history, ahead_of_world) = (self.random.number(), self.servers[old].ahead + ahead);
        let promoted = self.servers[old].promoted(history, ahead_of_world);
        self.servers.push(promoted);
        self.primary = self.servers.len() - 1;
        match former {
            Former::Dies => {
                self.servers[old].refuses = Some(READ_ONLY);
                self.cut_all(old);
            }
            Former::Follows => self.servers[old].refuses = Some(READ_ONLY),
            Former::HasNotHeard => {}
        }
        if !is_clean {
            let loss = self.lose();
            self.two_answer = (former == Former::HasNotHeard).then_some(loss);
        }
        if ahead != 0 {
            self.clock_set(ahead);
        }
    }

    fn former_primaries_follow(&mut self) {
        for former in 0..self.primary {
            self.servers[former].refuses = Some(READ_ONLY);
        }
        if let Some(loss) = self.two_answer.take() {
            let now = self.now();
            self.judge.lasted(loss, now);
        }
    }

    /// States are lost, by an event of this number.
    fn lose(&mut self) -> usize {
        self.tally.losses += 1;
        let at = self.instant();
        self.judge.happened(Event { from: at, to: at, what: What::Loss })
    }

    fn clock_set(&mut self, by: i64) {
        let at = self.instant();
        if by > 0 {
            self.judge.happened(Event { from: at, to: at, what: What::Leap(by.unsigned_abs()) });
        }
        self.judge.happened(Event { from: at, to: at, what: What::Realigned });
    }
}
