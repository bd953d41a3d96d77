//! The clients of this server that share a limit, and what each of them should have.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::Key;

use super::division::{RESERVE, divide, floor, is_far};
use super::pool::UNITS;

/// All clients of this server that share the same limits.
#[derive(Debug)]
pub(super) struct Group {
    /// Where each limit is counted, the slowest first.
    pub(super) keys: Box<[Key<'static>]>,
    members: Mutex<BTreeMap<u64, Member>>,
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
        Group { keys, members: Mutex::default() }
    }

    /// Says how a client is.
    pub(super) fn set(&self, client: u64, member: Member) {
        self.lock().insert(client, member);
    }

    pub(super) fn leave(&self, client: u64) {
        self.lock().remove(&client);
    }

    /// What a client should have.
    pub(super) fn target(&self, client: u64, seen: Seen) -> Target {
        let members = self.lock();
        let local = members.len() as u64;
        let clients = seen.clients.max(local).max(1);
        let least = members.values().map(|member| member.least).max().unwrap_or(1);
        let floor = floor(least, usize::try_from(clients).unwrap_or(usize::MAX));
        let even = (u64::from(UNITS) / clients) as u32;
        let even = even.max(floor);
        let here = members.values().map(|member| member.held + member.leaving).sum::<u32>();
        // Clients of other servers that have less than an even part: no client here has more meanwhile. And where
        // they want more, no client here has more than it wants.
        let elsewhere = seen.waiting > members.values().filter(|member| member.waits).count() as u64;
        let is_wanted = seen.wanting > members.values().filter(|member| member.lacks).count() as u64;
        let reserve = if is_wanted { UNITS } else { RESERVE };
        let wants = members.values().map(|member| if elsewhere { member.want.min(even) } else { member.want });
        let wants: Vec<u32> = wants.collect();
        let mut shares = divide((here.saturating_add(seen.free).min(UNITS), reserve), floor, &wants);
        if elsewhere {
            shares.iter_mut().for_each(|share| *share = (*share).min(even));
        }
        let short = |member: &Member, share: u32| member.held < share && is_far(member.held, share);
        let mut target = Target { units: 0, others_lack: elsewhere, waits: false, lacks: false };
        for ((id, member), share) in members.iter().zip(&shares) {
            if *id != client {
                target.others_lack |= short(member, *share);
                continue;
            }
            let want = member.want.max(floor);
            let is_short = |of: u32| short(member, of) && seen.free < of.saturating_sub(member.held);
            (target.units, target.waits, target.lacks) = (*share, is_short(want.min(even)), is_short(want));
        }
        target
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
