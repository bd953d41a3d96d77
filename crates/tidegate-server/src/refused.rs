//! Who is refused most: the space-saving sketch of Metwally, Agrawal and
//! El Abbadi (2005), in bounded memory.
//!
//! A key that is not counted yet takes the place of the one with the least
//! count, and inherits it as its error. A key that makes up more than one in
//! [`MOST_REFUSED`] of all refusals is always there.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError, TryLockError};

use tidegate::kernel::Verb;
use tidegate::{Event, Key, Name, Observer};

/// Keys that are counted at a time.
pub(crate) const MOST_REFUSED: usize = 1_000;

/// The keys that are refused most, each under the rule that refuses it.
#[derive(Default)]
pub struct Refused {
    counts: Mutex<Counts>,
    hasher: RandomState,
}

#[derive(Default)]
struct Counts {
    entries: Vec<Entry>,
    /// Where the entry of a rule and key is, by their hash.
    places: HashMap<u64, usize>,
    /// All entries, the least count first.
    order: BTreeSet<(u64, usize)>,
}

struct Entry {
    hash: u64,
    rule: Name,
    key: Key<'static>,
    count: u64,
    error: u64,
}

impl Refused {
    /// Counts a refusal. While another thread counts, this one is let go: who
    /// is refused most is seen all the same, and nobody waits.
    pub fn count(&self, rule: Name, key: &Key<'_>) {
        let mut counts = match self.counts.try_lock() {
            Ok(counts) => counts,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let hash = self.hasher.hash_one((rule.as_str(), key.is_composite(), key.as_bytes()));
        counts.add(hash, rule, key);
    }

    /// The first so many: rule, key, refusals, and by how many that may be
    /// too high.
    pub(crate) fn top(&self, most: usize) -> Vec<(Name, String, u64, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let first = counts.order.iter().rev().take(most).map(|(_, place)| &counts.entries[*place]);
        first.map(|entry| (entry.rule, entry.key.to_string(), entry.count, entry.error)).collect()
    }
}

impl Counts {
    fn add(&mut self, hash: u64, rule: Name, key: &Key<'_>) {
        if let Some(place) = self.places.get(&hash).copied() {
            let entry = &mut self.entries[place];
            self.order.remove(&(entry.count, place));
            entry.count += 1;
            self.order.insert((entry.count, place));
            return;
        }
        let key = key.clone().into_owned();
        if self.entries.len() < MOST_REFUSED {
            let place = self.entries.len();
            self.entries.push(Entry { hash, rule, key, count: 1, error: 0 });
            self.places.insert(hash, place);
            self.order.insert((1, place));
            return;
        }
        let Some((error, place)) = self.order.pop_first() else { return };
        let entry = Entry { hash, rule, key, count: error + 1, error };
        self.order.insert((entry.count, place));
        let before = std::mem::replace(&mut self.entries[place], entry);
        self.places.remove(&before.hash);
        self.places.insert(hash, place);
    }
}

impl Observer for Refused {
    fn observe(&self, event: &Event<'_>) {
        if event.verb == Verb::Charge && !event.shadow && !event.decision.is_allowed() {
            self.count(event.rule, event.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Name = Name::literal("rule");

    #[test]
    fn the_most_refused_are_found_among_many_within_the_bound() {
        let refused = Refused::default();
        // Three that keep coming, in a crowd of many more than are counted.
        for turn in 0..30_000_u64 {
            refused.count(RULE, &Key::from(turn + 1_000_000));
            for (name, every) in [("always", 1), ("often", 2), ("at times", 4)] {
                if turn % every == 0 {
                    refused.count(RULE, &Key::from(name));
                }
            }
        }
        let top = refused.top(3);
        let names: Vec<&str> = top.iter().map(|(_, key, ..)| key.as_str()).collect();
        assert_eq!(names, ["always", "often", "at times"]);
        for ((.., count, error), truth) in top.iter().zip([30_000, 15_000, 7_500]) {
            assert!(count - error <= truth && truth <= *count, "{count} - {error}, in truth {truth}");
        }
        assert_eq!(refused.top(usize::MAX).len(), MOST_REFUSED);
    }

    #[test]
    fn a_key_is_counted_for_each_rule() {
        let refused = Refused::default();
        refused.count(RULE, &Key::from("alice"));
        refused.count(Name::literal("other"), &Key::from("alice"));
        assert_eq!(refused.top(10).len(), 2);
    }
}
