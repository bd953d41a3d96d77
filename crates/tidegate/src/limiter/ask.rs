//! From requests to decisions: the one protocol.
//!
//! Requests become checks by the policy in force, and the store decides all of
//! them in one slice. If the policy was replaced meanwhile, what was charged is
//! given back and all is asked again: a decision is made by one policy, while
//! that was in force. A store that never waits is asked in the same way, and
//! the future is ready when it is first polled.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use super::Limiter;
use super::current::{Current, InForce, Policies};
use crate::blocking;
use crate::decision::Decision;
use crate::kernel::{Verb, Verdict};
use crate::observe::{Event, ReservationEvent};
use crate::policy::{Applied, Resolution};
use crate::request::{Extent, Key, Purpose, Request, RequestId};
use crate::store::{Check, CheckError, Demand, ImmediateStore, Meter, Store, StoreError, refund_charges};
use crate::time::Micros;

/// A request, and what is asked of its limits.
pub(super) type VerbRequest<'q, 'r> = (Verb, &'q Request<'r>);

/// What came of some requests: mostly of one.
type Decisions = SmallVec<[Result<Decision, CheckError>; 1]>;

/// Requests by the policy in force. They are large, and stay where they are made.
type Resolved<'p, 'r> = SmallVec<[Resolution<'p, 'r>; 1]>;

/// One for each limit, on the stack up to 4.
type PerLimit<T> = SmallVec<[T; 4]>;
/// Of each request, the error that it is.
type Errors = SmallVec<[Option<CheckError>; 1]>;

impl<S: Store> Limiter<S> {
    /// Asks for one request; `tell` gets the decision, and the check of each limit that made it.
    pub(super) async fn ask(
        &self,
        verb: Verb,
        request: &Request<'_>,
        mut tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        corrects_a_reservation(verb, request)?;
        let fast = self.inner.policies.fast();
        // Where there is one limit, the protocol is one check and a look at the version.
        if let Some((limit, key, version)) = fast.of(request) {
            let check = Check::new(&limit.meter, key.as_ref().unwrap_or(&request.key), verb, request.cost)?;
            let mut verdicts = [Verdict::default()];
            self.store().decide(&[check], &mut verdicts).await?;
            let is_charge = verb == Verb::Charge;
            if fast.is(version) || verb.is_final() || (is_charge && !verdicts[0].allowed) {
                let decision = check.decision(verdicts[0]);
                tell(&decision, &[check]);
                return Ok(decision);
            }
            if is_charge {
                let _ = self.store().decide(&[check.as_refund()], &mut verdicts).await;
            }
        }
        only(self.ask_all(&[(verb, request)], Policies::current_for_long, tell).await?)
    }

    /// Asks for all of some requests, or none: if one is refused or has an error,
    /// nothing is charged, and the others say what they would have answered.
    ///
    /// # Errors
    /// If the store did not answer.
    pub(super) async fn ask_all(
        &self,
        asked: &[VerbRequest<'_, '_>],
        in_force: fn(&Policies) -> InForce<'_>,
        mut tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decisions, CheckError> {
        let inner = &*self.inner;
        asked.iter().try_for_each(|(verb, request)| corrects_a_reservation(*verb, request))?;
        let id = id_of(asked);
        loop {
            let current = in_force(&inner.policies);
            let mut resolved = Resolved::new();
            resolved.resize_with(asked.len(), Resolution::default);
            let mut errors = Errors::new();
            for ((verb, request), resolution) in asked.iter().zip(&mut resolved) {
                errors.push(self.resolve_into(&current, *verb, request, resolution).err());
            }
            let mut slice = RequestSlice::new(asked, &resolved[..], errors, id.as_ref());
            let decided = slice.decide(&inner.store).await?;
            if slice.matters() && !inner.policies.is_current(&current) {
                // What others have reached since is theirs to know, though this charge is no more.
                for (check, verdict, at) in refund_charges(&inner.store, slice.decided()).await {
                    inner.observers.tell_crossed(&check, &verdict, at, false);
                }
                continue;
            }
            inner.policies.settle(&current, inner.store.clock());
            let answers = slice.take_answers();
            match (asked, &*answers) {
                ([_], [Ok(decision)]) if !decision.is_unlimited() => tell(decision, &slice.checks),
                _ => {}
            }
            for (check, verdict) in slice.decided() {
                inner.observers.tell_crossed(&check, &verdict, decided.unwrap_or(Micros::ZERO), false);
            }
            for ((verb, request), (resolution, answer)) in asked.iter().zip(resolved.iter().zip(&answers)) {
                let Ok(decision) = answer else { continue };
                // What was admitted and not charged, because of another request, was only looked at.
                let is_charged = slice.is_carried_out || !decision.is_allowed();
                let asked = (if is_charged { *verb } else { Verb::Peek }, *request);
                self.tell_of(decision, decided, asked, resolution);
                self.ask_shadows(asked, resolution, decision).await;
            }
            return Ok(answers);
        }
    }

    /// What applies to a request, in place of an empty resolution; observers are told what it lacks.
    ///
    /// # Errors
    /// What keeps the request from an answer: also a cost that a limit could never admit.
    pub(super) fn resolve_into<'p, 'r>(
        &self,
        current: &'p Current,
        verb: Verb,
        request: &'r Request<'_>,
        resolution: &mut Resolution<'p, 'r>,
    ) -> Result<(), CheckError> {
        current.policy.resolve_into(request, resolution);
        for (rule, attribute) in &resolution.lacking {
            self.inner.observers.tell_missing(rule, attribute);
        }
        match resolution.problem.take() {
            Some(problem) => Err(*problem),
            None if resolution.blocked_by.is_some() => Ok(()),
            None => resolution.enforced.iter().try_for_each(|applied| applied.check(verb).map(drop)),
        }
    }

    /// Asks the shadow rules: a refused request is charged to none of them
    /// either, and a repeated one was charged when it was first answered.
    async fn ask_shadows(
        &self,
        (verb, request): VerbRequest<'_, '_>,
        resolution: &Resolution<'_, '_>,
        decision: &Decision,
    ) {
        let asked = if verb == Verb::Charge && !decision.is_allowed() { Verb::Peek } else { verb };
        let shadows = if decision.is_repeated() { &[] } else { &*resolution.shadows };
        let reservation = ReservationEvent::of(asked, request);
        for shadow in shadows {
            // A cost that can never pass is refused by a shadow, too: there is nothing to ask.
            let Ok(mut check) = shadow.check(asked) else { continue };
            // Each has a reservation of its own, as it may admit what the others refuse.
            let text =
                reservation.map(|reservation| format!("{} in the shadow {}", reservation.id, shadow.meter.name()));
            let id = text.as_deref().and_then(|text| Some(RequestId { text, ..id_of(&[(asked, request)])? }));
            if let Some(id) = &id {
                check = shadow.check_alone(asked).with_id(id);
            }
            let mut verdicts = [Verdict::default()];
            let Ok(at) = self.store().decide(&[check], &mut verdicts).await else { continue };
            self.inner.observers.tell_crossed(&check, &verdicts[0], at, true);
            // Observers hear of what a shadow would have said, and a correction is no answer.
            if !check.is_correction() {
                let (decision, key) = (&check.decision(verdicts[0]), &shadow.key);
                let (cost, in_addition, reservation) = (request.cost, request.is_in_addition(), None);
                let shadow = true;
                let event = Event { request, key, verb, cost, in_addition, decision, at, shadow, reservation };
                self.inner.observers.tell(&event);
            }
        }
    }

    /// Tells the observers of a decision.
    fn tell_of(
        &self,
        decision: &Decision,
        decided: Option<Micros>,
        (verb, request): VerbRequest<'_, '_>,
        resolution: &Resolution<'_, '_>,
    ) {
        let observers = &self.inner.observers;
        if !observers.is_empty() {
            // Where the store was not needed, the observers get its time all the same.
            let at = decided.unwrap_or_else(|| self.store().clock().now());
            let key = resolution.key_of(decision.rule()).unwrap_or(&request.key);
            let (cost, in_addition) = (request.cost, request.is_in_addition());
            let reservation = ReservationEvent::of(verb, request);
            let shadow = false;
            observers.tell(&Event { request, key, verb, cost, in_addition, decision, at, shadow, reservation });
        }
    }
}

impl<S: ImmediateStore> Limiter<S> {
    #[inline(never)]
    pub(super) fn ask_now(
        &self,
        verb: Verb,
        request: &Request<'_>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        only(blocking::now(self.ask_all(&[(verb, request)], Policies::current, tell))?)
    }
}

/// For callers that need not know the limits.
pub(super) fn ignore_limits(_: &Decision, _: &[Check<'_>]) {}

fn only(mut decisions: Decisions) -> Result<Decision, CheckError> {
    decisions.pop().unwrap_or_else(|| Ok(Decision::unlimited()))
}

/// Some requests as checks, and what came of them.
struct RequestSlice<'a, 'p, 'r> {
    asked: &'a [VerbRequest<'a, 'a>],
    resolved: &'a [Resolution<'p, 'r>],
    /// Of requests that have no answer, and of those that cannot be admitted together with those before them.
    errors: Errors,
    /// Of limits that requests of several classes ask about one key, the meter of the class
    /// that leaves most to others: it decides for all of them.
    strictest: HashMap<(u64, &'a Key<'r>), &'p Meter>,
    /// What each limit of each request says, in their order.
    said: PerLimit<Verdict>,
    /// What the store was asked last.
    checks: PerLimit<Check<'a>>,
    verdicts: PerLimit<Verdict>,
    id: Option<&'a RequestId<'a>>,
    is_carried_out: bool,
}

/// What of a slice the store is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlicePart {
    /// What the requests ask for.
    All,
    /// The same, without those that only look: they have been asked.
    Changes,
    /// What would come of it.
    Peeks,
}

impl<'a, 'p, 'r> RequestSlice<'a, 'p, 'r> {
    fn new(
        asked: &'a [VerbRequest<'a, 'a>],
        resolved: &'a [Resolution<'p, 'r>],
        errors: Errors,
        id: Option<&'a RequestId<'a>>,
    ) -> RequestSlice<'a, 'p, 'r> {
        let (checks, verdicts, said) = (PerLimit::new(), PerLimit::new(), PerLimit::new());
        let strictest = HashMap::new();
        let mut slice = RequestSlice {
            asked,
            resolved,
            errors,
            strictest,
            said,
            checks,
            verdicts,
            id: None,
            is_carried_out: false,
        };
        if asked.len() > 1 {
            slice.add_up();
        }
        slice.said = smallvec![Verdict::default(); slice.limits().count()];
        // Only charges and refunds of something need an id, and what is to be settled.
        let is_estimate = asked.iter().any(|(_, request)| request.extent == Extent::Estimate);
        let matters = |id: &&RequestId<'_>| {
            id.purpose != Purpose::Once || is_estimate || slice.limits().any(|(_, of)| of.cost > 0)
        };
        slice.id = id.filter(matters);
        slice
    }

    /// The limits of all requests, and which request each is of.
    fn limits(&self) -> impl Iterator<Item = (usize, &'a Applied<'p, 'r>)> {
        let requests = self.resolved.iter().zip(&self.errors).enumerate();
        let asked = requests.filter(|(_, (resolution, error))| resolution.blocked_by.is_none() && error.is_none());
        asked.flat_map(|(index, (resolution, _))| resolution.enforced.iter().map(move |applied| (index, applied)))
    }

    /// Finds charges that no limit could ever admit together, or beside what is reported.
    fn add_up(&mut self) {
        let mut strictest = HashMap::new();
        for (index, Applied { meter, key, .. }) in self.limits() {
            if meter.floor() > 0 && matches!(self.asked[index].0, Verb::Charge | Verb::Peek) {
                let known: &mut &'p Meter = strictest.entry((meter.identity(), key)).or_insert(meter);
                *known = if meter.floor() > known.floor() { meter } else { known };
            }
        }
        self.strictest = strictest;
        let mut costs: HashMap<_, u64> = HashMap::new();
        let mut errors: SmallVec<[(usize, CheckError); 1]> = SmallVec::new();
        for verb in [Verb::Report, Verb::Charge] {
            for (index, applied) in self.limits().filter(|(index, _)| self.asked[*index].0 == verb) {
                let cost = costs.entry((applied.meter.identity(), &applied.key)).or_default();
                let meter = self.meter_of(applied);
                *cost = cost.saturating_add(applied.cost_by(meter, verb));
                if let Err(error) = Check::new(meter, &applied.key, verb, *cost) {
                    errors.push((index, error));
                }
            }
        }
        errors.into_iter().for_each(|(index, error)| self.errors[index] = Some(error));
    }

    /// The meter by which a limit is asked.
    fn meter_of(&self, applied: &'a Applied<'p, 'r>) -> &'p Meter {
        let strictest = self.strictest.get(&(applied.meter.identity(), &applied.key));
        strictest.copied().unwrap_or(applied.meter)
    }

    /// Asks the store, and says when it decided if there was anything to ask.
    async fn decide(&mut self, store: &impl Store) -> Result<Option<Micros>, StoreError> {
        if let [_] = self.asked {
            return self.ask(SlicePart::All, store).await;
        }
        let is_blocked = self.resolved.iter().any(|resolution| resolution.blocked_by.is_some());
        let is_refused = is_blocked || self.errors.iter().any(Option::is_some);
        let peeks = self.asked.iter().filter(|(verb, _)| *verb == Verb::Peek).count();
        if !is_refused && (peeks == 0 || peeks == self.asked.len()) {
            return self.ask(SlicePart::All, store).await;
        }
        // A peek that is refused refuses all, so it is asked before anything is charged.
        let decided = self.ask(SlicePart::Peeks, store).await?;
        // What has an id may have been charged before, and is repeated though nothing is left.
        let refuses = |index: usize| self.id.is_none() || self.asked[index].0 == Verb::Peek;
        let is_refused =
            is_refused || self.limits().zip(&self.said).any(|((index, _), said)| !said.allowed && refuses(index));
        if is_refused {
            return Ok(decided);
        }
        self.ask(SlicePart::Changes, store).await
    }

    async fn ask(&mut self, part: SlicePart, store: &impl Store) -> Result<Option<Micros>, StoreError> {
        let mut places: PerLimit<Option<usize>> = PerLimit::new();
        let mut known = HashMap::new();
        let mut checks: PerLimit<Check<'a>> = PerLimit::new();
        let mut demands: PerLimit<Demand> = PerLimit::new();
        for (index, applied) in self.limits() {
            let verb = self.asked[index].0;
            if self.asked.len() == 1 {
                places.push(Some(checks.len()));
                checks.push(applied.check_alone(verb));
                continue;
            }
            if part == SlicePart::Changes && verb == Verb::Peek {
                places.push(None);
                continue;
            }
            let cost = applied.cost_by(self.meter_of(applied), verb);
            // Two requests that ask one limit about one key are one check.
            let place = *known.entry((applied.meter.identity(), &applied.key)).or_insert(checks.len());
            if place == demands.len() {
                demands.push(Demand::default());
                checks.push(applied.check_by(self.meter_of(applied), verb, cost));
            }
            let demand = &mut demands[place];
            if !demand.add(verb, cost) {
                return Err(StoreError::SameStateTwice { rule: applied.meter.name().clone() });
            }
            // A peek that is refused refuses all.
            let change = if part == SlicePart::Peeks { None } else { demand.change() };
            let (verb, cost) = change.unwrap_or_else(|| demand.look());
            checks[place] = applied.check_by(self.meter_of(applied), verb, cost);
            places.push(Some(place));
        }
        if let Some(id) = self.id.filter(|_| part != SlicePart::Peeks) {
            checks.iter_mut().for_each(|check| *check = check.with_id(id));
        }
        self.checks = checks;
        self.verdicts = smallvec![Verdict::default(); self.checks.len()];
        if self.checks.is_empty() {
            self.is_carried_out = part != SlicePart::Peeks;
            return Ok(None);
        }
        let at = store.decide(&self.checks, &mut self.verdicts).await?;
        for (said, place) in self.said.iter_mut().zip(places) {
            if let Some(place) = place {
                *said = self.verdicts[place];
            }
        }
        let refuses = |(check, verdict): (&Check<'_>, &Verdict)| check.verb().can_refuse() && !verdict.allowed;
        self.is_carried_out = part != SlicePart::Peeks && !self.checks.iter().zip(&self.verdicts).any(refuses);
        Ok(Some(at))
    }

    /// Whether the answer would be wrong by a policy that is no longer in force.
    /// An id has one answer.
    fn matters(&self) -> bool {
        let is_final = self.asked.iter().any(|(verb, _)| verb.is_final());
        let charges = self.asked.iter().any(|(verb, _)| *verb == Verb::Charge);
        self.id.is_none() && !is_final && (self.is_carried_out || !charges)
    }

    /// What the store was asked last, and said.
    fn decided(&self) -> impl Iterator<Item = (Check<'a>, Verdict)> {
        self.checks.iter().copied().zip(self.verdicts.iter().copied())
    }

    /// What came of each request: the decision by the limit that binds, or its error.
    fn take_answers(&mut self) -> Decisions {
        let blocked = |line: &Resolution<'_, '_>| line.blocked_by.clone().map(Decision::blocked);
        let mut decisions: SmallVec<[_; 1]> = self.resolved.iter().map(blocked).collect();
        for ((index, applied), verdict) in self.limits().zip(&self.said) {
            let mut decision = applied.meter.decision(*verdict);
            // A refund that was left out for the sake of another request was asked as a peek, and is not refused.
            if self.asked.len() > 1 && matches!(self.asked[index].0, Verb::Report | Verb::Refund | Verb::Reset) {
                decision = applied.meter.decision(Verdict { allowed: true, retry_after: Micros::ZERO, ..*verdict });
            }
            decisions[index] = Some(match decisions[index].take() {
                Some(other) => Decision::and(other, decision),
                None => decision,
            });
        }
        let errors = std::mem::take(&mut self.errors).into_iter();
        let answers = errors.zip(decisions).map(|(error, decision)| match error {
            Some(error) => Err(error),
            None => Ok(decision.unwrap_or_else(Decision::unlimited)),
        });
        answers.collect()
    }
}

/// A correction without an id has nothing to correct.
#[inline]
fn corrects_a_reservation(verb: Verb, request: &Request<'_>) -> Result<(), CheckError> {
    match verb {
        Verb::Settle(_) | Verb::Renew(_) if request.id.is_none() => Err(CheckError::NotReserved { id: String::new() }),
        _ => Ok(()),
    }
}

/// The id of the first request that has one names all of them.
fn id_of<'a>(asked: &[VerbRequest<'a, 'a>]) -> Option<RequestId<'a>> {
    let text = asked.iter().find_map(|(_, request)| request.id)?;
    let payload = |(_, request): &VerbRequest<'_, '_>| request.payload();
    let payload = asked.iter().map(payload).reduce(|all, one| all.rotate_left(1) ^ one)?;
    let lasts_ms = asked.iter().map(|(_, request)| request.lasts_ms).max()?;
    let purpose = match asked {
        [(Verb::Settle(_), _)] => Purpose::Settle,
        [(Verb::Renew(_), _)] => Purpose::Renew,
        _ => Purpose::Once,
    };
    Some(RequestId { text, payload, lasts_ms, purpose })
}
