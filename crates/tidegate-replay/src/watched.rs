//! The memory store under observation: a check is data, so a layer before the
//! store sees what each limit is asked and what it answers, while the limiter
//! decides as it always does.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Meter, Store, StoreError};
use tidegate::{Clock, Key, Limit, MemoryStore, Micros, Name};

use crate::headroom::{FULL, Headroom, OVER, Peak};
use crate::spool::{Asked, Spool};

/// Limits that are told apart; a policy may have more.
pub(crate) const MAX_LIMITS: usize = 256;

pub(crate) struct Watched {
    store: MemoryStore,
    seen: Mutex<Seen>,
}

/// What the limits were asked, and answered.
#[derive(Default)]
pub(crate) struct Seen {
    hasher: RandomState,
    numbers: HashMap<u64, usize, RandomState>,
    pub(crate) limits: Vec<LimitUse>,
    pub(crate) spool: Option<Spool>,
    /// Of the request that is being decided: the limits that were asked, by how
    /// many calls.
    asked: Vec<(usize, usize)>,
    calls: usize,
    refusals: Vec<(Name, u64, Key<'static>)>,
    pub(crate) asking: Asking,
}

/// What the store is asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Asking {
    /// To decide a request.
    #[default]
    Request,
    /// To settle one that has ended.
    Settlement,
    /// To settle one that has cost more than its estimate.
    Excess,
}

/// One limit, and what it was asked.
pub(crate) struct LimitUse {
    pub(crate) rule: Name,
    pub(crate) meaning: String,
    pub(crate) limit: Option<Limit>,
    pub(crate) is_shadow: bool,
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    pub(crate) total_cost: u64,
    pub(crate) largest_cost: u64,
    /// The most that a key had used, in units.
    pub(crate) most_used: u64,
    /// The longest that a key had to wait for another unit after a request that had cost more
    /// than its estimate.
    pub(crate) longest_debt: Micros,
    pub(crate) headroom: Headroom,
}

impl Watched {
    pub(crate) fn new(store: MemoryStore, spool: Option<Spool>) -> Watched {
        Watched { store, seen: Mutex::new(Seen { spool, ..Seen::default() }) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.store.overflowed()
    }

    fn see(&self, checks: &[Check<'_>], verdicts: &[Verdict], at: Micros) -> Result<Micros, StoreError> {
        let mut seen = self.seen();
        match seen.asking {
            Asking::Request => {
                checks.iter().zip(verdicts).for_each(|(check, verdict)| seen.note(check, verdict, at));
                seen.calls += 1;
            }
            Asking::Settlement => {}
            Asking::Excess => {
                let settled =
                    |check: &&Check<'_>| matches!(check.verb(), Verb::Settle(_)) && !check.meter().is_in_flight();
                for check in checks.iter().filter(settled) {
                    let mut verdict = Verdict::default();
                    self.store.decide_one_now(check.as_peek().with_cost(1), &mut verdict)?;
                    if let Some(number) = seen.number(check.meter()) {
                        let longest = &mut seen.limits[number].longest_debt;
                        *longest = verdict.retry_after.max(*longest);
                    }
                }
            }
        }
        Ok(at)
    }
}

impl Seen {
    /// Forgets the request, before another one is decided.
    pub(crate) fn clear(&mut self) {
        self.asked.clear();
        self.refusals.clear();
        self.calls = 0;
    }

    /// The request has been decided. Where a limit decided, all that had to
    /// pass were asked by the first call; a limit that was asked by another call is
    /// a shadow rule's.
    pub(crate) fn end(&mut self, was_limited: bool) {
        if self.calls > usize::from(was_limited) {
            for (limit, call) in &self.asked {
                self.limits[*limit].is_shadow |= *call >= usize::from(was_limited);
            }
        }
    }

    /// Whom a rule has refused, and the hash of both.
    pub(crate) fn refused_by(&mut self, rule: &Name) -> Option<(u64, Key<'static>)> {
        let place = self.refusals.iter().position(|(known, ..)| known == rule)?;
        let (_, hash, key) = self.refusals.swap_remove(place);
        Some((hash, key))
    }

    /// The hash of a rule and a key.
    pub(crate) fn hash(&self, rule: &Name, key: &Key<'_>) -> u64 {
        self.hasher.hash_one((rule.as_str(), key.is_composite(), key.as_bytes()))
    }

    fn note(&mut self, check: &Check<'_>, verdict: &Verdict, at: Micros) {
        // What was answered before was noted then.
        if verdict.repeated {
            return;
        }
        let Some(number) = self.number(check.meter()) else { return };
        let (key, cost) = (check.key(), check.cost());
        let hash = self.hash(check.meter().name(), key);
        let limit = &mut self.limits[number];
        limit.asked += 1;
        limit.total_cost = limit.total_cost.saturating_add(cost);
        limit.largest_cost = limit.largest_cost.max(cost);
        let used = if verdict.allowed {
            let capacity = check.meter().capacity();
            let used = capacity.saturating_sub(verdict.remaining);
            limit.most_used = limit.most_used.max(used);
            let used = u128::from(used) * u128::from(FULL);
            (used / u128::from(capacity.max(1))).min(FULL.into()) as Peak
        } else {
            limit.refused += 1;
            self.refusals.push((check.meter().name().clone(), hash, key.clone().into_owned()));
            OVER
        };
        limit.headroom.note(hash, key, used);
        self.asked.push((number, self.calls));
        if let Some(spool) = &mut self.spool {
            spool.push(Asked { at, key: hash, cost, limit: number as u16 });
        }
    }

    /// The number of a limit, as long as there is room for another.
    fn number(&mut self, meter: &Meter) -> Option<usize> {
        if let Some(number) = self.numbers.get(&meter.identity()) {
            return Some(*number);
        }
        let number = self.limits.len();
        (number < MAX_LIMITS).then_some(())?;
        self.numbers.insert(meter.identity(), number);
        self.limits.push(LimitUse {
            rule: meter.name().clone(),
            meaning: meter.meaning().to_owned(),
            limit: meter.limit(),
            is_shadow: false,
            asked: 0,
            refused: 0,
            total_cost: 0,
            largest_cost: 0,
            most_used: 0,
            longest_debt: Micros::ZERO,
            headroom: Headroom::default(),
        });
        Some(number)
    }
}

impl ImmediateStore for Watched {
    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let at = self.store.decide_now(checks, verdicts)?;
        self.see(checks, verdicts, at)
    }

    fn decide_one_now(&self, check: Check<'_>, verdict: &mut Verdict) -> Result<Micros, StoreError> {
        let at = self.store.decide_one_now(check, verdict)?;
        self.see(&[check], std::slice::from_ref(verdict), at)
    }
}

impl Store for Watched {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}
