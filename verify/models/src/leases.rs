//! Leases: units are charged on the server, then handed out by processes.
//!
//! A process takes from what it holds; if there is nothing it asks for a chunk,
//! of which the server grants what there is. Replies come late, twice, or not
//! at all; leases end and what is left is given back; processes die. A request
//! of two limits takes a unit first, and puts it back if the other limit
//! refuses. All of it as in `tidegate-redis/src/layer/ledger/account.rs` and `leased.rs`.

use stateright::{Model, Property};
use tidegate::kernel::Verb;

use crate::meter::{Admissions, Meter, START};

/// What is modelled: how many, how large, for how long.
#[derive(Clone, Debug)]
pub struct Leases {
    processes: usize,
    chunk: u64,
    burst: u64,
    /// Microseconds that pass at most.
    time: u64,
    /// How often each process may ask the server.
    requests: u8,
    defect: Option<Defect>,
    meter: Meter,
}

/// What could be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A grant counts whenever it comes, and as often.
    AcceptsEveryGrant,
    /// What is put back is held, however much there is already.
    PutsBackBeyondTheChunk,
    /// A lease that ends is given back whole, with what was used of it.
    GivesBackWhatWasUsed,
}

impl Leases {
    /// Two processes, with more time and a larger burst in a large model.
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Leases {
        let large = crate::is_large();
        let (processes, burst, time, requests) = if large { (2, 4, 3, 2) } else { (2, 3, 2, 2) };
        Leases { processes, chunk: 2, burst, time, requests, defect, meter: Meter::new(burst) }
    }
}

/// All processes and all messages on the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    server: u64,
    processes: Vec<Process>,
    messages: Vec<Message>,
    admitted: Admissions,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    dead: bool,
    units: u64,
    until: u64,
    requests: u8,
    awaited: Option<u8>,
    /// Units taken for requests of which another limit has not decided yet.
    tried: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Borrow { from: usize, number: u8, tries: bool },
    Grant { to: usize, number: u8, tries: bool, units: u64 },
    Refund { units: u64 },
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A microsecond passes.
    Tick,
    /// A caller asks a process for one unit.
    Ask(usize),
    /// A caller asks for one unit of this limit and one of another.
    Try(usize),
    /// The other limit allows it.
    Settle(usize),
    /// The other limit refuses it.
    PutBack(usize),
    /// A message arrives.
    Arrive(usize),
    /// A message arrives, and will once more.
    ArriveTwice(usize),
    /// A message is lost.
    Lose(usize),
    /// A process finds that its lease is over.
    End(usize),
    /// A process dies.
    Die(usize),
}

/// How long a lease lasts.
const TTL: u64 = 1;
/// Requests at a time that wait for another limit.
const MAX_TRIED: u64 = 2;
/// Messages on the way at a time.
const MAX_MESSAGES: usize = 2;

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let processes = vec![Process::default(); self.processes];
        vec![State { now: START, server: 0, processes, messages: Vec::new(), admitted: Admissions::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < START + self.time {
            actions.push(Action::Tick);
        }
        for (number, process) in state.processes.iter().enumerate().filter(|(_, process)| !process.dead) {
            actions.push(Action::Ask(number));
            // One process has another limit beside this one.
            if number == 0 && process.tried < MAX_TRIED {
                actions.push(Action::Try(number));
            }
            if process.tried > 0 {
                actions.extend([Action::Settle(number), Action::PutBack(number)]);
            }
            if process.units > 0 && process.until <= state.now {
                actions.push(Action::End(number));
            }
            // The other one may die.
            if number == 1 {
                actions.push(Action::Die(number));
            }
        }
        for (number, message) in state.messages.iter().enumerate() {
            actions.extend([Action::Arrive(number), Action::Lose(number)]);
            if matches!(message, Message::Grant { to: 0, .. }) {
                actions.push(Action::ArriveTwice(number));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let now = next.now;
        match action {
            Action::Tick => next.now += 1,
            Action::Ask(number) => self.ask(&mut next, number, false)?,
            Action::Try(number) => self.ask(&mut next, number, true)?,
            Action::Settle(number) => {
                next.processes[number].tried -= 1;
                next.admitted.add(now, 1);
            }
            Action::PutBack(number) => {
                next.processes[number].tried -= 1;
                self.hold(&mut next, number, 1);
            }
            Action::Arrive(number) => {
                let message = next.messages.remove(number);
                self.arrive(&mut next, &message);
            }
            Action::ArriveTwice(number) => {
                let message = next.messages[number].clone();
                self.arrive(&mut next, &message);
            }
            Action::Lose(number) => drop(next.messages.remove(number)),
            Action::End(number) => {
                if next.messages.len() == MAX_MESSAGES {
                    return None;
                }
                let left = std::mem::take(&mut next.processes[number].units);
                let units = if self.defect == Some(Defect::GivesBackWhatWasUsed) { self.chunk.max(left) } else { left };
                next.messages.push(Message::Refund { units });
            }
            Action::Die(number) => next.processes[number] = Process { dead: true, ..Process::default() },
        }
        next.messages.sort();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Leases>> {
        vec![
            Property::always(
                "since the start no more is admitted than the limit allows",
                |model: &Leases, state: &State| {
                    let held: u64 = state.processes.iter().map(|process| process.units + process.tried).sum();
                    state.admitted.total() + held <= model.burst + (state.now - START)
                },
            ),
            Property::always("in an interval at most a chunk of each process more", |model: &Leases, state: &State| {
                state.admitted.keep(model.burst + model.chunk * model.processes as u64)
            }),
            Property::always("no process holds more than a chunk", |model: &Leases, state: &State| {
                state.processes.iter().all(|process| process.units <= model.chunk)
            }),
            Property::sometimes("the whole limit is handed out", |model: &Leases, state: &State| {
                state.admitted.total() == model.burst + model.time
            }),
        ]
    }
}

impl Leases {
    /// Takes a unit that is held, or asks the server for more.
    fn ask(&self, next: &mut State, number: usize, tries: bool) -> Option<()> {
        let process = &mut next.processes[number];
        if process.units > 0 && next.now < process.until {
            process.units -= 1;
            self.taken(next, number, tries);
            return Some(());
        }
        if process.requests == self.requests || next.messages.len() == MAX_MESSAGES {
            return None;
        }
        if process.units > 0 {
            // What is left of a lease that is over is given back first.
            return None;
        }
        // Asked again though an answer may be on the way: that one was given up.
        process.requests += 1;
        process.awaited = Some(process.requests);
        next.messages.push(Message::Borrow { from: number, number: process.requests, tries });
        Some(())
    }

    /// A unit is admitted, or waits for what another limit says.
    fn taken(&self, next: &mut State, number: usize, tries: bool) {
        if tries {
            next.processes[number].tried += 1;
        } else {
            next.admitted.add(next.now, 1);
        }
    }

    /// Adds units to those held: at most a chunk, the rest goes back.
    fn hold(&self, next: &mut State, number: usize, units: u64) {
        let process = &mut next.processes[number];
        process.units += units;
        let surplus = process.units.saturating_sub(self.chunk);
        if surplus > 0 && self.defect != Some(Defect::PutsBackBeyondTheChunk) {
            process.units = self.chunk;
            // Or is lost on the way, which admits less and never more.
            if next.messages.len() < MAX_MESSAGES {
                next.messages.push(Message::Refund { units: surplus });
            }
        }
    }

    fn arrive(&self, next: &mut State, message: &Message) {
        let now = next.now;
        match *message {
            Message::Borrow { from, number, tries } => {
                let asked = self.meter.decide(next.server, now, Verb::Peek, 0);
                let units = asked.remaining.min(self.chunk);
                if units > 0 {
                    let decided = self.meter.decide(next.server, now, Verb::Charge, units);
                    assert!(decided.allowed, "as many as remain can be charged");
                    next.server = decided.state;
                    next.messages.push(Message::Grant { to: from, number, tries, units });
                }
            }
            Message::Grant { to, number, tries, units } => {
                let process = &mut next.processes[to];
                let accepts = process.awaited == Some(number) || self.defect == Some(Defect::AcceptsEveryGrant);
                if !process.dead && accepts {
                    (process.awaited, process.until) = (None, now + TTL);
                    // The one who asked takes a unit at once.
                    self.taken(next, to, tries);
                    self.hold(next, to, units - 1);
                }
            }
            Message::Refund { units } => next.server = self.meter.decide(next.server, now, Verb::Refund, units).state,
        }
    }
}
