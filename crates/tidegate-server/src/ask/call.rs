//! What a wire asks of the limits: the library's verbs, and the steps of a reservation.
//!
//! A wire reads a call, a request and how much it takes. What these are together is said here, once
//! for all wires.

use tidegate::kernel::Verb;
use tidegate::{Amounts, Request};

/// The longest that an id can be remembered, in milliseconds: a day.
pub(crate) const MAX_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Check,
    Peek,
    Report,
    Refund,
    Reset,
    Reserve,
    Settle,
    Renew,
    Release,
}

impl Call {
    /// The verb of the library.
    pub(crate) fn verb(self) -> Verb {
        match self {
            Call::Check | Call::Reserve => Verb::Charge,
            Call::Peek => Verb::Peek,
            Call::Report => Verb::Report,
            Call::Refund => Verb::Refund,
            Call::Reset => Verb::Reset,
            Call::Settle | Call::Release => Verb::SETTLE,
            Call::Renew => Verb::RENEW,
        }
    }

    /// Whether it is about a reservation, which goes by the id of the request.
    pub(crate) fn needs_id(self) -> bool {
        match self {
            Call::Reserve | Call::Settle | Call::Renew | Call::Release => true,
            Call::Check | Call::Peek | Call::Report | Call::Refund | Call::Reset => false,
        }
    }

    /// The request, with the cost and the amounts that the wire has for it.
    pub(crate) fn of<'a>(
        self,
        request: Request<'a>,
        cost: Option<u64>,
        amounts: impl Iterator<Item = (&'a str, u64)>,
    ) -> Request<'a> {
        match self {
            Call::Release => request.into_release(),
            Call::Settle => {
                let actual = cost.map_or_else(Amounts::new, Amounts::from);
                request.into_settlement(amounts.fold(actual, |actual, (unit, amount)| actual.amount(unit, amount)))
            }
            Call::Check | Call::Peek | Call::Report | Call::Refund | Call::Reset | Call::Reserve | Call::Renew => {
                let request = request.cost(cost.unwrap_or(1));
                let request = if self == Call::Reserve { request.into_estimate() } else { request };
                amounts.fold(request, |request, (unit, amount)| request.amount(unit, amount))
            }
        }
    }
}
