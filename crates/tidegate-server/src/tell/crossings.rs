//! Thresholds that charges crossed: logged, remembered for the dashboard, and handed to the webhook.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tidegate::{Micros, Name, ThresholdEvent};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::run::buffered::{Buffered, Held};
use crate::tell::refused::shown;

/// The latest crossings that are remembered.
pub(crate) const MAX_RECENT: usize = 100;

/// Bytes of keys and bodies of all events that wait for the webhook.
const MAX_WAITING: usize = 16 << 20;

/// Crossings that are logged in a second; further ones are only counted.
const MAX_LOGGED_A_SECOND: u32 = 100;

/// A threshold that a charge crossed.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(crate) rule: Name,
    pub(crate) key: String,
    pub(crate) percent: u8,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    pub(crate) at: Micros,
    pub(crate) resets_at: Micros,
    pub(crate) shadow: bool,
}

/// A crossing on its way to the webhook, and its part of the room for them.
pub(crate) type HandedOver = (Crossing, Held);

/// What becomes of crossings.
#[derive(Debug)]
pub(crate) struct Crossings {
    recent: Mutex<Recent>,
    webhook: OnceLock<mpsc::Sender<HandedOver>>,
    room: Arc<Buffered>,
    /// Those for which the webhook had no room.
    pub(crate) dropped: Counter,
}

impl Default for Crossings {
    fn default() -> Crossings {
        let dropped = Counter::default();
        let room = Buffered::new(MAX_WAITING, Gauge::default(), dropped.clone());
        Crossings { recent: Mutex::default(), webhook: OnceLock::new(), room, dropped }
    }
}

#[derive(Debug, Default)]
struct Recent {
    /// With keys as they are shown.
    latest: VecDeque<Crossing>,
    second: u64,
    logged: u32,
}

impl Crossings {
    /// Hands all further crossings to a webhook.
    pub(crate) fn send_to(&self, webhook: mpsc::Sender<HandedOver>) {
        // A server has one webhook.
        let _ = self.webhook.set(webhook);
    }

    /// Takes note of a crossing. It waits for nothing.
    pub(crate) fn add(&self, event: &ThresholdEvent<'_>) {
        let crossing = |key| Crossing {
            rule: event.rule.clone(),
            key,
            percent: event.percent,
            used: event.used,
            capacity: event.capacity,
            at: event.at,
            resets_at: event.at.saturating_add(Micros::from_duration(event.reset_after)),
            shadow: event.shadow,
        };
        if let Some(webhook) = self.webhook.get() {
            self.hand_over(webhook, crossing(event.key.to_string()));
        }
        let logged = self.remember(crossing(shown(event.key)));
        if logged < MAX_LOGGED_A_SECOND {
            let (rule, key, threshold) = (event.rule, shown(event.key), format_args!("{}%", event.percent));
            let (used, capacity, shadow) = (event.used, event.capacity, event.shadow);
            info!(%rule, key, %threshold, used, capacity, shadow, "a threshold was crossed");
        } else if logged == MAX_LOGGED_A_SECOND {
            warn!("many thresholds are crossed; for a second, further ones are only counted");
        }
    }

    /// Hands a crossing to the webhook, or counts it as dropped.
    fn hand_over(&self, webhook: &mpsc::Sender<HandedOver>, crossing: Crossing) {
        let (dropped_before, held) = (self.dropped.get(), self.room.hold(0));
        // The room counts what it has none for.
        if held.add(crossing.key.len()).is_ok() && webhook.try_send((crossing, held)).is_err() {
            self.dropped.inc();
        }
        if dropped_before == 0 && self.dropped.get() > 0 {
            warn!("the webhook has no room for another event; further ones are only counted");
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
    fn long_keys_are_remembered_as_they_are_shown_and_go_whole_to_the_webhook_while_there_is_room() {
        const LONG: usize = 256 * 1024;
        let crossings = Arc::<Crossings>::default();
        let (sender, mut receiver) = mpsc::channel(1_024);
        crossings.send_to(sender);
        let rule = Rule::new("api", Limit::per_hour(1)).notify([100]).unwrap();
        let limiter = Limiter::builder(rule).observer(Notes(Arc::clone(&crossings))).build().unwrap();
        let key = |number: u64| format!("{number:06}{}", "k".repeat(LONG - 6));
        assert!((0..200).all(|number| limiter.allow(key(number))));
        assert!(crossings.recent().iter().all(|crossing| crossing.key.len() < 1_000));
        let room = (16 << 20) / LONG as u64;
        assert_eq!(crossings.dropped.get(), 200 - room);
        assert_eq!(receiver.try_recv().unwrap().0.key, key(0));
        assert!((200..202).all(|number| limiter.allow(key(number))));
        assert_eq!(crossings.dropped.get(), 200 - room + 1, "there is room for one more again");
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
        assert_eq!((recent.len(), recent[0].key.clone()), (MAX_RECENT, (2 * MAX_RECENT - 1).to_string()));
        assert_eq!((recent[0].percent, recent[0].used, recent[0].capacity), (100, 1, 1));
        assert!(recent[0].resets_at > recent[0].at);
        assert_eq!(crossings.dropped.get(), 2 * MAX_RECENT as u64 - 10);
        assert_eq!(receiver.try_recv().unwrap().0.key, "0");
    }
}
