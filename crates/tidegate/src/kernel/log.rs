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
        let (mut freed, mut frees) = (0, time);
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
        Reading { remaining: self.count.saturating_sub(used), reset_after: self.forget_at(state).saturating_since(now) }
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000;
    const PERIOD: u64 = 10_000_000;

    /// A state of these entries: an instant, relative to `NOW`, and a cost.
    fn state(entries: &[(i64, u64)]) -> LogState {
        let entries = entries.iter().map(|&(at, cost)| Entry { at: NOW.saturating_add_signed(at), cost });
        let entries: VecDeque<Entry> = entries.collect();
        LogState { total: entries.iter().map(|entry| entry.cost).sum(), entries }
    }

    fn log(count: u64) -> Log {
        Log::new(count, PERIOD)
    }

    const GONE: i64 = -10_000_000;
    const OLDEST: i64 = GONE + 1;

    #[test]
    fn entries_move_to_another_log_newest_first_as_far_as_they_fit() {
        type Entries = &'static [(i64, u64)];
        let cases: [(u64, Entries, Entries, Entries); 8] = [
            (5, &[], &[], &[]),
            (5, &[(OLDEST, 3), (0, 2)], &[(OLDEST, 3), (0, 2)], &[]),
            (4, &[(OLDEST, 3), (0, 2)], &[(OLDEST, 2), (0, 2)], &[(OLDEST, 1)]),
            (2, &[(OLDEST, 3), (0, 2)], &[(0, 2)], &[(OLDEST, 3)]),
            (1, &[(OLDEST, 1), (-5, 1), (0, 1)], &[(0, 1)], &[(OLDEST, 1), (-5, 1)]),
            (3, &[(OLDEST, 1), (-5, 1), (0, 1)], &[(OLDEST, 1), (-5, 1), (0, 1)], &[]),
            // What has expired goes nowhere, and a state ahead of the clock has its own time.
            (9, &[(GONE, 4), (OLDEST, 1)], &[(OLDEST, 1)], &[]),
            (9, &[(OLDEST, 1), (7, 2)], &[(7, 2)], &[]),
        ];
        for (count, before, moved, left) in cases {
            // What the log itself had has expired.
            for own in [&[][..], &[(GONE, 1)]] {
                let (mut own, mut used) = (state(own), state(before));
                assert!(log(count).take_over(&mut own, Micros::new(NOW), &log(9), &mut used), "{before:?}");
                assert_eq!((own, used), (state(moved), state(left)), "{before:?} to a limit of {count}");
            }
        }
    }

    #[test]
    fn entries_do_not_move_to_a_log_that_has_some_or_another_period() {
        let mut used = state(&[(-7, 2)]);
        let mut refused = |own: &[(i64, u64)], to: Log| {
            let mut state_of_own = state(own);
            assert!(!to.take_over(&mut state_of_own, Micros::new(NOW), &log(9), &mut used), "{own:?} of {to:?}");
            assert_eq!((&state_of_own, &used), (&state(own), &state(&[(-7, 2)])), "{own:?} of {to:?}");
        };
        refused(&[(OLDEST, 1)], log(9));
        refused(&[(3, 1)], log(9));
        refused(&[], Log::new(9, PERIOD - 1));
        refused(&[(OLDEST, 1)], Log::new(9, PERIOD - 1));
    }

    #[test]
    fn a_refund_takes_the_newest_entries_back() {
        let before = [(GONE, 1), (OLDEST, 2), (-5, 1), (0, 2)];
        type Entries = &'static [(i64, u64)];
        let cases: [(u64, Entries); 8] = [
            (0, &[(OLDEST, 2), (-5, 1), (0, 2)]),
            (1, &[(OLDEST, 2), (-5, 1), (0, 1)]),
            (2, &[(OLDEST, 2), (-5, 1)]),
            (3, &[(OLDEST, 2)]),
            (4, &[(OLDEST, 1)]),
            (5, &[]),
            (6, &[]),
            (u64::MAX, &[]),
        ];
        for (cost, after) in cases {
            let mut refunded = state(&before);
            log(9).refund(&mut refunded, Micros::new(NOW), cost);
            assert_eq!(refunded, state(after), "{cost}");
        }
    }

    #[test]
    fn whoever_waits_waits_for_as_many_entries_as_it_takes() {
        let used = state(&[(GONE, 2), (-9, 2), (-5, 1), (0, 2)]);
        let waits = [1, 2, 3, 4, 5].map(|cost| match log(5).admit(&used, Micros::new(NOW), cost) {
            Admission::Pass { .. } => 0,
            Admission::Wait { retry_after } => retry_after.get(),
        });
        let until = |at: u64| PERIOD - at;
        assert_eq!(waits, [until(9), until(9), until(5), until(0), until(0)]);
        // By a clock that is behind, until the same instant.
        let behind = log(5).admit(&used, Micros::new(NOW - 100), 1);
        assert_eq!(behind, Admission::Wait { retry_after: Micros::new(until(9) + 100) });
    }

    #[test]
    fn a_state_is_healed_that_is_more_than_a_period_and_a_second_ahead() {
        for (period, ahead) in [(PERIOD, PERIOD), (1_000, LEAST_GRACE)] {
            let (log, ahead) = (Log::new(3, period), i64::try_from(ahead).expect("a few seconds"));
            assert_eq!(log.heal(&state(&[(0, 1), (ahead, 1)]), Micros::new(NOW)), None);
            assert_eq!(log.heal(&state(&[(0, 1), (ahead + 1, 1)]), Micros::new(NOW)), Some(state(&[(0, 3)])));
        }
        assert_eq!(log(3).heal(&LogState::default(), Micros::ZERO), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn memory_of_a_burst_long_gone_is_given_back() {
        for (entries, capacity) in [(250, 1_000), (249, 498), (1, 2)] {
            let mut state = LogState { entries: VecDeque::with_capacity(1_000), total: 1_000 };
            state.entries.extend((0..1_000).map(|at| Entry { at: NOW + at, cost: 1 }));
            log(1_000).forget_expired(&mut state, NOW + PERIOD + 999 - entries);
            assert_eq!((state.entries.len() as u64, state.total), (entries, entries));
            assert_eq!(state.entries.capacity(), capacity, "{entries} entries");
        }
    }

    #[test]
    fn bytes_that_are_no_log_are_refused() {
        let bytes = |entries: &[(u64, u64)]| -> Vec<u8> {
            entries.iter().flat_map(|&(at, cost)| [at, cost]).flat_map(u64::to_le_bytes).collect()
        };
        let decoded = |entries: &[(u64, u64)]| log(5).decode(&bytes(entries));
        assert_eq!(decoded(&[]), Some(LogState::default()));
        for known in [&[(0, 1)][..], &[(0, 1), (1, 4)], &[(1, 5)], &[(EXACT - 1, 1)]] {
            let state = decoded(known).expect("a log");
            assert_eq!(state.entries.iter().map(|entry| (entry.at, entry.cost)).collect::<Vec<_>>(), known);
            assert_eq!(state.total, known.iter().map(|(_, cost)| cost).sum::<u64>());
        }
        let unknown =
            [&[(EXACT, 1)][..], &[(1, 0)], &[(1, 6)], &[(1, 3), (2, 3)], &[(1, 5), (2, u64::MAX)], &[(1, 1), (1, 1)]];
        for unknown in unknown.into_iter().chain([&[(2, 1), (1, 1)][..]]) {
            assert_eq!(decoded(unknown), None, "{unknown:?}");
        }
        for shorter in [1, 8, 9, 15, 17, 24, 31] {
            assert_eq!(log(5).decode(&bytes(&[(1, 1), (2, 1)])[..shorter]), None, "{shorter} bytes");
        }
    }
}
