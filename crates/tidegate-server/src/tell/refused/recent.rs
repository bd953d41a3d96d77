//! The latest refusal of each of the last keys, within a bound.
//!
//! A key that keeps coming has one entry, not all of them, so that a key that is refused once is seen
//! beside one that is refused all the time. A new key takes the entry of the key that was refused
//! longest ago.

use std::collections::BTreeMap;

use tidegate::{Key, Limit, Micros, Name, Request};

use super::{Refusal, shown};
use crate::ask::request_document::RequestDocument;

/// Keys that are remembered at a time.
const MAX_RECENT: usize = 100;

/// Bytes of a request that are remembered; a longer one cannot be asked about again.
const MAX_REMEMBERED: usize = 4_096;

/// The latest refusal of a key.
#[derive(Clone, Debug)]
pub(crate) struct RecentRefusal {
    pub(crate) rule: Name,
    /// As it is shown.
    pub(crate) key: String,
    /// How often the key was refused since it has an entry here.
    pub(crate) times: u64,
    pub(crate) cost: u64,
    pub(crate) capacity: u64,
    pub(crate) retry_after: Option<Micros>,
    pub(crate) at: Micros,
    /// What to ask to have it explained.
    pub(crate) again: Option<RequestDocument>,
    limit: Option<Limit>,
    /// Which refusal it was, of all.
    number: u64,
}

impl RequestDocument {
    /// None for a request that JSON cannot hold: bytes that are not text, a key of several parts.
    fn of(request: &Request<'_>, refusal: &Refusal<'_>) -> Option<RequestDocument> {
        let text = |key: &Key<'_>| match key.is_composite() {
            true => None,
            false => String::from_utf8(key.as_bytes().into()).ok(),
        };
        let key = match request.own_key() {
            Some(key) if !key.as_bytes().is_empty() || key.is_composite() => Some(text(key)?),
            Some(_) | None => None,
        };
        let attributes = request.attributes().map(|(name, value)| Some((name.to_owned(), text(&value)?)));
        let attributes: BTreeMap<String, String> = attributes.collect::<Option<_>>()?;
        let bytes = key.iter().chain(attributes.keys()).chain(attributes.values()).map(String::len).sum::<usize>();
        let (limit, rule) = match (refusal.inline, refusal.limit) {
            (Some(inline), _) => (Some(inline.to_string()), None),
            (None, Some(_)) => (None, Some(refusal.rule.to_string())),
            (None, None) => (None, None),
        };
        let cost = refusal.cost;
        (bytes <= MAX_REMEMBERED).then_some(RequestDocument { rule, key, attributes, limit, cost })
    }
}

#[derive(Default)]
pub(super) struct Recent {
    refusals: Vec<RecentRefusal>,
    /// Of the rule and key at the same place: close together, as all are looked
    /// through.
    hashes: Vec<u64>,
    count: u64,
}

impl Recent {
    pub(super) fn add(&mut self, hash: u64, refusal: &Refusal<'_>) {
        let Refusal { rule, key, request, cost, capacity, limit, retry_after, at, .. } = *refusal;
        self.count += 1;
        let number = self.count;
        let again = || request.and_then(|request| RequestDocument::of(request, refusal));
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            let known = &mut self.refusals[place];
            // Another limit refused: that of another tier, or of another policy.
            if (known.limit, known.capacity, known.cost) != (limit, capacity, cost) {
                known.again = again();
            }
            known.times += 1;
            (known.cost, known.capacity, known.limit) = (cost, capacity, limit);
            (known.retry_after, known.at, known.number) = (retry_after, at, number);
            return;
        }
        let (rule, key, again) = (rule.clone(), shown(key), again());
        let latest = RecentRefusal { rule, key, times: 1, cost, capacity, retry_after, at, again, limit, number };
        if self.refusals.len() < MAX_RECENT {
            self.refusals.push(latest);
            self.hashes.push(hash);
            return;
        }
        let oldest = self.refusals.iter().enumerate().min_by_key(|(_, refusal)| refusal.number);
        if let Some((place, _)) = oldest {
            (self.refusals[place], self.hashes[place]) = (latest, hash);
        }
    }

    pub(super) fn latest_first(&self) -> Vec<RecentRefusal> {
        let mut refusals = self.refusals.clone();
        refusals.sort_unstable_by_key(|refusal| std::cmp::Reverse(refusal.number));
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(recent: &mut Recent, number: u64) {
        let (rule, key, request) = (Name::literal("rule"), &Key::from(number), &Request::user(number));
        let (request, limit, inline, retry_after, at) = (Some(request), None, None, None, Micros::ZERO);
        recent
            .add(number, &Refusal { rule: &rule, key, request, cost: 1, capacity: 1, limit, inline, retry_after, at });
    }

    #[test]
    fn a_key_that_keeps_coming_stays_and_the_least_recent_one_is_evicted() {
        let mut recent = Recent::default();
        add(&mut recent, 7);
        for _ in 0..1_000 {
            add(&mut recent, 8);
        }
        let seen: Vec<(String, u64)> = recent.latest_first().iter().map(|it| (it.key.clone(), it.times)).collect();
        assert_eq!(seen, [("8".to_owned(), 1_000), ("7".to_owned(), 1)]);
        for number in 100..300 + MAX_RECENT as u64 {
            add(&mut recent, number);
            add(&mut recent, 8);
        }
        assert_eq!(recent.refusals.len(), MAX_RECENT);
        let latest = &recent.latest_first()[0];
        assert_eq!((latest.key.as_str(), latest.times), ("8", 1_000 + 200 + MAX_RECENT as u64));
        assert!(recent.latest_first().iter().all(|it| it.key != "7"));
    }

    #[test]
    fn a_refused_request_can_be_asked_again_if_it_has_words_in_json() {
        let (rule, key, at) = (&Name::literal("orders"), &Key::from("alice"), Micros::ZERO);
        let again = |request: Request<'_>, inline| {
            let (limit, retry_after) = (Some(Limit::per_second(5)), None);
            let refusal = Refusal { rule, key, request: None, cost: 3, capacity: 5, limit, inline, retry_after, at };
            RequestDocument::of(&request, &refusal)
        };
        let request = Request::without_key().with("user", "alice").with("tier", "free");
        let attributes = [("user", "alice"), ("tier", "free")].map(|(name, value)| (name.into(), value.into())).into();
        let rule = Some("orders".to_owned());
        assert_eq!(again(request, None), Some(RequestDocument { rule, key: None, attributes, limit: None, cost: 3 }));
        let inline = again(Request::new("alice"), Some(Limit::per_second(5))).expect("it has words");
        assert_eq!((inline.key.as_deref(), inline.limit.as_deref(), inline.rule), (Some("alice"), Some("5/s"), None));
        assert_eq!(again(Request::new(("alice", "orders")), None), None);
        assert_eq!(again(Request::new(&[0xff_u8][..]), None), None);
        assert_eq!(again(Request::new("a".repeat(MAX_REMEMBERED + 1)), None), None);
    }
}
