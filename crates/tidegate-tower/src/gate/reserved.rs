//! A reservation on any store, without its type: made, renewed, settled.

use std::sync::Arc;
use std::time::Duration;

use tidegate::store::{Check, Store};
use tidegate::{Decision, Limit, Limiter, Micros, Reservation, ReserveOutcome};

use super::Gate;
use crate::call::{AdmissionResult, OwnedCall, answer};
use crate::head::Text;
use crate::hold::Hold;
use crate::tally::Spent;

struct HeldReservation<S: Store> {
    limiter: Limiter<S>,
    reservation: Reservation<S>,
    renew_every: Micros,
    renewed_at: Micros,
}

/// How many times a permit is renewed before it would expire: a frame may be late.
const RENEWALS: u32 = 3;

/// Reserves what a request is estimated to take.
pub(super) async fn reserve<S: Store>(
    limiter: Limiter<S>,
    gate: Arc<Gate>,
    kept: Arc<OwnedCall>,
    lasts: Duration,
) -> AdmissionResult {
    let (call, mut text) = (kept.call(), Text::default());
    let request = call.request(&gate.settings, &mut text).lasts(lasts);
    let (mut shortest, mut fields) = (lasts, None);
    let tell = |decision: &Decision, limits: &[Check<'_>]| {
        fields = gate.fields(decision, limits);
        let permits = limits.iter().filter_map(|limit| limit.meter().limit()).filter(Limit::is_in_flight);
        shortest = permits.map(|limit| limit.period()).fold(lasts, Duration::min);
    };
    let reservation = match limiter.reserve_with_limits_async(request, tell).await {
        Ok(ReserveOutcome::Made(reservation)) => reservation,
        Ok(ReserveOutcome::Refused(decision)) => return answer(Ok(decision), fields),
        Err(error) => return answer(Err(error), None),
    };
    let mut admission = answer(Ok(reservation.decision().clone()), fields)?;
    if admission.is_repeated {
        // It belongs to the request that came first.
        reservation.leave_open();
        return Ok(admission);
    }
    let renewed_at = limiter.store().clock().now();
    let renew_every = Micros::from_duration(shortest / RENEWALS);
    admission.hold = Some(Box::new(HeldReservation { limiter, reservation, renew_every, renewed_at }));
    Ok(admission)
}

impl<S: Store> Hold for HeldReservation<S> {
    fn settle(self: Box<Self>, spent: Spent) {
        let HeldReservation { limiter, reservation, .. } = *self;
        // What cannot be settled stays charged: against the caller, as always.
        let task = async move { drop(reservation.settle_async(spent.amounts()).await) };
        limiter.store().in_background(Box::pin(task));
    }

    fn renew_if_due(&mut self) {
        let now = self.limiter.store().clock().now();
        if now < self.renewed_at.saturating_add(self.renew_every) {
            return;
        }
        self.renewed_at = now;
        // A permit that has expired meanwhile is not taken again: the response is on its way.
        self.reservation.renew_in_background();
    }
}
