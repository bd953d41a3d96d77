//! The clients of this server that share a limit, and what each of them should have.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::{Key, Micros};

use super::RETRY;
use super::division::{RESERVE, divide, floor, is_far};
use super::pool::UNITS;

/// Clients among whom a limit is divided anew for each that asks. Among more, the work would grow with the square of
/// their number: it is divided once in [`PERIOD`] for all of them.
const MAX_AT_ONCE: usize = 64;
const PERIOD: Micros = RETRY;

/// All clients of this server that share the same limits.
#[derive(Debug)]
pub(super) struct Group {
    /// Where each limit is counted, the slowest first.
    pub(super) keys: Box<[Key<'static>]>,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    /// Each with its part of the latest division, if what it wants is in that.
    members: BTreeMap<u64, (Member, Option<Part>)>,
    division: Division,
    /// How often a member was looked at to divide the limit.
    #[cfg(test)]
    visits: usize,
}

/// What is the same for all clients of a division.
#[derive(Clone, Copy, Debug, Default)]
struct Division {
    at: Micros,
    /// The fewest units of a client, and an even part.
    floor: u32,
    even: u32,
    /// Whether clients of other servers have less than an even part.
    elsewhere: bool,
    /// How many clients have much less than they should.
    short: usize,
}

/// What a client should have.
#[derive(Clone, Copy, Debug)]
struct Part {
    units: u32,
    /// Whether it has much less.
    is_short: bool,
}

/// What is known of one client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    /// The units that its demand needs.
    pub(super) want: u32,
    pub(super) held: u32,
    /// The units that it no longer has, and that come free soon.
    pub(super) leaving: u32,
    /// The fewest units that are a share.
    pub(super) least: u32,
    /// Whether it has told other servers that it has less than an even part.
    pub(super) waits: bool,
    /// Whether it has told them that it has less than it wants.
    pub(super) lacks: bool,
}

/// What the store says of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Units that no client holds.
    pub(super) free: u32,
    /// Clients on all servers.
    pub(super) clients: u64,
    /// Clients on all servers that have less than an even part.
    pub(super) waiting: u64,
    /// Clients on all servers that have less than they want.
    pub(super) wanting: u64,
}

/// What a client should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) units: u32,
    /// Whether another client has much less than it should.
    pub(super) others_lack: bool,
    /// Whether this one has much less than an even part, and nothing is free.
    pub(super) waits: bool,
    /// Whether it has much less than it wants, likewise.
    pub(super) lacks: bool,
}

impl Group {
    pub(super) fn new(keys: Box<[Key<'static>]>) -> Group {
        Group { keys, clients: Mutex::default() }
    }

    /// Says how a client is.
    pub(super) fn set(&self, client: u64, member: Member) {
        let members = &mut self.lock().members;
        let is_same = |(known, _): &&(Member, Option<Part>)| (known.want, known.least) == (member.want, member.least);
        let part = members.get(&client).filter(is_same).and_then(|(_, part)| *part);
        members.insert(client, (member, part));
    }

    pub(super) fn leave(&self, client: u64) {
        self.lock().members.remove(&client);
    }

    /// What a client should have; none if it is not in the division that is in force, but in the next one.
    pub(super) fn target(&self, client: u64, seen: Seen, now: Micros) -> Option<Target> {
        let mut clients = self.lock();
        let divided = clients.division.at;
        let is_in_force = (divided..divided.saturating_add(PERIOD)).contains(&now);
        if clients.members.len() <= MAX_AT_ONCE || !is_in_force {
            clients.divide(seen, now);
        }
        let Division { floor, even, elsewhere, short, .. } = clients.division;
        let (member, part) = clients.members.get(&client)?;
        let Part { units, is_short } = (*part)?;
        let want = member.want.max(floor);
        let is_without = |of: u32| member.is_short_of(of) && seen.free < of.saturating_sub(member.held);
        let (waits, lacks) = (is_without(want.min(even)), is_without(want));
        Some(Target { units, others_lack: elsewhere || short > usize::from(is_short), waits, lacks })
    }

    /// How often a member was looked at to divide the limit.
    #[cfg(test)]
    pub(super) fn visits(&self) -> usize {
        self.lock().visits
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Whether it has much less than it should.
    fn is_short_of(&self, units: u32) -> bool {
        self.held < units && is_far(self.held, units)
    }
}

impl Clients {
    /// Divides the limit among all clients, as they are now.
    fn divide(&mut self, seen: Seen, now: Micros) {
        #[cfg(test)]
        (self.visits += self.members.len());
        let members = || self.members.values().map(|(member, _)| member);
        let clients = seen.clients.max(self.members.len() as u64).max(1);
        let least = members().map(|member| member.least).max().unwrap_or(1);
        let floor = floor(least, usize::try_from(clients).unwrap_or(usize::MAX));
        let even = (u64::from(UNITS) / clients) as u32;
        let even = even.max(floor);
        let here = members().map(|member| member.held + member.leaving).sum::<u32>();
        // Clients of other servers that have less than an even part: no client here has more meanwhile. And where
        // they want more, no client here has more than it wants.
        let elsewhere = seen.waiting > members().filter(|member| member.waits).count() as u64;
        let is_wanted = seen.wanting > members().filter(|member| member.lacks).count() as u64;
        let reserve = if is_wanted { UNITS } else { RESERVE };
        let most = if elsewhere { even } else { UNITS };
        let wants: Vec<u32> = members().map(|member| member.want.min(most)).collect();
        let shares = divide((here.saturating_add(seen.free).min(UNITS), reserve), floor, &wants);
        let mut short = 0;
        for ((member, part), share) in self.members.values_mut().zip(shares) {
            let units = share.min(most);
            let is_short = member.is_short_of(units);
            short += usize::from(is_short);
            *part = Some(Part { units, is_short });
        }
        self.division = Division { at: now, floor, even, elsewhere, short };
    }
}
