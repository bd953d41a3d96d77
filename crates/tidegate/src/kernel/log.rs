//! Sliding window log: every admitted request is remembered for one period.
//!
//! The only algorithm that keeps every window of `period`, wherever it
//! starts, at `count` or less. The price is memory: one entry per instant at
//! which something was admitted, at most `count` of them.
//!
//! An entry has the running total of all costs up to it. Times and totals both
//! rise, so whatever is asked of a log is found by binary search: no charge
//! walks the entries.

use std::collections::VecDeque;

use super::{Admission, Charged, EXACT, Kernel, MIN_GRACE, Reading};
use crate::time::Micros;

/// The kernel of the sliding window log.
///
/// ```
/// use std::time::Duration;
/// use tidegate::kernel::{Kernel, LimitKernel};
/// use tidegate::{Limit, Micros};
///
/// let LimitKernel::Log(log) = Limit::sliding_log(2, Duration::from_secs(1)).kernel() else { panic!("a log") };
/// assert_eq!(log.charge(&mut Default::default(), Micros::new(10), 1).remaining, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    count: u64,
    /// The most that can count at once, debt included.
    ceiling: u64,
    period: u64,
}

/// What was admitted, oldest first; requests of one instant are one entry.
#[derive(Clone, Debug, Default)]
pub struct LogState {
    entries: VecDeque<Entry>,
    /// The running total before the first entry.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    /// The cost of all that was ever charged up to this instant, modulo 2^64:
    /// differences of totals are exact.
    total: u64,
}

/// Instants that a [copy](Kernel::copy) of a log has at most.
const MAX_COPIED: usize = 64;

impl LogState {
    fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The cost of the first so many entries.
    fn sum(&self, entries: usize) -> u64 {
        match entries.checked_sub(1) {
            Some(last) => self.entries[last].total.wrapping_sub(self.before),
            None => 0,
        }
    }

    /// The cost of all entries, expired ones included.
    fn total(&self) -> u64 {
        self.sum(self.entries.len())
    }

    /// How many of the first entries cost less than this in all.
    fn below(&self, cost: u64) -> usize {
        self.entries.partition_point(|entry| entry.total.wrapping_sub(self.before) < cost)
    }

    fn push(&mut self, at: u64, cost: u64) {
        let total = self.before.wrapping_add(self.total()).wrapping_add(cost);
        match self.entries.back_mut() {
            Some(newest) if newest.at == at => newest.total = total,
            Some(_) | None => self.entries.push_back(Entry { at, total }),
        }
    }

    /// Forgets the first so many entries.
    fn drop_first(&mut self, entries: usize) {
        self.before = self.before.wrapping_add(self.sum(entries));
        self.entries.drain(..entries);
        // A burst long gone should not hold its memory for ever.
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// The instants and what was admitted at each.
    fn instants(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().scan(self.before, |before, entry| {
            let cost = entry.total.wrapping_sub(std::mem::replace(before, entry.total));
            Some((entry.at, cost))
        })
    }
}

/// The same instants and costs, wherever the totals began.
impl PartialEq for LogState {
    fn eq(&self, other: &LogState) -> bool {
        self.instants().eq(other.instants())
    }
}

impl Eq for LogState {}

impl Log {
    pub(crate) const fn new(count: u64, period: u64) -> Log {
        Log { count, ceiling: count, period }
    }

    /// The same log, of which as many units more can be owed.
    pub(crate) const fn with_debt(self, debt: u64) -> Log {
        Log { ceiling: self.count + debt, ..self }
    }

    /// The most that can count at once, debt included.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        self.ceiling
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

    /// The state's time: it does not go back when the clock does.
    fn time(state: &LogState, now: Micros) -> u64 {
        now.get().max(state.newest())
    }

    /// How many entries no longer count at `time`: always the oldest ones.
    ///
    /// Each charge forgets them, so mostly there are few: they are looked for from the front,
    /// in steps that double, and then between the last two steps.
    fn expired(&self, state: &LogState, time: u64) -> usize {
        let entries = &state.entries;
        let is_over = |entry: &Entry| entry.at + self.period <= time;
        let mut step = 1;
        while entries.get(step - 1).is_some_and(is_over) {
            step *= 2;
        }
        let (mut first, mut end) = (step / 2, entries.len().min(step - 1));
        while first < end {
            let middle = (first + end) / 2;
            if is_over(&entries[middle]) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        first
    }

    fn used(&self, state: &LogState, time: u64) -> u64 {
        state.total() - state.sum(self.expired(state, time))
    }

    /// The entry that has a charge, if it still counts, and all that it has.
    fn entry_of(&self, state: &LogState, now: Micros, charged: Charged) -> Option<(usize, u64)> {
        let index = state.entries.binary_search_by_key(&charged.at.get(), |entry| entry.at).ok()?;
        let counts = index >= self.expired(state, Log::time(state, now));
        counts.then(|| (index, state.sum(index + 1) - state.sum(index)))
    }

    fn forget_expired(&self, state: &mut LogState, time: u64) {
        let expired = self.expired(state, time);
        state.drop_first(expired);
    }
}

impl Kernel for Log {
    type State = LogState;

    fn capacity(&self) -> u64 {
        self.count
    }

    fn used(&self, state: &LogState, now: Micros) -> u64 {
        self.used(state, Log::time(state, now))
    }

    fn admit(&self, state: &LogState, now: Micros, cost: u64) -> Admission {
        let time = Log::time(state, now);
        let needed = self.used(state, time) + cost;
        if needed <= self.count {
            return Admission::PASS;
        }
        // The first entry that expires with as much as is too much, at or before it.
        let expired = self.expired(state, time);
        let frees = state.below(state.sum(expired) + needed - self.count).min(state.entries.len().saturating_sub(1));
        let at = if expired < state.entries.len() { state.entries[frees].at + self.period } else { time };
        Admission::Wait { retry_after: Micros::new(at - now.get()) }
    }

    fn charge(&self, state: &mut LogState, now: Micros, cost: u64) -> Reading {
        let at = Log::time(state, now);
        self.forget_expired(state, at);
        state.push(at, cost);
        self.read(state, now)
    }

    fn report(&self, state: &mut LogState, now: Micros, cost: u64) -> u64 {
        let at = Log::time(state, now);
        self.forget_expired(state, at);
        let added = cost.min(self.ceiling.saturating_sub(state.total()));
        if added > 0 {
            state.push(at, added);
        }
        cost - added
    }

    fn refund(&self, state: &mut LogState, now: Micros, cost: u64) {
        let time = Log::time(state, now);
        self.forget_expired(state, time);
        let left = state.total().saturating_sub(cost);
        // The entries up to the one that holds the last unit that is left.
        state.entries.truncate(if left == 0 { 0 } else { state.below(left) + 1 });
        if let Some(newest) = state.entries.back_mut() {
            newest.total = state.before.wrapping_add(left);
        }
    }

    /// An entry of another time is not of this charge, and one that has expired is gone.
    fn undo(&self, state: &mut LogState, now: Micros, charged: Charged, kept: u64) -> u64 {
        let Some((index, size)) = self.entry_of(state, now, charged) else { return 0 };
        let taken = size.min(charged.cost - kept);
        state.entries.range_mut(index..).for_each(|entry| entry.total = entry.total.wrapping_sub(taken));
        let expired = self.expired(state, Log::time(state, now));
        if taken == size {
            state.entries.remove(index);
        }
        state.drop_first(expired);
        taken
    }

    fn is_there(&self, state: &LogState, now: Micros, charged: Charged) -> bool {
        self.entry_of(state, now, charged).is_some_and(|(_, size)| size >= charged.cost)
    }

    fn ahead(&self, state: &LogState, now: Micros) -> Micros {
        Micros::new(state.newest()).saturating_since(now)
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
        (state.newest() > now.get() + self.period.max(MIN_GRACE)).then(|| {
            let mut full = LogState::default();
            full.push(now.get(), self.count);
            full
        })
    }

    fn encode(&self, state: &LogState, bytes: &mut Vec<u8>) {
        for (at, cost) in state.instants() {
            bytes.extend(at.to_le_bytes());
            bytes.extend(cost.to_le_bytes());
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<LogState> {
        let mut state = LogState::default();
        for word in bytes.chunks(16) {
            let (at, cost) = word.split_first_chunk()?;
            let (at, cost) = (u64::from_le_bytes(*at), u64::from_le_bytes(cost.try_into().ok()?));
            let fits = at < EXACT && cost > 0 && cost <= self.ceiling.checked_sub(state.total())?;
            if !fits || (!state.is_empty() && at <= state.newest()) {
                return None;
            }
            state.push(at, cost);
        }
        Some(state)
    }

    /// Exact for a log of up to 64 instants. Of a longer one every so many are
    /// kept: what was admitted in between counts until the next one expires.
    fn copy(&self, state: &LogState, now: Micros) -> LogState {
        let expired = self.expired(state, Log::time(state, now));
        let step = (state.entries.len() - expired).div_ceil(MAX_COPIED).max(1);
        // The newest is one of them.
        let first = expired + (state.entries.len() - expired + step - 1) % step;
        let entries = (first..state.entries.len()).step_by(step).map(|index| state.entries[index]).collect();
        LogState { entries, before: state.before.wrapping_add(state.sum(expired)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000;
    const PERIOD: u64 = 10_000_000;

    /// A state of these entries: an instant, relative to `NOW`, and a cost.
    fn state(entries: &[(i64, u64)]) -> LogState {
        // So that the totals go round.
        let mut state = LogState { before: u64::MAX - 3, ..LogState::default() };
        entries.iter().for_each(|&(at, cost)| state.push(NOW.saturating_add_signed(at), cost));
        state
    }

    fn log(count: u64) -> Log {
        Log::new(count, PERIOD)
    }

    const GONE: i64 = -10_000_000;
    const OLDEST: i64 = GONE + 1;

    #[test]
    fn states_of_the_same_instants_and_costs_are_equal_wherever_their_totals_began() {
        let entries = [(-5, 1), (0, 2)];
        let mut anew = LogState::default();
        entries.iter().for_each(|&(at, cost)| anew.push(NOW.saturating_add_signed(at), cost));
        assert_eq!(anew, state(&entries));
        for other in [&[(-5, 1), (0, 1)][..], &[(-4, 1), (0, 2)], &[(0, 2)], &[]] {
            assert_ne!(state(&entries), state(other));
        }
    }

    #[test]
    fn a_report_is_an_entry_up_to_the_ceiling() {
        let cases = [(0, 0, 0), (1, 1, 0), (5, 5, 0), (6, 5, 1), (u64::MAX, 5, u64::MAX - 5)];
        for (cost, added, unrecorded) in cases {
            let mut reported = state(&[(GONE, 9), (OLDEST, 2)]);
            assert_eq!(log(4).with_debt(3).report(&mut reported, Micros::new(NOW), cost), unrecorded, "{cost}");
            let entries: &[(i64, u64)] = &[(OLDEST, 2), (0, added)];
            assert_eq!(reported, state(&entries[..if added == 0 { 1 } else { 2 }]), "{cost}");
        }
        let full = log(4).with_debt(3);
        let mut owing = state(&[(-5, 7)]);
        assert_eq!((full.report(&mut owing, Micros::new(NOW), 1), &owing), (1, &state(&[(-5, 7)])));
        let mut bytes = Vec::new();
        full.encode(&owing, &mut bytes);
        assert_eq!((full.decode(&bytes), log(6).decode(&bytes)), (Some(owing), None));
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
    fn the_wait_covers_as_many_entries_as_the_cost_needs() {
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
        for (period, ahead) in [(PERIOD, PERIOD), (1_000, MIN_GRACE)] {
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
            let mut state = LogState { entries: VecDeque::with_capacity(1_000), before: 0 };
            (0..1_000).for_each(|at| state.push(NOW + at, 1));
            log(1_000).forget_expired(&mut state, NOW + PERIOD + 999 - entries);
            assert_eq!((state.entries.len() as u64, state.total()), (entries, entries));
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
            assert_eq!(state.instants().collect::<Vec<_>>(), known);
            assert_eq!(state.total(), known.iter().map(|(_, cost)| cost).sum::<u64>());
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

    /// What the kernel says, by walking all entries.
    fn by_walking(log: Log, state: &LogState, now: u64, cost: u64) -> (Admission, u64) {
        let time = now.max(state.newest());
        let counted: Vec<(u64, u64)> = state.instants().filter(|(at, _)| at + log.period > time).collect();
        let used: u64 = counted.iter().map(|(_, cost)| cost).sum();
        let (mut left, mut frees) = (used, time);
        for (at, cost_then) in counted {
            if left + cost <= log.count {
                break;
            }
            (left, frees) = (left - cost_then, at + log.period);
        }
        let admission = match used + cost <= log.count {
            true => Admission::PASS,
            false => Admission::Wait { retry_after: Micros::new(frees - now) },
        };
        (admission, log.count.saturating_sub(used))
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and nothing but arithmetic")]
    fn binary_search_says_what_walking_all_entries_says() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut refused, mut admitted) = (0, 0);
        for _ in 0..500 {
            let log = Log::new(1 + random(40), 1 + random(60));
            let (mut state, mut now) = (state(&[]), NOW);
            for _ in 0..40 {
                // The clock may go back.
                now = now + random(12) - random(4);
                for cost in 0..=log.count + 2 {
                    let (admission, remaining) = by_walking(log, &state, now, cost);
                    assert_eq!(log.admit(&state, Micros::new(now), cost), admission, "{cost} of {log:?} on {state:?}");
                    assert_eq!(log.read(&state, Micros::new(now)).remaining, remaining, "{log:?} on {state:?}");
                }
                let cost = 1 + random(log.count);
                match log.admit(&state, Micros::new(now), cost) {
                    Admission::Pass { .. } => {
                        log.charge(&mut state, Micros::new(now), cost);
                        admitted += 1;
                    }
                    Admission::Wait { .. } => refused += 1,
                }
                if random(5) == 0 {
                    log.refund(&mut state, Micros::new(now), random(4));
                }
            }
        }
        assert!(refused > 1_000 && admitted > 1_000, "{refused} refused, {admitted} admitted");
    }

    /// Walking the entries would take an hour.
    #[test]
    #[cfg_attr(miri, ignore = "a million entries, and nothing but arithmetic")]
    fn a_full_log_answers_without_walking_its_entries() {
        const ENTRIES: u64 = 1 << 20;
        let log = Log::new(ENTRIES, 2 * ENTRIES);
        let mut state = LogState::default();
        for at in NOW..NOW + ENTRIES {
            log.charge(&mut state, Micros::new(at), 1);
        }
        for round in 0..100_000 {
            let (now, cost) = (NOW + ENTRIES + round, ENTRIES - round);
            let retry_after = Micros::new(NOW + cost - 1 + log.period - now);
            assert_eq!(log.admit(&state, Micros::new(now), cost), Admission::Wait { retry_after });
            assert_eq!(log.read(&state, Micros::new(now)).remaining, 0);
        }
    }

    #[test]
    fn a_copy_is_exact_up_to_so_many_instants_and_short_beyond() {
        let count = 1_000;
        for instants in [0, 1, MAX_COPIED, MAX_COPIED + 1, 999] {
            let mut full = state(&[(GONE, 1)]);
            (0..instants).for_each(|at| full.push(NOW - 999 + at as u64, 1));
            let copy = log(count).copy(&full, Micros::new(NOW));
            assert!(copy.entries.len() <= MAX_COPIED);
            for now in [NOW, NOW + 5, NOW + PERIOD] {
                let [read, read_copy] = [&full, &copy].map(|state| log(count).read(state, Micros::new(now)));
                assert_eq!(read_copy, read, "{instants} instants");
            }
            let waits = [&full, &copy].map(|state| match log(count).admit(state, Micros::new(NOW), count) {
                Admission::Pass { .. } => 0,
                Admission::Wait { retry_after } => retry_after.get(),
            });
            assert!(instants > MAX_COPIED || full.entries.len() == copy.entries.len() + 1);
            assert!(waits[0] <= waits[1], "{instants} instants: {waits:?}");
        }
    }
}
