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

mod bucket;
mod divisor;
mod log;
mod window;

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

/// What a check does to the state.
///
/// ```
/// use tidegate::kernel::Verb;
/// use tidegate::{Limit, Limiter};
///
/// # async fn run() -> Result<(), tidegate::CheckError> {
/// let limiter = Limiter::new(Limit::per_hour(10));
/// let decision = limiter.decide_async(Verb::Charge, "alice").await?;
/// # let _ = decision;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Takes the cost if it may pass.
    Charge,
    /// Asks whether it may, and takes nothing.
    Peek,
    /// Takes the cost, which has been spent already, even if that makes debt.
    Report,
    /// Gives the cost back.
    Refund,
    /// Forgets all that was charged.
    Reset,
    /// Makes a charge cost as much as this check: gives back what it took too much, and
    /// [reports](Verb::Report) what it took too little. With the id of a request, the charge
    /// is that request's, and what is said of it here does not count.
    Settle(Charged),
    /// Makes a charge count from now on, if all of it is still there. With the id of a
    /// request, the charge is that request's.
    Renew(Charged),
}

/// A charge that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Charged {
    /// When it counts as made: by the state's own time, which may be [ahead](Kernel::ahead).
    pub at: Micros,
    /// Of how much.
    pub cost: u64,
}

impl Verb {
    /// To settle by the id of a request: what was charged is for the store to know.
    pub const SETTLE: Verb = Verb::Settle(Charged { at: Micros::ZERO, cost: 0 });
    /// To renew by the id of a request.
    pub const RENEW: Verb = Verb::Renew(Charged { at: Micros::ZERO, cost: 0 });

    /// Whether it is not asked again if the policy changed meanwhile: what was given back
    /// cannot be given back again, and what was reported counts on beside the limit in force.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Verb::Report | Verb::Refund | Verb::Settle(_) | Verb::Renew(_))
    }

    /// Whether it may add to what is used.
    pub(crate) fn may_add(self, cost: u64) -> bool {
        match self {
            Verb::Charge | Verb::Report => true,
            Verb::Settle(charged) => cost > charged.cost,
            Verb::Peek | Verb::Refund | Verb::Reset | Verb::Renew(_) => false,
        }
    }

    /// Whether it may give back, so that another request need not wait any longer.
    pub(crate) fn may_give_back(self) -> bool {
        matches!(self, Verb::Refund | Verb::Reset | Verb::Settle(_))
    }

    /// Whether a check that does not pass keeps its slice from being carried out.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    ///
    /// assert!(Verb::Charge.can_refuse() && !Verb::Report.can_refuse());
    /// ```
    pub fn can_refuse(self) -> bool {
        matches!(self, Verb::Charge | Verb::Renew(_))
    }
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

/// Whether a check of this verb and cost can change a state at all.
///
/// ```
/// use tidegate::kernel::{Verb, may_write};
///
/// assert!(may_write(Verb::Charge, 1) && !may_write(Verb::Charge, 0) && !may_write(Verb::Peek, 1));
/// ```
#[must_use]
#[inline(always)]
pub fn may_write(verb: Verb, cost: u64) -> bool {
    match verb {
        Verb::Charge | Verb::Report | Verb::Refund => cost > 0,
        Verb::Peek => false,
        Verb::Reset => true,
        Verb::Settle(charged) => charged.cost != cost,
        Verb::Renew(charged) => charged.cost > 0,
    }
}

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
    let Some(mut full) = kernel.heal(state, now) else {
        return decide_healed(kernel, state, now, verb, cost);
    };
    let (verdict, _) = decide_healed(kernel, &mut full, now, verb, cost);
    let writes = may_write(verb, cost);
    if writes {
        *state = full;
    }
    (verdict, writes)
}

/// [`decide`] on a state that needs no healing.
#[inline(always)]
pub(crate) fn decide_healed<K: Kernel + ?Sized>(
    kernel: &K,
    state: &mut K::State,
    now: Micros,
    verb: Verb,
    cost: u64,
) -> (Verdict, bool) {
    if verb == Verb::Charge && cost > 0 {
        let (admission, reading) = kernel.take(state, now, cost);
        let mut verdict = Verdict::new(admission, reading);
        if verdict.allowed {
            verdict.ahead = kernel.ahead(state, now);
        }
        return (verdict, verdict.allowed);
    }
    let admission = admit(kernel, state, now, verb, cost);
    let mut verdict = Verdict::new(admission, kernel.read(state, now));
    if verdict.allowed && may_write(verb, cost) {
        let unrecorded = apply(kernel, state, now, verb, cost).unwrap_or(0);
        let ahead = if verb.can_refuse() { kernel.ahead(state, now) } else { Micros::ZERO };
        verdict = Verdict { unrecorded, ahead, ..Verdict::new(admission, kernel.read(state, now)) };
    }
    (verdict, verdict.allowed && may_write(verb, cost))
}

/// Whether a check passes. Of a charge that cannot be renewed there is nothing to wait for.
#[inline(always)]
pub(crate) fn admit<K: Kernel + ?Sized>(kernel: &K, state: &K::State, now: Micros, verb: Verb, cost: u64) -> Admission {
    match verb {
        Verb::Charge | Verb::Peek => kernel.admit(state, now, cost),
        Verb::Renew(charged) if charged.cost > 0 && !kernel.is_there(state, now, charged) => {
            Admission::Wait { retry_after: Micros::ZERO }
        }
        Verb::Renew(_) | Verb::Report | Verb::Refund | Verb::Reset | Verb::Settle(_) => Admission::PASS,
    }
}

/// What a check answers that is not carried out, because another one of its
/// slice was refused.
pub fn withhold<K: Kernel + ?Sized>(kernel: &K, state: &K::State, now: Micros, verb: Verb, cost: u64) -> Verdict {
    let healed = kernel.heal(state, now);
    let state = healed.as_ref().unwrap_or(state);
    Verdict::new(admit(kernel, state, now, verb, cost), kernel.read(state, now))
}

/// Carries an admitted check out on the state, and says what of a report was not
/// recorded; `None` if there was nothing to carry out.
#[inline(always)]
pub(crate) fn apply<K: Kernel + ?Sized>(
    kernel: &K,
    state: &mut K::State,
    now: Micros,
    verb: Verb,
    cost: u64,
) -> Option<u64> {
    match verb {
        Verb::Charge if cost > 0 => {
            kernel.charge(state, now, cost);
        }
        Verb::Report if cost > 0 => return Some(kernel.report(state, now, cost)),
        Verb::Refund if cost > 0 => kernel.refund(state, now, cost),
        Verb::Reset => *state = K::State::default(),
        Verb::Settle(Charged { cost: charged, .. }) if cost > charged => {
            return Some(kernel.report(state, now, cost - charged));
        }
        Verb::Settle(charged) if cost < charged.cost => {
            kernel.undo(state, now, charged, cost);
        }
        Verb::Renew(charged) if charged.cost > 0 => kernel.renew(state, now, charged),
        Verb::Charge | Verb::Report | Verb::Refund | Verb::Peek | Verb::Settle(_) | Verb::Renew(_) => return None,
    }
    Some(0)
}

#[cfg(test)]
mod tests;
