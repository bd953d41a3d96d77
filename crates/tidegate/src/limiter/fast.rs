//! Which limit takes the fast path now, if one does, and whether a policy has changed.
//!
//! A limiter with one limit, by the key of the request or by an attribute, or with a few by the key, reads them here by
//! two loads, whether or not its policy was ever changed. A limit that once took the fast path is kept for as long as the
//! limiter, so that reading it needs no count of readers; the same limit again is the
//! same entry. After [`MAX_LIMITS`] different ones no more are added, and later limits are
//! decided without the fast path.

use std::sync::OnceLock;

use crate::request::{Key, Request};
use crate::store::Meter;
use crate::sync::{AtomicU64, Ordering};

/// The most limits that together take the fast path.
pub(super) const FEW_LIMITS: usize = 4;

/// The most entries that one limiter keeps, at about 300 bytes for each limit of an entry.
const MAX_LIMITS: usize = (1 << SEGMENTS) - 1;
/// Those of them that have several limits are among the first, so that all take 30 MB at most.
const MAX_OF_SEVERAL: usize = MAX_LIMITS >> 3;
/// Each segment has room for twice as many as the one before.
const SEGMENTS: usize = 16;

/// The bits of a state that say which limit it is; the others count changes.
const LIMIT: u64 = (1 << SEGMENTS) - 1;
const CHANGE: u64 = 1 << SEGMENTS;

/// The only limit of a policy, or the first of a few.
#[derive(Clone, PartialEq)]
pub(super) struct FastLimit {
    pub(super) meter: Meter,
    pub(super) by: By,
}

/// What the limits of a policy go by.
#[derive(Clone, PartialEq)]
pub(super) enum By {
    /// The only one, by the key of the request.
    Key,
    /// The only one, by the user, which mostly is the key of the request as well.
    User,
    /// The only one, by an attribute.
    Attribute(Box<str>),
    /// All of these, by the key of the request.
    Keys(Box<[Meter]>),
}

impl FastLimit {
    pub(super) fn new(meter: Meter, attribute: Option<&str>) -> FastLimit {
        let by = match attribute {
            None => By::Key,
            Some("user") => By::User,
            Some(attribute) => By::Attribute(attribute.into()),
        };
        FastLimit { meter, by }
    }

    /// Limits by the key of the request; none if there are fewer than two.
    pub(super) fn of_keys(meters: Box<[Meter]>) -> Option<FastLimit> {
        let [first, _, ..] = &*meters else { return None };
        Some(FastLimit { meter: first.clone(), by: By::Keys(meters) })
    }

    /// Whether the limit is all that there is to ask for a request, and the key if it is not
    /// that of the request.
    #[inline(always)]
    pub(super) fn key_of<'r>(&self, request: &'r Request<'_>) -> Option<Option<Key<'r>>> {
        if request.id.is_some() || request.rule.is_some() {
            return None;
        }
        match &self.by {
            By::Key => (!request.without.key).then_some(None),
            By::User if request.is_of_user() => Some(None),
            By::User => request.key_by("user").map(Some),
            By::Attribute(attribute) => request.key_by(attribute).map(Some),
            By::Keys(_) => None,
        }
    }
}

/// A policy that is in force, as one number: no two policies of a limiter have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(u64);

pub(super) struct FastLimits {
    /// The number of the limit, or none, and twice the number of changes; odd while
    /// the policy is being replaced.
    state: AtomicU64,
    /// The first limit, which mostly is the only one.
    first: OnceLock<FastLimit>,
    segments: [OnceLock<Box<[OnceLock<FastLimit>]>>; SEGMENTS],
}

impl FastLimits {
    pub(super) fn new(first: Option<FastLimit>) -> FastLimits {
        let (state, segments) = (AtomicU64::new(0), [const { OnceLock::new() }; SEGMENTS]);
        let limits = FastLimits { state, first: OnceLock::new(), segments };
        let number = first.and_then(|limit| limits.number_of(limit)).unwrap_or(0);
        limits.state.store(number as u64, Ordering::Release);
        limits
    }

    /// The limit that takes the fast path, and the version of the policy that has it.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<(&FastLimit, Version)> {
        let state = self.state.load(Ordering::Acquire);
        let number = (state & LIMIT) as usize;
        Some((self.slot(number)?.get()?, Version(state)))
    }

    /// The limit, if it is all that there is to ask for a request, with the key if that is not
    /// the request's.
    #[inline(always)]
    pub(super) fn of<'r>(&self, request: &'r Request<'_>) -> Option<(&FastLimit, Option<Key<'r>>, Version)> {
        let (limit, version) = self.get()?;
        Some((limit, limit.key_of(request)?, version))
    }

    /// The version of the policy in force; none while it is being replaced.
    #[inline(always)]
    pub(super) fn version(&self) -> Option<Version> {
        let state = self.state.load(Ordering::Acquire);
        (state & CHANGE == 0).then_some(Version(state))
    }

    #[inline(always)]
    pub(super) fn is(&self, version: Version) -> bool {
        self.state.load(Ordering::Acquire) == version.0
    }

    /// Replaces the policy by `replace`, and the limit that takes the fast path. Only
    /// one thread at a time may do so.
    pub(super) fn replace(&self, next: Option<FastLimit>, replace: impl FnOnce()) {
        let changes = self.state.load(Ordering::Acquire) & !LIMIT;
        self.state.store(changes.wrapping_add(CHANGE), Ordering::SeqCst);
        let number = next.and_then(|limit| self.number_of(limit)).unwrap_or(0);
        replace();
        self.state.store(changes.wrapping_add(2 * CHANGE) | number as u64, Ordering::SeqCst);
    }

    /// The entry of a limit; a new one if it has none yet and there is room.
    fn number_of(&self, limit: FastLimit) -> Option<usize> {
        let entries = (1..=MAX_LIMITS).map_while(|number| Some((number, self.slot(number)?.get()?)));
        let mut next = 1;
        for (number, known) in entries {
            if *known == limit {
                return Some(number);
            }
            next = number + 1;
        }
        let most = if let By::Keys(_) = limit.by { MAX_OF_SEVERAL } else { MAX_LIMITS };
        let segment = next.checked_ilog2().filter(|_| next <= most)?;
        self.segments[segment as usize].get_or_init(|| (0..1 << segment).map(|_| OnceLock::new()).collect());
        self.slot(next)?.set(limit).ok()?;
        Some(next)
    }

    #[inline(always)]
    fn slot(&self, number: usize) -> Option<&OnceLock<FastLimit>> {
        if number == 1 {
            return Some(&self.first);
        }
        let segment = number.checked_ilog2()? as usize;
        self.segments.get(segment)?.get()?.get(number - (1 << segment))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limit::Limit;

    fn meter(count: u64) -> FastLimit {
        FastLimit::new(Meter::new("limit", Limit::per_second(count)), None)
    }

    #[test]
    fn each_replacement_is_another_version_and_the_same_limit_the_same_entry() {
        let limits = FastLimits::new(Some(meter(1)));
        let (first, version) = limits.get().expect("a limit");
        assert!(*first == meter(1) && limits.is(version) && limits.version() == Some(version));
        let mut versions = vec![version];
        for round in 0..3 {
            for count in 1..=40 {
                limits.replace(Some(meter(count)), || {
                    assert!(limits.get().is_none() && limits.version().is_none(), "while it is replaced");
                });
                let (known, version) = limits.get().expect("a limit");
                assert!(*known == meter(count) && !versions.contains(&version), "{round} {count}");
                versions.push(version);
            }
            assert_eq!(limits.number_of(meter(40)), Some(40));
        }
        limits.replace(None, || {});
        assert!(limits.get().is_none() && limits.version().is_some() && !limits.is(version));
    }

    #[test]
    fn only_requests_of_which_nothing_else_is_asked_take_the_fast_path() {
        let by = |attribute: Option<&str>| {
            let limits = FastLimits::new(Some(FastLimit::new(meter(1).meter, attribute)));
            move |request: Request<'_>| {
                let of = limits.of(&request);
                of.map(|(_, key, _)| key.map(Key::into_owned))
            }
        };
        let of_key = by(None);
        assert_eq!(of_key(Request::new("alice").cost(3)), Some(None));
        let others = [Request::new("a").id("once"), Request::new("a").rule("limit"), Request::without_key()];
        assert!(others.into_iter().all(|request| of_key(request).is_none()));
        let of_user = by(Some("user"));
        assert_eq!(of_user(Request::without_key().with("user", "alice")), Some(Some(Key::from("alice"))));
        assert_eq!(of_user(Request::user(7_u8)), Some(None), "the user is the key of the request");
        assert_eq!(of_user(Request::user("alice").with("user", "bob")), Some(Some(Key::from("bob"))));
        assert_eq!(of_user(Request::user("alice").with("path", "/")), Some(Some(Key::from("alice"))));
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let others = [
            Request::new("alice"),
            Request::user("alice").id("once"),
            Request::user("alice").rule("limit"),
            Request::user(address),
        ];
        assert!(others.into_iter().all(|request| of_user(request).is_none()));
        assert!(FastLimits::new(None).of(&Request::new("alice")).is_none());
    }

    #[test]
    fn several_limits_are_not_asked_as_one() {
        let meters = |counts: &[u64]| counts.iter().map(|count| meter(*count).meter).collect();
        assert!(FastLimit::of_keys(meters(&[])).is_none() && FastLimit::of_keys(meters(&[1])).is_none());
        let limits = FastLimits::new(FastLimit::of_keys(meters(&[1, 2])));
        assert!(limits.get().is_some_and(|(limit, _)| limit.meter == meter(1).meter));
        assert!(limits.of(&Request::new("alice")).is_none());
        assert_eq!(limits.number_of(FastLimit::of_keys(meters(&[2, 1])).expect("two limits")), Some(2));
    }

    #[test]
    fn when_there_are_too_many_limits_the_last_have_no_entry() {
        let limits = FastLimits::new(None);
        let full =
            |size: u32| -> Vec<OnceLock<FastLimit>> { (0..1 << size).map(|_| OnceLock::from(meter(1))).collect() };
        assert!(limits.first.set(meter(1)).is_ok());
        for size in 0..SEGMENTS {
            let mut entries = full(size as u32);
            if size + 1 == SEGMENTS {
                entries.pop();
                entries.push(OnceLock::new());
            }
            assert!(limits.segments[size].set(entries.into()).is_ok());
        }
        limits.replace(FastLimit::of_keys([1, 2].map(|count| meter(count).meter).into()), || {});
        assert!(limits.get().is_none(), "several limits have to be among the first");
        limits.replace(Some(meter(2)), || {});
        assert!(limits.get().is_some(), "the last entry");
        limits.replace(Some(meter(3)), || {});
        assert!(limits.get().is_none() && limits.version().is_some());
        limits.replace(Some(meter(1)), || {});
        assert!(limits.get().is_some());
    }
}
