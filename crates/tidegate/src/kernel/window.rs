//! Fixed window and sliding window counter: counts per stretch of time.
//!
//! The sliding counter counts the previous window by how much of it the last
//! period still covers, rounded down to whole units: rounded up, a window after
//! a full one would never get its count. The comparison is multiplied out, so
//! that there is no division in it. Windows start at multiples of the period
//! since the epoch, unless a fixed window starts with its first request, or is a
//! period of the calendar. Those differ in length: a window has its length with it.

mod floor;

use super::{Admission, Charged, EXACT, Kernel, MIN_GRACE, Reading};
use crate::calendar::Calendar;
use crate::time::Micros;

/// The kernel of the fixed window and the sliding window counter.
///
/// ```
/// use std::time::Duration;
/// use tidegate::kernel::{Kernel, LimitKernel};
/// use tidegate::{Limit, Micros};
///
/// let limit = Limit::sliding_counter(3, Duration::from_secs(1));
/// let LimitKernel::Window(window) = limit.kernel() else { panic!("a window") };
/// assert_eq!(window.charge(&mut Default::default(), Micros::new(10), 2).remaining, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    count: u64,
    /// Up to how much a charge is admitted: the count, less what is kept back.
    admits: u64,
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
    /// A fixed window that is a period of the calendar.
    Calendar(Calendar),
}

/// In microseconds.
const DAY: u64 = 86_400_000_000;

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
#[derive(Clone, Copy)]
struct View {
    start: u64,
    end: u64,
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
        Window { count, admits: count, ceiling: count, period: period.div_ceil(tick), tick, style, any_count: false }
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
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => EXACT - 1,
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
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => {
                current < EXACT && previous <= self.count
            }
            // All that stands in the comparison with it.
            Style::Sliding => {
                (current as u128 + previous as u128 + self.count as u128) * (self.period as u128) < EXACT as u128
            }
        };
        if start < EXACT / self.tick && is_counted { Some(WindowState { start, current, previous }) } else { None }
    }

    /// The same windows with another limit, of at most this one's.
    pub(crate) const fn with_count(self, count: u64) -> Window {
        Window { count, admits: count, ..self }
    }

    /// The period in microseconds, as it is kept.
    pub(crate) const fn period(&self) -> u64 {
        self.period * self.tick
    }

    /// For how long after a charge it may matter, in microseconds.
    pub(crate) const fn horizon(&self) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Sliding => 2 * self.period(),
            // Where clocks are put back, a period is longer than its unit usually is.
            Style::Calendar(_) => self.period() + 2 * DAY,
        }
    }

    /// The start and the end of the window that holds an instant.
    #[must_use]
    pub fn edges(&self, at: Micros) -> (Micros, Micros) {
        let (start, end) = self.window_at(self.ticks(at));
        (Micros::new(start * self.tick), Micros::new(end * self.tick))
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

    /// The start and the end of the window that holds a tick, if none was charged in yet.
    #[inline]
    fn window_at(&self, tick: u64) -> (u64, u64) {
        let start = match self.style {
            Style::FixedFromEpoch | Style::Sliding => tick - tick % self.period,
            Style::FixedFromFirst => tick,
            Style::Calendar(calendar) => return calendar.edges(tick),
        };
        (start, start + self.period)
    }

    /// The end of a window that was charged in, in ticks, by its start.
    #[must_use]
    #[inline]
    pub fn end_of(&self, start: u64) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Sliding => start + self.period,
            Style::Calendar(_) => self.window_at(start).1,
        }
    }

    /// The start of the window that a tick is the last of.
    #[inline]
    pub(crate) fn start_of(&self, last: u64) -> u64 {
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Sliding => (last + 1).saturating_sub(self.period),
            Style::Calendar(_) => self.window_at(last).0,
        }
    }

    #[inline(always)]
    fn view(&self, state: &WindowState, tick: u64) -> View {
        let WindowState { start, current, previous } = *state;
        let unused = current == 0 && previous == 0;
        // A clock that is behind the window's start finds it just begun.
        let age = tick.saturating_sub(start);
        if let Style::Calendar(calendar) = self.style {
            return calendar_view(calendar, state, tick);
        }
        if !unused && age < self.period {
            return View { start, end: start + self.period, current, previous, elapsed: age };
        }
        let (start, end) = self.window_at(tick);
        let previous = match self.style {
            Style::Sliding if age < 2 * self.period => current,
            Style::Sliding | Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => 0,
        };
        View { start, end, current: 0, previous, elapsed: tick - start }
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

    /// The first tick with room for `cost` in a sliding counter of `admits`; there is none in this view.
    fn first_tick_with_room(&self, view: &View, cost: u64, admits: u64) -> u64 {
        if view.current + cost <= admits {
            self.falls_below(view.start, view.previous, admits - view.current - cost + 1)
        } else {
            // In the next window, where this one is the previous.
            self.falls_below(view.start + self.period, view.current, admits - cost + 1)
        }
    }

    /// The first tick at which no whole unit of these windows counts.
    #[inline]
    fn reset_at(&self, view: &View) -> u64 {
        match (self.style, view.current, view.previous) {
            (_, 0, 0) => 0,
            (Style::Sliding, 1.., _) => self.falls_below(view.start + self.period, view.current, 1),
            (Style::Sliding, 0, _) => self.falls_below(view.start, view.previous, 1),
            (Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_), ..) => view.end,
        }
    }

    #[inline]
    fn admission(&self, view: &View, now: Micros, cost: u64) -> Admission {
        // What costs nothing takes nothing of what is kept back.
        let admits = if cost == 0 { self.count } else { self.admits };
        let fits = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => view.current + cost <= admits,
            Style::Sliding => self.weight(view, cost) < (admits + 1) * self.period,
        };
        if fits {
            return Admission::PASS;
        }
        let first_tick = match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => view.end,
            Style::Sliding => self.first_tick_with_room(view, cost, admits),
        };
        Admission::Wait { retry_after: self.until(first_tick, now) }
    }

    /// Charges what the view was seen to have room for, and reads it then.
    #[inline]
    fn charged(&self, state: &mut WindowState, view: View, now: Micros, cost: u64) -> Reading {
        let view = View { current: view.current + cost, ..view };
        *state = WindowState { start: view.start, current: view.current, previous: view.previous };
        self.reading(&view, now)
    }

    #[inline]
    fn reading(&self, view: &View, now: Micros) -> Reading {
        let remaining = self.remaining(view, self.admits);
        Reading { remaining, reset_after: Micros::new(self.reset_at(view) * self.tick).saturating_since(now) }
    }

    /// The full window, if the one that was charged lies too far ahead of a tick.
    #[cold]
    fn heal_ahead(&self, state: &WindowState, tick: u64) -> Option<WindowState> {
        let (start, _) = self.window_at(tick);
        (state.start > tick + self.grace(tick)).then_some(WindowState { start, current: self.count, previous: 0 })
    }

    fn grace(&self, tick: u64) -> u64 {
        let horizon = match self.style {
            Style::Sliding => 2 * self.period,
            Style::FixedFromEpoch | Style::FixedFromFirst => self.period,
            Style::Calendar(_) => {
                let (start, end) = self.window_at(tick);
                end - start
            }
        };
        horizon.max(MIN_GRACE.div_ceil(self.tick))
    }
}

/// A period that the clock is behind of has just begun, as any window. Out of line, so that
/// views of other windows stay small.
#[inline(never)]
fn calendar_view(calendar: Calendar, state: &WindowState, tick: u64) -> View {
    let WindowState { start, current, .. } = *state;
    let (first, end) = calendar.edges(tick);
    if current == 0 || start < first {
        return View { start: first, end, current: 0, previous: 0, elapsed: 0 };
    }
    let end = if start < end { end } else { calendar.edges(start).1 };
    View { start, end, current, previous: 0, elapsed: 0 }
}

impl Kernel for Window {
    type State = WindowState;

    #[inline]
    fn capacity(&self) -> u64 {
        self.admits
    }

    #[inline]
    fn admit(&self, state: &WindowState, now: Micros, cost: u64) -> Admission {
        self.admission(&self.view(state, self.ticks(now)), now, cost)
    }

    #[inline]
    fn charge(&self, state: &mut WindowState, now: Micros, cost: u64) -> Reading {
        let view = self.view(state, self.ticks(now));
        self.charged(state, view, now, cost)
    }

    #[inline(always)]
    fn take(&self, state: &mut WindowState, now: Micros, cost: u64) -> (Admission, Reading) {
        let view = self.view(state, self.ticks(now));
        match self.admission(&view, now, cost) {
            refused @ Admission::Wait { .. } => (refused, self.reading(&view, now)),
            passed @ Admission::Pass { .. } => (passed, self.charged(state, view, now, cost)),
        }
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
    fn undo(&self, state: &mut WindowState, now: Micros, charged: Charged, kept: u64) -> u64 {
        let View { start, current, previous, .. } = self.view(state, self.ticks(now));
        let (at, cost) = (self.ticks(charged.at), charged.cost - kept);
        let (from_current, from_previous) = match at {
            at if at >= start => (cost.min(current), 0),
            at if at + self.period >= start => (0, cost.min(previous)),
            _ => (0, 0),
        };
        *state = WindowState::in_use(start, current - from_current, previous - from_previous);
        from_current + from_previous
    }

    #[inline]
    fn ahead(&self, state: &WindowState, now: Micros) -> Micros {
        Micros::new(state.start * self.tick).saturating_since(now)
    }

    #[inline]
    fn read(&self, state: &WindowState, now: Micros) -> Reading {
        self.reading(&self.view(state, self.ticks(now)), now)
    }

    fn used(&self, state: &WindowState, now: Micros) -> u64 {
        let view = self.view(state, self.ticks(now));
        match self.style {
            Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_) => view.current,
            Style::Sliding => self.weight(&view, 0) / self.period,
        }
    }

    /// When both windows have passed. No unit of them counts from a little
    /// sooner on, but a clock that goes back could tell the difference.
    #[inline]
    fn forget_at(&self, state: &WindowState) -> Micros {
        let end = self.end_of(state.start);
        let forgotten = match (self.style, state.current, state.previous) {
            (_, 0, 0) => return Micros::ZERO,
            (Style::Sliding, 1.., _) => end + self.period,
            (Style::Sliding, 0, _) | (Style::FixedFromEpoch | Style::FixedFromFirst | Style::Calendar(_), ..) => end,
        };
        Micros::new(forgotten * self.tick)
    }

    #[inline(always)]
    fn heal(&self, state: &WindowState, now: Micros) -> Option<WindowState> {
        let tick = self.ticks(now);
        if state.start <= tick { None } else { self.heal_ahead(state, tick) }
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
mod tests;
