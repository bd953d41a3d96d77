//! What a limit takes over from the one whose place it takes.
//!
//! Units that were used stay used, rounded up. As many as fit into the new
//! limit move to it; the others stay where they were, and move when there is
//! room. How soon they come back is the new limit's affair. Where both limits
//! count in the same way more is kept than the number: a bucket's fractions
//! of a unit, the windows in which something was counted, the instants that a
//! log remembers.

use super::meter::Meter;
use super::meter_kernel::{MeterKernel, MeterState};
use crate::kernel::{Admission, Kernel};
use crate::limit::LimitKernel;
use crate::time::Micros;

/// A limit that another one succeeds: what a key used of it counts on.
#[derive(Clone, Debug)]
pub struct Predecessor {
    meter: Meter,
    until: Micros,
}

impl Predecessor {
    pub(crate) fn new(meter: Meter, until: Micros) -> Predecessor {
        Predecessor { meter, until }
    }

    /// The limit, without predecessors of its own.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// When nothing that was charged to it matters any more, by the store's clock.
    #[must_use]
    pub fn until(&self) -> Micros {
        self.until
    }
}

/// Limits of one place that may have been in force within their horizons.
pub(crate) const MOST_PREDECESSORS: usize = 32;

/// How long a kernel of the user's own may remember something, in
/// microseconds: a day, since it does not say.
const CUSTOM_HORIZON: u64 = 86_400_000_000;

/// For how long after the last charge anything of it matters, with a second
/// for clocks that differ.
pub(crate) fn horizon(meter: &Meter) -> Micros {
    let horizon = match meter.nominal_limit().map(|limit| limit.kernel()) {
        Some(LimitKernel::Bucket(bucket)) => bucket.horizon(),
        Some(LimitKernel::Window(window)) => 2 * window.period(),
        Some(LimitKernel::Log(log)) => log.period(),
        None => CUSTOM_HORIZON,
    };
    let climb = meter.warm_up().map_or(Micros::ZERO, |warm_up| warm_up.over());
    Micros::new(horizon).max(climb).saturating_add(Micros::new(crate::kernel::LEAST_GRACE))
}

/// Moves what was used of one limit to the one that succeeds it.
pub(crate) fn take_over(to: &Meter, state: &mut MeterState, now: Micros, from: &Meter, used: &mut MeterState) {
    let limits = (to.limit().map(|limit| limit.kernel()), from.limit().map(|limit| limit.kernel()));
    let is_done = match limits {
        (Some(LimitKernel::Bucket(to)), Some(LimitKernel::Bucket(from))) => {
            to.take_over(state.bucket_mut(), now, &from, used.bucket_mut());
            true
        }
        (Some(LimitKernel::Window(to)), Some(LimitKernel::Window(from))) => {
            to.take_over(state.window_mut(), now, &from, used.window_mut())
        }
        (Some(LimitKernel::Log(to)), Some(LimitKernel::Log(from))) => {
            to.take_over(state.heap_mut().get(&to), now, &from, used.heap_mut().get(&from))
        }
        (_, _) => false,
    };
    if !is_done {
        take_over_units(to.kernel(), state, now, from.kernel(), used);
    }
}

fn take_over_units(to: &MeterKernel, state: &mut MeterState, now: Micros, from: &MeterKernel, used: &mut MeterState) {
    let units = from.used(used, now);
    let fit = units.min(to.read(state, now).remaining);
    if fit > 0 && matches!(to.admit(state, now, fit), Admission::Pass { .. }) {
        to.charge(state, now, fit);
        if fit == units {
            *used = MeterState::Fresh;
        } else {
            from.refund(used, now, fit);
        }
    }
}
