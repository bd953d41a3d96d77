//! Which states this process asks for often enough to borrow for them.
//!
//! A lease takes two calls: one that borrows, and one that gives back what is
//! left. So it pays from the third request on that falls within its time, and
//! before that it would only hold units that other processes could use.
//!
//! The memory is bounded: states share slots by their hash, and the latest
//! request has the slot. A state that loses its slot is counted anew; then its
//! requests are decided by the servers, as without a lease.

use std::hash::BuildHasher;
use std::sync::{Mutex, OnceLock, PoisonError};

use foldhash::fast::SeedableRandomState;
use tidegate::Micros;

/// The request within one lease's time that borrows.
const BORROWING_REQUEST: u32 = 3;

/// States that are counted at a time, at most; 256 KiB.
const SLOTS: usize = 8_192;

pub(super) struct Frequent {
    hasher: SeedableRandomState,
    /// Made when a rule with a lease is first asked.
    slots: OnceLock<Box<[Mutex<Slot>]>>,
}

/// The requests for one state since the first of them.
#[derive(Default)]
struct Slot {
    hash: u64,
    since: Micros,
    requests: u32,
}

impl Frequent {
    pub(super) fn new(hasher: SeedableRandomState) -> Frequent {
        Frequent { hasher, slots: OnceLock::new() }
    }

    /// Counts a request, and says whether there have been enough within `window`.
    pub(super) fn count(&self, state_key: &[u8], window: Micros, now: Micros) -> bool {
        let hash = self.hasher.hash_one(state_key);
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Mutex::default()).collect());
        let mut slot = slots[hash as usize % SLOTS].lock().unwrap_or_else(PoisonError::into_inner);
        if slot.hash != hash || now.saturating_since(slot.since) >= window {
            *slot = Slot { hash, since: now, requests: 0 };
        }
        slot.requests = slot.requests.saturating_add(1);
        slot.requests >= BORROWING_REQUEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::new(1_000_000);

    #[test]
    fn the_third_request_within_the_window_is_enough() {
        let frequent = Frequent::new(SeedableRandomState::default());
        let asked = |state: &[u8], micros| frequent.count(state, SECOND, Micros::new(micros));
        let times = [7_000_000, 7_999_998, 7_999_999, 7_999_999, 8_000_000, 8_000_000, 9_000_000, 9_999_999, 9_999_999];
        let enough = [false, false, true, true, false, false, false, false, true];
        assert_eq!(times.map(|time| asked(b"alice", time)), enough);
    }

    #[test]
    fn any_number_of_states_has_the_same_memory() {
        let frequent = Frequent::new(SeedableRandomState::default());
        let enough = (0..3 * SLOTS as u64).filter(|state| frequent.count(&state.to_le_bytes(), SECOND, Micros::ZERO));
        assert_eq!((enough.count(), frequent.slots.get().map(|slots| slots.len())), (0, Some(SLOTS)));
        assert!(size_of::<Mutex<Slot>>() * SLOTS <= 256 << 10);
    }
}
