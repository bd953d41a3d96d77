//! Reservations that are open, as far as this server has seen them: who holds them, and since when.
//!
//! Where several servers share a store, one that was made here and settled elsewhere is shown here
//! until it expires. Nothing is decided by this list: the store knows what is reserved.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::{Event, Key, Limit, Micros, Name, Observer, ReservationStep};

use crate::tell::refused::shown;

/// Parts that are locked one by one.
const PARTS: usize = 16;

/// Reservations that a part remembers. Beyond that, new ones are not shown.
const MAX_PER_PART: usize = 1_000;

/// For how long the stores of this server remember an id that does not say it.
const USUALLY: Duration = Duration::from_secs(300);

/// A reservation that is open; its id and its key as they are shown.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    /// The rule that had least left, and the key that it counts by.
    pub(crate) rule: Name,
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) since: Micros,
    pub(crate) expires: Micros,
    lasts: Micros,
}

/// All that are open.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    parts: [Mutex<Part>; PARTS],
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Part {
    /// By the hashes of their ids.
    open: HashMap<u64, Held>,
    expired: u64,
}

/// What there is of them at one time.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) open: u64,
    /// How many ended unsettled since the start.
    pub(crate) expired: u64,
    /// Those that have been open for longest, the oldest first.
    pub(crate) oldest: Vec<Held>,
}

impl Part {
    /// Forgets those that are over.
    fn sweep(&mut self, now: Micros) {
        let before = self.open.len();
        self.open.retain(|_, held| held.expires > now);
        self.expired += (before - self.open.len()) as u64;
    }
}

impl Reservations {
    /// What is open now, and the oldest so many.
    pub(crate) fn seen(&self, now: Micros, most: usize) -> Seen {
        let mut seen = Seen::default();
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.sweep(now);
            seen.open += part.open.len() as u64;
            seen.expired += part.expired;
            if most > 0 {
                let mut open: Vec<&Held> = part.open.values().collect();
                open.sort_unstable_by_key(|held| held.since);
                seen.oldest.extend(open.into_iter().take(most).cloned());
            }
        }
        seen.oldest.sort_unstable_by(|one, other| (one.since, &one.id).cmp(&(other.since, &other.id)));
        seen.oldest.truncate(most);
        seen
    }
}

impl Observer for Reservations {
    fn observe(&self, event: &Event<'_>) {
        let (Some(reservation), decision, at) = (event.reservation, event.decision, event.at) else { return };
        if !decision.is_allowed() || decision.is_repeated() {
            return;
        }
        let hash = self.hasher.hash_one(reservation.id);
        let part = &self.parts[hash as usize % PARTS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        match reservation.step {
            ReservationStep::Reserve => {
                if part.open.len() >= MAX_PER_PART {
                    part.sweep(at);
                    if part.open.len() >= MAX_PER_PART {
                        return;
                    }
                }
                // A permit is over before its reservation is forgotten.
                let permit = decision.limit().filter(Limit::is_in_flight).map(|limit| limit.period());
                let lasts = Micros::from_duration(permit.or(reservation.lasts).unwrap_or(USUALLY));
                let held = Held {
                    id: shown(&Key::from(reservation.id)),
                    rule: decision.rule().clone(),
                    key: shown(event.key),
                    cost: event.cost,
                    since: at,
                    expires: at.saturating_add(lasts),
                    lasts,
                };
                part.open.insert(hash, held);
            }
            ReservationStep::Renew => {
                if let Some(held) = part.open.get_mut(&hash) {
                    held.expires = at.saturating_add(held.lasts);
                }
            }
            ReservationStep::Settle | ReservationStep::Release => drop(part.open.remove(&hash)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use tidegate::store::Store;
    use tidegate::{Limiter, ManualClock, MemoryStore, Request};

    use super::*;

    #[test]
    fn what_is_held_is_seen_until_it_is_settled_or_expires() {
        let (clock, held) = (ManualClock::default(), Arc::<Reservations>::default());
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let limit = Limit::in_flight(3, Duration::from_secs(10));
        let limiter = Limiter::builder(limit).store(store).observer(Arc::clone(&held)).build().unwrap();
        let now = || limiter.store().clock().now();
        let ask = |id: &'static str| Request::new("alice").id(id).lasts(Duration::from_secs(10)).into_estimate();
        for id in ["a", "b", "c", "d"] {
            let _ = limiter.check(ask(id)).unwrap();
            clock.advance(Duration::from_secs(1));
        }
        let _ = limiter.check(ask("a")).unwrap();
        let _ = limiter.check(Request::new("bob").id("no reservation")).unwrap();
        let seen = held.seen(now(), 2);
        let oldest: Vec<_> = seen.oldest.iter().map(|held| (&*held.id, held.key.clone())).collect();
        assert_eq!((seen.open, oldest), (3, vec![("a", "alice".into()), ("b", "alice".into())]));
        let _ = limiter.settle(ask("b"), 1).unwrap();
        let _ = limiter.renew(ask("a")).unwrap();
        clock.advance(Duration::from_secs(9));
        let seen = held.seen(now(), 2);
        assert_eq!((seen.open, seen.expired, &*seen.oldest[0].id), (1, 1, "a"));
        let _ = limiter.release(ask("a")).unwrap();
        assert_eq!(held.seen(now(), 2).open, 0);
    }

    #[test]
    fn long_ids_and_keys_are_kept_as_they_are_shown_and_a_count_copies_none() {
        const LONG: usize = 64 * 1024;
        let held = Arc::<Reservations>::default();
        let limiter = Limiter::builder(Limit::per_hour(1_000)).observer(Arc::clone(&held)).build().unwrap();
        let now = || limiter.store().clock().now();
        let ids = [1, 2, 3].map(|last| format!("{}{last}", "i".repeat(LONG)));
        let key = "k".repeat(LONG);
        for id in &ids {
            let _ = limiter.check(Request::new(&*key).id(id).into_estimate()).unwrap();
        }
        let seen = held.seen(now(), 2);
        assert_eq!((seen.open, seen.oldest.len()), (3, 2));
        assert!(seen.oldest.iter().all(|held| held.id.len() + held.key.len() < 1_000));
        assert_eq!(allocation_counter::measure(|| drop(held.seen(now(), 0))).count_total, 0);
        let _ = limiter.release(Request::new(&*key).id(&ids[1]).into_estimate()).unwrap();
        assert_eq!(held.seen(now(), 0).open, 2);
    }

    #[test]
    fn more_than_the_bound_are_not_remembered() {
        let held = Arc::<Reservations>::default();
        let limiter = Limiter::builder(Limit::per_hour(1_000_000)).observer(Arc::clone(&held)).build().unwrap();
        for number in 0..2 * PARTS * MAX_PER_PART {
            let _ = limiter.check(Request::new(number as u64).id(&number.to_string()).into_estimate()).unwrap();
        }
        let seen = held.seen(limiter.store().clock().now(), 0);
        assert_eq!(seen.open, (PARTS * MAX_PER_PART) as u64);
    }
}
