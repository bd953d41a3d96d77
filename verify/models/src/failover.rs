//! Failover: a primary is lost, and its replica goes on with what it has.
//!
//! Replication is asynchronous, so the replica may know of nothing, of
//! everything, or of any state between. A primary that was cut off may go on
//! answering clients that still reach it. In strict mode a server keeps beside its
//! states the history under which it wrote them; a promoted replica has
//! another history, and takes every key to have been used up when it first
//! looked, as in `tidegate-redis/lua/head.lua`.

use stateright::{Model, Property};
use tidegate::kernel::Verb;

use crate::meter::{Admissions, Meter, START};

/// What is modelled: one key on a primary and its replica.
#[derive(Clone, Debug)]
pub struct Failover {
    burst: u64,
    /// Microseconds that pass at most.
    time: u64,
    losses: u64,
    mode: Mode,
    /// How long a primary goes on answering that was replaced.
    overlap: u64,
    defect: Option<Defect>,
    meter: Meter,
}

/// Whether a loss may let more pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A burst for each loss.
    Usual,
    /// Nothing.
    Strict,
}

/// What could be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A server that has a note about a history trusts it, even another's:
    /// the note is replicated with the states.
    TrustsAnyHistory,
    /// A new history begins with what is found, and only later ones are full.
    TrustsTheFirstLook,
    /// States are raised when they are read, and the note is not kept.
    ForgetsSince,
}

impl Failover {
    /// With two losses at most, each of which leaves the old primary answering
    /// for `overlap` microseconds.
    #[must_use]
    pub fn new(mode: Mode, overlap: u64, defect: Option<Defect>) -> Failover {
        let large = crate::is_large();
        let (burst, time, losses) = if large { (3, 6, 2) } else { (2, 4, 2) };
        Failover { burst, time, losses, mode, overlap, defect, meter: Meter::new(burst) }
    }

    /// How many bursts may have been admitted at once by now.
    fn bursts(&self, state: &State) -> u64 {
        match self.mode {
            Mode::Usual => 1 + state.losses,
            Mode::Strict => 1,
        }
    }
}

/// The servers, and what was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    losses: u64,
    primary: Server,
    replica: Server,
    /// A primary that was replaced, and until when it answers.
    former: Option<(Server, u64)>,
    admitted: Admissions,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    state: u64,
    /// The history that its states are part of, and since when.
    known: Option<(u64, u64)>,
    /// Its own history, as the server itself says it.
    history: u64,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A microsecond passes.
    Tick,
    /// A client asks the primary for so much.
    Ask(u64),
    /// A client asks the former primary, which has not heard.
    AskTheFormer(u64),
    /// The replica catches up.
    Replicate,
    /// The primary is lost, and the replica takes its place.
    Promote,
    /// The primary starts again without its data.
    Restart,
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = |history| Server { state: 0, known: None, history };
        // In strict mode the first start counts as a loss of everything before it.
        vec![State {
            now: START,
            losses: 0,
            primary: server(0),
            replica: server(0),
            former: None,
            admitted: Admissions::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < START + self.time {
            actions.push(Action::Tick);
        }
        for cost in [1, self.burst] {
            actions.push(Action::Ask(cost));
            if state.former.as_ref().is_some_and(|(_, until)| state.now <= *until) {
                actions.push(Action::AskTheFormer(cost));
            }
        }
        actions.push(Action::Replicate);
        if state.losses < self.losses {
            actions.extend([Action::Promote, Action::Restart]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Ask(cost) => {
                if self.ask(&mut next.primary, next.now, cost) {
                    next.admitted.add(next.now, cost);
                }
            }
            Action::AskTheFormer(cost) => {
                let (former, _) = next.former.as_mut()?;
                if self.ask(former, state.now, cost) {
                    next.admitted.add(next.now, cost);
                }
            }
            Action::Replicate => {
                (next.replica.state, next.replica.known) = (next.primary.state, next.primary.known);
            }
            Action::Promote => {
                next.losses += 1;
                let former = std::mem::replace(&mut next.primary, next.replica.clone());
                next.primary.history = next.losses;
                next.former = (self.overlap > 0).then_some((former, next.now + self.overlap));
                next.replica = next.primary.clone();
            }
            Action::Restart => {
                next.losses += 1;
                next.primary = Server { state: 0, known: None, history: next.losses };
                next.replica = next.primary.clone();
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Failover>> {
        let mut properties = vec![
            Property::always("the bound", |model: &Failover, state: &State| {
                let overlaps = state.losses * model.overlap;
                state.admitted.keep(model.bursts(state) * model.burst + overlaps)
            }),
            Property::sometimes("the bound is reached", |model: &Failover, state: &State| {
                state.admitted.total() >= model.bursts(state) * model.burst && state.losses == model.losses
            }),
        ];
        if self.overlap > 0 {
            let more = "two primaries admit more than one would";
            properties.push(Property::sometimes(more, |model: &Failover, state: &State| {
                !state.admitted.keep(model.bursts(state) * model.burst)
            }));
        }
        properties
    }
}

impl Failover {
    fn ask(&self, server: &mut Server, now: u64, cost: u64) -> bool {
        if self.mode == Mode::Strict {
            let is_known = |history: u64| history == server.history || self.defect == Some(Defect::TrustsAnyHistory);
            let since = match server.known {
                Some((history, since)) if is_known(history) => since,
                Some(_) | None => {
                    server.known = Some((server.history, now));
                    if self.defect == Some(Defect::TrustsTheFirstLook) { 0 } else { now }
                }
            };
            // A full bucket of then, however long ago: nothing, once it has drained.
            let raised = self.meter.full_since(server.state, since);
            if self.defect == Some(Defect::ForgetsSince) {
                server.known = Some((server.history, 0));
            }
            let decided = self.meter.decide(raised, now, Verb::Charge, cost);
            if decided.allowed {
                server.state = decided.state;
            }
            return decided.allowed;
        }
        let decided = self.meter.decide(server.state, now, Verb::Charge, cost);
        server.state = decided.state;
        decided.allowed
    }
}
