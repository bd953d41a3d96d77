//! Repeats refusals without asking, until the request could pass.
//!
//! A refused slice of checks is refused again from here until the earliest instant
//! at which any part of the answer could change, as far as this process knows.
//! A refund or a reset by this process makes it forget; of one by another
//! process it learns when [`max_age`](RefusalSettings::max_age) has passed. A
//! changed limit has states of its own, so it never meets an old answer.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Micros};

use super::lease::Leases;
use crate::given_back::GivenBack;
use crate::key::local_key;

/// How many refusals a [`RedisStore`](crate::RedisStore) remembers, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalSettings {
    /// Refusals that are remembered; at least one.
    pub max_entries: usize,
    /// For how long at most, so that resets elsewhere are noticed.
    pub max_age: Duration,
}

impl Default for RefusalSettings {
    /// 100,000 refusals, each for up to a second.
    fn default() -> Self {
        RefusalSettings { max_entries: 100_000, max_age: Duration::from_secs(1) }
    }
}

/// A store whose refusals are remembered.
///
/// A request with an id, and one that is not all charges, is always decided by
/// the store.
pub struct RefusalCache<S> {
    store: S,
    refusals: Option<Refusals>,
    repeated: AtomicU64,
}

impl<S> RefusalCache<S> {
    /// A store whose refusals are remembered there; with `None`, they are not.
    pub fn new(store: S, refusals: impl Into<Option<Refusals>>) -> RefusalCache<S> {
        RefusalCache { store, refusals: refusals.into(), repeated: AtomicU64::new(0) }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Refusals that were repeated without asking the store.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }
}

impl<S: Store> Store for RefusalCache<S> {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let Some(refusals) = &self.refusals else { return self.store.decide(checks, verdicts).await };
        let _given_back = refusals.given_back_by(checks);
        let Some(lookup) = refusals.lookup(checks, self.clock().now()) else {
            return self.store.decide(checks, verdicts).await;
        };
        if let Some(at) = refusals.answer(&lookup, verdicts) {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return Ok(at);
        }
        let at = self.store.decide(checks, verdicts).await?;
        refusals.remember(lookup, verdicts, at, self.clock().now());
        Ok(at)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.store.in_background(task);
    }
}

/// Refusals by what was asked.
type Shard = HashMap<Box<[u8]>, Refusal>;

/// The refusals that a process remembers.
pub struct Refusals {
    settings: RefusalSettings,
    shards: Box<[Mutex<Shard>]>,
    given_back: Arc<GivenBack>,
    /// Slices that have to do with these are always asked about.
    leases: Arc<Leases>,
}

struct Refusal {
    asked: Micros,
    /// When the answer was there: at some time in between it was made.
    answered: Micros,
    until: Micros,
    given_back: u64,
    at: Micros,
    verdicts: Box<[Verdict]>,
}

/// What is needed to remember the refusal of a slice that is being decided.
#[derive(Debug)]
struct Lookup {
    name: Box<[u8]>,
    asked: Micros,
    given_back: u64,
}

/// Checks that give something back: refusals from before are forgotten when
/// this is dropped, also if the caller does not wait for the answer.
struct GivingBack<'r> {
    given_back: &'r GivenBack,
    checks: &'r [Check<'r>],
}

impl Drop for GivingBack<'_> {
    fn drop(&mut self) {
        self.given_back.note(self.checks);
    }
}

const SHARDS: usize = 64;

impl Refusals {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(settings: RefusalSettings, leases: Arc<Leases>) -> Refusals {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let given_back = Arc::new(GivenBack::new(leases.hasher.clone()));
        Refusals { settings, shards, given_back, leases }
    }

    /// What the store below counts, when it gives units back by itself.
    pub(crate) fn given_back(&self) -> Arc<GivenBack> {
        Arc::clone(&self.given_back)
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.leases.hasher.hash_one(name) as usize % SHARDS]
    }

    /// What has to be forgotten of these checks when they are carried out. After a report
    /// the waits are longer.
    fn given_back_by<'r>(&'r self, checks: &'r [Check<'_>]) -> Option<GivingBack<'r>> {
        let gives_back = |check: &Check<'_>| !matches!(check.verb(), Verb::Charge | Verb::Peek);
        checks.iter().any(gives_back).then(|| GivingBack { given_back: &self.given_back, checks })
    }

    /// The lookup of a slice, if its refusals can be remembered.
    fn lookup(&self, checks: &[Check<'_>], now: Micros) -> Option<Lookup> {
        let is_charge = |check: &Check<'_>| check.verb() == Verb::Charge && check.cost() > 0 && check.id().is_none();
        if !checks.iter().all(is_charge) || self.leases.concern(checks) {
            return None;
        }
        let mut name = Vec::new();
        for check in checks {
            let state = local_key(check.meter(), check.key());
            name.extend(state.len().to_le_bytes());
            name.extend(state);
            name.extend(check.cost().to_le_bytes());
            // Windows of several counts may have one state.
            name.extend(check.meter().capacity().to_le_bytes());
            // And so have classes of requests with several floors.
            name.extend(check.meter().floor().to_le_bytes());
        }
        Some(Lookup { name: name.into(), asked: now, given_back: self.given_back.count(checks) })
    }

    /// The refusal that still holds, and when it was made.
    fn answer(&self, lookup: &Lookup, verdicts: &mut [Verdict]) -> Option<Micros> {
        let mut shard = self.shard(&lookup.name).lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = shard.get(&lookup.name)?;
        let elapsed = lookup.asked.saturating_since(refusal.answered);
        let went_back = lookup.asked < refusal.asked;
        if went_back || lookup.asked >= refusal.until || refusal.given_back != lookup.given_back {
            shard.remove(&lookup.name);
            return None;
        }
        for (verdict, remembered) in verdicts.iter_mut().zip(&refusal.verdicts) {
            *verdict = Verdict {
                retry_after: remembered.retry_after.saturating_since(elapsed),
                reset_after: remembered.reset_after.saturating_since(elapsed),
                ..*remembered
            };
        }
        Some(refusal.at.saturating_add(elapsed))
    }

    /// Remembers an answer that is there now, if it is a refusal.
    fn remember(&self, lookup: Lookup, verdicts: &[Verdict], at: Micros, now: Micros) {
        let refused = verdicts.iter().filter(|verdict| !verdict.allowed);
        let Some(wait) = refused.map(|verdict| verdict.retry_after).min() else { return };
        let wait = wait.min(Micros::from_duration(self.settings.max_age));
        let Lookup { name, asked, given_back } = lookup;
        let until = asked.saturating_add(wait);
        let mut shard = self.shard(&name).lock().unwrap_or_else(PoisonError::into_inner);
        let room = (self.settings.max_entries / SHARDS).max(1);
        if shard.len() >= room {
            shard.retain(|_, refusal| refusal.until > asked);
        }
        while shard.len() >= room {
            // Any will do: it is asked about again.
            let Some(name) = shard.keys().next().cloned() else { break };
            shard.remove(&name);
        }
        shard.insert(name, Refusal { asked, answered: now, until, given_back, at, verdicts: verdicts.into() });
    }
}

#[cfg(test)]
mod tests {
    use tidegate::store::Meter;
    use tidegate::{Key, Limit, Name};

    use super::*;

    fn refusals(settings: RefusalSettings) -> Refusals {
        Refusals::new(settings, Arc::new(Leases::new([], Duration::from_secs(60))))
    }

    fn refused(retry_after: u64) -> Verdict {
        let retry_after = Micros::new(retry_after);
        Verdict { retry_after, reset_after: Micros::new(5_000_000), ..Verdict::default() }
    }

    /// A check of one unit.
    fn with_check<T>(key: &str, verb: Verb, ask: impl FnOnce(Check<'_>) -> T) -> T {
        let (meter, key) = (Meter::new(Name::literal("rule"), Limit::per_second(1)), Key::from(key));
        ask(Check::new(&meter, &key, verb, 1).expect("a cost of one"))
    }

    /// Asks at `now`: whether a refusal is remembered, and with which wait.
    fn ask(refusals: &Refusals, key: &str, now: u64) -> Result<u64, Lookup> {
        let lookup = with_check(key, Verb::Charge, |check| refusals.lookup(&[check], Micros::new(now)));
        let lookup = lookup.expect("a charge");
        let mut verdicts = [Verdict::default()];
        match refusals.answer(&lookup, &mut verdicts) {
            Some(_) => Ok(verdicts[0].retry_after.get()),
            None => Err(lookup),
        }
    }

    fn remember(refusals: &Refusals, key: &str, now: u64, verdict: Verdict) {
        let lookup = ask(refusals, key, now).expect_err("not remembered yet");
        refusals.remember(lookup, &[verdict], Micros::new(now), Micros::new(now));
    }

    fn refund(refusals: &Refusals, key: &str) {
        with_check(key, Verb::Refund, |check| drop(refusals.given_back_by(&[check])));
    }

    #[test]
    fn a_refusal_holds_until_its_instant_and_counts_down() {
        let refusals = refusals(RefusalSettings::default());
        remember(&refusals, "alice", 1_000, refused(500));
        assert_eq!(ask(&refusals, "alice", 1_000).ok(), Some(500));
        assert_eq!(ask(&refusals, "alice", 1_499).ok(), Some(1));
        assert!(ask(&refusals, "bob", 1_000).is_err());
        assert!(ask(&refusals, "alice", 1_500).is_err(), "now it may pass");
    }

    /// The servers decided at some time before the answer was there: a caller
    /// that returns when told must not come too soon.
    #[test]
    fn the_wait_counts_from_when_the_answer_was_there() {
        let refusals = refusals(RefusalSettings::default());
        let lookup = ask(&refusals, "alice", 1_000).expect_err("not remembered yet");
        refusals.remember(lookup, &[refused(500)], Micros::new(7_000), Micros::new(1_010));
        let told = [1_005, 1_010, 1_210, 1_499].map(|now| ask(&refusals, "alice", now).ok());
        assert_eq!(told, [Some(500), Some(500), Some(300), Some(11)]);
        assert!(ask(&refusals, "alice", 1_500).is_err(), "perhaps it can pass by now");
    }

    #[test]
    fn an_admission_is_not_remembered() {
        let refusals = refusals(RefusalSettings::default());
        remember(&refusals, "alice", 1_000, Verdict { allowed: true, ..Verdict::default() });
        assert!(ask(&refusals, "alice", 1_000).is_err());
    }

    #[test]
    fn a_refusal_by_one_count_is_none_by_another_of_the_same_state() {
        let (refusals, alice) = (refusals(RefusalSettings::default()), Key::from("alice"));
        let lookup = |count| {
            let limit = Limit::fixed_window(count, Duration::from_secs(1));
            let meter = Meter::new(Name::literal("rule"), limit).by_period();
            let check = Check::new(&meter, &alice, Verb::Charge, 1).expect("a cost of one");
            refusals.lookup(&[check], Micros::new(1_000)).expect("a charge")
        };
        refusals.remember(lookup(6), &[refused(500)], Micros::new(1_000), Micros::new(1_000));
        let answers = [6, 10].map(|count| refusals.answer(&lookup(count), &mut [Verdict::default()]).is_some());
        assert_eq!(answers, [true, false]);
    }

    #[test]
    fn a_refund_clears_a_remembered_refusal() {
        let refusals = refusals(RefusalSettings::default());
        remember(&refusals, "alice", 1_000, refused(500));
        refund(&refusals, "alice");
        assert!(ask(&refusals, "alice", 1_001).is_err());
        // Also when it is given back while the store decides.
        let lookup = ask(&refusals, "alice", 2_000).expect_err("forgotten");
        refund(&refusals, "alice");
        refusals.remember(lookup, &[refused(500)], Micros::new(2_000), Micros::new(2_000));
        assert!(ask(&refusals, "alice", 2_001).is_err());
    }

    #[test]
    fn nothing_is_remembered_longer_than_allowed() {
        let refusals = refusals(RefusalSettings { max_age: Duration::from_micros(100), ..RefusalSettings::default() });
        remember(&refusals, "alice", 1_000, refused(5_000));
        assert_eq!(ask(&refusals, "alice", 1_099).ok(), Some(4_901));
        assert!(ask(&refusals, "alice", 1_100).is_err());
    }

    #[test]
    fn a_clock_that_went_back_is_not_told_an_old_answer() {
        let refusals = refusals(RefusalSettings::default());
        remember(&refusals, "alice", 1_000, refused(500));
        assert!(ask(&refusals, "alice", 999).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let refusals = refusals(RefusalSettings { max_entries: 640, ..RefusalSettings::default() });
        for number in 0..10_000 {
            remember(&refusals, &number.to_string(), 1_000, refused(500));
        }
        let held: usize = refusals.shards.iter().map(|shard| shard.lock().map_or(0, |shard| shard.len())).sum();
        assert!(held <= 640, "{held}");
    }
}
