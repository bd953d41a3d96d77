//! Consecutive throttles: one call to the store.
//!
//! The memory store is asked about all of them at one reading of its clock. Any other
//! store is asked about those of different keys at once; a key's own keep their order.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore};
use tidegate::{CheckError, Key, MemoryStore, Request};

use super::Resp;
use super::reply::Replies;
use super::request::write_failure;
use super::throttle::{Numbers, Throttle, ThrottleError};
use crate::ask::inline::{INLINE_RULE, Inline, InlineError};
use crate::ask::store::AnyStore;
use crate::tell::refused::Refusal;

/// Throttles that are decided at a time.
const MAX_WAITING: usize = 128;
/// Limits that a connection has at hand; more are asked for again.
const MAX_LIMITS: usize = 16;

/// Throttles that have been read and wait to be decided.
#[derive(Default)]
pub(super) struct Throttles {
    /// With the number of its limit among those at hand.
    waiting: Vec<(Throttle, usize)>,
    limits: Vec<(Numbers, Arc<Inline>)>,
    /// Which of them gives way next.
    oldest: usize,
    verdicts: Vec<Verdict>,
}

/// Whether a throttle was taken.
pub(super) enum Taken {
    /// It waits with the others.
    Yes,
    /// The others have to be decided before.
    NoRoom,
}

impl Throttles {
    /// Takes a throttle, if it has a limit and there is room.
    #[inline]
    pub(super) fn take(&mut self, throttle: Throttle, resp: &Resp) -> Result<Taken, ThrottleError> {
        if self.waiting.len() >= MAX_WAITING {
            return Ok(Taken::NoRoom);
        }
        let known = self.limits.iter().position(|(numbers, _)| *numbers == throttle.numbers);
        let limit = match known {
            Some(limit) => limit,
            None => match self.remember(throttle, resp)? {
                Some(limit) => limit,
                None => return Ok(Taken::NoRoom),
            },
        };
        self.waiting.push((throttle, limit));
        Ok(Taken::Yes)
    }

    /// Caches a limit, unless it would replace another that a command waits
    /// for.
    fn remember(&mut self, throttle: Throttle, resp: &Resp) -> Result<Option<usize>, ThrottleError> {
        let Throttle { numbers, .. } = throttle;
        let full = self.limits.len() >= MAX_LIMITS;
        if full && !self.waiting.is_empty() {
            return Ok(None);
        }
        let inline = numbers.limit().map_err(InlineError::from).and_then(|limit| resp.app.engine.inline(limit));
        let inline = inline.map_err(|error| throttle.no_limit(error))?;
        if !full {
            self.limits.push((numbers, inline));
            return Ok(Some(self.limits.len() - 1));
        }
        self.oldest = (self.oldest + 1) % MAX_LIMITS;
        self.limits[self.oldest] = (numbers, inline);
        Ok(Some(self.oldest))
    }

    /// Decides and answers all that wait; says how many, and of each that gives back whether it did.
    pub(super) async fn decide(&mut self, resp: &Resp, buffer: &[u8], replies: &mut Replies) -> (usize, Vec<bool>) {
        let decided = self.waiting.len();
        if decided == 0 {
            return (0, Vec::new());
        }
        let refunds = match resp.app.engine.inline_store() {
            // Past the limiter, which would tell of each.
            AnyStore::Memory(store) if !resp.app.records.metrics.tracer.is_on() => {
                let is_done = self.decide_now(store, resp, buffer, replies);
                self.waiting.iter().filter(|(throttle, _)| throttle.is_refund()).map(|_| is_done).collect()
            }
            AnyStore::Memory(_) | AnyStore::Redis(_) | AnyStore::Bounded(_) => {
                self.decide_in_waves(resp, buffer, replies).await
            }
        };
        self.waiting.clear();
        (decided, refunds)
    }

    /// Says whether the store has answered.
    fn decide_now(&mut self, store: &MemoryStore, resp: &Resp, buffer: &[u8], replies: &mut Replies) -> bool {
        let began = Instant::now();
        let keys: Vec<Key<'_>> = self.waiting.iter().map(|(throttle, _)| Key::from(throttle.key.of(buffer))).collect();
        let checks = self.waiting.iter().zip(&keys).map(|((throttle, limit), key)| {
            let (verb, cost) = throttle.verb_and_cost();
            Check::new(&self.limits[*limit].1.meter, key, verb, cost)
        });
        let checks: Result<Vec<Check<'_>>, CheckError> = checks.collect();
        self.verdicts.clear();
        self.verdicts.resize(self.waiting.len(), Verdict::default());
        let decided = checks.and_then(|checks| {
            let at = store.decide_each_now(&checks, &mut self.verdicts)?;
            Ok((checks, at))
        });
        let (checks, at) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                for _ in &self.waiting {
                    resp.app.records.metrics.failed(&error);
                    write_failure(&error, replies);
                }
                return false;
            }
        };
        let (mut charges, mut allowed, mut degraded) = (0, 0, 0);
        for (((throttle, limit), verdict), check) in self.waiting.iter().zip(&self.verdicts).zip(&checks) {
            throttle.answer(&verdict.into(), replies);
            if check.verb() == Verb::Charge {
                charges += 1;
                allowed += u64::from(verdict.allowed);
                degraded += u64::from(verdict.degraded);
                if !verdict.allowed {
                    let meter = &self.limits[*limit].1.meter;
                    resp.app.records.refused.count(&Refusal {
                        rule: &INLINE_RULE,
                        key: check.key(),
                        request: Some(&Request::new(check.key().clone())),
                        cost: check.cost(),
                        capacity: meter.capacity(),
                        limit: meter.limit(),
                        inline: meter.limit(),
                        retry_after: Some(verdict.retry_after),
                        at,
                    });
                }
            }
        }
        resp.inline.decided(allowed, charges - allowed);
        resp.inline.took(began.elapsed(), u32::try_from(charges).unwrap_or(u32::MAX));
        if degraded > 0 {
            resp.inline.degraded(degraded);
        }
        true
    }

    /// Says of each that gives back whether it did.
    async fn decide_in_waves(&self, resp: &Resp, buffer: &[u8], replies: &mut Replies) -> Vec<bool> {
        let mut refunds = Vec::new();
        let mut rest = &self.waiting[..];
        while !rest.is_empty() {
            let key = |(throttle, limit): &(Throttle, usize)| (throttle.key.of(buffer), *limit);
            let repeated = (1..rest.len()).find(|at| rest[..*at].iter().any(|before| key(before) == key(&rest[*at])));
            let (wave, after) = rest.split_at(repeated.unwrap_or(rest.len()));
            let decided = join_all(wave.iter().map(|(throttle, limit)| async {
                let (verb, cost) = throttle.verb_and_cost();
                let request = Request::new(throttle.key.of(buffer)).cost(cost);
                resp.app.decide(verb, request, Some(&self.limits[*limit].1)).await
            }));
            for ((throttle, _), decision) in wave.iter().zip(decided.await) {
                if throttle.is_refund() {
                    refunds.push(decision.is_ok());
                }
                match decision {
                    Ok(decision) => throttle.answer(&decision.into(), replies),
                    Err(error) => write_failure(&error, replies),
                }
            }
            rest = after;
        }
        refunds
    }
}
