//! Who was refused lately: the latest refusal of each key, within a bound.
//!
//! A key that keeps coming has one place, not all of them: whoever is refused
//! once is still seen beside one that is refused all the time. Places are taken
//! in turn, so that nobody looks for the oldest.

use tidegate::{Key, Limit, Micros, Name};

use super::Refusal;

/// Keys that are remembered at a time.
pub(crate) const MOST_RECENT: usize = 100;

/// The latest refusal of a key.
#[derive(Clone, Debug)]
pub(crate) struct RecentRefusal {
    pub(crate) rule: Name,
    pub(crate) key: Key<'static>,
    /// How often the key was refused since it has a place here.
    pub(crate) times: u64,
    pub(crate) cost: u64,
    pub(crate) capacity: u64,
    pub(crate) limit: Option<Limit>,
    pub(crate) inline: Option<Limit>,
    pub(crate) retry_after: Option<Micros>,
    pub(crate) at: Micros,
    /// Which refusal it was, of all.
    turn: u64,
}

#[derive(Default)]
pub(super) struct Recent {
    refusals: Vec<RecentRefusal>,
    /// Of the rule and key at the same place: close together, as all are looked
    /// through.
    hashes: Vec<u64>,
    /// The place that is taken next.
    next: usize,
    turns: u64,
}

impl Recent {
    pub(super) fn add(&mut self, hash: u64, refusal: &Refusal<'_>) {
        let Refusal { rule, key, cost, capacity, limit, inline, retry_after, at } = *refusal;
        self.turns += 1;
        let turn = self.turns;
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            let known = &mut self.refusals[place];
            known.times += 1;
            (known.cost, known.capacity, known.limit, known.inline) = (cost, capacity, limit, inline);
            (known.retry_after, known.at, known.turn) = (retry_after, at, turn);
            return;
        }
        let key = key.clone().into_owned();
        let rule = rule.clone();
        let latest = RecentRefusal { rule, key, times: 1, cost, capacity, limit, inline, retry_after, at, turn };
        if self.refusals.len() < MOST_RECENT {
            self.refusals.push(latest);
            self.hashes.push(hash);
            return;
        }
        (self.refusals[self.next], self.hashes[self.next]) = (latest, hash);
        self.next = (self.next + 1) % MOST_RECENT;
    }

    pub(super) fn latest_first(&self) -> Vec<RecentRefusal> {
        let mut refusals = self.refusals.clone();
        refusals.sort_unstable_by_key(|refusal| std::cmp::Reverse(refusal.turn));
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(recent: &mut Recent, number: u64) {
        let (rule, key) = (Name::literal("rule"), &Key::from(number));
        let at = Micros::ZERO;
        recent.add(
            number,
            &Refusal { rule: &rule, key, cost: 1, capacity: 1, limit: None, inline: None, retry_after: None, at },
        );
    }

    #[test]
    fn one_that_keeps_coming_does_not_hide_the_others_and_who_came_first_gives_way() {
        let mut recent = Recent::default();
        add(&mut recent, 7);
        for _ in 0..1_000 {
            add(&mut recent, 8);
        }
        let seen: Vec<(String, u64)> = recent.latest_first().iter().map(|it| (it.key.to_string(), it.times)).collect();
        assert_eq!(seen, [("8".to_owned(), 1_000), ("7".to_owned(), 1)]);
        for number in 100..100 + MOST_RECENT as u64 {
            add(&mut recent, number);
        }
        assert_eq!(recent.refusals.len(), MOST_RECENT);
        assert_eq!(recent.latest_first()[0].key.to_string(), (99 + MOST_RECENT).to_string());
        assert!(recent.latest_first().iter().all(|it| it.times == 1));
    }
}
