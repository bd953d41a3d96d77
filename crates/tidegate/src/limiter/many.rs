//! Batches of requests.

use smallvec::SmallVec;

use super::Limiter;
use super::ask::ignore_limits;
use super::fast::{By, FastLimit};
use crate::blocking;
use crate::decision::Decision;
use crate::kernel::{Verb, Verdict};
use crate::observe::Event;
use crate::policy::Resolution;
use crate::request::{Attributes, Key, Request};
use crate::store::{Check, CheckError, ImmediateStore, refund_charges};
use crate::time::Micros;

/// Requests of a batch that a store is asked about at a time.
const BATCH: usize = 32;

/// What matters of many requests where there is one limit: a request is large,
/// and most of it is room for attributes.
struct PackedRequests<'a> {
    keys: Vec<(Key<'a>, u64)>,
    /// The attributes of those that have any, in their order.
    attributes: Vec<(usize, Attributes<'a>)>,
}

impl<'a> PackedRequests<'a> {
    /// Inlined, so that most requests are never in memory as a whole.
    #[inline(always)]
    fn push(&mut self, request: Request<'a>) {
        let Request { key, cost, attributes, .. } = request;
        if !matches!(attributes, Attributes::None) {
            self.attributes.push((self.keys.len(), attributes));
        }
        self.keys.push((key, cost));
    }

    /// The request at `index`, as it was.
    fn request(&self, index: usize) -> Request<'a> {
        let (key, cost) = &self.keys[index];
        let mut request = Request::new(key.clone()).cost(*cost);
        if let Ok(place) = self.attributes.binary_search_by_key(&index, |(index, _)| *index) {
            request.attributes = self.attributes[place].1.clone();
        }
        request
    }
}

impl<S: ImmediateStore> Limiter<S> {
    /// Decides a batch of requests, each for itself and 32 at a time at one
    /// reading of the clock: for 16 and more about twice as fast as one by one.
    /// Where the policy has several limits or a failure mode, each request is
    /// decided as by [`check`](Limiter::check).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(1));
    /// let decisions = limiter.check_many(["alice", "bob", "alice"])?;
    /// assert_eq!(decisions.iter().map(|d| d.is_allowed()).collect::<Vec<_>>(), [true, true, false]);
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the cost of any can never pass: then
    /// none is charged. Or whatever kept the store from answering.
    pub fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<Vec<Decision>, CheckError> {
        let mut requests = requests.into_iter();
        let current = self.inner.policies.current();
        let only = current.only().filter(|meter| !self.inner.store.answers_for(meter));
        let Some(meter) = only else {
            return self.check_one_by_one(&requests.map(Into::into).collect::<Vec<_>>());
        };
        let mut asked = PackedRequests { keys: Vec::with_capacity(requests.size_hint().0), attributes: Vec::new() };
        while let Some(request) = requests.next() {
            let request: Request<'a> = request.into();
            if !request.is_plain() || request.is_in_addition() || request.without.skips {
                let before = (0..asked.keys.len()).map(|index| asked.request(index));
                return self
                    .check_one_by_one(&before.chain([request]).chain(requests.map(Into::into)).collect::<Vec<_>>());
            }
            asked.push(request);
        }
        asked.keys.iter().try_for_each(|(key, cost)| Check::new(meter, key, Verb::Charge, *cost).map(drop))?;
        let mut decisions = Vec::with_capacity(asked.keys.len());
        let mut checks: SmallVec<[Check<'_>; BATCH]> = SmallVec::new();
        let mut verdicts = [Verdict::default(); BATCH];
        let told = meter.decision(Verdict::default());
        for keys in asked.keys.chunks(BATCH) {
            checks.clear();
            for (key, cost) in keys {
                checks.push(Check::new(meter, key, Verb::Charge, *cost)?);
            }
            let verdicts = &mut verdicts[..checks.len()];
            let at = self.store().decide_each_now(&checks, verdicts)?;
            self.inner.policies.settle(&current, self.store().clock());
            let first = decisions.len();
            decisions.extend(verdicts.iter().map(|verdict| told.saying(*verdict)));
            let is_current = self.inner.policies.is_current(&current);
            let mut again = SmallVec::<[usize; BATCH]>::new();
            for ((check, decision), index) in checks.iter().zip(&decisions[first..]).zip(first..) {
                if is_current || !decision.is_allowed() {
                    self.tell_of_one(|| asked.request(index), decision, at);
                    self.inner.observers.tell_crossed(check, &decision.verdict(), at, false);
                    continue;
                }
                // What others have reached since is theirs to know.
                let charged = [(*check, decision.verdict())];
                for (check, verdict, at) in blocking::now(refund_charges(self.store(), charged)) {
                    self.inner.observers.tell_crossed(&check, &verdict, at, false);
                }
                again.push(index);
            }
            // When all of them are given back: else what a key was charged would count beside the others.
            for index in again {
                decisions[index] = self.ask_now(Verb::Charge, &asked.request(index), ignore_limits)?;
            }
        }
        Ok(decisions)
    }

    /// Whether each of a batch of requests was admitted, each for itself: what
    /// [`allow`](Limiter::allow) says of each, 32 at a time at one reading of the clock.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_second(1));
    /// assert_eq!(limiter.allow_many(["alice", "bob", "alice"]), [true, true, false]);
    /// ```
    pub fn allow_many<'a, R: Into<Request<'a>>>(&self, requests: impl IntoIterator<Item = R>) -> Vec<bool> {
        let requests = requests.into_iter();
        let mut admitted = Vec::with_capacity(requests.size_hint().0);
        let mut batch: Vec<(Key<'a>, u64)> = Vec::with_capacity(BATCH);
        for request in requests {
            let request: Request<'a> = request.into();
            // The key and the cost are all that a batch keeps of a request.
            let is_bare = matches!(request.attributes, Attributes::None) && !request.is_in_addition();
            if is_bare && !request.without.skips && request.is_plain() {
                batch.push((request.key, request.cost));
                if batch.len() == BATCH {
                    self.allow_batch(&mut batch, &mut admitted);
                }
            } else {
                self.allow_batch(&mut batch, &mut admitted);
                admitted.push(self.allow(request));
            }
        }
        self.allow_batch(&mut batch, &mut admitted);
        admitted
    }

    /// Asks about plain requests, each for itself.
    fn allow_batch(&self, batch: &mut Vec<(Key<'_>, u64)>, admitted: &mut Vec<bool>) {
        let fast = self.inner.policies.fast();
        let (mut told, mut is_decided) = ([false; BATCH], false);
        if let Some((FastLimit { meter, by: By::Key }, version)) = fast.get() {
            let checks = batch.iter().map(|(key, cost)| Check::new(meter, key, Verb::Charge, *cost));
            // One that could never be admitted is asked for alone, and refused.
            if let Ok(checks) = checks.collect::<Result<SmallVec<[Check<'_>; BATCH]>, CheckError>>() {
                // No answer counts as refused.
                let _ = self.store().admits_each_now(&checks, &mut told[..checks.len()]);
                is_decided = fast.is(version);
                if !is_decided {
                    let charged = checks.iter().zip(told).filter(|(_, is_admitted)| *is_admitted);
                    charged.for_each(|(check, _)| self.give_back_now(*check));
                }
            }
        }
        if is_decided {
            admitted.extend_from_slice(&told[..batch.len()]);
            batch.clear();
        } else {
            admitted.extend(batch.drain(..).map(|(key, cost)| self.allow(Request::new(key).cost(cost))));
        }
    }

    #[inline]
    fn tell_of_one<'a>(&self, request: impl FnOnce() -> Request<'a>, decision: &Decision, at: Micros) {
        let observers = &self.inner.observers;
        if !observers.is_empty() {
            let (request, verb) = (&request(), Verb::Charge);
            let (key, cost, in_addition, shadow, reservation) = (&request.key, request.cost, false, false, None);
            observers.tell(&Event { request, key, verb, cost, in_addition, decision, at, shadow, reservation });
        }
    }

    #[inline(never)]
    fn check_one_by_one(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let current = self.inner.policies.current();
        for request in requests {
            self.resolve_into(&current, Verb::Charge, request, &mut Resolution::default())?;
        }
        requests.iter().map(|request| self.decide_now(Verb::Charge, request, ignore_limits)).collect()
    }
}
