//! Sliding window log: every admitted request is remembered for one period.
//!
//! The only algorithm that keeps every window of `period`, wherever it
//! starts, at `count` or less. The price is memory: one entry per instant at
//! which something was admitted, at most `count` of them.

use std::collections::VecDeque;

use super::{Admission, EXACT, Kernel, LEAST_GRACE, Reading};
use crate::time::Micros;

/// The kernel of the sliding window log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    count: u64,
    period: u64,
}

/// What was admitted, oldest first; requests of one instant are one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    entries: VecDeque<Entry>,
    /// The cost of all entries, expired ones included.
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    cost: u64,
}

impl LogState {
    fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at)
    }
}

impl Log {
    pub(crate) const fn new(count: u64, period: u64) -> Log {
        Log { count, period }
    }

    /// The same period with another limit.
    pub(crate) const fn with_count(self, count: u64) -> Log {
        Log { count, ..self }
    }

    /// The period in microseconds.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Moves the entries of a log of the same period, the newest first, as far
    /// as they fit; false, and nothing is done, if this one has entries or the
    /// period is another.
    pub(crate) fn take_over(&self, state: &mut LogState, now: Micros, from: &Log, used: &mut LogState) -> bool {
        if self.period != from.period || self.used(state, Log::time(state, now)) > 0 {
            return false;
        }
        *state = LogState::default();
        from.forget_expired(used, Log::time(used, now));
        while let Some(newest) = used.entries.back_mut() {
            let cost = newest.cost.min(self.count - state.total);
            if cost == 0 {
                break;
            }
            state.total += cost;
            state.entries.push_front(Entry { at: newest.at, cost });
            used.total -= cost;
            newest.cost -= cost;
            if newest.cost == 0 {
                used.entries.pop_back();
            }
        }
        true
    }

    /// The state's time: it does not go back when the clock does.
    fn time(state: &LogState, now: Micros) -> u64 {
        now.get().max(state.newest())
    }

    /// How many entries no longer count at `time`: always the oldest ones.
    fn expired(&self, state: &LogState, time: u64) -> usize {
        state.entries.partition_point(|entry| entry.at + self.period <= time)
    }

    fn used(&self, state: &LogState, time: u64) -> u64 {
        let expired: u64 = state.entries.range(..self.expired(state, time)).map(|entry| entry.cost).sum();
        state.total - expired
    }

    fn forget_expired(&self, state: &mut LogState, time: u64) {
        let expired = self.expired(state, time);
        state.total -= state.entries.drain(..expired).map(|entry| entry.cost).sum::<u64>();
        // A burst long gone should not hold its memory for ever.
        if state.entries.len() * 4 < state.entries.capacity() {
            state.entries.shrink_to(state.entries.len() * 2);
        }
    }
}

impl Kernel for Log {
    type State = LogState;

    fn capacity(&self) -> u64 {
        self.count
    }

    fn admit(&self, state: &LogState, now: Micros, cost: u64) -> Admission {
        let time = Log::time(state, now);
        let needed = self.used(state, time) + cost;
        if needed <= self.count {
            return Admission::PASS;
        }
        let excess = needed - self.count;
        let mut freed = 0;
        let mut frees = 0;
        for entry in state.entries.range(self.expired(state, time)..) {
            freed += entry.cost;
            frees = entry.at + self.period;
            if freed >= excess {
                break;
            }
        }
        Admission::Wait { retry_after: Micros::new(frees - now.get()) }
    }

    fn charge(&self, state: &mut LogState, now: Micros, cost: u64) -> Reading {
        let at = Log::time(state, now);
        self.forget_expired(state, at);
        match state.entries.back_mut() {
            Some(newest) if newest.at == at => newest.cost += cost,
            Some(_) | None => state.entries.push_back(Entry { at, cost }),
        }
        state.total += cost;
        self.read(state, now)
    }

    fn refund(&self, state: &mut LogState, now: Micros, cost: u64) {
        let time = Log::time(state, now);
        self.forget_expired(state, time);
        let mut left = cost;
        while let Some(newest) = state.entries.back_mut() {
            let taken = left.min(newest.cost);
            newest.cost -= taken;
            state.total -= taken;
            left -= taken;
            if newest.cost > 0 {
                break;
            }
            state.entries.pop_back();
        }
    }

    fn read(&self, state: &LogState, now: Micros) -> Reading {
        let used = self.used(state, Log::time(state, now));
        Reading { remaining: self.count - used, reset_after: self.forget_at(state).saturating_since(now) }
    }

    fn forget_at(&self, state: &LogState) -> Micros {
        match state.entries.back() {
            Some(newest) => Micros::new(newest.at + self.period),
            None => Micros::ZERO,
        }
    }

    fn heal(&self, state: &LogState, now: Micros) -> Option<LogState> {
        let full = Entry { at: now.get(), cost: self.count };
        (state.newest() > now.get() + self.period.max(LEAST_GRACE))
            .then(|| LogState { entries: VecDeque::from([full]), total: self.count })
    }

    fn encode(&self, state: &LogState, bytes: &mut Vec<u8>) {
        for entry in &state.entries {
            bytes.extend(entry.at.to_le_bytes());
            bytes.extend(entry.cost.to_le_bytes());
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<LogState> {
        let mut state = LogState::default();
        for word in bytes.chunks(16) {
            let (at, cost) = word.split_first_chunk()?;
            let entry = Entry { at: u64::from_le_bytes(*at), cost: u64::from_le_bytes(cost.try_into().ok()?) };
            let fits = entry.at < EXACT && entry.cost > 0 && entry.cost <= self.count.checked_sub(state.total)?;
            if !fits || (!state.entries.is_empty() && entry.at <= state.newest()) {
                return None;
            }
            state.total += entry.cost;
            state.entries.push_back(entry);
        }
        Some(state)
    }
}
