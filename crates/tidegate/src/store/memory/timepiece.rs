//! The store's clock, of whatever type.

use std::any::Any;

use crate::time::{Clock, CoarseClock, Micros, SystemClock};

/// A clock of any type; reading the usual ones takes no indirect call.
pub(super) enum Timepiece {
    System(SystemClock),
    Coarse(CoarseClock),
    Other(Box<dyn Clock>),
}

impl Timepiece {
    pub(super) fn new<C: Clock>(clock: C) -> Timepiece {
        let any: &dyn Any = &clock;
        if let Some(system) = any.downcast_ref::<SystemClock>() {
            Timepiece::System(system.clone())
        } else if let Some(coarse) = any.downcast_ref::<CoarseClock>() {
            Timepiece::Coarse(coarse.clone())
        } else {
            Timepiece::Other(Box::new(clock))
        }
    }

    #[inline(always)]
    pub(super) fn now(&self) -> Micros {
        match self {
            Timepiece::System(clock) => clock.now(),
            Timepiece::Coarse(clock) => clock.now(),
            Timepiece::Other(clock) => clock.now().min(Micros::LATEST),
        }
    }
}
