//! Units of a limit that a server assigns to clients, which use them by themselves.
//!
//! The server keeps a log of permits, which the library's kernel decides on, and tells a client what it
//! holds for it. A message arrives within `DELIVERY`, or is lost. A client that has received one uses
//! the unit for `TTL` from then on, whatever becomes of the server; one that dies says nothing. A unit
//! that its client is to give up is held until that one has certainly stopped, and so is one whose
//! renewal would come too late. A server that starts anew knows no client. If it has lost the log as
//! well, it assigns nothing until all that was assigned before has run out.

use std::time::Duration;

use stateright::{Model, Property};
use tidegate::kernel::{self, Charged, Kernel, LimitKernel, Log, Verb};
use tidegate::{Limit, Micros};

use crate::meter::START;

const TTL: u64 = 2;
const DELIVERY: u64 = 1;
/// As `quota.rs` has it.
const EXPIRY: u64 = 2 * TTL + DELIVERY;
const CLIENTS: usize = 2;

/// What is modelled: two clients and one unit.
#[derive(Clone, Debug)]
pub struct Quotas {
    ends: u64,
    keeps_log: bool,
    planted: Option<Planted>,
    kernel: Log,
}

/// What could be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A unit that a client is to give up is free at once.
    FreesAtOnce,
    /// A message is taken to arrive when it is sent.
    ForgetsDelivery,
    /// An assignment is sent again without a renewal of its permit.
    SendsWithoutRenewal,
    /// A server that has lost its log assigns at once.
    AssignsAtOnceAfterALoss,
}

/// The server and its clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    /// The log as the kernel encodes it.
    log: Vec<u8>,
    /// From when on the server assigns.
    opens: u64,
    leases: [Option<Lease>; CLIENTS],
    /// When the message was sent that is on its way.
    mail: [Option<u64>; CLIENTS],
    /// Until when each client uses the unit.
    uses_until: [u64; CLIENTS],
    has_restarted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    charged_at: u64,
    sent_at: u64,
    /// When the unit may be given back, if the client is to give it up.
    free_at: Option<u64>,
}

/// What can happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A microsecond passes; no message is late.
    Tick,
    /// The server assigns to a client, or renews.
    Assign(usize),
    /// The server has the client give its unit up.
    GiveUp(usize),
    /// The server gives a unit back to the log.
    Release(usize),
    /// The message arrives.
    Deliver(usize),
    /// The message is lost.
    Lose(usize),
    /// The client dies, and another one comes in its place.
    Die(usize),
    /// The server starts anew.
    Restart,
}

impl State {
    fn uses(&self, client: usize) -> bool {
        self.now < self.uses_until[client]
    }
}

impl Quotas {
    /// A server whose log outlives it, or not.
    #[must_use]
    pub fn new(keeps_log: bool, planted: Option<Planted>) -> Quotas {
        let kernel = match Limit::in_flight(1, Duration::from_micros(EXPIRY)).kernel() {
            LimitKernel::Log(kernel) => kernel,
            LimitKernel::Bucket(_) | LimitKernel::Window(_) => panic!("a log has the kernel of a log"),
        };
        let ends = START + if crate::is_large() { 14 } else { 10 };
        Quotas { ends, keeps_log, planted, kernel }
    }

    fn decide(&self, state: &mut State, verb: Verb, cost: u64) -> bool {
        let mut log = self.kernel.decode(&state.log).expect("a log");
        let allowed = kernel::decide(&self.kernel, &mut log, Micros::new(state.now), verb, cost).0.allowed;
        state.log.clear();
        self.kernel.encode(&log, &mut state.log);
        allowed
    }

    fn free_at(&self, now: u64, sent_at: u64) -> u64 {
        match self.planted {
            Some(Planted::FreesAtOnce) => now,
            Some(Planted::ForgetsDelivery) => sent_at + TTL,
            Some(Planted::SendsWithoutRenewal | Planted::AssignsAtOnceAfterALoss) | None => sent_at + TTL + DELIVERY,
        }
    }

    fn assign(&self, state: &mut State, client: usize) -> Option<()> {
        let now = state.now;
        if now < state.opens {
            return None;
        }
        let lease = match state.leases[client].clone() {
            None => {
                self.decide(state, Verb::Charge, 1).then_some(())?;
                Lease { charged_at: now, sent_at: now, free_at: None }
            }
            Some(Lease { free_at: Some(_), .. }) => return None,
            // Too late to be heard before it runs out.
            Some(lease) if now + DELIVERY > lease.sent_at + TTL => {
                let free_at = Some(self.free_at(now, lease.sent_at));
                state.leases[client] = Some(Lease { free_at, ..lease });
                return Some(());
            }
            Some(lease) if self.planted == Some(Planted::SendsWithoutRenewal) => Lease { sent_at: now, ..lease },
            Some(lease) => {
                let charged = Charged { at: Micros::new(lease.charged_at), cost: 1 };
                if !self.decide(state, Verb::Renew(charged), 0) {
                    state.leases[client] = None;
                    return Some(());
                }
                Lease { charged_at: now, sent_at: now, free_at: None }
            }
        };
        state.leases[client] = Some(lease);
        // One message takes the place of an older one that has not arrived.
        state.mail[client] = Some(now);
        Some(())
    }
}

impl Model for Quotas {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: START,
            log: Vec::new(),
            opens: START,
            leases: [None, None],
            mail: [None; CLIENTS],
            uses_until: [0; CLIENTS],
            has_restarted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_late = |sent: &Option<u64>| sent.is_some_and(|sent| state.now >= sent + DELIVERY);
        if state.now < self.ends && !state.mail.iter().any(is_late) {
            actions.push(Action::Tick);
        }
        for client in 0..CLIENTS {
            actions.extend([Action::Assign(client), Action::GiveUp(client), Action::Release(client)]);
            actions.extend([Action::Deliver(client), Action::Lose(client), Action::Die(client)]);
        }
        if !state.has_restarted {
            actions.push(Action::Restart);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Assign(client) => self.assign(&mut next, client)?,
            Action::GiveUp(client) => {
                let lease = next.leases[client].as_mut().filter(|lease| lease.free_at.is_none())?;
                lease.free_at = Some(self.free_at(state.now, lease.sent_at));
            }
            Action::Release(client) => {
                let lease = next.leases[client].take()?;
                lease.free_at.filter(|free_at| *free_at <= state.now)?;
                let charged = Charged { at: Micros::new(lease.charged_at), cost: 1 };
                self.decide(&mut next, Verb::Settle(charged), 0);
            }
            Action::Deliver(client) => {
                next.mail[client].take()?;
                next.uses_until[client] = state.now + TTL;
            }
            Action::Lose(client) => {
                next.mail[client].take()?;
            }
            Action::Die(client) => {
                (next.mail[client], next.uses_until[client], next.leases[client]) = (None, 0, None);
            }
            Action::Restart => {
                (next.leases, next.has_restarted) = ([None, None], true);
                if !self.keeps_log {
                    next.log.clear();
                    let at_once = self.planted == Some(Planted::AssignsAtOnceAfterALoss);
                    next.opens = state.now + if at_once { 0 } else { TTL + DELIVERY };
                }
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Quotas>> {
        vec![
            Property::always("a unit has one client at a time", |_: &Quotas, state: &State| {
                !(state.uses(0) && state.uses(1))
            }),
            Property::sometimes("a unit goes from one client to the other", |_: &Quotas, state: &State| {
                state.uses_until[0] > 0 && state.uses(1)
            }),
            Property::sometimes("a client goes on for longer than an assignment lives", |_: &Quotas, state: &State| {
                state.uses_until[0] > START + 2 * TTL + DELIVERY
            }),
        ]
    }
}
