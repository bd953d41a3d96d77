//! What callers ask for, and what that does to a state: the one table of verbs.

use crate::time::Micros;

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
    /// When it counts as made: by the state's own time, which may be [ahead](super::Kernel::ahead).
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

/// What a check does to one state: its [verb](Verb) with its cost. One that changes nothing is
/// [`Nothing`](Act::Nothing) or a [`Look`](Act::Look), so no cost is zero in the others.
///
/// ```
/// use tidegate::kernel::{Act, Charged, Verb};
///
/// let charged = Charged { cost: 5, ..Charged::default() };
/// assert_eq!(Act::of(Verb::Settle(charged), 7), Act::Force { cost: 2 });
/// assert_eq!(Act::of(Verb::Settle(charged), 3), Act::Correct { charged, kept: 3 });
/// assert!(!Act::of(Verb::Settle(charged), 5).writes());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Passes, and changes nothing.
    Nothing,
    /// Asks whether so much may pass, and takes nothing.
    Look {
        /// How much.
        cost: u64,
    },
    /// Takes so much if it may pass.
    Take {
        /// How much.
        cost: u64,
    },
    /// Takes so much, whether or not there is room for it.
    Force {
        /// How much.
        cost: u64,
    },
    /// Gives back what was taken last.
    GiveBack {
        /// How much.
        cost: u64,
    },
    /// Takes back what a charge took beyond a part of it.
    Correct {
        /// The charge.
        charged: Charged,
        /// What stays charged.
        kept: u64,
    },
    /// Makes a charge count from now on, if all of it is still there.
    Prolong {
        /// The charge.
        charged: Charged,
    },
    /// Forgets all that was taken.
    Clear,
}

impl Act {
    /// What a check of this verb and cost does.
    #[must_use]
    #[inline(always)]
    pub fn of(verb: Verb, cost: u64) -> Act {
        match verb {
            Verb::Charge if cost > 0 => Act::Take { cost },
            Verb::Charge | Verb::Peek => Act::Look { cost },
            Verb::Report if cost > 0 => Act::Force { cost },
            Verb::Refund if cost > 0 => Act::GiveBack { cost },
            Verb::Reset => Act::Clear,
            Verb::Settle(charged) if cost > charged.cost => Act::Force { cost: cost - charged.cost },
            Verb::Settle(charged) if cost < charged.cost => Act::Correct { charged, kept: cost },
            Verb::Renew(charged) if charged.cost > 0 => Act::Prolong { charged },
            Verb::Report | Verb::Refund | Verb::Settle(_) | Verb::Renew(_) => Act::Nothing,
        }
    }

    /// Whether it can change a state at all.
    #[must_use]
    #[inline(always)]
    pub fn writes(self) -> bool {
        !matches!(self, Act::Nothing | Act::Look { .. })
    }

    /// Whether it makes a charge, or makes one anew.
    #[must_use]
    #[inline(always)]
    pub fn charges(self) -> bool {
        matches!(self, Act::Take { .. } | Act::Prolong { .. })
    }

    /// Whether it adds to what is used.
    #[must_use]
    #[inline(always)]
    pub fn adds(self) -> bool {
        matches!(self, Act::Take { .. } | Act::Force { .. })
    }

    /// Whether it takes from what is used, so that a threshold above what is used then can be told again.
    #[must_use]
    #[inline(always)]
    pub fn gives_back(self) -> bool {
        matches!(self, Act::GiveBack { .. } | Act::Correct { .. } | Act::Clear)
    }
}
