//! Units that go back: of leases that are over, and of limits that others replaced.

use std::sync::Arc;

use tidegate::Micros;
use tidegate::kernel::Verb;
use tidegate::store::{Check, Store, StoreError};
use tokio::time::timeout;

use super::{Lender, Return, is_asked};
use crate::failure::RedisFailure;
use crate::key::local_key;
use crate::runtime::run;

impl<S: Store> Lender<S> {
    /// Gives units back, or keeps them to try again later, which is an error.
    pub(super) async fn give_back(&self, left: Return) -> Result<(), StoreError> {
        let Err(error) = self.ask(&left.subject, Verb::Refund, left.units).await else { return Ok(()) };
        match RedisFailure::of(&error) {
            // Nothing was carried out: they go back with a later attempt.
            Some(RedisFailure::Away { .. } | RedisFailure::Refused { .. } | RedisFailure::Contended { .. }) => {
                self.ledger.owe(&local_key(&left.subject.meter, &left.subject.key), left);
                return Err(error);
            }
            Some(failure) => tracing::warn!(%failure, left.units, "borrowed units could not be given back"),
            None => tracing::warn!(%error, left.units, "borrowed units could not be given back"),
        }
        Ok(())
    }

    /// Gives back what is on lease of limits that those of some checks replaced, before these take
    /// over what was used of them.
    pub(super) async fn give_back_former(self: &Arc<Self>, checks: &[Check<'_>]) {
        let mut under_way = Vec::new();
        for check in checks {
            for former in check.former() {
                let has_lease = self.leases.of_rule(former.meter.name().as_str()).is_some();
                if former.until <= self.now() || !has_lease || is_asked(checks, former.meter, check) {
                    continue;
                }
                let Some((over, left)) = self.ledger.leave(&local_key(former.meter, check.key())) else { continue };
                under_way.push(over);
                if let Some((left, held)) = left {
                    // To the end, whatever becomes of the caller.
                    let lender = Arc::clone(self);
                    self.runtime.spawn(async move {
                        _ = lender.give_back(left).await;
                        drop(held);
                    });
                }
            }
        }
        if under_way.is_empty() {
            return;
        }
        let given_back = async {
            for over in &mut under_way {
                _ = over.changed().await;
            }
        };
        let deadline = self.leases.deadline();
        _ = run(&self.runtime, async { timeout(deadline, given_back).await }).await;
    }

    /// Gives back what is left of the leases that are over at `now`.
    pub(super) async fn give_back_expired(&self, now: Micros) {
        for state_key in self.ledger.expired(now) {
            if let Some(left) = self.ledger.give_up_expired(&state_key, now) {
                _ = self.give_back(left).await;
            }
        }
    }
}
