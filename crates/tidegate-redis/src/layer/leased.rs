//! Answers from units that were borrowed: locally while they last, by the
//! store below otherwise.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Former, Store, StoreError, refund_charges};
use tidegate::{Clock, Micros};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::frequent::Frequent;
use super::lease::{Lease, Leases};
use super::ledger::{Account, Answer, Grant, Ledger, Loan, Next, Portion, Return, Served, Subject, Waiter, Wanting};
use crate::failure::RedisFailure;
use crate::key::local_key;
use crate::runtime::run;

/// A store of which this process borrows units, to answer by itself while they
/// last; see [`Lease`] for what that costs in exactness.
///
/// A request with an id, one that meets no rule with a lease, one of a class that leaves
/// something to others, and one for a key that is not asked for often, is decided by the store.
pub struct Leased<S> {
    lender: Arc<Lender<S>>,
}

struct Lender<S> {
    store: S,
    leases: Arc<Leases>,
    ledger: Ledger,
    frequent: Frequent,
    runtime: Handle,
    /// Counts the decisions that were made without asking the store.
    answered: AtomicU64,
}

/// The lease of a check, and what its account is called.
#[derive(Clone)]
struct Borrower {
    lease: Lease,
    name: Vec<u8>,
}

impl<S: Store> Leased<S> {
    /// Borrows of `store`. What is left is given back in time on the runtime.
    pub fn new(store: S, leases: Arc<Leases>, runtime: Handle) -> Leased<S> {
        let shortest = leases.shortest();
        let (ledger, frequent) = (Ledger::new(), Frequent::new(leases.hasher.clone()));
        let lender = Arc::new(Lender { store, leases, ledger, frequent, runtime, answered: AtomicU64::new(0) });
        if let Some(shortest) = shortest {
            lender.runtime.spawn(give_back_in_time(Arc::downgrade(&lender), shortest));
        }
        Leased { lender }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.lender.store
    }

    /// The leases of its rules.
    pub fn leases(&self) -> &Leases {
        &self.lender.leases
    }

    /// Decisions that were made without asking the store.
    pub fn answered(&self) -> u64 {
        self.lender.answered.load(Ordering::Relaxed)
    }

    /// Units on lease now, over all keys.
    pub fn units(&self) -> u64 {
        self.lender.ledger.units()
    }

    /// Gives back all that is on lease.
    pub async fn close(&self) {
        run(&self.lender.runtime, self.lender.give_back_expired(Micros::MAX)).await;
    }
}

impl<S: Store> Store for Leased<S> {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let lender = &self.lender;
        let has_id = checks.iter().any(|check| check.id().is_some());
        // Mostly it is one charge.
        if let ([check], [verdict]) = (checks, &mut *verdicts)
            && !has_id
            && takes_units(check)
            && let Some(borrower) = lender.borrower(check)
        {
            let now = self.clock().now();
            let (taken, at) = match lender.want(&borrower, check, now) {
                Wanting::NoLease => return lender.store.decide(checks, verdicts).await,
                Wanting::Taken(taken) => {
                    lender.answered.fetch_add(1, Ordering::Relaxed);
                    (taken, now)
                }
                Wanting::Waits(told, _) => lender.heard(told).await?,
            };
            *verdict = taken;
            return Ok(at);
        }
        let borrowers = if has_id { Vec::new() } else { lender.borrowers(checks)? };
        if borrowers.iter().all(Option::is_none) {
            return lender.store.decide(checks, verdicts).await;
        }
        let now = self.clock().now();
        if lender.answer(checks, &borrowers, verdicts, now) {
            lender.answered.fetch_add(1, Ordering::Relaxed);
            return Ok(now);
        }
        let parts = checks.iter().map(|check| (Subject::of(check), check.verb(), check.cost())).collect();
        // To the end, whatever becomes of the caller; and with one deadline, however many calls it takes.
        let (tell, told) = oneshot::channel();
        lender.runtime.spawn(Arc::clone(lender).decide(parts, borrowers, tell));
        let (decided, at) = lender.heard(told).await?;
        verdicts.copy_from_slice(&decided);
        Ok(at)
    }

    fn clock(&self) -> &dyn Clock {
        self.lender.store.clock()
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.lender.store.in_background(task);
    }
}

/// Gives back leases that are over, until the store is no more.
async fn give_back_in_time<S: Store>(lender: Weak<Lender<S>>, shortest: Duration) {
    let pause = (shortest / 2).clamp(Duration::from_millis(1), Duration::from_secs(1));
    loop {
        sleep(pause).await;
        let Some(lender) = lender.upgrade() else { return };
        lender.give_back_expired(lender.now()).await;
    }
}

/// Whether units on lease are for a request: only the store knows whether more is left of a
/// limit than its class leaves to others.
fn can_borrow(check: &Check<'_>) -> bool {
    check.meter().floor() == 0
}

/// Whether a request is decided by units on lease, if there are enough.
fn takes_units(check: &Check<'_>) -> bool {
    check.verb() == Verb::Charge && check.cost() > 0 && can_borrow(check)
}

/// The task that asks for all that wait for units of a key.
struct Turn<S> {
    lender: Arc<Lender<S>>,
    borrower: Borrower,
    held: Arc<()>,
}

/// If its runtime is gone before it is done, no caller waits for it any longer.
impl<S> Drop for Turn<S> {
    fn drop(&mut self) {
        let Borrower { name, lease } = &self.borrower;
        self.lender.ledger.with(name, |account| account.abandon(&self.held, lease.chunk));
    }
}

/// Units that were taken for a request that is not decided yet: put back
/// unless they are kept, also if the caller is gone before the decision.
struct Taken<'l> {
    ledger: &'l Ledger,
    portions: Vec<Portion<'l>>,
}

impl Taken<'_> {
    fn keep(mut self) {
        self.portions.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for portion in self.portions.drain(..) {
            self.ledger.put_back(&portion);
        }
    }
}

/// What came of a slice.
struct Decided<'l> {
    verdicts: Vec<Verdict>,
    at: Micros,
    /// What was taken, and which checks the store was asked about; `None` if a check was refused.
    carried_out: Option<(Taken<'l>, Vec<usize>)>,
}

impl<S: Store> Lender<S> {
    /// The time by which leases end.
    fn now(&self) -> Micros {
        self.store.clock().now()
    }

    /// The borrower of a check, if it is under a lease.
    fn borrower(&self, check: &Check<'_>) -> Option<Borrower> {
        let lease = self.leases.of(check.meter())?;
        Some(Borrower { lease, name: local_key(check.meter(), check.key()) })
    }

    /// The borrower of each check that is under a lease.
    fn borrowers(&self, checks: &[Check<'_>]) -> Result<Vec<Option<Borrower>>, StoreError> {
        let mut borrowers: Vec<Option<Borrower>> = Vec::with_capacity(checks.len());
        for check in checks {
            let borrower = self.borrower(check);
            // The store sees only a part of the slice; what is leased is looked at here.
            if let Some(own) = &borrower
                && borrowers.iter().flatten().any(|other| other.name == own.name)
            {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            borrowers.push(borrower);
        }
        Ok(borrowers)
    }

    /// Answers from what is on lease, if that is enough for every check.
    fn answer(
        &self,
        checks: &[Check<'_>],
        borrowers: &[Option<Borrower>],
        verdicts: &mut [Verdict],
        now: Micros,
    ) -> bool {
        let mut taken = Taken { ledger: &self.ledger, portions: Vec::new() };
        for (index, (check, borrower)) in checks.iter().zip(borrowers).enumerate() {
            let Some(Borrower { lease, name }) = borrower.as_ref().filter(|_| can_borrow(check)) else { return false };
            let portion = self.ledger.portion(name, check, lease.chunk);
            let verdict = self.ledger.with(name, |account| match check.verb() {
                Verb::Charge if check.cost() > 0 => account.take(check.cost(), now),
                Verb::Peek => account.peek(check.cost(), now),
                Verb::Charge | Verb::Report | Verb::Refund | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => None,
            });
            let Some(verdict) = verdict else { return false };
            verdicts[index] = verdict;
            taken.portions.extend((check.verb() == Verb::Charge).then_some(portion));
        }
        taken.keep();
        true
    }

    /// What a caller is told that waits for it, but no longer than the deadline.
    async fn heard<T>(&self, told: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
        let deadline = self.leases.deadline();
        match run(&self.runtime, async { timeout(deadline, told).await }).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RedisFailure::Garbled { what: "a grant" }.into()),
            Err(_) => Err(RedisFailure::Deadline { deadline, last_word: "borrowing takes longer".into() }.into()),
        }
    }

    /// Decides a slice to the end. What was charged is given back if the caller is gone then.
    async fn decide(
        self: Arc<Self>,
        parts: Vec<(Subject, Verb, u64)>,
        borrowers: Vec<Option<Borrower>>,
        tell: oneshot::Sender<Result<(Vec<Verdict>, Micros), StoreError>>,
    ) {
        let former: Vec<Vec<Former<'_>>> = parts.iter().map(|(subject, ..)| subject.former()).collect();
        let checks = parts.iter().zip(&former);
        let checks = checks.map(|((subject, verb, cost), former)| subject.check(*verb, *cost, former));
        let checks = match checks.collect::<Result<Vec<Check<'_>>, RedisFailure>>() {
            Ok(checks) => checks,
            Err(failure) => return drop(tell.send(Err(failure.into()))),
        };
        let Decided { verdicts, at, carried_out } = match self.decide_parts(&checks, &borrowers).await {
            Ok(decided) => decided,
            Err(error) => return drop(tell.send(Err(error))),
        };
        let unheard = tell.send(Ok((verdicts, at))).err();
        match (carried_out, unheard) {
            (Some((taken, _)), None) => taken.keep(),
            (Some((taken, others)), Some(Ok((verdicts, _)))) => {
                drop(taken);
                let charged: Vec<_> = others.iter().map(|index| (checks[*index], verdicts[*index])).collect();
                refund_charges(&self.store, charged).await;
            }
            (None, _) | (Some(_), Some(Err(_))) => {}
        }
    }

    /// Decides checks of which some are under a lease that does not suffice:
    /// borrows for those, asks the store about the others.
    async fn decide_parts<'l>(
        self: &'l Arc<Self>,
        checks: &'l [Check<'l>],
        borrowers: &'l [Option<Borrower>],
    ) -> Result<Decided<'l>, StoreError> {
        let mut verdicts = vec![Verdict::default(); checks.len()];
        let mut taken = Taken { ledger: &self.ledger, portions: Vec::new() };
        let mut others = Vec::new();
        let mut refused = false;
        let mut now = self.now();
        for (index, (check, borrower)) in checks.iter().zip(borrowers).enumerate() {
            let lease = borrower.as_ref().filter(|_| !refused && takes_units(check));
            let portion = lease.map(|own| self.ledger.portion(&own.name, check, own.lease.chunk));
            let wanting = lease.map_or(Wanting::NoLease, |borrower| self.want(borrower, check, self.now()));
            let (verdict, at) = match wanting {
                Wanting::Taken(verdict) => (verdict, self.now()),
                Wanting::Waits(told, _) => self.heard(told).await?,
                Wanting::NoLease => {
                    others.push(index);
                    continue;
                }
            };
            verdicts[index] = verdict;
            now = now.max(at);
            taken.portions.extend(portion.filter(|_| verdict.allowed));
            refused |= !verdict.allowed;
        }
        if !others.is_empty() {
            // A request that is refused already only wants to know the rest.
            let rest = others.iter().map(|index| {
                let check = if refused { checks[*index].as_peek() } else { checks[*index] };
                self.beside_held(check, borrowers[*index].as_ref())
            });
            let (rest, held): (Vec<Check<'_>>, Vec<u64>) = rest.unzip();
            let mut answers = vec![Verdict::default(); rest.len()];
            now = now.max(self.store.decide(&rest, &mut answers).await?);
            refused |= rest.iter().zip(&answers).any(|(check, answer)| check.verb().can_refuse() && !answer.allowed);
            for ((index, answer), held) in others.iter().zip(answers).zip(held) {
                verdicts[*index] = Verdict { remaining: answer.remaining.saturating_add(held), ..answer };
            }
        }
        if refused {
            // What was taken is put back.
            for (index, (check, verdict)) in checks.iter().zip(&mut verdicts).enumerate() {
                if verdict.allowed && !others.contains(&index) {
                    verdict.remaining = verdict.remaining.saturating_add(check.cost());
                }
            }
            return Ok(Decided { verdicts, at: now, carried_out: None });
        }
        let is_reset = |index: &&usize| checks[**index].verb() == Verb::Reset;
        for borrower in others.iter().filter(is_reset).filter_map(|index| borrowers[*index].as_ref()) {
            self.ledger.with(&borrower.name, Account::cancel);
        }
        Ok(Decided { verdicts, at: now, carried_out: Some((taken, others)) })
    }

    /// What to ask the store, and how much there is beside what it says: for a
    /// peek, units that are held here are left.
    fn beside_held<'a>(&self, check: Check<'a>, borrower: Option<&Borrower>) -> (Check<'a>, u64) {
        let is_peek = check.verb() == Verb::Peek && can_borrow(&check);
        let Some(borrower) = borrower.filter(|_| is_peek) else { return (check, 0) };
        let now = self.now();
        let held = self.ledger.with(&borrower.name, |account| account.held(now));
        let rest = Check::new(check.meter(), check.key(), Verb::Peek, check.cost().saturating_sub(held));
        rest.map_or((check, 0), |rest| (rest.with_former(check.former()), held))
    }

    /// Takes from the lease, or waits until it is made larger: by one call for all that wait. There
    /// is a lease of a key that is asked for often.
    fn want(self: &Arc<Self>, borrower: &Borrower, check: &Check<'_>, now: Micros) -> Wanting {
        let Borrower { lease, name } = borrower;
        let is_frequent = || self.frequent.count(name, Micros::from_duration(lease.ttl), now);
        let mut wanting = self.ledger.take_or_wait(name, check, now, is_frequent);
        if let Wanting::Waits(_, turn) = &mut wanting
            && let Some(turn) = turn.take()
        {
            // To the end, whatever becomes of the callers: units that are charged
            // below should arrive here, before another request asks for more.
            let turn = Turn { lender: Arc::clone(self), borrower: borrower.clone(), held: turn };
            self.runtime.spawn(async move { turn.lender.borrow(&turn.borrower).await });
        }
        wanting
    }

    /// Asks for units as long as callers wait for them.
    async fn borrow(&self, borrower: &Borrower) {
        let Borrower { lease, name } = borrower;
        loop {
            let now = self.now();
            let Some(next) = self.ledger.with(name, |account| account.next(lease.chunk, now)) else { return };
            let (loan, left) = match next {
                Next::Ask(loan, left) => (loan, left),
                Next::Tell(served) => {
                    self.tell_served(borrower, served, now, now);
                    continue;
                }
            };
            match self.ask_for_units(*lease, &loan, left).await {
                Ok((units, verdict, at)) if verdict.allowed => {
                    let now = self.now();
                    let until = now.saturating_add(Micros::from_duration(lease.ttl));
                    let grant = Grant { units, chunk: lease.chunk, verdict, at: now, until };
                    // If not, it was reset meanwhile, and that may have forgotten what was charged for them.
                    if let Some(served) = self.ledger.with(name, |account| account.grant(&loan, grant)) {
                        self.tell_served(borrower, served, at, now);
                    }
                    // Callers that come back at once wait for the next call together.
                    yield_now().await;
                }
                failed => self.tell_failure(borrower, &loan, &failed.map(|(_, verdict, at)| (verdict, at))),
            }
        }
    }

    /// Tells callers that they have taken their costs: when the store decided for those that it was
    /// asked for, and now for those that take what was left. The first that is there hears which thresholds were
    /// crossed; what others have taken that are gone is kept.
    fn tell_served(&self, Borrower { lease, name }: &Borrower, served: Served, at: Micros, now: Micros) {
        let Served { waiters, mut verdict } = served;
        for waiter in waiters {
            verdict.remaining = verdict.remaining.saturating_sub(waiter.cost);
            let at = if waiter.was_asked_for() { at } else { now };
            let Waiter { cost, resets, tell, .. } = waiter;
            if tell.send(Ok((verdict, at))).is_ok() {
                verdict.crossed = 0;
            } else {
                self.ledger.with(name, |account| account.keep_taken(cost, resets, lease.chunk));
            }
        }
        self.ledger.with(name, |account| account.untold(verdict.crossed));
    }

    /// Tells callers that they were refused, or that there was no answer.
    fn tell_failure(&self, Borrower { lease, name }: &Borrower, loan: &Loan, failed: &Answer) {
        let now = self.now();
        let end = |account: &mut Account| (account.end(loan, failed.is_ok(), lease.chunk), account.held(now));
        let (waiters, held) = self.ledger.with(name, end);
        for waiter in waiters {
            let answer = match failed {
                Ok((verdict, at)) => {
                    Ok((Verdict { remaining: verdict.remaining.saturating_add(held), ..*verdict }, *at))
                }
                Err(error) => {
                    let failure = RedisFailure::of(error).cloned();
                    Err(failure.unwrap_or(RedisFailure::Garbled { what: "a grant" }).into())
                }
            };
            _ = waiter.tell.send(answer);
        }
    }

    /// How many units the store charged, what it said, and when. A refusal is that of the first caller. What is left of
    /// the lease before goes back first.
    async fn ask_for_units(
        &self,
        lease: Lease,
        loan: &Loan,
        left: Option<Return>,
    ) -> Result<(u64, Verdict, Micros), StoreError> {
        if let Some(left) = left {
            self.give_back(left).await?;
        }
        let mut units = loan.wanted(lease.chunk, loan.subject.meter.capacity());
        let (mut verdict, mut at) = self.ask(&loan.subject, Verb::Charge, units).await?;
        // What there is, if that will do. If other processes were faster, or it will not do, what the
        // first caller lacks: then the store says when there will be enough.
        for most in [verdict.remaining, 0] {
            if verdict.allowed || units == loan.least() {
                break;
            }
            units = loan.wanted(lease.chunk, most);
            (verdict, at) = self.ask(&loan.subject, Verb::Charge, units).await?;
        }
        Ok((units, verdict, at))
    }

    /// Asks the store about one state, past every lease. Units go back to the limit that lent them
    /// alone: what was used of a former limit is not theirs.
    async fn ask(&self, subject: &Subject, verb: Verb, cost: u64) -> Result<(Verdict, Micros), StoreError> {
        let former = if verb == Verb::Refund { Vec::new() } else { subject.former() };
        let check = subject.check(verb, cost, &former)?;
        let mut verdicts = [Verdict::default()];
        let at = self.store.decide(&[check], &mut verdicts).await?;
        Ok((verdicts[0], at))
    }

    /// Gives units back, or keeps them to try again later, which is an error.
    async fn give_back(&self, left: Return) -> Result<(), StoreError> {
        let Err(error) = self.ask(&left.subject, Verb::Refund, left.units).await else { return Ok(()) };
        match RedisFailure::of(&error) {
            // Nothing was carried out: they go back with a later attempt.
            Some(RedisFailure::Away { .. } | RedisFailure::Refused { .. } | RedisFailure::Contended { .. }) => {
                self.ledger.owe(&local_key(&left.subject.meter, &left.subject.key), left);
                return Err(error);
            }
            Some(failure) => tracing::warn!(%failure, left.units, "borrowed units could not be given back"),
            None => tracing::warn!(%error, left.units, "borrowed units could not be given back"),
        }
        Ok(())
    }

    /// Gives back what is left of the leases that are over at `now`.
    async fn give_back_expired(&self, now: Micros) {
        for state_key in self.ledger.expired(now) {
            if let Some(left) = self.ledger.with(&state_key, |account| account.give_up_expired(now)) {
                _ = self.give_back(left).await;
            }
        }
    }
}
