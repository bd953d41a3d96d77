//! Thresholds that charges crossed: logged, remembered for the dashboard, and handed to the webhook.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tidegate::{Key, Micros, Name, ThresholdEvent};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::refused::shown;

/// The latest crossings that are remembered.
pub(crate) const MAX_RECENT: usize = 100;

/// Crossings that are logged in a second; further ones are only counted.
const MAX_LOGGED_A_SECOND: u32 = 100;

/// A threshold that a charge crossed.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(crate) rule: Name,
    pub(crate) key: Key<'static>,
    pub(crate) percent: u8,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) at: Micros,
    pub(crate) resets_at: Micros,
    pub(crate) shadow: bool,
}

/// What becomes of crossings.
#[derive(Debug, Default)]
pub(crate) struct Crossings {
    recent: Mutex<Recent>,
    webhook: OnceLock<mpsc::Sender<Crossing>>,
    /// Those for which the webhook had no room.
    pub(crate) dropped: Counter,
}

#[derive(Debug, Default)]
struct Recent {
    latest: VecDeque<Crossing>,
    second: u64,
    logged: u32,
}

impl Crossings {
    /// Hands all further crossings to a webhook.
    pub(crate) fn send_to(&self, webhook: mpsc::Sender<Crossing>) {
        // A server has one webhook.
        let _ = self.webhook.set(webhook);
    }

    /// Takes note of a crossing. It waits for nothing.
    pub(crate) fn add(&self, event: &ThresholdEvent<'_>) {
        let crossing = Crossing {
            rule: event.rule.clone(),
            key: event.key.clone().into_owned(),
            percent: event.percent,
            used: event.used,
            capacity: event.capacity,
            at: event.at,
            resets_at: event.at.saturating_add(Micros::from_duration(event.reset_after)),
            shadow: event.shadow,
        };
        if let Some(webhook) = self.webhook.get()
            && webhook.try_send(crossing.clone()).is_err()
            && self.dropped.inc() == 0
        {
            warn!("the webhook has no room for another event; further ones are only counted");
        }
        let logged = self.remember(crossing);
        if logged < MAX_LOGGED_A_SECOND {
            let (rule, key, threshold) = (event.rule, shown(event.key), format_args!("{}%", event.percent));
            let (used, capacity, shadow) = (event.used, event.capacity, event.shadow);
            info!(%rule, key, %threshold, used, capacity, shadow, "a threshold was crossed");
        } else if logged == MAX_LOGGED_A_SECOND {
            warn!("many thresholds are crossed; for a second, further ones are only counted");
        }
    }

    /// Remembers a crossing, and says how many were logged before it in its second.
    fn remember(&self, crossing: Crossing) -> u32 {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let second = crossing.at.get() / 1_000_000;
        if second != recent.second {
            (recent.second, recent.logged) = (second, 0);
        }
        recent.logged = recent.logged.saturating_add(1);
        recent.latest.push_front(crossing);
        recent.latest.truncate(MAX_RECENT);
        recent.logged - 1
    }

    /// The latest first.
    pub(crate) fn recent(&self) -> Vec<Crossing> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).latest.iter().cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use tidegate::{Event, Limit, Limiter, Observer, Rule};

    use super::*;

    struct Notes(Arc<Crossings>);

    impl Observer for Notes {
        fn observe(&self, _: &Event<'_>) {}

        fn crossed(&self, event: &ThresholdEvent<'_>) {
            self.0.add(event);
        }
    }

    #[test]
    fn the_latest_are_remembered_and_what_the_webhook_has_no_room_for_is_counted() {
        let crossings = Arc::<Crossings>::default();
        let (sender, mut receiver) = mpsc::channel(10);
        crossings.send_to(sender);
        let rule = Rule::new("api", Limit::per_hour(1)).notify([100]).unwrap();
        let limiter = Limiter::builder(rule).observer(Notes(Arc::clone(&crossings))).build().unwrap();
        for number in 0..2 * MAX_RECENT as u64 {
            assert!(limiter.allow(number));
        }
        let recent = crossings.recent();
        assert_eq!((recent.len(), recent[0].key.to_string()), (MAX_RECENT, (2 * MAX_RECENT - 1).to_string()));
        assert_eq!((recent[0].percent, recent[0].used, recent[0].capacity), (100, 1, 1));
        assert!(recent[0].resets_at > recent[0].at);
        assert_eq!(crossings.dropped.get(), 2 * MAX_RECENT as u64 - 10);
        assert_eq!(receiver.try_recv().unwrap().key.to_string(), "0");
    }
}
