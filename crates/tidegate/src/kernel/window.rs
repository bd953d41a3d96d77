//! Fixed window and sliding window counter: counts per stretch of time.
//!
//! The sliding counter weighs the previous window by how much of it the last
//! period still covers. The comparison is multiplied out, so that there is no
//! division in it and no rounding. Windows start at multiples of the period
//! since the epoch, unless a fixed window starts with its first request.

use super::{Admission, EXACT, Kernel, LEAST_GRACE, Reading};
use crate::time::Micros;

/// The kernel of the fixed window and the sliding window counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    count: u64,
    /// The period in ticks.
    period: u64,
    /// Microseconds in a tick: 1 unless the sliding counter's products would
    /// not fit.
    tick: u64,
    style: Style,
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
            // Three windows' worth at most stand in the comparison.
            while 4 * (count as u128) * (period.div_ceil(tick) as u128) >= EXACT as u128 {
                tick *= 10;
            }
        }
        Window { count, period: period.div_ceil(tick), tick, style }
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
        if start < EXACT && current <= self.count && previous <= self.count {
            Some(WindowState { start, current, previous })
        } else {
            None
        }
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

    #[inline]
    fn until(&self, tick: u64, now: Micros) -> Micros {
        Micros::new((tick * self.tick).saturating_sub(now.get()))
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
        let current = theirs.current.min(self.count - own.current);
        let previous = theirs.previous.min(self.count - own.previous);
        *used = WindowState::in_use(theirs.start, theirs.current - current, theirs.previous - previous);
        if current + previous > 0 {
            *state = WindowState::in_use(theirs.start, own.current + current, own.previous + previous);
        }
        true
    }

    /// The left side of the sliding counter's inequality, in count x period.
    #[inline]
    fn weight(&self, view: &View, cost: u64) -> u64 {
        view.previous * (self.period - view.elapsed) + (view.current + cost) * self.period
    }

    /// The first tick at which the sliding counter has room for `cost`, given
    /// that it has none in this view.
    fn first_tick_with_room(&self, view: &View, cost: u64) -> u64 {
        let next = view.start + self.period;
        if view.current + cost <= self.count {
            // In this window, once enough of the previous one has passed; or
            // at its very end, where the previous one counts no more.
            let room = (self.count - view.current - cost) * self.period;
            next - room / view.previous
        } else {
            // In the next window, where this one is the previous; at the end
            // of that at the latest.
            let room = (self.count - cost) * self.period;
            next + self.period - room / view.current
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
        let (fits, first_tick) = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => {
                (view.current + cost <= self.count, view.start + self.period)
            }
            Style::Sliding if self.weight(&view, cost) <= self.count * self.period => (true, 0),
            Style::Sliding => (false, self.first_tick_with_room(&view, cost)),
        };
        if fits { Admission::PASS } else { Admission::Wait { retry_after: self.until(first_tick, now) } }
    }

    #[inline]
    fn charge(&self, state: &mut WindowState, now: Micros, cost: u64) -> Reading {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        *state = WindowState { start, current: current + cost, previous };
        self.read(state, now)
    }

    fn refund(&self, state: &mut WindowState, now: Micros, cost: u64) {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        let from_current = cost.min(current);
        let from_previous = (cost - from_current).min(previous);
        let (current, previous) = (current - from_current, previous - from_previous);
        *state = WindowState::in_use(start, current, previous);
    }

    #[inline]
    fn read(&self, state: &WindowState, now: Micros) -> Reading {
        let view = self.view(state, self.ticks(now));
        let remaining = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst => self.count.saturating_sub(view.current),
            Style::Sliding => (self.count * self.period).saturating_sub(self.weight(&view, 0)) / self.period,
        };
        let state = WindowState { start: view.start, current: view.current, previous: view.previous };
        Reading { remaining, reset_after: self.forget_at(&state).saturating_since(now) }
    }

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
