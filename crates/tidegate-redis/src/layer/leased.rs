//! Answers from units that were borrowed: locally while they last, by the
//! store below otherwise.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store, StoreError};
use tidegate::{Clock, Micros};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::frequent::Frequent;
use super::lease::{Lease, Leases};
use super::ledger::{Grant, Granted, Ledger, Return, Subject, Taking};
use crate::failure::RedisFailure;
use crate::given_back::Hashing;
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
        Leased::hashed(store, leases, runtime, Hashing::default())
    }

    pub(crate) fn hashed(store: S, leases: Arc<Leases>, runtime: Handle, hashing: Hashing) -> Leased<S> {
        let shortest = leases.shortest();
        let (ledger, frequent) = (Ledger::new(), Frequent::new(hashing));
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
        lender.give_back_former(checks).await;
        let has_id = checks.iter().any(|check| check.id().is_some());
        let borrowers = if has_id { Vec::new() } else { lender.borrowers(checks)? };
        if borrowers.iter().all(Option::is_none) {
            return lender.store.decide(checks, verdicts).await;
        }
        let now = self.clock().now();
        if lender.answer(checks, &borrowers, verdicts, now) {
            lender.answered.fetch_add(1, Ordering::Relaxed);
            return Ok(now);
        }
        // One deadline, however many calls it takes and however many requests wait for the same units.
        let deadline = lender.leases.deadline();
        let decided = async { timeout(deadline, lender.decide(checks, &borrowers, verdicts)).await };
        let late = || RedisFailure::Deadline { deadline, last_word: "borrowing takes longer".into() };
        run(&lender.runtime, decided).await.unwrap_or_else(|_| Err(late().into()))
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

/// Units that were taken for a request that is not decided yet: put back
/// unless they are kept, also if the caller is gone before the decision.
struct Taken<'l> {
    ledger: &'l Ledger,
    units: Vec<(&'l Borrower, u64)>,
}

impl Taken<'_> {
    fn keep(mut self) {
        self.units.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (borrower, cost) in self.units.drain(..) {
            self.ledger.put_back(&borrower.name, cost, borrower.lease.chunk);
        }
    }
}

impl<S: Store> Lender<S> {
    /// The time by which leases end.
    fn now(&self) -> Micros {
        self.store.clock().now()
    }

    /// The borrower of each check that is under a lease.
    fn borrowers(&self, checks: &[Check<'_>]) -> Result<Vec<Option<Borrower>>, StoreError> {
        let mut borrowers: Vec<Option<Borrower>> = Vec::with_capacity(checks.len());
        for check in checks {
            let lease = self.leases.of(check.meter());
            let borrower = lease.map(|lease| Borrower { lease, name: local_key(check.meter(), check.key()) });
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
        for (index, (check, borrower)) in checks.iter().zip(borrowers).enumerate() {
            let verdict =
                borrower.as_ref().filter(|_| can_borrow(check)).and_then(|Borrower { name, .. }| match check.verb() {
                    Verb::Charge if check.cost() > 0 => match self.ledger.take(name, check.cost(), now) {
                        Taking::Taken(verdict) => Some(verdict),
                        Taking::Short(_) | Taking::None => None,
                    },
                    Verb::Peek => self.ledger.peek(name, check.cost(), now),
                    Verb::Charge | Verb::Report | Verb::Refund | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => None,
                });
            let Some(verdict) = verdict else {
                for (check, borrower) in checks[..index].iter().zip(borrowers.iter().flatten()) {
                    if check.verb() == Verb::Charge {
                        self.ledger.put_back(&borrower.name, check.cost(), borrower.lease.chunk);
                    }
                }
                return false;
            };
            verdicts[index] = verdict;
        }
        true
    }

    /// Decides checks of which some are under a lease that does not suffice:
    /// borrows for those, asks the store about the others.
    async fn decide(
        self: &Arc<Self>,
        checks: &[Check<'_>],
        borrowers: &[Option<Borrower>],
        verdicts: &mut [Verdict],
    ) -> Result<Micros, StoreError> {
        let mut taken = Taken { ledger: &self.ledger, units: Vec::new() };
        let mut others = Vec::new();
        let mut refused = false;
        let mut now = self.now();
        for (index, (check, borrower)) in checks.iter().zip(borrowers).enumerate() {
            let takes = |borrower: &&Borrower| {
                let is_charge = check.verb() == Verb::Charge && check.cost() > 0;
                !refused && is_charge && can_borrow(check) && self.borrows(borrower)
            };
            let Some(borrower) = borrower.as_ref().filter(takes) else {
                if let Some(borrower) = borrower.as_ref().filter(|_| check.verb() == Verb::Reset) {
                    self.ledger.cancel(&borrower.name);
                }
                others.push(index);
                continue;
            };
            let (verdict, at) = self.take_or_borrow(borrower, check).await?;
            verdicts[index] = verdict;
            now = now.max(at);
            if verdict.allowed {
                taken.units.push((borrower, check.cost()));
            } else {
                refused = true;
            }
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
        if !refused {
            taken.keep();
        }
        Ok(now)
    }

    /// Whether to borrow for a request: its key has a lease, or is asked for often.
    fn borrows(&self, Borrower { lease, name }: &Borrower) -> bool {
        self.ledger.knows(name) || self.frequent.count(name, Micros::from_duration(lease.ttl), self.now())
    }

    /// What to ask the store, and how much there is beside what it says: for a
    /// peek, units that are held here are left.
    fn beside_held<'a>(&self, check: Check<'a>, borrower: Option<&Borrower>) -> (Check<'a>, u64) {
        let is_peek = check.verb() == Verb::Peek && can_borrow(&check);
        let Some(borrower) = borrower.filter(|_| is_peek) else { return (check, 0) };
        let held = self.ledger.held(&borrower.name, self.now());
        let rest = Check::new(check.meter(), check.key(), Verb::Peek, check.cost().saturating_sub(held));
        rest.map_or((check, 0), |rest| (rest.with_former(check.former()), held))
    }

    /// Takes from the lease, which is made larger if need be.
    async fn take_or_borrow(
        self: &Arc<Self>,
        borrower: &Borrower,
        check: &Check<'_>,
    ) -> Result<(Verdict, Micros), StoreError> {
        let (cost, subject) = (check.cost(), Subject::of(check));
        let Some(step) = self.ledger.step(&borrower.name, check) else {
            return self.ask(&subject, Verb::Charge, cost).await;
        };
        // One at a time: requests that wait here find what the first has borrowed.
        let step = step.lock_owned().await;
        let now = self.now();
        let short = match self.ledger.take(&borrower.name, cost, now) {
            Taking::Taken(verdict) => return Ok((verdict, now)),
            Taking::Short(units) => cost - units,
            Taking::None => cost,
        };
        // To the end, whatever becomes of the caller: units that are charged
        // below should arrive here, before another request asks for more.
        let (lender, Borrower { lease, name }) = (Arc::clone(self), borrower.clone());
        let (tell, told) = oneshot::channel();
        self.runtime.spawn(async move {
            let borrowed = lender.borrow(lease, &subject, &name, short, cost).await;
            drop(step);
            if let Err(Ok((verdict, _))) = tell.send(borrowed)
                && verdict.allowed
            {
                lender.ledger.keep(&name, cost, lease.chunk);
            }
        });
        told.await.unwrap_or(Err(RedisFailure::Garbled { what: "a grant" }.into()))
    }

    /// Asks for a chunk, or for what there is of it, and takes `cost` if it
    /// was granted.
    async fn borrow(
        &self,
        lease: Lease,
        subject: &Subject,
        name: &[u8],
        short: u64,
        cost: u64,
    ) -> Result<(Verdict, Micros), StoreError> {
        let Some((loan, left)) = self.ledger.begin(name, self.now()) else {
            return self.ask(subject, Verb::Charge, cost).await;
        };
        if let Some(left) = left {
            self.give_back(left).await;
        }
        let asked = self.ask_for_units(lease, subject, short).await;
        if !asked.as_ref().is_ok_and(|(_, verdict, _)| verdict.allowed) {
            self.ledger.end(name, &loan);
        }
        let (units, mut verdict, at) = asked?;
        if !verdict.allowed {
            verdict.remaining = verdict.remaining.saturating_add(self.ledger.held(name, self.now()));
            return Ok((verdict, at));
        }
        let now = self.now();
        let until = now.saturating_add(Micros::from_duration(lease.ttl));
        // What the loan crossed is told once, with this request.
        let crossed = std::mem::take(&mut verdict.crossed);
        let grant = Grant { units, cost, chunk: lease.chunk, verdict, at: now, until };
        match self.ledger.grant(name, &loan, grant) {
            Granted::Taken(verdict) => Ok((Verdict { crossed, ..verdict }, at)),
            Granted::Short => {
                let rest = self.ask(subject, Verb::Charge, cost - units).await;
                if !matches!(&rest, Ok((verdict, _)) if verdict.allowed) {
                    self.ledger.put_back(name, units, lease.chunk);
                }
                rest.map(|(verdict, at)| (Verdict { crossed: crossed | verdict.crossed, ..verdict }, at))
            }
            // Reset meanwhile: the units are gone, and so is what they were charged to.
            Granted::Refused => self.ask(subject, Verb::Charge, cost).await,
        }
    }

    /// How many units the store charged, what it said, and when.
    async fn ask_for_units(
        &self,
        lease: Lease,
        subject: &Subject,
        short: u64,
    ) -> Result<(u64, Verdict, Micros), StoreError> {
        let wanted = lease.chunk.max(short).min(subject.meter.capacity());
        let (verdict, at) = self.ask(subject, Verb::Charge, wanted).await?;
        if verdict.allowed || wanted == short {
            return Ok((wanted, verdict, at));
        }
        // What there is, if that will do; otherwise the store says when it will.
        let units = verdict.remaining.clamp(short, wanted);
        let (verdict, at) = self.ask(subject, Verb::Charge, units).await?;
        Ok((units, verdict, at))
    }

    /// Asks the store about one state, past every lease.
    async fn ask(&self, subject: &Subject, verb: Verb, cost: u64) -> Result<(Verdict, Micros), StoreError> {
        let former = subject.former();
        let check = Check::new(&subject.meter, &subject.key, verb, cost);
        let check = check.map_err(|_| RedisFailure::Garbled { what: "a cost" })?.with_former(&former);
        let mut verdicts = [Verdict::default()];
        let at = self.store.decide(&[check], &mut verdicts).await?;
        Ok((verdicts[0], at))
    }

    async fn give_back(&self, left: Return) {
        let Err(error) = self.ask(&left.subject, Verb::Refund, left.units).await else { return };
        match RedisFailure::of(&error) {
            // Nothing was sent: they go back when the servers are there again.
            Some(RedisFailure::Away { .. }) => {
                self.ledger.owe(&local_key(&left.subject.meter, &left.subject.key), left);
            }
            Some(failure) => tracing::warn!(%failure, left.units, "borrowed units could not be given back"),
            None => tracing::warn!(%error, left.units, "borrowed units could not be given back"),
        }
    }

    /// Gives back what is on lease of limits that those of some checks replaced:
    /// to these, since they take over what was charged to the others.
    async fn give_back_former(&self, checks: &[Check<'_>]) {
        for check in checks {
            for former in check.former() {
                let (name, meaning) = (former.meter.name(), former.meter.meaning());
                if former.until <= self.now() || self.leases.of_rule(name.as_str()).is_none() {
                    continue;
                }
                // One that is asked itself keeps what it has.
                let is_former = |meter: &Meter| meter.name() == name && meter.meaning() == meaning;
                if checks.iter().any(|other| is_former(other.meter()) && other.key() == check.key()) {
                    continue;
                }
                let Some(left) = self.ledger.leave(&local_key(former.meter, check.key())) else { continue };
                let left = Return { subject: Subject::of(check), units: left.units };
                run(&self.runtime, self.give_back(left)).await;
            }
        }
    }

    /// Gives back what is left of the leases that are over at `now`.
    async fn give_back_expired(&self, now: Micros) {
        for left in self.ledger.expired(now) {
            self.give_back(left).await;
        }
    }
}
