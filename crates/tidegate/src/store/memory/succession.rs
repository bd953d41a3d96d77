//! A limit was changed: what a key used of the old one moves to the new one.
//!
//! It moves when the key is next charged, and in the same step: all states are
//! locked, so nobody sees it twice or not at all. Whoever only looks sees what
//! would move, and moves nothing.

use super::MemoryStore;
use super::several::{Seat, Turn};
use crate::kernel::{self, Verb};
use crate::store::{self, Check, MeterState};
use crate::time::Micros;

impl MemoryStore {
    /// Adds a turn for each predecessor that still matters.
    pub(super) fn add_predecessors<'a>(&self, checks: &[Check<'a>], turns: &mut Vec<Turn<'a>>, now: Micros) {
        for (index, check) in checks.iter().enumerate() {
            for predecessor in check.meter().predecessors().iter().filter(|predecessor| predecessor.until() > now) {
                let mut turn = self.turn(Check { meter: predecessor.meter(), verb: Verb::Peek, cost: 0, ..*check });
                // One that is asked itself keeps what it has.
                if !turns.iter().any(|other| other.has_same_state(&turn)) {
                    turn.heir = Some(index);
                    turns.push(turn);
                }
            }
        }
    }
}

/// Moves what was used of a predecessor to its heir, one of `turns`.
pub(super) fn take_over(turns: &mut [Turn<'_>], from: &mut Turn<'_>) {
    let Some(to) = from.heir.and_then(|heir| turns.get_mut(heir)) else { return };
    if to.check.verb() == Verb::Reset {
        // What does not fit would come back with the next charge.
        (from.state, from.changed) = (MeterState::Fresh, matches!(from.seat, Seat::Own));
        return;
    }
    let has_own = match (from.seat, to.seat) {
        (_, Seat::Missing(_)) => return,
        (Seat::Own, _) => true,
        // What it used of a shared state cannot be taken from there: it counts
        // for a key that has nothing else.
        (_, Seat::Claimed | Seat::Unneeded) => false,
        (_, Seat::Own | Seat::Shared) => return,
    };
    let (to_meter, from_meter) = (to.check.meter(), from.check.meter());
    if !kernel::may_write(to.check.verb(), to.check.cost()) {
        let mut seen = to_meter.kernel().copy(to.seen.as_ref().unwrap_or(&to.state));
        let mut used = from_meter.kernel().copy(from.seen.as_ref().unwrap_or(&from.state));
        store::take_over(to_meter, &mut seen, to.at, from_meter, &mut used);
        to.seen = Some(seen);
        return;
    }
    if let Some(healed) = from.seen.take() {
        from.state = healed;
    }
    store::take_over(to_meter, &mut to.state, to.at, from_meter, &mut from.state);
    (to.changed, from.changed) = (true, has_own);
}
