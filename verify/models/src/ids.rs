//! Requests with ids: sent again when a reply is lost, charged once.
//!
//! Clients send one request each, time and again, to a server that forgets ids
//! when their time is over and may be replaced by a replica that knows less.
//! The charge and the note about the id are one step, as in
//! `tidegate-redis/lua/once.lua`, and so they are replicated together.

use stateright::{Model, Property};
use tidegate::kernel::Verb;

use crate::meter::{Meter, START};

/// What is modelled: clients that share an id two by two.
#[derive(Clone, Debug)]
pub struct Ids {
    clients: usize,
    sends: u8,
    defect: Option<Defect>,
    meter: Meter,
}

/// What could be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The id is looked up, then the charge is made, then the id is noted:
    /// another request comes between.
    LooksFirst,
    /// The charge is made in one step and the id noted in another: the server
    /// is lost between.
    NotesLater,
    /// Refusals are remembered as well: a retry after `retry_after` is refused.
    RemembersRefusals,
}

impl Ids {
    /// Two clients of one id and one of another, or more in a large model.
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Ids {
        let (clients, sends) = if crate::is_large() { (4, 2) } else { (3, 2) };
        Ids { clients, sends, defect, meter: Meter::new(1) }
    }
}

/// Clients, server, replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    server: Server,
    replica: Server,
    lost: bool,
    clients: Vec<Client>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    bucket: u64,
    /// By id, what was answered.
    known: Vec<Option<bool>>,
    /// By id, how often it was charged: what only the model counts.
    charged: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    sent: u8,
    on_the_way: bool,
    /// Between the look at the id and the charge, or the charge and the note.
    halfway: Option<bool>,
    answers: Vec<bool>,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A microsecond passes.
    Tick,
    /// A client sends its request, once more if it has before.
    Send(usize),
    /// The request arrives, and the reply comes back.
    Serve(usize),
    /// The request arrives, and the reply is lost.
    ServeInVain(usize),
    /// The second half of a request that takes two steps.
    Finish(usize),
    /// The replica catches up.
    Replicate,
    /// The server is lost, and the replica takes its place.
    Promote,
}

impl Ids {
    fn id(client: usize) -> usize {
        client / 2
    }

    fn charge(&self, server: &mut Server, now: u64, id: usize) -> bool {
        let decided = self.meter.decide(server.bucket, now, Verb::Charge, 1);
        if decided.allowed {
            server.bucket = decided.state;
            server.charged[id] += 1;
        }
        decided.allowed
    }

    /// One step of a request: its answer, or nothing yet.
    fn serve(&self, state: &mut State, client: usize) -> Option<bool> {
        let (id, now) = (Ids::id(client), state.now);
        if let Some(known) = state.server.known[id] {
            return Some(known);
        }
        if self.defect == Some(Defect::LooksFirst) {
            state.clients[client].halfway = Some(false);
            return None;
        }
        let allowed = self.charge(&mut state.server, now, id);
        if allowed && self.defect == Some(Defect::NotesLater) {
            state.clients[client].halfway = Some(true);
            return None;
        }
        if allowed || self.defect == Some(Defect::RemembersRefusals) {
            state.server.known[id] = Some(allowed);
        }
        Some(allowed)
    }
}

impl Model for Ids {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let ids = Ids::id(self.clients - 1) + 1;
        let server = Server { bucket: 0, known: vec![None; ids], charged: vec![0; ids] };
        let clients = vec![Client::default(); self.clients];
        vec![State { now: START, replica: server.clone(), server, lost: false, clients }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < START + 1 {
            actions.push(Action::Tick);
        }
        for (number, client) in state.clients.iter().enumerate() {
            if client.halfway.is_some() {
                actions.push(Action::Finish(number));
            } else if client.on_the_way {
                actions.extend([Action::Serve(number), Action::ServeInVain(number)]);
            } else if client.sent < self.sends {
                actions.push(Action::Send(number));
            }
        }
        actions.push(Action::Replicate);
        if !state.lost {
            actions.push(Action::Promote);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Send(number) => {
                next.clients[number].sent += 1;
                next.clients[number].on_the_way = true;
            }
            Action::Serve(number) => {
                let answer = self.serve(&mut next, number);
                next.clients[number].on_the_way = false;
                next.clients[number].answers.extend(answer);
            }
            Action::ServeInVain(number) => {
                let _ = self.serve(&mut next, number);
                next.clients[number].on_the_way = false;
            }
            Action::Finish(number) => {
                let id = Ids::id(number);
                let charged = next.clients[number].halfway.take()?;
                let allowed = charged || self.charge(&mut next.server, state.now, id);
                next.server.known[id] = Some(allowed);
                next.clients[number].answers.push(allowed);
            }
            Action::Replicate => next.replica = next.server.clone(),
            Action::Promote => {
                (next.lost, next.server) = (true, next.replica.clone());
                // A client that was halfway has lost the connection.
                for client in &mut next.clients {
                    client.halfway = None;
                }
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Ids>> {
        vec![
            Property::always("a server that knows an id charged it once", |_: &Ids, state: &State| {
                state.server.charged.iter().all(|times| *times <= 1)
            }),
            Property::always("an admitted id stays admitted", |_: &Ids, state: &State| {
                state.lost || state.clients.iter().all(|client| client.answers.is_sorted())
            }),
            Property::sometimes("a refused id is admitted later", |_: &Ids, state: &State| {
                !state.lost && state.clients.iter().any(|client| client.answers == [false, true])
            }),
            Property::sometimes("a request whose reply was lost is answered", |_: &Ids, state: &State| {
                state.clients.iter().any(|client| client.sent == 2 && client.answers == [true])
            }),
        ]
    }
}
