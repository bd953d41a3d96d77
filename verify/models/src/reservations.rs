//! Reservations of permits: made, renewed and settled by an id, over a network that loses
//! requests and replies.
//!
//! Processes send what they like in any order, each of them under every id, so a request
//! whose reply was lost is sent again, and what one process settled another one renews. A
//! request that takes long to arrive is the same as one that is sent later.
//!
//! The server keeps a log of permits, which the library's kernel decides on, and a record of
//! each id, in one step with the log, as `tidegate-redis/lua/once.lua` does. Both expire: the
//! record sooner than the permit, or later.

use std::time::Duration;

use stateright::{Model, Property};
use tidegate::kernel::{self, Charged, Kernel, LimitKernel, Log, LogState, Verb};
use tidegate::{Limit, Micros};

use crate::meter::START;

/// A permit expires after so many microseconds.
const EXPIRY: u64 = 2;
const IDS: usize = 2;
const PROCESSES: usize = 2;

/// What is modelled: two processes, and so many permits.
#[derive(Clone, Debug)]
pub struct Reservations {
    permits: u64,
    /// For how long a record is kept.
    lasts: u64,
    sends: u8,
    ends: u64,
    defect: Option<Defect>,
    kernel: Log,
    /// A log of so many more that it reads a state with too many permits.
    reader: Log,
}

/// What could be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A settlement does not mark the record.
    SettlesWithoutAMark,
    /// A renewal charges without a look at whether the permit is still there.
    RenewsUnchecked,
    /// A renewal charges once more and leaves the permit where it was.
    RenewsWithoutUndo,
    /// A renewal leaves the instant of the first charge in the record.
    RemembersTheFirstInstant,
}

impl Reservations {
    /// So many permits, and a record that is kept for so many microseconds.
    #[must_use]
    pub fn new(permits: u64, lasts: u64, defect: Option<Defect>) -> Reservations {
        let (sends, ends) = if crate::is_large() { (4, START + 5) } else { (3, START + 4) };
        let log = |permits| match Limit::in_flight(permits, Duration::from_micros(EXPIRY)).kernel() {
            LimitKernel::Log(kernel) => kernel,
            LimitKernel::Bucket(_) | LimitKernel::Window(_) => panic!("a log has the kernel of a log"),
        };
        Reservations { permits, lasts, sends, ends, defect, kernel: log(permits), reader: log(permits + 8) }
    }
}

/// Processes and the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    /// The log as the kernel encodes it.
    log: Vec<u8>,
    records: [Option<Record>; IDS],
    /// How many calls each process has sent.
    sent: [u8; PROCESSES],
    /// Every permit that was charged: what the model alone knows.
    permits: Vec<Permit>,
    /// Whether a renewal passed of a permit that had expired.
    is_revived: bool,
    /// Whether the reply to a settlement was lost, and then told to a second one.
    settlement: Option<Fate>,
    /// Whether a correction found the permit or the record gone.
    is_too_late: bool,
}

/// What the server remembers of an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Record {
    charged_at: u64,
    until: u64,
    is_settled: bool,
    /// The permit that was charged; not for the server to see.
    permit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Permit {
    /// When it was charged, or renewed for the last time.
    since: u64,
    renewals: u8,
    /// How often it was given back.
    corrections: u8,
}

/// What a process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A permit.
    Reserve,
    /// That the permit lasts longer.
    Renew,
    /// That the permit is given back.
    Settle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Done,
    Repeated,
    Refused,
    NotReserved,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A microsecond passes.
    Tick,
    /// A process sends a call for an id.
    Send(usize, Call, usize, Fate),
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It arrives, and the reply comes back.
    Answered,
    /// It arrives, and the reply is lost.
    InVain,
    /// It is lost.
    Lost,
}

impl State {
    fn is_held(&self, permit: &Permit) -> bool {
        permit.corrections == 0 && self.now < permit.since + EXPIRY
    }

    /// The permits that the server counts, by their instants.
    fn counted(&self) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let entries = self.log.chunks(16).map(|entry| (word(entry), word(&entry[8..])));
        let counted = entries.filter(|(at, _)| self.now < at + EXPIRY);
        counted.flat_map(|(at, permits)| (0..permits).map(move |_| at)).collect()
    }

    /// The permits that are held, likewise.
    fn held(&self) -> Vec<u64> {
        let mut held: Vec<u64> =
            self.permits.iter().filter(|permit| self.is_held(permit)).map(|permit| permit.since).collect();
        held.sort_unstable();
        held
    }
}

impl Reservations {
    /// Decides by the library's kernel, and says whether it passes.
    fn decide(&self, state: &mut State, verb: Verb, cost: u64) -> bool {
        self.change(state, |kernel, log, now| kernel::decide(kernel, log, now, verb, cost).0.allowed)
    }

    fn change<T>(&self, state: &mut State, change: impl FnOnce(&Log, &mut LogState, Micros) -> T) -> T {
        let mut log = self.reader.decode(&state.log).expect("a log");
        let changed = change(&self.kernel, &mut log, Micros::new(state.now));
        state.log.clear();
        self.kernel.encode(&log, &mut state.log);
        changed
    }

    fn serve(&self, state: &mut State, call: Call, id: usize) -> Reply {
        let now = state.now;
        let known = state.records[id].clone().filter(|record| record.until > now);
        match (call, known) {
            (Call::Reserve, Some(_)) => Reply::Repeated,
            (Call::Reserve, None) => {
                if !self.decide(state, Verb::Charge, 1) {
                    return Reply::Refused;
                }
                let permit = state.permits.len();
                state.permits.push(Permit { since: now, ..Permit::default() });
                let record = Record { charged_at: now, until: now + self.lasts, is_settled: false, permit };
                state.records[id] = Some(record);
                Reply::Done
            }
            (Call::Renew | Call::Settle, None) => Reply::NotReserved,
            (Call::Renew | Call::Settle, Some(record)) if record.is_settled => Reply::Repeated,
            (Call::Renew, Some(record)) => self.renew(state, &record, id),
            (Call::Settle, Some(record)) => {
                let charged = Charged { at: Micros::new(record.charged_at), cost: 1 };
                self.decide(state, Verb::Settle(charged), 0);
                state.permits[record.permit].corrections += 1;
                let is_settled = self.defect != Some(Defect::SettlesWithoutAMark);
                state.records[id] = Some(Record { is_settled, ..record });
                Reply::Done
            }
        }
    }

    fn renew(&self, state: &mut State, record: &Record, id: usize) -> Reply {
        let now = state.now;
        let charged = Charged { at: Micros::new(record.charged_at), cost: 1 };
        let passes = match self.defect {
            Some(Defect::RenewsUnchecked) => self.change(state, |kernel, log, now| {
                kernel.undo(log, now, charged, 0);
                kernel.charge(log, now, 1);
                true
            }),
            Some(Defect::RenewsWithoutUndo) => self.change(state, |kernel, log, now| {
                let is_there = kernel.is_there(log, now, charged);
                if is_there {
                    kernel.charge(log, now, 1);
                }
                is_there
            }),
            Some(Defect::SettlesWithoutAMark | Defect::RemembersTheFirstInstant) | None => {
                self.decide(state, Verb::Renew(charged), 0)
            }
        };
        if !passes {
            return Reply::Refused;
        }
        state.is_revived |= !state.is_held(&state.permits[record.permit]);
        let permit = &mut state.permits[record.permit];
        (permit.since, permit.renewals) = (now, permit.renewals + 1);
        let first = self.defect == Some(Defect::RemembersTheFirstInstant);
        let charged_at = if first { record.charged_at } else { now };
        state.records[id] = Some(Record { charged_at, until: record.until.max(now + self.lasts), ..record.clone() });
        Reply::Done
    }
}

impl Model for Reservations {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: START,
            log: Vec::new(),
            records: [None, None],
            sent: [0; PROCESSES],
            permits: Vec::new(),
            is_revived: false,
            settlement: None,
            is_too_late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ends {
            actions.push(Action::Tick);
        }
        let calls = [Call::Reserve, Call::Renew, Call::Settle];
        let fates = [Fate::Answered, Fate::InVain, Fate::Lost];
        let ways: Vec<_> = (0..IDS).flat_map(|id| fates.map(|fate| (id, fate))).collect();
        for number in (0..PROCESSES).filter(|number| state.sent[*number] < self.sends) {
            for call in calls {
                actions.extend(ways.iter().map(|(id, fate)| Action::Send(number, call, *id, *fate)));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let Action::Send(number, call, id, fate) = action else {
            next.now += 1;
            return Some(next);
        };
        next.sent[number] += 1;
        if fate != Fate::Lost {
            let reply = self.serve(&mut next, call, id);
            next.is_too_late |=
                matches!((call, reply), (Call::Renew, Reply::Refused) | (Call::Settle, Reply::NotReserved));
            next.settlement = match (call, reply, fate, state.settlement) {
                (Call::Settle, Reply::Done, Fate::InVain, None) => Some(Fate::InVain),
                (Call::Settle, Reply::Repeated, Fate::Answered, Some(_)) => Some(Fate::Answered),
                (.., before) => before,
            };
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Reservations>> {
        vec![
            Property::always("no correction is made twice", |_: &Reservations, state: &State| {
                state.permits.iter().all(|permit| permit.corrections <= 1)
            }),
            Property::always("no more permits than the limit", |model: &Reservations, state: &State| {
                let counted = state.counted().len() as u64;
                counted <= model.permits && state.held().len() as u64 <= model.permits
            }),
            Property::always(
                "what counts is held, from its last renewal to its expiry",
                |_: &Reservations, state: &State| state.counted() == state.held(),
            ),
            Property::always("no renewal brings back a permit", |_: &Reservations, state: &State| !state.is_revived),
            Property::sometimes("a renewed permit outlives its first expiry", |_: &Reservations, state: &State| {
                let is_late = |permit: &Permit| permit.renewals > 0 && state.now > START + EXPIRY;
                state.permits.first().is_some_and(|permit| state.is_held(permit) && is_late(permit))
            }),
            Property::sometimes("a settlement whose reply was lost is told", |_: &Reservations, state: &State| {
                state.settlement == Some(Fate::Answered)
            }),
            Property::sometimes("a correction comes too late", |_: &Reservations, state: &State| {
                !state.permits.is_empty() && state.is_too_late
            }),
        ]
    }
}
