//! Work in flight: a limiter that limits itself.
//!
//! A request that asks many things takes a unit for each of them until it is answered, of
//! the share of its address and of the total. Beyond either it is refused at once, with a time to
//! retry, so that it waits at its client and not in the server. Requests that ask little are
//! never refused: one thing after the other, they take turns.

use std::net::IpAddr;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

use crate::run::buffered::{Buffered, Held, OverBudget};
use crate::run::shares::{Full, Share, Shares};

/// Requests that ask for so many things at most are never refused.
const MAX_SMALL: usize = 16;
/// Batches in flight, of the largest that there may be: of one address, and of all.
const BATCHES_PER_ADDRESS: usize = 8;
const BATCHES: usize = 64;
/// What the answer to one request of a batch takes, about.
const ANSWER_BYTES: usize = 256;

/// Decisions that a task makes in a row; then others of its thread have their turn.
pub(crate) const TURN: usize = 64;

/// Admits requests that ask many things.
#[derive(Debug)]
pub(crate) struct Admission {
    units: Arc<Shares>,
    buffered: Arc<Buffered>,
    shed: Counter,
}

/// What a request holds while it is decided.
#[derive(Debug)]
pub(crate) struct InFlight {
    _units: Share,
    /// Room for its answer.
    _answer: Held,
}

/// Why a request is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Shed {
    #[error(
        "batches of this address ask for {bound} decisions already: wait for their answers, or send smaller batches"
    )]
    Address { bound: usize },
    #[error("batches ask the server for {bound} decisions already: retry in a moment, or send smaller batches")]
    Total { bound: usize },
    #[error(transparent)]
    Bytes(#[from] OverBudget),
}

impl Admission {
    pub(crate) fn new(max_batch: usize, buffered: Arc<Buffered>, shed: Counter) -> Admission {
        let batches = |count: usize| max_batch.max(1).saturating_mul(count);
        Admission { units: Shares::new(batches(BATCHES), batches(BATCHES_PER_ADDRESS)), buffered, shed }
    }

    /// Room for a request that asks for so many decisions, which ends when it is answered.
    pub(crate) fn enter(&self, address: Option<IpAddr>, decisions: usize) -> Result<Option<InFlight>, Shed> {
        if decisions <= MAX_SMALL {
            return Ok(None);
        }
        let units = self.units.take(address, decisions).map_err(|full| {
            self.shed.inc();
            match full {
                Full::Address => Shed::Address { bound: self.units.each() },
                Full::Total => Shed::Total { bound: self.units.total() },
            }
        })?;
        let answer = self.buffered.hold(0);
        answer.add(decisions.saturating_mul(ANSWER_BYTES))?;
        Ok(Some(InFlight { _units: units, _answer: answer }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn an_address_has_eight_batches_in_flight_and_all_have_sixty_four() {
        let shed = Counter::default();
        let buffered = Buffered::new(1 << 20, Gauge::default(), Counter::default());
        let admission = Admission::new(40, buffered, shed.clone());
        let address = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let mut held = Vec::new();
        for last in 0..8 {
            for _ in 0..8 {
                held.push(admission.enter(address(last), 40).unwrap().unwrap());
            }
            assert!(matches!(
                admission.enter(address(last), 17),
                Err(Shed::Address { bound: 320 } | Shed::Total { .. })
            ));
        }
        assert_eq!(admission.enter(address(9), 17).unwrap_err(), Shed::Total { bound: 2_560 });
        assert!(admission.enter(address(0), 16).unwrap().is_none(), "small ones are never refused");
        assert_eq!(shed.get(), 9);
        held.pop();
        assert!(admission.enter(address(7), 40).unwrap().is_some());
    }

    #[test]
    fn a_batch_whose_answer_has_no_room_is_not_begun() {
        let (bytes, shed) = (Gauge::default(), Counter::default());
        let buffered = Buffered::new(100 * ANSWER_BYTES, bytes.clone(), shed.clone());
        let admission = Admission::new(1_000, buffered, Counter::default());
        let first = admission.enter(None, 60).unwrap();
        assert!(matches!(admission.enter(None, 60), Err(Shed::Bytes(_))));
        drop(first);
        assert_eq!((bytes.get(), shed.get()), (0, 1));
        assert!(admission.enter(None, 60).unwrap().is_some());
    }
}
