//! Who is refused most, in bounded memory, and who was refused lately. A key
//! that makes up more than one in [`MAX_REFUSED`] of all refusals is always
//! there.

mod recent;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use tidegate::kernel::Verb;
use tidegate::{Event, Key, Limit, Micros, Name, Observer, Request};
use tidegate_replay::Top;

use self::recent::Recent;
pub(crate) use self::recent::RecentRefusal;

/// Characters of a key that are shown.
const MAX_SHOWN: usize = 200;

/// Keys that are counted at a time.
pub(crate) const MAX_REFUSED: usize = 1_000;

/// A refusal, as the wire that answered it reports it.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The rule that refused.
    pub rule: &'a Name,
    /// Whom.
    pub key: &'a Key<'a>,
    /// The request, if there was one: an Envoy descriptor is none.
    pub request: Option<&'a Request<'a>>,
    /// What was asked for.
    pub cost: u64,
    /// The most that could pass at once.
    pub capacity: u64,
    /// The limit that refused, if it has words.
    pub limit: Option<Limit>,
    /// The same, if it came with the request.
    pub inline: Option<Limit>,
    /// How long to wait, if that helps.
    pub retry_after: Option<Micros>,
    /// The store's time.
    pub at: Micros,
}

/// The keys that are refused most and those that were refused last, each under
/// the rule that refuses it.
#[derive(Default)]
pub struct Refused {
    seen: Mutex<Seen>,
    hasher: RandomState,
}

struct Seen {
    /// With keys as they are shown.
    counts: Top<(Name, String)>,
    recent: Recent,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { counts: Top::new(MAX_REFUSED), recent: Recent::default() }
    }
}

impl Refused {
    /// Counts a refusal, unless another thread counts at this moment: no caller waits, and the most refused keys are
    /// seen all the same.
    pub fn count(&self, refusal: &Refusal<'_>) {
        let mut seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let Refusal { rule, key, .. } = refusal;
        let hash = self.hasher.hash_one((rule.as_str(), key.is_composite(), key.as_bytes()));
        seen.counts.count(hash, || ((*rule).clone(), shown(key)));
        seen.recent.add(hash, refusal);
    }

    /// The first so many: rule, key, refusals, and by how many that may be
    /// too high.
    pub(crate) fn top(&self, most: usize) -> Vec<(Name, String, u64, u64)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen.counts.iter().take(most);
        first.map(|entry| (entry.item.0.clone(), entry.item.1.clone(), entry.count, entry.error)).collect()
    }

    /// Who was refused last, the latest first.
    pub(crate) fn recent(&self) -> Vec<RecentRefusal> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).recent.latest_first()
    }

    /// Counts refusals by a limit that came with the request.
    pub(crate) fn by(self: Arc<Refused>, limit: Limit) -> impl Observer {
        RefusedBy { refused: self, limit }
    }

    fn observe_as(&self, event: &Event<'_>, inline: Option<Limit>) {
        let Event { request, key, verb, cost, decision, at, shadow, .. } = *event;
        if verb != Verb::Charge || shadow || decision.is_allowed() {
            return;
        }
        let retry_after = decision.retry_after().map(Micros::from_duration);
        let (rule, limit, capacity) = (decision.rule(), decision.limit(), decision.capacity().unwrap_or_default());
        let request = Some(request);
        self.count(&Refusal { rule, key, request, cost, capacity, limit, inline, retry_after, at });
    }
}

/// A key as people read it, as far as they do.
pub(crate) fn shown(key: &Key<'_>) -> String {
    let text = key.to_string();
    match text.char_indices().nth(MAX_SHOWN - 1) {
        None if text.is_empty() => "(no key)".into(),
        Some((end, last)) if end + last.len_utf8() < text.len() => format!("{}…", &text[..end]),
        None | Some(_) => text,
    }
}

impl Observer for Refused {
    fn observe(&self, event: &Event<'_>) {
        self.observe_as(event, None);
    }
}

/// Knows by which limit the refusals are that it is told of.
struct RefusedBy {
    refused: Arc<Refused>,
    limit: Limit,
}

impl Observer for RefusedBy {
    fn observe(&self, event: &Event<'_>) {
        self.refused.observe_as(event, Some(self.limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Name = Name::literal("rule");

    fn count(refused: &Refused, rule: &Name, key: impl Into<Key<'static>>) {
        let (key, at) = (&key.into(), Micros::ZERO);
        let (request, limit, inline, retry_after) = (None, None, None, None);
        refused.count(&Refusal { rule, key, request, cost: 1, capacity: 1, limit, inline, retry_after, at });
    }

    #[test]
    fn the_most_refused_are_found_among_many_within_the_bound() {
        let refused = Refused::default();
        // Three that keep coming, in a crowd of many more than are counted.
        for turn in 0..30_000_u64 {
            count(&refused, &RULE, turn + 1_000_000);
            for (name, every) in [("always", 1), ("often", 2), ("at times", 4)] {
                if turn % every == 0 {
                    count(&refused, &RULE, name);
                }
            }
        }
        let top = refused.top(3);
        let names: Vec<&str> = top.iter().map(|(_, key, ..)| key.as_str()).collect();
        assert_eq!(names, ["always", "often", "at times"]);
        for ((.., count, error), truth) in top.iter().zip([30_000, 15_000, 7_500]) {
            assert!(count - error <= truth && truth <= *count, "{count} - {error}, in truth {truth}");
        }
        assert_eq!(refused.top(usize::MAX).len(), MAX_REFUSED);
    }

    #[test]
    fn long_keys_are_told_apart_and_kept_as_they_are_shown() {
        let refused = Refused::default();
        for last in 0..3 {
            count(&refused, &RULE, format!("{}{last}", "k".repeat(64 * 1024)));
        }
        let seen = refused.seen.lock().expect("no panic");
        let counted: Vec<usize> = seen.counts.iter().map(|entry| entry.item.1.len()).collect();
        let recent = seen.recent.latest_first().into_iter().map(|refusal| refusal.key.len());
        let all: Vec<usize> = counted.into_iter().chain(recent).collect();
        assert!(all.len() == 6 && all.iter().all(|length| *length < 1_000), "{all:?}");
    }

    #[test]
    fn a_key_is_counted_for_each_rule() {
        let refused = Refused::default();
        count(&refused, &RULE, "alice");
        count(&refused, &Name::literal("other"), "alice");
        assert_eq!(refused.top(10).len(), 2);
    }
}
