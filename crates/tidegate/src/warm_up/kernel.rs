//! A limit that new keys climb to: [`WarmUp`] as a kernel.
//!
//! The climb is ten steps of equal length and, up to rounding down to whole
//! units, of equal height. In each step the limit is like any other of its
//! algorithm: a window and a log count the same whatever the limit is, and a
//! bucket drains as fast as the step says. A key is new if nothing was charged
//! to it for as long as the climb takes.
//!
//! Numbers here may be larger than a double can hold: no script runs this
//! kernel.

use std::borrow::Cow;

use super::WarmUp;
use crate::algorithm::Algorithm;
use crate::kernel::{Admission, Charged, Kernel, LimitKernel, Log, LogState, MIN_GRACE, Reading, Window, WindowState};
use crate::limit::Limit;
use crate::time::Micros;

/// Steps in which a limit climbs.
const STEPS: u64 = 10;

/// The kernel of a limit that new keys have to climb to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warming {
    limit: Limit,
    /// Units of the whole limit that are left to others; of each step as large a share.
    floor: u64,
    start: u64,
    /// The length of a step, in microseconds.
    step: u64,
    over: u64,
    base: Base,
}

/// What the limit counts with.
#[derive(Clone, Copy, Debug)]
enum Base {
    Bucket { queues: bool },
    Window(Window),
    Log(Log),
}

/// What is kept for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WarmingState {
    /// When it was first charged.
    born: u64,
    /// When it was last charged.
    last: u64,
    use_: Use,
}

impl WarmingState {
    /// That of a key which is new at `now`.
    fn born(now: Micros) -> WarmingState {
        WarmingState { born: now.get(), last: now.get(), use_: Use::None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    None,
    /// A level, in units x period, as of the last charge.
    Level(u128),
    Window(WindowState),
    Log(LogState),
}

/// A stretch of time in which the limit stays the same.
struct Step {
    count: u64,
    capacity: u64,
    /// Units that are left to others, rounded up.
    floor: u64,
    /// The first microsecond that is no longer part of it.
    end: u64,
}

impl Warming {
    /// The kernel; `None` if new keys get the whole limit as it is.
    pub(crate) fn new(limit: Limit, warm_up: WarmUp) -> Option<Warming> {
        let base = match limit.kernel() {
            LimitKernel::Bucket(_) => Base::Bucket { queues: limit.algorithm() == Algorithm::LeakyBucket },
            LimitKernel::Window(window) => Base::Window(window),
            LimitKernel::Log(log) => Base::Log(log),
        };
        let (start, over) = (warm_up.start(), warm_up.over().get());
        (start < limit.count()).then(|| Warming { limit, floor: 0, start, step: over.div_ceil(STEPS), over, base })
    }

    /// The same kernel, on the same states, for a class of requests that leaves so many
    /// units to others.
    pub(crate) fn with_floor(self, units: u64) -> Warming {
        Warming { floor: units.min(self.limit.capacity()), ..self }
    }

    fn period(&self) -> u128 {
        self.limit.period().as_micros()
    }

    /// The highest level of a bucket in debt, in units x period.
    fn ceiling(&self) -> u128 {
        (u128::from(self.limit.capacity()) + u128::from(self.limit.max_debt())) * self.period()
    }

    /// What applies at `time` to a key that was born then or before.
    fn step_at(&self, born: u64, time: u64) -> Step {
        let number = ((time - born) / self.step).min(STEPS);
        let count = self.start + (self.limit.count() - self.start) * number / STEPS;
        let whole = self.limit.capacity();
        let share = u128::from(whole) * u128::from(count) / u128::from(self.limit.count());
        let capacity = u64::try_from(share).unwrap_or(whole).max(1);
        let floor = (u128::from(capacity) * u128::from(self.floor)).div_ceil(u128::from(whole));
        let floor = u64::try_from(floor).unwrap_or(capacity);
        let end = if number < STEPS { born + (number + 1) * self.step } else { u64::MAX };
        Step { count, capacity, floor, end }
    }

    /// The state as of `now`: none if its time is over; and its time, which
    /// does not go back when the clock does.
    fn at<'s>(&self, state: &'s WarmingState, now: Micros) -> (Cow<'s, WarmingState>, u64) {
        if self.forget_at(state) <= now {
            return (Cow::Owned(WarmingState::born(now)), now.get());
        }
        (Cow::Borrowed(state), now.get().max(state.last))
    }

    /// The level of a bucket at `time`.
    fn level(&self, state: &WarmingState, time: u64) -> u128 {
        let Use::Level(level) = state.use_ else { return 0 };
        level.saturating_sub(self.drained(state.born, state.last, time))
    }

    /// What a bucket drains from one instant to another.
    fn drained(&self, born: u64, from: u64, time: u64) -> u128 {
        let (mut drained, mut at) = (0, from);
        while at < time {
            let step = self.step_at(born, at);
            let until = time.min(step.end);
            drained += u128::from(step.count) * u128::from(until - at);
            at = until;
        }
        drained
    }

    /// The first instant from `time` on at which a bucket is empty.
    fn when_empty(&self, state: &WarmingState, time: u64) -> u64 {
        let mut at = time;
        loop {
            let step = self.step_at(state.born, at);
            let empty = at.saturating_add(takes(self.level(state, at), step.count));
            if empty <= step.end {
                return empty;
            }
            at = step.end;
        }
    }

    /// Asks the kernel of the step that applies at `time`, as if it did for ever.
    fn admit_at(&self, state: &WarmingState, time: u64, cost: u64) -> Admission {
        let step = self.step_at(state.born, time);
        let now = Micros::new(time);
        // What costs nothing takes nothing of what is kept back.
        let cost = if cost == 0 { 0 } else { cost + step.floor };
        if cost > step.capacity {
            // Later, when the key has climbed: beside what former limits count, the cost is more than a new key's.
            return Admission::Wait { retry_after: Micros::new(u64::MAX) };
        }
        match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.with_count(step.count).admit(used, now, cost),
            (Base::Log(log), Use::Log(used)) => log.with_count(step.count).admit(used, now, cost),
            (Base::Bucket { queues }, _) => {
                let full = u128::from(step.capacity) * self.period();
                let filled = self.level(state, time) + u128::from(cost) * self.period();
                if filled > full {
                    return Admission::Wait { retry_after: Micros::new(takes(filled - full, step.count)) };
                }
                let goes = if queues { self.when_empty(state, time) } else { time };
                Admission::Pass { delay: Micros::new(goes - time) }
            }
            // No cost is above what a new key can be charged.
            (Base::Window(_) | Base::Log(_), _) => Admission::PASS,
        }
    }

    fn remaining(&self, state: &WarmingState, time: u64) -> u64 {
        let step = self.step_at(state.born, time);
        let now = Micros::new(time);
        let left = match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.with_count(step.count).read(used, now).remaining,
            (Base::Log(log), Use::Log(used)) => log.with_count(step.count).read(used, now).remaining,
            (Base::Bucket { .. }, Use::Level(_)) => {
                let room = (u128::from(step.capacity) * self.period()).saturating_sub(self.level(state, time));
                u64::try_from(room / self.period()).unwrap_or(step.capacity)
            }
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => step.capacity,
        };
        left.saturating_sub(step.floor)
    }

    fn take_back(&self, state: &mut WarmingState, now: Micros, taken: Taken) -> u64 {
        if self.forget_at(state) <= now {
            return 0;
        }
        let time = now.get().max(state.last);
        let at = Micros::new(time);
        let (is_unused, units) = match (self.base, &mut state.use_) {
            (Base::Window(window), Use::Window(used)) => {
                let units = match taken {
                    Taken::Latest(cost) => {
                        window.refund(used, at, cost);
                        cost
                    }
                    Taken::Of(charged, kept) => window.undo(used, at, charged, kept),
                };
                (*used == WindowState::default(), units)
            }
            (Base::Log(log), Use::Log(used)) => {
                let units = match taken {
                    Taken::Latest(cost) => {
                        log.refund(used, at, cost);
                        cost
                    }
                    Taken::Of(charged, kept) => log.undo(used, at, charged, kept),
                };
                (used.is_empty(), units)
            }
            (Base::Bucket { .. }, Use::Level(level)) => {
                let (at_last, units) = (*level, |units: u64| u128::from(units) * self.period());
                let wanted = match taken {
                    Taken::Latest(cost) => units(cost),
                    // As a bucket that does not warm up has it.
                    Taken::Of(Charged { at, .. }, _) if at.get() < state.born => 0,
                    Taken::Of(Charged { at, cost }, kept) => {
                        let gone = self.drained(state.born, at.get(), time).saturating_sub(units(kept));
                        units(cost - kept).saturating_sub(gone)
                    }
                };
                let level = self.level(state, time);
                let taken = level.min(wanted);
                // Taken from the level as of the last charge, it is missing from then on.
                state.use_ = Use::Level(at_last - taken);
                (taken == level, u64::try_from(taken.div_ceil(self.period())).unwrap_or(u64::MAX))
            }
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => return 0,
        };
        // The only charge there was, taken back: as if it had never been.
        if is_unused && state.born == state.last {
            *state = WarmingState::default();
        }
        units
    }
}

/// What is taken back.
#[derive(Clone, Copy)]
enum Taken {
    /// So much of what was charged last.
    Latest(u64),
    /// What a charge took beyond so much.
    Of(Charged, u64),
}

impl Kernel for Warming {
    type State = WarmingState;

    /// Of a new key: more could not pass at once, and would have to wait for
    /// a climb that never begins.
    fn capacity(&self) -> u64 {
        let Step { capacity, floor, .. } = self.step_at(0, 0);
        capacity - floor
    }

    fn admit(&self, state: &WarmingState, now: Micros, cost: u64) -> Admission {
        let (state, time) = self.at(state, now);
        let mut at = time;
        loop {
            match self.admit_at(&state, at, cost) {
                Admission::Pass { delay } if at == time => {
                    let behind = Micros::new(time - now.get());
                    let delay = if delay == Micros::ZERO { delay } else { delay.saturating_add(behind) };
                    return Admission::Pass { delay };
                }
                Admission::Pass { .. } => return Admission::Wait { retry_after: Micros::new(at - now.get()) },
                Admission::Wait { retry_after } => {
                    let ready = at.saturating_add(retry_after.get());
                    let end = self.step_at(state.born, at).end;
                    if ready <= end {
                        return Admission::Wait { retry_after: Micros::new(ready - now.get()) };
                    }
                    at = end;
                }
            }
        }
    }

    /// What is charged was admitted, so it fits below the bound of debt.
    fn charge(&self, state: &mut WarmingState, now: Micros, cost: u64) -> Reading {
        self.report(state, now, cost);
        self.read(state, now)
    }

    fn report(&self, state: &mut WarmingState, now: Micros, cost: u64) -> u64 {
        if self.forget_at(state) <= now {
            *state = WarmingState::born(now);
        }
        let time = now.get().max(state.last);
        let at = Micros::new(time);
        let (use_, unrecorded) = match (self.base, std::mem::take(&mut state.use_)) {
            (Base::Bucket { .. }, used) => {
                state.use_ = used;
                let level = self.level(state, time);
                let room = self.ceiling().saturating_sub(level);
                let fits = u64::try_from(room / self.period()).unwrap_or(u64::MAX);
                (Use::Level(level + room.min(u128::from(cost) * self.period())), cost.saturating_sub(fits))
            }
            (Base::Window(window), used) => {
                let mut used = if let Use::Window(used) = used { used } else { WindowState::default() };
                let unrecorded = window.report(&mut used, at, cost);
                (Use::Window(used), unrecorded)
            }
            (Base::Log(log), used) => {
                let mut used = if let Use::Log(used) = used { used } else { LogState::default() };
                let unrecorded = log.report(&mut used, at, cost);
                (Use::Log(used), unrecorded)
            }
        };
        (state.use_, state.last) = (use_, time);
        unrecorded
    }

    fn refund(&self, state: &mut WarmingState, now: Micros, cost: u64) {
        self.take_back(state, now, Taken::Latest(cost));
    }

    fn undo(&self, state: &mut WarmingState, now: Micros, charged: Charged, kept: u64) -> u64 {
        self.take_back(state, now, Taken::Of(charged, kept))
    }

    /// The climb goes on, though there may be no other charge.
    fn renew(&self, state: &mut WarmingState, now: Micros, charged: Charged) {
        // A state that is emptied forgets its time, which does not go back.
        let (born, now) = (state.born, now.max(Micros::new(state.last)));
        let units = self.undo(state, now, charged, 0);
        self.charge(state, now, units);
        state.born = born;
    }

    fn is_there(&self, state: &WarmingState, now: Micros, charged: Charged) -> bool {
        let (state, time) = self.at(state, now);
        match (self.base, &state.use_) {
            (Base::Log(log), Use::Log(used)) => log.is_there(used, Micros::new(time), charged),
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => false,
        }
    }

    fn ahead(&self, state: &WarmingState, now: Micros) -> Micros {
        Micros::new(self.at(state, now).1).saturating_since(now)
    }

    fn read(&self, state: &WarmingState, now: Micros) -> Reading {
        let reset_after = self.forget_at(state).saturating_since(now);
        let (state, time) = self.at(state, now);
        Reading { remaining: self.remaining(&state, time), reset_after }
    }

    fn used(&self, state: &WarmingState, now: Micros) -> u64 {
        let (state, time) = self.at(state, now);
        match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.used(used, Micros::new(time)),
            (Base::Log(log), Use::Log(used)) => Kernel::used(&log, used, Micros::new(time)),
            (Base::Bucket { .. }, Use::Level(_)) => {
                u64::try_from(self.level(&state, time).div_ceil(self.period())).unwrap_or(u64::MAX)
            }
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => 0,
        }
    }

    fn forget_at(&self, state: &WarmingState) -> Micros {
        let used_until = match (self.base, &state.use_) {
            (_, Use::None) => return Micros::ZERO,
            (Base::Window(window), Use::Window(used)) => window.forget_at(used),
            (Base::Log(log), Use::Log(used)) => log.forget_at(used),
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => {
                Micros::new(self.when_empty(state, state.last))
            }
        };
        used_until.max(Micros::new(state.last.saturating_add(self.over)))
    }

    fn heal(&self, state: &WarmingState, now: Micros) -> Option<WarmingState> {
        if state.last <= now.get() + self.over.max(MIN_GRACE) {
            return None;
        }
        let mut full = WarmingState::default();
        // All of what a warm key can use: a new key's share would leave the
        // rest to be had again after the climb.
        self.charge(&mut full, now, self.limit.capacity());
        Some(full)
    }

    fn known_since(&self, state: &WarmingState, now: Micros) -> Option<Micros> {
        (self.forget_at(state) > now).then(|| Micros::new(state.born))
    }

    fn known(&self, since: Micros, now: Micros) -> WarmingState {
        let use_ = match self.base {
            Base::Bucket { .. } => Use::Level(0),
            Base::Window(_) => Use::Window(WindowState::default()),
            Base::Log(_) => Use::Log(LogState::default()),
        };
        WarmingState { born: since.min(now).get(), last: now.get(), use_ }
    }

    fn encode(&self, state: &WarmingState, bytes: &mut Vec<u8>) {
        bytes.extend(state.born.to_le_bytes());
        bytes.extend(state.last.to_le_bytes());
        match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.encode(used, bytes),
            (Base::Log(log), Use::Log(used)) => log.encode(used, bytes),
            (Base::Bucket { .. }, Use::Level(level)) => bytes.extend(level.to_le_bytes()),
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => {}
        }
    }

    fn decode(&self, bytes: &[u8]) -> Option<WarmingState> {
        let (born, rest) = bytes.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let (born, last) = (u64::from_le_bytes(*born), u64::from_le_bytes(*last));
        let use_ = match self.base {
            // A log may be empty of a key that is known.
            Base::Log(log) if (born, last) != (0, 0) => Use::Log(log.decode(rest)?),
            _ if rest.is_empty() => Use::None,
            Base::Bucket { .. } => {
                let level = u128::from_le_bytes(rest.try_into().ok()?);
                Use::Level(Some(level).filter(|level| *level <= self.ceiling())?)
            }
            Base::Window(window) => Use::Window(window.decode(rest)?),
            Base::Log(log) => Use::Log(log.decode(rest)?),
        };
        (born <= last && last <= Micros::LATEST.get()).then_some(WarmingState { born, last, use_ })
    }

    fn copy(&self, state: &WarmingState, now: Micros) -> WarmingState {
        let use_ = match (self.base, &state.use_) {
            (Base::Log(log), Use::Log(used)) => Use::Log(log.copy(used, now)),
            (_, used) => used.clone(),
        };
        WarmingState { use_, ..*state }
    }
}

/// In how many microseconds a level has drained, of which each takes so much.
fn takes(level: u128, drain: u64) -> u64 {
    u64::try_from(level.div_ceil(u128::from(drain))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
