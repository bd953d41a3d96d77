//! Warm-up: a new key's limit climbs from less to the whole.
//!
//! The climb is ten steps of equal length and, up to rounding down to whole
//! units, of equal height. In each step the limit is like any other of its
//! algorithm: a window and a log count the same whatever the limit is, and a
//! bucket drains as fast as the step says. A key is new if nothing was charged
//! to it for as long as the climb takes.
//!
//! Numbers here may be larger than a double can hold: no script runs this
//! kernel.

use std::fmt;
use std::str::FromStr;

use super::{Admission, Kernel, LEAST_GRACE, Log, LogState, Reading, Window, WindowState};
use crate::limit::{AlgorithmKind, ConfigError, Limit, LimitKernel};
use crate::time::Micros;

/// How a new key's limit climbs: from `start` units per period, evenly, to
/// the whole limit after some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarmUp {
    start: u64,
    over: Micros,
}

/// Steps in which a limit climbs.
const STEPS: u64 = 10;

impl WarmUp {
    /// A climb from `start` over this time, which is also how long a key is
    /// remembered that nobody uses.
    ///
    /// # Errors
    /// If `start` or the time is zero, or above the bounds of a [`Limit`].
    pub fn new(start: u64, over: std::time::Duration) -> Result<WarmUp, ConfigError> {
        // What is no limit is no warm-up, for the same reasons.
        Limit::try_token_bucket(start, over)?;
        Ok(WarmUp { start, over: Micros::from_duration(over) })
    }

    /// Units per period of a new key.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How long it takes.
    #[must_use]
    pub fn over(&self) -> Micros {
        self.over
    }
}

/// In words: `10 over 5min`.
impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The words of a limit say a time as people do.
        match Limit::try_fixed_window(1, self.over.to_duration()).map(|limit| limit.to_string()) {
            Ok(words) => {
                let time = words.rsplit('/').next().unwrap_or_default();
                let one = if time.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
                write!(f, "{} over {one}{time}", self.start)
            }
            Err(_) => Err(fmt::Error),
        }
    }
}

/// From words such as `10 over 5min`.
impl FromStr for WarmUp {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<WarmUp, ConfigError> {
        let unreadable = || ConfigError::UnreadableWarmUp { text: text.to_owned() };
        let (start, over) = text.split_once(" over ").ok_or_else(unreadable)?;
        let is_time = over.trim_start().starts_with(|first: char| first.is_ascii_digit());
        let words = if is_time { format!("{}/{}", start.trim(), over.trim()) } else { return Err(unreadable()) };
        let limit: Limit = words.parse().map_err(|error| match error {
            ConfigError::Unreadable { .. } => unreadable(),
            error => error,
        })?;
        WarmUp::new(limit.count(), limit.period())
    }
}

/// The kernel of a limit that new keys have to climb to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warming {
    limit: Limit,
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
    /// The first microsecond that is no longer part of it.
    end: u64,
}

impl Warming {
    /// The kernel; `None` if new keys get the whole limit as it is.
    pub(crate) fn new(limit: Limit, warm_up: WarmUp) -> Option<Warming> {
        let base = match limit.kernel() {
            LimitKernel::Bucket(_) => Base::Bucket { queues: limit.algorithm() == AlgorithmKind::LeakyBucket },
            LimitKernel::Window(window) => Base::Window(window),
            LimitKernel::Log(log) => Base::Log(log),
        };
        let (start, over) = (warm_up.start, warm_up.over.get());
        (start < limit.count()).then(|| Warming { limit, start, step: over.div_ceil(STEPS), over, base })
    }

    fn period(&self) -> u128 {
        self.limit.period().as_micros()
    }

    /// What applies at `time` to a key that was born then.
    fn step_at(&self, born: u64, time: u64) -> Step {
        let number = (time.saturating_sub(born) / self.step).min(STEPS);
        let share = |whole: u64, count: u64| {
            let part = u128::from(whole) * u128::from(count) / u128::from(self.limit.count());
            u64::try_from(part).unwrap_or(whole).max(1)
        };
        let climbed = u128::from(self.limit.count() - self.start) * u128::from(number) / u128::from(STEPS);
        let count = self.start + u64::try_from(climbed).unwrap_or(0);
        let end = if number < STEPS { born + (number + 1) * self.step } else { u64::MAX };
        Step { count, capacity: share(self.limit.capacity(), count), end }
    }

    /// The state as of `now`: none if its time is over; and its time, which
    /// does not go back when the clock does.
    fn at<'s>(&self, state: &'s WarmingState, now: Micros) -> (std::borrow::Cow<'s, WarmingState>, u64) {
        if self.forget_at(state) <= now {
            let born = WarmingState { born: now.get(), last: now.get(), use_: Use::None };
            return (std::borrow::Cow::Owned(born), now.get());
        }
        (std::borrow::Cow::Borrowed(state), now.get().max(state.last))
    }

    /// The level of a bucket at `time`.
    fn level(&self, state: &WarmingState, time: u64) -> u128 {
        let Use::Level(mut level) = state.use_ else { return 0 };
        let mut at = state.last;
        while at < time && level > 0 {
            let step = self.step_at(state.born, at);
            let until = time.min(step.end);
            level = level.saturating_sub(u128::from(step.count) * u128::from(until - at));
            at = until;
        }
        level
    }

    /// The first instant from `time` on at which a bucket leaves room for
    /// `added`, or is empty if that is nothing.
    fn when_drained(&self, state: &WarmingState, time: u64, room: impl Fn(&Step) -> Option<u128>) -> u64 {
        let mut at = time;
        loop {
            let (level, step) = (self.level(state, at), self.step_at(state.born, at));
            if let Some(room) = room(&step) {
                let takes = level.saturating_sub(room).div_ceil(u128::from(step.count));
                let ready = at.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
                if ready < step.end || step.end == u64::MAX {
                    return ready;
                }
            }
            if step.end == u64::MAX {
                return u64::MAX;
            }
            at = step.end;
        }
    }

    /// Asks the kernel of the step that applies at `time`.
    fn admit_at(&self, state: &WarmingState, time: u64, cost: u64) -> Admission {
        let step = self.step_at(state.born, time);
        let now = Micros::new(time);
        match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.with_count(step.count).admit(used, now, cost),
            (Base::Log(log), Use::Log(used)) => log.with_count(step.count).admit(used, now, cost),
            (Base::Bucket { queues }, used) => {
                let period = self.period();
                let full = u128::from(step.capacity) * period;
                let level = if matches!(used, Use::Level(_)) { self.level(state, time) } else { 0 };
                if level + u128::from(cost) * period <= full {
                    let goes = if queues { self.when_drained(state, time, |_| Some(0)) } else { time };
                    return Admission::Pass { delay: Micros::new(goes - time) };
                }
                let room =
                    |step: &Step| u128::from(step.capacity).checked_sub(u128::from(cost)).map(|units| units * period);
                let ready = self.when_drained(state, time, room);
                Admission::Wait { retry_after: Micros::new(ready - time) }
            }
            (Base::Window(_) | Base::Log(_), _) if cost <= step.count => Admission::PASS,
            (Base::Window(_) | Base::Log(_), _) => Admission::Wait { retry_after: Micros::MAX },
        }
    }

    fn remaining(&self, state: &WarmingState, time: u64) -> u64 {
        let step = self.step_at(state.born, time);
        let now = Micros::new(time);
        match (self.base, &state.use_) {
            (Base::Window(window), Use::Window(used)) => window.with_count(step.count).read(used, now).remaining,
            (Base::Log(log), Use::Log(used)) => log.with_count(step.count).read(used, now).remaining,
            (Base::Bucket { .. }, Use::Level(_)) => {
                let room = (u128::from(step.capacity) * self.period()).saturating_sub(self.level(state, time));
                u64::try_from(room / self.period()).unwrap_or(step.capacity)
            }
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => step.capacity,
        }
    }
}

impl Kernel for Warming {
    type State = WarmingState;

    /// Of a new key: more could not pass at once, and would have to wait for
    /// a climb that never begins.
    fn capacity(&self) -> u64 {
        self.step_at(0, 0).capacity
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
                    if ready < end || end == u64::MAX {
                        return Admission::Wait { retry_after: Micros::new(ready - now.get()) };
                    }
                    at = end;
                }
            }
        }
    }

    fn charge(&self, state: &mut WarmingState, now: Micros, cost: u64) -> Reading {
        let (current, time) = self.at(state, now);
        let mut next = current.into_owned();
        let count = self.step_at(next.born, time).count;
        let at = Micros::new(time);
        next.use_ = match (self.base, std::mem::take(&mut next.use_)) {
            (Base::Bucket { .. }, used) => {
                next.use_ = used;
                Use::Level(self.level(&next, time) + u128::from(cost) * self.period())
            }
            (Base::Window(window), used) => {
                let mut used = if let Use::Window(used) = used { used } else { WindowState::default() };
                window.with_count(count).charge(&mut used, at, cost);
                Use::Window(used)
            }
            (Base::Log(log), used) => {
                let mut used = if let Use::Log(used) = used { used } else { LogState::default() };
                log.with_count(count).charge(&mut used, at, cost);
                Use::Log(used)
            }
        };
        next.last = time;
        *state = next;
        self.read(state, now)
    }

    fn refund(&self, state: &mut WarmingState, now: Micros, cost: u64) {
        let (current, time) = self.at(state, now);
        let mut next = current.into_owned();
        let at = Micros::new(time);
        let is_unused = match (self.base, &mut next.use_) {
            (Base::Window(window), Use::Window(used)) => {
                window.refund(used, at, cost);
                *used == WindowState::default()
            }
            (Base::Log(log), Use::Log(used)) => {
                log.refund(used, at, cost);
                *used == LogState::default()
            }
            (Base::Bucket { .. }, Use::Level(_)) => {
                let level = self.level(&next, time).saturating_sub(u128::from(cost) * self.period());
                // As of now, which was not a charge: it is remembered a little longer.
                (next.use_, next.last) = (Use::Level(level), time);
                level == 0
            }
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => return,
        };
        // The only charge there was, taken back: as if it had never been.
        *state = if is_unused && next.born == next.last { WarmingState::default() } else { next };
    }

    fn read(&self, state: &WarmingState, now: Micros) -> Reading {
        let reset_after = self.forget_at(state).saturating_since(now);
        let (state, time) = self.at(state, now);
        Reading { remaining: self.remaining(&state, time), reset_after }
    }

    fn used(&self, state: &WarmingState, now: Micros) -> u64 {
        let (state, time) = self.at(state, now);
        self.step_at(state.born, time).capacity - self.remaining(&state, time)
    }

    fn forget_at(&self, state: &WarmingState) -> Micros {
        let used_until = match (self.base, &state.use_) {
            (_, Use::None) => return Micros::ZERO,
            (Base::Window(window), Use::Window(used)) => window.forget_at(used),
            (Base::Log(log), Use::Log(used)) => log.forget_at(used),
            (Base::Bucket { .. } | Base::Window(_) | Base::Log(_), _) => {
                Micros::new(self.when_drained(state, state.last, |_| Some(0)))
            }
        };
        used_until.max(Micros::new(state.last.saturating_add(self.over)))
    }

    fn heal(&self, state: &WarmingState, now: Micros) -> Option<WarmingState> {
        if state.last <= now.get() + self.over.max(LEAST_GRACE) {
            return None;
        }
        let mut full = WarmingState::default();
        self.charge(&mut full, now, self.capacity());
        Some(full)
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
            _ if rest.is_empty() => Use::None,
            Base::Bucket { .. } => {
                let level = u128::from_le_bytes(rest.try_into().ok()?);
                Use::Level(Some(level).filter(|level| *level <= u128::from(self.limit.capacity()) * self.period())?)
            }
            Base::Window(window) => Use::Window(window.decode(rest)?),
            Base::Log(log) => Use::Log(log.decode(rest)?),
        };
        (born <= last && last <= Micros::LATEST.get()).then_some(WarmingState { born, last, use_ })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: u64 = 1_700_000_000_000_000;

    fn warming(words: &str) -> Warming {
        let warm_up = WarmUp::new(2, Duration::from_secs(100)).expect("a warm-up");
        Warming::new(words.parse().expect("a limit"), warm_up).expect("something to climb")
    }

    fn take(kernel: &Warming, state: &mut WarmingState, now: u64, cost: u64) -> bool {
        super::super::decide(kernel, state, Micros::new(now), super::super::Verb::Charge, cost).0.allowed
    }

    #[test]
    fn words_are_read_and_printed() {
        for words in ["10 over 5min", "1 over 90s", "1000 over 1day"] {
            let warm_up: WarmUp = words.parse().expect("a warm-up");
            assert_eq!(warm_up.to_string().parse(), Ok(warm_up), "{words}");
        }
        assert_eq!(WarmUp::new(10, Duration::from_secs(300)).map(|w| w.to_string()).as_deref(), Ok("10 over 5min"));
        for words in [
            "",
            "10",
            "10 over",
            "over 5min",
            "10 over min",
            "0 over 5min",
            "10 over 0s",
            "10 over 5 parsecs",
            "1/s 2 over 5s",
        ] {
            assert!(words.parse::<WarmUp>().is_err(), "{words}");
        }
    }

    #[test]
    fn the_limit_climbs_in_ten_even_steps() {
        let kernel = warming("fixed 12/s");
        let counts: Vec<u64> = (0..12).map(|step| kernel.step_at(START, START + step * 10_000_000).count).collect();
        assert_eq!(counts, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12]);
    }

    // Arithmetic, and much of it: nothing that Miri would see.
    #[cfg_attr(miri, ignore)]
    #[test]
    fn a_new_key_gets_less_and_a_warm_one_all() {
        for words in ["12/s", "leaky 12/s", "fixed 12/s", "sliding 12/s", "sliding-log 12/s"] {
            let (kernel, mut state) = (warming(words), WarmingState::default());
            let mut admitted_in = Vec::new();
            for second in 0..120_u64 {
                // As many as it lets pass, at twenty instants of each second.
                let instants = (0..20).map(|part| START + second * 1_000_000 + part * 50_000);
                let taken = instants.map(|now| (0..20).filter(|_| take(&kernel, &mut state, now, 1)).count());
                admitted_in.push(taken.sum::<usize>());
            }
            assert!((2..=4).contains(&admitted_in[0]), "{words}: {admitted_in:?}");
            let (climb, after): (usize, usize) = (admitted_in[..100].iter().sum(), admitted_in[100..].iter().sum());
            assert!((540..=660).contains(&climb), "{words}: {climb} in the climb, of about 650");
            assert!((200..=245).contains(&after), "{words}: {after} after the climb, of about 240");
        }
    }

    // Arithmetic, and much of it: nothing that Miri would see.
    #[cfg_attr(miri, ignore)]
    #[test]
    fn whoever_returns_when_told_is_admitted_and_not_a_microsecond_sooner() {
        for words in [
            "12/s",
            "leaky 12/s queue 5",
            "fixed 12/s",
            "fixed 12/7s from-first",
            "sliding 12/3s",
            "sliding-log 12/9s",
            "1000/h burst 30",
        ] {
            let (kernel, mut state) = (warming(words), WarmingState::default());
            let mut now = START;
            let mut waits = 0;
            for round in 0..4_000_u64 {
                let cost = 1 + round % kernel.capacity();
                match kernel.admit(&state, Micros::new(now), cost) {
                    Admission::Pass { .. } => {
                        kernel.charge(&mut state, Micros::new(now), cost);
                    }
                    Admission::Wait { retry_after } => {
                        waits += 1;
                        assert!(retry_after > Micros::ZERO);
                        now += retry_after.get() - 1;
                        let early = kernel.admit(&state, Micros::new(now), cost);
                        assert_eq!(early, Admission::Wait { retry_after: Micros::new(1) }, "{words}, round {round}");
                        now += 1;
                        assert!(matches!(kernel.admit(&state, Micros::new(now), cost), Admission::Pass { .. }));
                    }
                }
            }
            assert!(waits > 50, "{words}: {waits}");
        }
    }

    #[test]
    fn a_key_that_nobody_used_for_so_long_is_new_again() {
        for words in ["12/s", "fixed 12/s", "sliding-log 12/s"] {
            let (kernel, mut state) = (warming(words), WarmingState::default());
            assert!(take(&kernel, &mut state, START, 1));
            assert!(take(&kernel, &mut state, START + 99_000_000, 1));
            assert_eq!(kernel.read(&state, Micros::new(START + 150_000_000)).remaining, 12, "{words}");
            let forget_at = kernel.forget_at(&state);
            assert_eq!(forget_at, Micros::new(START + 199_000_000), "{words}");
            assert_eq!(kernel.read(&state, forget_at).remaining, 2, "{words}");
        }
    }

    #[test]
    fn states_go_through_bytes() {
        for words in ["12/s", "fixed 12/s", "sliding 12/s", "sliding-log 12/s"] {
            let (kernel, mut state) = (warming(words), WarmingState::default());
            for round in 0..50 {
                let mut bytes = Vec::new();
                kernel.encode(&state, &mut bytes);
                assert_eq!(kernel.decode(&bytes).as_ref(), Some(&state), "{words}");
                take(&kernel, &mut state, START + round * 300_000, 1);
            }
        }
    }
}
