//! What a limit means: pure functions of (limit, state, now, cost).
//!
//! A kernel reads no clock, takes no lock and does no I/O. A store keeps the
//! state and the time, and calls the kernel between its read and its write.
//! The five algorithms are three kernels: [`Bucket`], [`Window`], [`Log`].
//!
//! All three treat time the same way. A `now` before the state's own time
//! changes nothing: time stands still until the clock catches up. A state so
//! far in the future that only a clock fault can explain it is
//! [healed](Kernel::heal): it becomes the full state, now.

mod act;
mod bucket;
mod divisor;
mod log;
mod window;

pub use act::{Act, Charged, Verb};
pub use bucket::{Bucket, BucketState};
pub use log::{Log, LogState};
pub use window::{Style, Window, WindowState};

use std::cmp::Reverse;

use crate::time::Micros;

/// The meaning of a limit, as a pure function of state, time and cost.
///
/// The default state is that of a key never seen. Implement this for an
/// algorithm of your own and hand it to [`Meter::custom`](crate::store::Meter::custom);
/// `examples/custom_kernel.rs` does. Five methods are enough: [`admit`](Kernel::admit),
/// [`charge`](Kernel::charge), [`read`](Kernel::read), [`encode`](Kernel::encode) and
/// [`decode`](Kernel::decode).
///
/// ```
/// use std::time::Duration;
/// use tidegate::kernel::{Admission, Kernel, LimitKernel};
/// use tidegate::{Limit, Micros};
///
/// let LimitKernel::Log(log) = Limit::sliding_log(2, Duration::from_secs(1)).kernel() else { panic!("a log") };
/// let (mut state, now) = (Default::default(), Micros::new(5_000_000));
/// assert!(matches!(log.admit(&state, now, 2), Admission::Pass { .. }));
/// assert_eq!(log.charge(&mut state, now, 2).remaining, 0);
/// assert_eq!(log.admit(&state, now, 1), Admission::Wait { retry_after: Micros::new(1_000_000) });
/// ```
///
/// # Contract
/// - `admit` with a cost of at most [`capacity`](Kernel::capacity) passes on the default state.
/// - After `Wait { retry_after }`, and with nothing else charged, the same
///   request passes at `now + retry_after` and not a microsecond earlier.
/// - From [`forget_at`](Kernel::forget_at) on, the state is
///   indistinguishable from the default one: a store may drop it.
/// - A `now` before the time of the state changes nothing: until the clock has
///   caught up, `now + reset_after` and `now + retry_after` stay the same.
/// - Nothing panics, whatever `now` is up to [`Micros::LATEST`].
pub trait Kernel: Send + Sync + 'static {
    /// What is kept for a key.
    type State: Default + Send + 'static;

    /// The largest cost that can ever pass at once: what is left of a key never seen.
    fn capacity(&self) -> u64 {
        self.read(&Self::State::default(), Micros::ZERO).remaining
    }

    /// Whether `cost` may pass now, and if not, when.
    fn admit(&self, state: &Self::State, now: Micros, cost: u64) -> Admission;

    /// Takes `cost`, which [`admit`](Kernel::admit) has just let pass, and
    /// says what [`read`](Kernel::read) would say then.
    fn charge(&self, state: &mut Self::State, now: Micros, cost: u64) -> Reading;

    /// [`admit`](Kernel::admit), and [`charge`](Kernel::charge) if it passes:
    /// for kernels that can do both at once faster than one after the other.
    #[inline(always)]
    fn take(&self, state: &mut Self::State, now: Micros, cost: u64) -> (Admission, Reading) {
        let admission = self.admit(state, now, cost);
        let reading = match admission {
            Admission::Pass { .. } => self.charge(state, now, cost),
            Admission::Wait { .. } => self.read(state, now),
        };
        (admission, reading)
    }

    /// Takes `cost`, which has been spent already, whether or not there is room for
    /// it: up to the [debt](crate::Limit::debt) beyond the capacity. Returns what was
    /// not recorded. The provided method takes what is left, and makes no debt.
    fn report(&self, state: &mut Self::State, now: Micros, cost: u64) -> u64 {
        let fits = cost.min(self.read(state, now).remaining);
        match self.admit(state, now, fits) {
            Admission::Pass { .. } if fits > 0 => {
                self.charge(state, now, fits);
                cost - fits
            }
            Admission::Pass { .. } | Admission::Wait { .. } => cost,
        }
    }

    /// Undoes the latest `cost` that was charged, as far as there is any. The
    /// provided method gives nothing back: what is charged stays charged.
    fn refund(&self, state: &mut Self::State, now: Micros, cost: u64) {
        let _ = (state, now, cost);
    }

    /// Takes back what a charge took beyond `kept`, as far as it is certainly still
    /// there: never more than if only `kept` had been charged. Returns how many units
    /// it took back, a part of a unit rounded up. The provided method takes nothing back.
    fn undo(&self, state: &mut Self::State, now: Micros, charged: Charged, kept: u64) -> u64 {
        let _ = (state, now, charged, kept);
        0
    }

    /// Makes a charge that [is there](Kernel::is_there) count from now on. The provided
    /// method charges again what it could [take back](Kernel::undo).
    fn renew(&self, state: &mut Self::State, now: Micros, charged: Charged) {
        let units = self.undo(state, now, charged, 0);
        self.charge(state, now, units.min(charged.cost));
    }

    /// Whether all of a charge is still there, so that it can be [renewed](Verb::Renew).
    /// The provided method says no.
    fn is_there(&self, state: &Self::State, now: Micros, charged: Charged) -> bool {
        let _ = (state, now, charged);
        false
    }

    /// By how much the state's own time is ahead: a charge counts as made then, and a clock
    /// that goes back does not turn it back. The provided method knows of no such time.
    #[inline(always)]
    fn ahead(&self, state: &Self::State, now: Micros) -> Micros {
        let _ = (state, now);
        Micros::ZERO
    }

    /// What is left now, and for how long the state will be remembered.
    fn read(&self, state: &Self::State, now: Micros) -> Reading;

    /// How many units are in use now, debt included: what counts beside the limit that replaces
    /// this one. The provided method knows of no debt.
    fn used(&self, state: &Self::State, now: Micros) -> u64 {
        self.capacity().saturating_sub(self.read(state, now).remaining)
    }

    /// From when on the state equals the default one in every later decision. The
    /// provided method takes it from what [`read`](Kernel::read) says at time zero.
    fn forget_at(&self, state: &Self::State) -> Micros {
        self.read(state, Micros::ZERO).reset_after
    }

    /// The full state at `now`, if `state` lies too far in the future to be
    /// waited for.
    ///
    /// What is too far: more than one reset horizon, and more than a second,
    /// beyond what this clock could have written. A clock fault thus delays a
    /// key by at most that, and grants it nothing. The provided method waits
    /// for ever.
    fn heal(&self, state: &Self::State, now: Micros) -> Option<Self::State> {
        let _ = (state, now);
        None
    }

    /// Since when a key has been known, for a kernel that treats new keys otherwise. The
    /// provided method knows no such time.
    fn known_since(&self, state: &Self::State, now: Micros) -> Option<Micros> {
        let _ = (state, now);
        None
    }

    /// The state of a key that has used nothing and has been known for a while. The provided
    /// method makes it a new one.
    fn known(&self, since: Micros, now: Micros) -> Self::State {
        let _ = (since, now);
        Self::State::default()
    }

    /// Writes a state into a snapshot.
    fn encode(&self, state: &Self::State, bytes: &mut Vec<u8>);

    /// Reads what [`encode`](Kernel::encode) wrote; `None` if it is not that.
    fn decode(&self, bytes: &[u8]) -> Option<Self::State>;

    /// A copy of a state as of `now`, made where keys
    /// [share](crate::Overflow::Share) one. It says as much as the state of what
    /// is left, and its waits may be longer, never shorter: so that the copy of a
    /// large state can be small. The provided method encodes and decodes the state.
    fn copy(&self, state: &Self::State, now: Micros) -> Self::State {
        let _ = now;
        let mut bytes = Vec::new();
        self.encode(state, &mut bytes);
        self.decode(&bytes).unwrap_or_default()
    }
}

/// The kernel of a limit.
///
/// ```
/// use tidegate::Limit;
/// use tidegate::kernel::LimitKernel;
///
/// let limit: Limit = "sliding-log 5/10s".parse()?;
/// assert!(matches!(limit.kernel(), LimitKernel::Log(_)));
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKernel {
    /// Of a token bucket or a leaky bucket.
    Bucket(Bucket),
    /// Of a fixed window or a sliding window counter.
    Window(Window),
    /// Of a sliding window log.
    Log(Log),
}

/// Whether a cost may pass.
///
/// ```
/// use tidegate::Micros;
/// use tidegate::kernel::Admission;
///
/// assert_eq!(Admission::PASS, Admission::Pass { delay: Micros::ZERO });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may, and should go after `delay` (which only a leaky bucket asks for).
    Pass {
        /// How long to hold the request back so that the outflow is even.
        delay: Micros,
    },
    /// It may not, and will at `now + retry_after` if no other request is charged before.
    Wait {
        /// How long, to the microsecond.
        retry_after: Micros,
    },
}

impl Admission {
    /// Passes at once.
    pub const PASS: Admission = Admission::Pass { delay: Micros::ZERO };
}

/// What a state says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How many requests of cost 1 would pass at this instant.
    pub remaining: u64,
    /// How long until the state is as if never used.
    pub reset_after: Micros,
}

/// The answer of one limit to one check.
///
/// ```
/// use tidegate::kernel::Verdict;
///
/// assert!(!Verdict::default().allowed, "the default refuses");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether this limit lets the cost pass.
    pub allowed: bool,
    /// Units left, after the charge if there was one.
    pub remaining: u64,
    /// When to ask again; zero if allowed.
    pub retry_after: Micros,
    /// How long until the state is as if never used.
    pub reset_after: Micros,
    /// How long to hold an allowed request back (leaky bucket only).
    pub delay: Micros,
    /// The store's overflow or failure mode answered, not the limit.
    pub degraded: bool,
    /// The answer was given before, to a request of the same id; nothing was
    /// charged this time.
    pub repeated: bool,
    /// What was reported and is not recorded: it would have passed the bound of debt.
    pub unrecorded: u64,
    /// By how much the state's own time is ahead of the clock's, of a charge that was made:
    /// it counts as made then.
    pub ahead: Micros,
    /// Which [thresholds](crate::store::Thresholds) of the meter this check crossed, a bit for
    /// each from the lowest on.
    pub crossed: u8,
}

impl Verdict {
    /// The same, field by field. The result of a call that is not inlined is
    /// written straight to where it goes in the end, and then nothing there
    /// can live in registers; this keeps the two apart.
    #[inline(always)]
    pub(crate) fn field_by_field(self) -> Verdict {
        let Verdict { allowed, remaining, retry_after, reset_after, delay, degraded, repeated, .. } = self;
        let Verdict { unrecorded, ahead, crossed, .. } = self;
        Verdict { allowed, remaining, retry_after, reset_after, delay, degraded, repeated, unrecorded, ahead, crossed }
    }

    /// What this verdict and `other` say together, and whether `other` binds: both must
    /// allow. The one that binds has the longest wait if refused, the least remaining if
    /// allowed, and of two with as much left takes longer to reset: a caller that waited
    /// for the other might still be refused.
    #[inline]
    pub(crate) fn and(self, other: Verdict) -> (Verdict, bool) {
        let other_binds = match (self.allowed, other.allowed) {
            (true, true) => (other.remaining, Reverse(other.reset_after)) < (self.remaining, Reverse(self.reset_after)),
            (true, false) => true,
            (false, true) => false,
            (false, false) => other.retry_after > self.retry_after,
        };
        let binding = if other_binds { other } else { self };
        let both = Verdict {
            remaining: self.remaining.min(other.remaining),
            delay: if binding.allowed { self.delay.max(other.delay) } else { Micros::ZERO },
            degraded: self.degraded || other.degraded,
            unrecorded: self.unrecorded.max(other.unrecorded),
            ..binding
        };
        (both, other_binds)
    }

    /// A kernel's words as one answer.
    #[must_use]
    #[inline(always)]
    pub fn new(admission: Admission, reading: Reading) -> Verdict {
        let (allowed, delay, retry_after) = match admission {
            Admission::Pass { delay } => (true, delay, Micros::ZERO),
            Admission::Wait { retry_after } => (false, Micros::ZERO, retry_after),
        };
        let Reading { remaining, reset_after } = reading;
        let (degraded, repeated, unrecorded, ahead, crossed) = (false, false, 0, Micros::ZERO, 0);
        Verdict { allowed, remaining, retry_after, reset_after, delay, degraded, repeated, unrecorded, ahead, crossed }
    }
}

/// The largest integer below which a double, and so Lua, is exact.
pub(crate) const EXACT: u64 = 1 << 53;

/// The least slack, in microseconds, before a state counts as one from the
/// future: more than clocks of two cores or a thread's pause may differ by.
pub(crate) const MIN_GRACE: u64 = 1_000_000;

/// Decides one check on one state, and says whether the state has changed.
///
/// This is the whole of what a store does between its read and its write; a
/// cost of zero charges nothing and is a peek. The caller has made sure that
/// the cost is at most the kernel's capacity.
///
/// ```
/// use std::time::Duration;
/// use tidegate::kernel::{LimitKernel, Verb, decide};
/// use tidegate::{Limit, Micros};
///
/// let LimitKernel::Log(log) = Limit::sliding_log(2, Duration::from_secs(1)).kernel() else { panic!("a log") };
/// let mut state = Default::default();
/// let (verdict, changed) = decide(&log, &mut state, Micros::new(5_000_000), Verb::Charge, 2);
/// assert!(verdict.allowed && changed);
/// ```
#[inline]
pub fn decide<K: Kernel + ?Sized>(
    kernel: &K,
    state: &mut K::State,
    now: Micros,
    verb: Verb,
    cost: u64,
) -> (Verdict, bool) {
    let act = Act::of(verb, cost);
    let Some(mut full) = kernel.heal(state, now) else {
        return decide_healed(kernel, state, now, act);
    };
    let (verdict, _) = decide_healed(kernel, &mut full, now, act);
    if act.writes() {
        *state = full;
    }
    (verdict, act.writes())
}

/// [`decide`] on a state that needs no healing.
#[inline(always)]
pub(crate) fn decide_healed<K: Kernel + ?Sized>(
    kernel: &K,
    state: &mut K::State,
    now: Micros,
    act: Act,
) -> (Verdict, bool) {
    if let Act::Take { cost } = act {
        let (admission, reading) = kernel.take(state, now, cost);
        let mut verdict = Verdict::new(admission, reading);
        if verdict.allowed {
            verdict.ahead = kernel.ahead(state, now);
        }
        return (verdict, verdict.allowed);
    }
    let admission = admit(kernel, state, now, act);
    let mut verdict = Verdict::new(admission, kernel.read(state, now));
    let writes = verdict.allowed && act.writes();
    if writes {
        let unrecorded = apply(kernel, state, now, act);
        let ahead = if act.charges() { kernel.ahead(state, now) } else { Micros::ZERO };
        verdict = Verdict { unrecorded, ahead, ..Verdict::new(admission, kernel.read(state, now)) };
    }
    (verdict, writes)
}

/// Whether an act may happen. Of a charge that cannot be prolonged there is nothing to wait for.
#[inline(always)]
pub(crate) fn admit<K: Kernel + ?Sized>(kernel: &K, state: &K::State, now: Micros, act: Act) -> Admission {
    match act {
        Act::Look { cost } | Act::Take { cost } => kernel.admit(state, now, cost),
        Act::Prolong { charged } if !kernel.is_there(state, now, charged) => {
            Admission::Wait { retry_after: Micros::ZERO }
        }
        Act::Prolong { .. }
        | Act::Nothing
        | Act::Force { .. }
        | Act::GiveBack { .. }
        | Act::Correct { .. }
        | Act::Clear => Admission::PASS,
    }
}

/// What a check answers that is not carried out, because another one of its
/// slice was refused.
pub fn withhold<K: Kernel + ?Sized>(kernel: &K, state: &K::State, now: Micros, verb: Verb, cost: u64) -> Verdict {
    let healed = kernel.heal(state, now);
    let state = healed.as_ref().unwrap_or(state);
    Verdict::new(admit(kernel, state, now, Act::of(verb, cost)), kernel.read(state, now))
}

/// Does to the state what was admitted, and says what was not recorded.
#[inline(always)]
pub(crate) fn apply<K: Kernel + ?Sized>(kernel: &K, state: &mut K::State, now: Micros, act: Act) -> u64 {
    match act {
        Act::Nothing | Act::Look { .. } => {}
        Act::Take { cost } => _ = kernel.charge(state, now, cost),
        Act::Force { cost } => return kernel.report(state, now, cost),
        Act::GiveBack { cost } => kernel.refund(state, now, cost),
        Act::Correct { charged, kept } => _ = kernel.undo(state, now, charged, kept),
        Act::Prolong { charged } => kernel.renew(state, now, charged),
        Act::Clear => *state = K::State::default(),
    }
    0
}

#[cfg(test)]
mod tests;
