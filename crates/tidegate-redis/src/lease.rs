//! Answering from leases: locally while they last, by the servers otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate::kernel::{Verb, Verdict};
use tidegate::{AlgorithmKind, Check, Key, Meter, Micros};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::failure::RedisFailure;
use crate::key::{key_of, state_key};
use crate::ledger::{Grant, Granted, Lease, Ledger, Return, Taking};
use crate::store::Inner;
use crate::swap::predecessors;

/// The leases of a store.
pub(crate) struct Leases {
    rules: HashMap<String, Lease, RandomState>,
    pub(crate) ledger: Ledger,
}

impl Leases {
    /// `None` if no rule has any.
    pub(crate) fn new(rules: HashMap<String, Lease>) -> Option<Leases> {
        (!rules.is_empty()).then(|| Leases { rules: rules.into_iter().collect(), ledger: Ledger::new() })
    }

    pub(crate) fn of_rule(&self, rule: &str) -> Option<Lease> {
        self.rules.get(rule).copied()
    }

    /// The shortest time for which anything is borrowed.
    pub(crate) fn shortest(&self) -> Option<std::time::Duration> {
        self.rules.values().map(|lease| lease.ttl).min()
    }

    /// The lease that a meter is under. A leaky bucket has none, because only
    /// the servers know when each request should go; nor has a custom kernel.
    fn of(&self, meter: &Meter) -> Option<Lease> {
        let limit = meter.limit()?;
        match limit.algorithm() {
            AlgorithmKind::LeakyBucket => None,
            AlgorithmKind::TokenBucket
            | AlgorithmKind::FixedWindow
            | AlgorithmKind::SlidingLog
            | AlgorithmKind::SlidingCounter => self.of_rule(meter.name().as_str()),
        }
    }

    /// Whether any of these checks has to do with a lease.
    pub(crate) fn concern(&self, checks: &[Check<'_>]) -> bool {
        checks.iter().any(|check| self.of(check.meter()).is_some())
    }

    /// Answers from what is on lease, if that is enough for every check.
    pub(crate) fn answer(
        &self,
        checks: &[Check<'_>],
        keys: &[Vec<u8>],
        verdicts: &mut [Verdict],
        now: Micros,
    ) -> Option<Micros> {
        for (index, (check, key)) in checks.iter().zip(keys).enumerate() {
            let leased = self.of(check.meter()).is_some();
            let verdict = match check.verb() {
                Verb::Charge if leased && check.cost() > 0 => match self.ledger.take(key, check.cost(), now) {
                    Taking::Taken(verdict) => Some(verdict),
                    Taking::Short(_) | Taking::None => None,
                },
                Verb::Peek if leased => self.ledger.peek(key, check.cost(), now),
                Verb::Charge | Verb::Peek | Verb::Refund | Verb::Reset => None,
            };
            match verdict {
                Some(verdict) => verdicts[index] = verdict,
                None => {
                    self.put_back(&checks[..index], keys);
                    return None;
                }
            }
        }
        Some(now)
    }

    /// What to ask the servers, and how much there is beside what they say:
    /// to whoever only looks, units that are held here are left.
    fn beside_held<'a>(&self, check: Check<'a>, key: &[u8], now: Micros) -> (Check<'a>, u64) {
        if check.verb() != Verb::Peek || self.of(check.meter()).is_none() {
            return (check, 0);
        }
        let held = self.ledger.held(key, now);
        let rest = Check::new(check.meter(), check.key(), Verb::Peek, check.cost().saturating_sub(held));
        rest.map_or((check, 0), |rest| (rest, held))
    }

    fn put_back(&self, taken: &[Check<'_>], keys: &[Vec<u8>]) {
        for (check, key) in taken.iter().zip(keys) {
            if let Some(lease) = self.of(check.meter()).filter(|_| check.verb() == Verb::Charge) {
                self.ledger.put_back(key, check.cost(), lease.chunk);
            }
        }
    }
}

/// Units that were taken for a request that is not decided yet: put back
/// unless they are kept, also if nobody waits for the decision any more.
struct Taken<'l> {
    ledger: &'l Ledger,
    /// The state, the units, and the chunk of its lease.
    units: Vec<(&'l [u8], u64, u64)>,
}

impl Taken<'_> {
    fn keep(mut self) {
        self.units.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (key, cost, chunk) in self.units.drain(..) {
            self.ledger.put_back(key, cost, chunk);
        }
    }
}

impl Inner {
    /// [`decide_leased`](Inner::decide_leased), within one deadline however
    /// many calls it takes and however many wait for the same units.
    pub(crate) async fn decide_leased_in_time(
        self: &Arc<Self>,
        leases: &Leases,
        checks: &[Check<'_>],
        keys: Vec<Vec<u8>>,
        verdicts: &mut [Verdict],
    ) -> Result<Micros, RedisFailure> {
        let deadline = self.deadline();
        let decided = timeout(deadline, self.decide_leased(leases, checks, &keys, verdicts)).await;
        decided.unwrap_or_else(|_| Err(RedisFailure::Deadline { deadline, last_word: "borrowing takes longer".into() }))
    }

    /// Decides checks of which some are under a lease that does not suffice:
    /// borrows for those, asks the servers about the others.
    async fn decide_leased(
        self: &Arc<Self>,
        leases: &Leases,
        checks: &[Check<'_>],
        keys: &[Vec<u8>],
        verdicts: &mut [Verdict],
    ) -> Result<Micros, RedisFailure> {
        let mut taken = Taken { ledger: &leases.ledger, units: Vec::new() };
        let mut others = Vec::new();
        let mut refused = false;
        let mut now = self.local_now();
        for (index, (check, key)) in checks.iter().zip(keys).enumerate() {
            let lease = leases.of(check.meter()).filter(|_| check.verb() == Verb::Charge && check.cost() > 0);
            let Some(lease) = lease.filter(|_| !refused) else {
                if check.verb() == Verb::Reset {
                    leases.ledger.cancel(key);
                }
                others.push(index);
                continue;
            };
            let (verdict, at) = self.take_or_borrow(leases, lease, check, key).await?;
            verdicts[index] = verdict;
            now = now.max(at);
            if verdict.allowed {
                taken.units.push((key, check.cost(), lease.chunk));
            } else {
                refused = true;
            }
        }
        if !others.is_empty() {
            // Whoever is refused already only wants to know the rest.
            let rest = others.iter().map(|index| {
                let check = if refused { checks[*index].as_peek() } else { checks[*index] };
                leases.beside_held(check, &keys[*index], self.local_now())
            });
            let (rest, held): (Vec<Check<'_>>, Vec<u64>) = rest.unzip();
            let rest_keys = others.iter().map(|index| keys[*index].clone()).collect();
            let mut answers = vec![Verdict::default(); rest.len()];
            now = now.max(self.decide_by_slot(&rest, rest_keys, &mut answers).await?);
            refused |= rest.iter().zip(&answers).any(|(check, answer)| check.verb() == Verb::Charge && !answer.allowed);
            for ((index, answer), held) in others.iter().zip(answers).zip(held) {
                verdicts[*index] = Verdict { remaining: answer.remaining.saturating_add(held), ..answer };
            }
        }
        if !refused {
            taken.keep();
        }
        Ok(now)
    }

    /// Takes from the lease, which is made larger if need be.
    async fn take_or_borrow(
        self: &Arc<Self>,
        leases: &Leases,
        lease: Lease,
        check: &Check<'_>,
        key: &[u8],
    ) -> Result<(Verdict, Micros), RedisFailure> {
        let cost = check.cost();
        let turn = leases.ledger.turn(key, check.meter(), check.key());
        let Some(turn) = turn else { return self.ask_alone(check.meter(), check.key(), Verb::Charge, cost).await };
        // One at a time: those who wait here find what the first has borrowed.
        let turn = turn.lock_owned().await;
        let now = self.local_now();
        let short = match leases.ledger.take(key, cost, now) {
            Taking::Taken(verdict) => return Ok((verdict, now)),
            Taking::Short(units) => cost - units,
            Taking::None => cost,
        };
        // To the end, whatever becomes of the caller: units that are charged
        // on the servers should arrive here, before anybody else asks for more.
        let inner = Arc::clone(self);
        let (meter, owner) = (check.meter().clone(), Key::from(check.key()).into_owned());
        let key = key.to_vec();
        let (tell, told) = oneshot::channel();
        self.runtime().handle().spawn(async move {
            let borrowed = inner.borrow(lease, &meter, &owner, &key, short, cost).await;
            drop(turn);
            let (Err(Ok((verdict, _))), Some(leases)) = (tell.send(borrowed), inner.leases()) else { return };
            if verdict.allowed {
                leases.ledger.keep(&key, cost, lease.chunk);
            }
        });
        told.await.unwrap_or(Err(RedisFailure::Garbled { what: "a grant" }))
    }

    /// Asks for a chunk, or for what there is of it, and takes `cost` if it
    /// was granted.
    async fn borrow(
        self: &Arc<Self>,
        lease: Lease,
        meter: &Meter,
        owner: &Key<'_>,
        key: &[u8],
        short: u64,
        cost: u64,
    ) -> Result<(Verdict, Micros), RedisFailure> {
        let Some(leases) = self.leases() else { return Err(RedisFailure::Garbled { what: "a grant" }) };
        let Some((loan, left)) = leases.ledger.begin(key, self.local_now()) else {
            return self.ask_alone(meter, owner, Verb::Charge, cost).await;
        };
        if let Some(left) = left {
            self.give_back(left).await;
        }
        let asked = self.ask_for_units(lease, meter, owner, short).await;
        if !asked.as_ref().is_ok_and(|(_, verdict, _)| verdict.allowed) {
            leases.ledger.end(key, &loan);
        }
        let (units, mut verdict, at) = asked?;
        if !verdict.allowed {
            let held = leases.ledger.held(key, self.local_now());
            verdict.remaining = verdict.remaining.saturating_add(held);
            return Ok((verdict, at));
        }
        let now = self.local_now();
        let until = now.saturating_add(Micros::from_duration(lease.ttl));
        let grant = Grant { units, cost, chunk: lease.chunk, verdict, at: now, until };
        match leases.ledger.grant(key, &loan, grant) {
            Granted::Taken(verdict) => Ok((verdict, at)),
            Granted::Short => {
                let rest = self.ask_alone(meter, owner, Verb::Charge, cost - units).await;
                if !matches!(&rest, Ok((verdict, _)) if verdict.allowed) {
                    leases.ledger.put_back(key, units, lease.chunk);
                }
                rest
            }
            // Reset meanwhile: the units are gone, and so is what they were charged to.
            Granted::Refused => self.ask_alone(meter, owner, Verb::Charge, cost).await,
        }
    }

    /// How many units the servers charged, what they said, and when.
    async fn ask_for_units(
        &self,
        lease: Lease,
        meter: &Meter,
        owner: &Key<'_>,
        short: u64,
    ) -> Result<(u64, Verdict, Micros), RedisFailure> {
        let wanted = lease.chunk.max(short).min(meter.capacity());
        let (verdict, at) = self.ask_alone(meter, owner, Verb::Charge, wanted).await?;
        if verdict.allowed || wanted == short {
            return Ok((wanted, verdict, at));
        }
        // What there is, if that will do; otherwise the servers say when it will.
        let units = verdict.remaining.clamp(short, wanted);
        let (verdict, at) = self.ask_alone(meter, owner, Verb::Charge, units).await?;
        Ok((units, verdict, at))
    }

    /// Asks the servers about one state, past every lease.
    async fn ask_alone(
        &self,
        meter: &Meter,
        owner: &Key<'_>,
        verb: Verb,
        cost: u64,
    ) -> Result<(Verdict, Micros), RedisFailure> {
        let check = Check::new(meter, owner, verb, cost).map_err(|_| RedisFailure::Garbled { what: "a cost" })?;
        let keys = vec![state_key(self.prefix(), &check)];
        let mut verdicts = [Verdict::default()];
        let at = self.decide_by_slot(&[check], keys, &mut verdicts).await?;
        Ok((verdicts[0], at))
    }

    async fn give_back(&self, left: Return) {
        let asked = self.ask_alone(&left.meter, &left.key, Verb::Refund, left.units).await;
        match (asked, self.leases()) {
            (Ok(_), _) => {}
            // Nothing was sent: they go back when the servers are there again.
            (Err(RedisFailure::Away { .. }), Some(leases)) => {
                leases.ledger.owe(&key_of(self.prefix(), &left.meter, &left.key), left);
            }
            (Err(failure), _) => tracing::warn!(%failure, left.units, "borrowed units could not be given back"),
        }
    }

    /// Gives back what is on lease of limits that those of some checks succeed:
    /// to these, since they take over what was charged, whoever moves it.
    pub(crate) async fn give_back_former(&self, leases: &Leases, checks: &[Check<'_>], keys: &[Vec<u8>]) {
        for former in predecessors(self, checks, keys) {
            let Some(Return { key, units, .. }) = leases.ledger.leave(&former.key) else { continue };
            let meter = checks[former.heir].meter().clone();
            self.give_back(Return { meter, key, units }).await;
        }
    }

    /// Gives back what is left of the leases that are over at `now`.
    pub(crate) async fn give_back_expired(&self, now: Micros) {
        let Some(leases) = self.leases() else { return };
        for left in leases.ledger.expired(now) {
            self.give_back(left).await;
        }
    }
}
