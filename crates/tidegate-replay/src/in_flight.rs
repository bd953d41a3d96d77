//! Requests that have begun and not ended: reservations, in the order of their ends.

use std::collections::BTreeMap;

use tidegate::{Micros, Reservation};

use crate::watched::Watched;

/// Requests in flight that are known at once: as many as a memory store remembers reservations.
/// The others stay charged what was estimated, and hold their permits until they expire.
pub const MAX_IN_FLIGHT: usize = 1 << 17;

#[derive(Default)]
pub(crate) struct InFlight {
    open: BTreeMap<(Micros, u64), Open>,
    begun: u64,
    /// Of the policy, without the one that it is compared with.
    admitted: u64,
    pub(crate) most: u64,
    /// Requests that could not be settled.
    pub(crate) unsettled: u64,
}

/// A request that one policy admitted, or both.
pub(crate) struct Open {
    pub(crate) reservation: Option<Reservation<Watched>>,
    pub(crate) old: Option<Reservation<Watched>>,
    pub(crate) estimate: u64,
    pub(crate) actual: Option<u64>,
}

impl InFlight {
    pub(crate) fn begin(&mut self, ends: Micros, open: Open) {
        if self.open.len() >= MAX_IN_FLIGHT {
            self.unsettled += 1;
            [open.reservation, open.old].into_iter().flatten().for_each(Reservation::leave_open);
            return;
        }
        self.admitted += u64::from(open.reservation.is_some());
        self.most = self.most.max(self.admitted);
        self.begun += 1;
        self.open.insert((ends, self.begun), open);
    }

    /// The next that ends, if it does so up to this time.
    pub(crate) fn end(&mut self, time: Micros) -> Option<(Micros, Open)> {
        let ((ends, _), open) = self.open.first_entry().filter(|first| first.key().0 <= time)?.remove_entry();
        self.admitted -= u64::from(open.reservation.is_some());
        Some((ends, open))
    }
}
