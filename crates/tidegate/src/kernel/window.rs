//! Fixed window and sliding window counter: counts per stretch of time.
//!
//! The sliding counter counts the previous window by how much of it the last
//! period still covers, rounded down to whole units: rounded up, a window after
//! a full one would never get its count. The comparison is multiplied out, so
//! that there is no division in it. Windows start at multiples of the period
//! since the epoch, unless a fixed window starts with its first request.

use super::{Admission, Charged, EXACT, Kernel, LEAST_GRACE, Reading};
use crate::time::Micros;

/// The kernel of the fixed window and the sliding window counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    count: u64,
    /// The most that a window can have counted, debt included.
    ceiling: u64,
    /// The period in ticks.
    period: u64,
    /// Microseconds in a tick: 1 unless the sliding counter's products would
    /// not fit.
    tick: u64,
    style: Style,
    /// Whether fixed windows of other counts charge the same states.
    any_count: bool,
}

/// How windows follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// A fixed window that starts at a multiple of the period.
    FixedFromEpoch,
    /// A fixed window that starts with its first request.
    FixedFromFirst,
    /// The sliding counter: windows from the epoch, two of which count.
    Sliding,
}

/// The latest window that was charged, and for the sliding counter the one
/// before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowState {
    /// In ticks.
    pub(crate) start: u64,
    pub(crate) current: u64,
    pub(crate) previous: u64,
}

/// A state brought up to a tick, which it never lies behind of.
struct View {
    start: u64,
    current: u64,
    previous: u64,
    /// How far the tick is into the window; zero while the clock is behind.
    elapsed: u64,
}

impl WindowState {
    /// A state of which something was used; else it is the default one.
    fn in_use(start: u64, current: u64, previous: u64) -> WindowState {
        if current + previous > 0 { WindowState { start, current, previous } } else { WindowState::default() }
    }
}

impl Window {
    pub(crate) const fn new(count: u64, period: u64, style: Style) -> Window {
        let mut tick = 1;
        if let Style::Sliding = style {
            // Three windows' worth at most stand in the comparison, on its left; and debt.
            while 4 * (count as u128) * (period.div_ceil(tick) as u128) >= EXACT as u128 {
                tick *= 10;
            }
        }
        Window { count, ceiling: count, period: period.div_ceil(tick), tick, style, any_count: false }
    }

    /// The same windows, of which as many units more can be owed: at most
    /// [`debt_bound`](Window::debt_bound).
    pub(crate) const fn with_debt(self, debt: u64) -> Window {
        Window { ceiling: self.count + debt, ..self }
    }

    /// The most units that two windows of a sliding counter can owe, each, with
    /// every product exact: beside them stands the count of one more.
    pub(crate) const fn debt_bound(&self) -> u64 {
        ((EXACT - 1) / self.period - 3 * self.count) / 2
    }

    /// The most that a window can have counted, debt included.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The same windows, on states that those of other counts charge as well.
    pub(crate) const fn of_any_count(self) -> Window {
        Window { any_count: true, ..self }
    }

    pub(crate) const fn is_of_any_count(&self) -> bool {
        self.any_count
    }

    /// The most that a state can have counted. A fixed window may find more than
    /// its own count: another count charged the same state.
    pub(crate) const fn most(&self) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => EXACT - 1,
            Style::Sliding => self.ceiling,
        }
    }

    /// Microseconds in a tick.
    #[must_use]
    pub const fn tick(&self) -> u64 {
        self.tick
    }

    /// How windows follow each other.
    #[must_use]
    pub const fn style(&self) -> Style {
        self.style
    }

    /// The period in ticks.
    #[must_use]
    pub const fn period_in_ticks(&self) -> u64 {
        self.period
    }

    /// The state of a window that started at `start` ticks; `None` if no
    /// window of this limit could have it.
    #[must_use]
    pub const fn state(&self, start: u64, current: u64, previous: u64) -> Option<WindowState> {
        let is_counted = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => current < EXACT && previous <= self.count,
            // All that stands in the comparison with it.
            Style::Sliding => {
                (current as u128 + previous as u128 + self.count as u128) * (self.period as u128) < EXACT as u128
            }
        };
        if start < EXACT / self.tick && is_counted { Some(WindowState { start, current, previous }) } else { None }
    }

    /// The same windows with another limit, of at most this one's.
    pub(crate) const fn with_count(self, count: u64) -> Window {
        Window { count, ..self }
    }

    /// The period in microseconds, as it is kept.
    pub(crate) const fn period(&self) -> u64 {
        self.period * self.tick
    }

    #[inline]
    fn ticks(&self, now: Micros) -> u64 {
        if self.tick == 1 { now.get() } else { now.get() / self.tick }
    }

    /// How long it is until a tick that is still to come.
    #[inline]
    fn until(&self, tick: u64, now: Micros) -> Micros {
        Micros::new(tick * self.tick - now.get())
    }

    #[inline]
    fn start_of_window(&self, tick: u64) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::Sliding => tick - tick % self.period,
            Style::FixedFromFirst => tick,
        }
    }

    #[inline]
    fn view(&self, state: &WindowState, tick: u64) -> View {
        let WindowState { start, current, previous } = *state;
        let unused = current == 0 && previous == 0;
        // A clock that is behind the window's start finds it just begun.
        let age = tick.saturating_sub(start);
        if !unused && age < self.period {
            return View { start, current, previous, elapsed: age };
        }
        let start_of_this = self.start_of_window(tick);
        let previous = match self.style {
            Style::Sliding if age < 2 * self.period => current,
            Style::Sliding | Style::FixedFromEpoch | Style::FixedFromFirst => 0,
        };
        View { start: start_of_this, current: 0, previous, elapsed: tick - start_of_this }
    }

    /// Moves what was counted in the same windows under another limit, as far
    /// as it fits; false, and nothing is done, if they are not the same.
    pub(crate) fn take_over(
        &self,
        state: &mut WindowState,
        now: Micros,
        from: &Window,
        used: &mut WindowState,
    ) -> bool {
        let tick = self.ticks(now);
        let (own, theirs) = (self.view(state, tick), from.view(used, tick));
        let is_unused = own.current == 0 && own.previous == 0;
        let same_windows = (self.period, self.tick, self.style) == (from.period, from.tick, from.style);
        if !same_windows || !(is_unused || own.start == theirs.start) {
            return false;
        }
        let current = theirs.current.min(self.count.saturating_sub(own.current));
        let previous = theirs.previous.min(self.count.saturating_sub(own.previous));
        *used = WindowState::in_use(theirs.start, theirs.current - current, theirs.previous - previous);
        *state = WindowState::in_use(theirs.start, own.current + current, own.previous + previous);
        true
    }

    /// The left side of the sliding counter's inequality, in count x period:
    /// `floor(previous * (period - elapsed) / period) + current + cost <= count`
    /// is the same as this below `(count + 1) * period`.
    #[inline]
    fn weight(&self, view: &View, cost: u64) -> u64 {
        view.previous * (self.period - view.elapsed) + (view.current + cost) * self.period
    }

    /// The first tick of the window from `start`, or its end, at which fewer
    /// than `units` of the previous one count: all of it is at least as many.
    #[inline]
    fn falls_below(&self, start: u64, previous: u64, units: u64) -> u64 {
        start + self.period - (units * self.period - 1) / previous
    }

    /// The first tick at which the sliding counter has room for `cost`, given
    /// that it has none in this view.
    fn first_tick_with_room(&self, view: &View, cost: u64) -> u64 {
        if view.current + cost <= self.count {
            self.falls_below(view.start, view.previous, self.count - view.current - cost + 1)
        } else {
            // In the next window, where this one is the previous.
            self.falls_below(view.start + self.period, view.current, self.count - cost + 1)
        }
    }

    /// The first tick at which no whole unit of these windows counts.
    #[inline]
    fn reset_at(&self, view: &View) -> u64 {
        match (self.style, view.current, view.previous) {
            (_, 0, 0) => 0,
            (Style::Sliding, 1.., _) => self.falls_below(view.start + self.period, view.current, 1),
            (Style::Sliding, 0, _) => self.falls_below(view.start, view.previous, 1),
            (Style::FixedFromEpoch | Style::FixedFromFirst, ..) => view.start + self.period,
        }
    }

    fn grace(&self) -> u64 {
        let horizon = match self.style {
            Style::Sliding => 2 * self.period,
            Style::FixedFromEpoch | Style::FixedFromFirst => self.period,
        };
        horizon.max(LEAST_GRACE.div_ceil(self.tick))
    }
}

impl Kernel for Window {
    type State = WindowState;

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    #[inline]
    fn admit(&self, state: &WindowState, now: Micros, cost: u64) -> Admission {
        let view = self.view(state, self.ticks(now));
        let fits = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => view.current + cost <= self.count,
            Style::Sliding => self.weight(&view, cost) < (self.count + 1) * self.period,
        };
        if fits {
            return Admission::PASS;
        }
        let first_tick = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => view.start + self.period,
            Style::Sliding => self.first_tick_with_room(&view, cost),
        };
        Admission::Wait { retry_after: self.until(first_tick, now) }
    }

    #[inline]
    fn charge(&self, state: &mut WindowState, now: Micros, cost: u64) -> Reading {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        *state = WindowState { start, current: current + cost, previous };
        self.read(state, now)
    }

    fn report(&self, state: &mut WindowState, now: Micros, cost: u64) -> u64 {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        let added = cost.min(self.ceiling.saturating_sub(current));
        *state = WindowState::in_use(start, current + added, previous);
        cost - added
    }

    fn refund(&self, state: &mut WindowState, now: Micros, cost: u64) {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        let from_current = cost.min(current);
        let from_previous = (cost - from_current).min(previous);
        let (current, previous) = (current - from_current, previous - from_previous);
        *state = WindowState::in_use(start, current, previous);
    }

    /// Only what was charged to a window is taken from it.
    fn undo(&self, state: &mut WindowState, now: Micros, charged: Charged, kept: u64) {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        let (at, cost) = (self.ticks(charged.at), charged.cost - kept);
        let (from_current, from_previous) = match at {
            at if at >= start => (cost.min(current), 0),
            at if at + self.period >= start => (0, cost.min(previous)),
            _ => (0, 0),
        };
        *state = WindowState::in_use(start, current - from_current, previous - from_previous);
    }

    #[inline]
    fn ahead(&self, state: &WindowState, now: Micros) -> Micros {
        Micros::new(state.start * self.tick).saturating_since(now)
    }

    #[inline]
    fn read(&self, state: &WindowState, now: Micros) -> Reading {
        let view = self.view(state, self.ticks(now));
        let remaining = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => self.count.saturating_sub(view.current),
            Style::Sliding => ((self.count + 1) * self.period - 1).saturating_sub(self.weight(&view, 0)) / self.period,
        };
        Reading { remaining, reset_after: Micros::new(self.reset_at(&view) * self.tick).saturating_since(now) }
    }

    fn used(&self, state: &WindowState, now: Micros) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => self.view(state, self.ticks(now)).current,
            Style::Sliding => self.count - self.read(state, now).remaining,
        }
    }

    /// When both windows have passed. No unit of them counts from a little
    /// sooner on, but a clock that goes back could tell the difference.
    #[inline]
    fn forget_at(&self, state: &WindowState) -> Micros {
        let windows = match (self.style, state.current, state.previous) {
            (_, 0, 0) => return Micros::ZERO,
            (Style::Sliding, 1.., _) => 2,
            (Style::Sliding, 0, _) | (Style::FixedFromEpoch | Style::FixedFromFirst, ..) => 1,
        };
        Micros::new((state.start + windows * self.period) * self.tick)
    }

    #[inline]
    fn heal(&self, state: &WindowState, now: Micros) -> Option<WindowState> {
        let tick = self.ticks(now);
        if state.start <= tick || state.start <= tick + self.grace() {
            return None;
        }
        Some(WindowState { start: self.start_of_window(tick), current: self.count, previous: 0 })
    }

    fn encode(&self, state: &WindowState, bytes: &mut Vec<u8>) {
        for word in [state.start, state.current, state.previous] {
            bytes.extend(word.to_le_bytes());
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<WindowState> {
        let (start, rest) = bytes.split_first_chunk()?;
        let (current, previous) = rest.split_first_chunk()?;
        let previous = u64::from_le_bytes(previous.try_into().ok()?);
        self.state(u64::from_le_bytes(*start), u64::from_le_bytes(*current), previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [Style; 3] = [Style::FixedFromEpoch, Style::FixedFromFirst, Style::Sliding];
    const NOW: Micros = Micros::new(1_003);

    /// Five, or as many, in ten microseconds.
    fn window(count: u64, style: Style) -> Window {
        Window::new(count, 10, style)
    }

    fn state(start: u64, current: u64, previous: u64) -> WindowState {
        WindowState { start, current, previous }
    }

    #[test]
    fn a_tick_is_as_long_as_exact_sums_need() {
        let most = (1 << 51) - 1;
        let cases = [
            (1, most, (1, most)),
            (1, most + 1, (10, most / 10 + 1)),
            // Ten times that fits; a microsecond more is a whole tick more.
            (1, 10 * most, (10, most)),
            (1, 10 * most + 1, (100, most / 10 + 1)),
            (1_000_000_000_000, 1_000_000, (1_000, 1_000)),
        ];
        for (count, period, expected) in cases {
            let window = Window::new(count, period, Style::Sliding);
            assert_eq!((window.tick(), window.period_in_ticks()), expected, "{count} in {period}");
            assert_eq!(window.period(), window.tick() * window.period_in_ticks());
            assert!(window.period() >= period, "{count} in {period}");
            let fixed = Window::new(count, period, Style::FixedFromEpoch);
            assert_eq!((fixed.tick(), fixed.period_in_ticks(), fixed.period()), (1, period, period));
        }
    }

    #[test]
    fn numbers_that_no_window_could_have_are_no_state() {
        let coarse = Window { tick: 10, ..window(5, Style::Sliding) };
        let cases = [
            (window(5, Style::Sliding), (EXACT - 1, 5, 5), true),
            (window(5, Style::Sliding), (EXACT, 5, 5), false),
            (window(5, Style::Sliding), (0, EXACT / 10 - 8, 3), true),
            (window(5, Style::Sliding), (0, EXACT / 10 - 7, 3), false),
            (window(5, Style::Sliding), (0, u64::MAX, u64::MAX), false),
            (window(5, Style::FixedFromEpoch), (0, EXACT - 1, 0), true),
            (window(5, Style::FixedFromEpoch), (0, EXACT, 0), false),
            (window(5, Style::FixedFromFirst), (0, EXACT - 1, 5), true),
            (window(5, Style::FixedFromFirst), (0, 5, 6), false),
            (coarse, (EXACT / 10 - 1, 0, 0), true),
            (coarse, (EXACT / 10, 0, 0), false),
        ];
        for (window, (start, current, previous), is_state) in cases {
            let expected = is_state.then_some(state(start, current, previous));
            assert_eq!(window.state(start, current, previous), expected);
            let bytes = [start, current, previous].map(u64::to_le_bytes).concat();
            assert_eq!(window.decode(&bytes), expected);
            assert_eq!(window.decode(&bytes[..23]), None);
        }
    }

    #[test]
    fn what_was_counted_moves_to_the_same_windows_of_another_limit_as_far_as_it_fits() {
        type Counts = (u64, u64);
        let cases: [(Counts, Counts, Counts, Counts); 10] = [
            ((0, 0), (0, 0), (0, 0), (0, 0)),
            ((0, 0), (3, 0), (3, 0), (0, 0)),
            ((2, 0), (3, 0), (5, 0), (0, 0)),
            ((2, 0), (4, 0), (5, 0), (1, 0)),
            ((5, 0), (4, 0), (5, 0), (4, 0)),
            ((1, 2), (2, 4), (3, 5), (0, 1)),
            ((0, 0), (0, 3), (0, 3), (0, 0)),
            ((4, 0), (0, 1), (4, 1), (0, 0)),
            ((5, 5), (1, 1), (5, 5), (1, 1)),
            ((1, 1), (0, 0), (1, 1), (0, 0)),
        ];
        for style in STYLES {
            let start = if style == Style::FixedFromFirst { 998 } else { 1_000 };
            let of = |(current, previous): Counts| match (current, previous) {
                (0, 0) => WindowState::default(),
                (_, _) => state(start, current, previous),
            };
            // Of a window that starts with its first request there is none without one.
            let has_windows = |own, theirs| style != Style::FixedFromFirst || own == (0, 0) || theirs != (0, 0);
            for (own, theirs, moved, left) in cases.into_iter().filter(|case| has_windows(case.0, case.1)) {
                let (mut own_state, mut used) = (of(own), of(theirs));
                let done = window(5, style).take_over(&mut own_state, NOW, &window(9, style), &mut used);
                assert!(done, "{style:?}: {theirs:?} to {own:?}");
                assert_eq!((own_state, used), (of(moved), of(left)), "{style:?}: {theirs:?} to {own:?}");
            }
        }
    }

    #[test]
    fn what_was_counted_does_not_move_to_other_windows() {
        let to = window(5, Style::FixedFromFirst);
        let longer = Window { period: 20, ..to };
        let coarser = Window { tick: 10, ..to };
        let in_step = window(5, Style::FixedFromEpoch);
        let sliding = window(5, Style::Sliding);
        let cases = [
            (longer, WindowState::default(), to, state(998, 3, 0)),
            (coarser, WindowState::default(), to, state(998, 3, 0)),
            (in_step, WindowState::default(), to, state(998, 3, 0)),
            (to, state(997, 1, 0), to, state(998, 3, 0)),
            (to, state(1_010, 1, 0), to, state(998, 3, 0)),
            // Ahead of the clock, with one count or the other.
            (sliding, state(1_010, 1, 0), sliding, state(1_000, 3, 3)),
            (sliding, state(1_010, 0, 1), sliding, state(1_000, 3, 3)),
        ];
        for (to, own, from, theirs) in cases {
            let (mut own_state, mut used) = (own, theirs);
            assert!(!to.take_over(&mut own_state, NOW, &from, &mut used), "{theirs:?} to {own:?}");
            assert_eq!((own_state, used), (own, theirs));
        }
        // What has expired is no obstacle.
        let (mut own, mut used) = (state(993, 5, 0), state(998, 3, 0));
        assert!(to.take_over(&mut own, NOW, &to, &mut used));
        assert_eq!((own, used), (state(998, 3, 0), WindowState::default()));
    }

    #[test]
    fn a_report_counts_up_to_the_ceiling() {
        for style in STYLES {
            let window = window(5, style).with_debt(3);
            for (cost, current, unrecorded) in [(0, 2, 0), (1, 3, 0), (6, 8, 0), (7, 8, 1), (u64::MAX, 8, u64::MAX - 6)]
            {
                let mut reported = state(1_000, 2, 0);
                assert_eq!(window.report(&mut reported, NOW, cost), unrecorded, "{style:?} {cost}");
                assert_eq!(reported, state(1_000, current, 0), "{style:?} {cost}");
            }
            // Another limit may have left more.
            let mut more = state(1_000, 9, 0);
            assert_eq!((window.report(&mut more, NOW, 2), more), (2, state(1_000, 9, 0)), "{style:?}");
            let mut unused = WindowState::default();
            assert_eq!((window.report(&mut unused, NOW, 0), unused), (0, WindowState::default()), "{style:?}");
        }
    }

    #[test]
    fn a_refund_takes_from_this_window_and_then_from_the_last() {
        let cases = [(0, (2, 3)), (1, (1, 3)), (2, (0, 3)), (3, (0, 2)), (4, (0, 1))];
        for (cost, (current, previous)) in cases {
            let mut refunded = state(1_000, 2, 3);
            window(5, Style::Sliding).refund(&mut refunded, NOW, cost);
            assert_eq!(refunded, state(1_000, current, previous), "{cost}");
        }
        for (cost, style) in [5, 6, u64::MAX].into_iter().flat_map(|cost| STYLES.map(|style| (cost, style))) {
            let mut refunded = state(1_000, 2, if style == Style::Sliding { 3 } else { 0 });
            window(5, style).refund(&mut refunded, NOW, cost);
            assert_eq!(refunded, WindowState::default(), "{style:?}");
        }
        let mut halved = state(1_000, 2, 1);
        window(5, Style::Sliding).refund(&mut halved, NOW, 1);
        assert_eq!(halved, state(1_000, 1, 1));
    }

    #[test]
    fn a_state_is_healed_that_is_more_than_its_windows_and_a_second_ahead() {
        let second = LEAST_GRACE;
        let now = Micros::new(1_700_000_003_123_456);
        for (period, style, ahead) in [
            (10, Style::FixedFromEpoch, second),
            (10, Style::FixedFromFirst, second),
            (10, Style::Sliding, second),
            (3 * second, Style::FixedFromEpoch, 3 * second),
            (3 * second, Style::FixedFromFirst, 3 * second),
            (3 * second, Style::Sliding, 6 * second),
        ] {
            for tick in [1, 10] {
                let window = Window { period: period.div_ceil(tick), tick, ..window(5, style) };
                let (now_in_ticks, ahead) = (now.get() / tick, ahead / tick);
                assert_eq!(window.heal(&state(now_in_ticks + ahead, 1, 0), now), None, "{window:?}");
                let start = match style {
                    Style::FixedFromFirst => now_in_ticks,
                    Style::FixedFromEpoch | Style::Sliding => now_in_ticks - now_in_ticks % window.period,
                };
                assert_eq!(window.heal(&state(now_in_ticks + ahead + 1, 1, 0), now), Some(state(start, 5, 0)));
            }
        }
    }

    #[test]
    fn a_state_is_forgotten_with_its_windows_and_reset_when_no_whole_unit_of_it_counts() {
        for (style, current, previous, forget_at, reset_at) in [
            (Style::FixedFromEpoch, 1, 0, 10_100, 10_100_u64),
            (Style::FixedFromFirst, 1, 0, 10_100, 10_100),
            (Style::Sliding, 1, 0, 10_200, 10_110),
            (Style::Sliding, 2, 0, 10_200, 10_160),
            (Style::Sliding, 5, 0, 10_200, 10_190),
            (Style::Sliding, 1, 5, 10_200, 10_110),
            (Style::Sliding, 0, 1, 10_100, 10_010),
            (Style::Sliding, 0, 3, 10_100, 10_070),
            (Style::Sliding, 0, 0, 0, 0),
        ] {
            let window = Window { tick: 10, ..window(5, style) };
            let state = state(1_000, current, previous);
            assert_eq!(window.forget_at(&state), Micros::new(forget_at), "{style:?} {current} {previous}");
            let reset_after = window.read(&state, Micros::new(10_003)).reset_after;
            assert_eq!(reset_after.get(), reset_at.saturating_sub(10_003), "{style:?} {current} {previous}");
        }
    }

    #[test]
    fn a_smaller_count_than_was_used_leaves_nothing() {
        for style in STYLES {
            assert_eq!(window(9, style).with_count(2).read(&state(1_000, 3, 0), NOW).remaining, 0, "{style:?}");
        }
        let counter = window(9, Style::Sliding);
        assert_eq!(counter.with_count(2).read(&state(1_000, 0, 3), Micros::new(1_000)).remaining, 0);
        for style in [Style::FixedFromEpoch, Style::FixedFromFirst] {
            let (narrow, mut used) = (window(2, style), state(1_000, 3, 0));
            assert_eq!(narrow.used(&used, NOW), 3, "{style:?}");
            // Nor has it room for what was used of yet another one.
            let (mut own, expected) = (used, (state(1_000, 3, 0), state(1_000, 3, 0)));
            assert!(narrow.take_over(&mut own, NOW, &window(9, style), &mut used));
            assert_eq!((own, used), expected, "{style:?}");
        }
        // A clock that went back finds more of the last window than was there when it charged.
        assert_eq!(window(5, Style::Sliding).read(&state(1_000, 3, 5), Micros::new(1_000)).remaining, 0);
    }
}
