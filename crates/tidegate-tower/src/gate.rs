//! A limiter on any store, without its type, and what its layer was told.
//!
//! The memory store answers at once and without an allocation; every other
//! one by a future.

mod reserved;
mod told;

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::kernel::Verb;
use tidegate::store::{self, Check, Store};
use tidegate::{CheckError, Clock, Decision, Limiter, MemoryStore, Micros, Policy, Request};

use self::told::OnlyPolicy;
use crate::call::{Admission, AdmissionResult, Call, OwnedCall, Refused, answer};
use crate::fields::Fields;
use crate::head::{Head, Text, Value};
use crate::settings::{Keyless, Settings};
use crate::settle::Settlement;

pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The limiter of a layer, whatever its store, and how it is asked.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) settings: Settings,
    at_once: Option<AtOnce>,
    any: Arc<dyn AnyLimiter>,
    only_policy: OnceLock<OnlyPolicy>,
    /// Set once [`check_fit`](Gate::check_fit) has found nothing wrong.
    pub(crate) fits: OnceLock<()>,
}

/// Those that never wait.
#[derive(Clone)]
enum AtOnce {
    Own(Limiter),
    Shared(Limiter<Arc<MemoryStore>>),
}

/// What came of asking: most requests go straight on, and their responses have
/// something to tell.
pub(crate) type GateResult = Result<Option<Fields>, Detour>;

/// What keeps a request from going straight on.
pub(crate) enum Detour {
    Refused(Box<Refused>),
    /// It may pass, but not yet, or there is more to do when the response is there.
    Admitted(Box<Admission>, Option<Arc<OwnedCall>>),
    Later(Later<AdmissionResult>, Option<Arc<OwnedCall>>),
}

/// The key that requests without one share: it has no parts at all, so no caller's value equals it.
static NO_KEY: Value<'static> = Value::All(Vec::new());

impl Gate {
    pub(crate) fn new<S: Store>(limiter: Limiter<S>, settings: Settings) -> Gate {
        let typed: &dyn Any = &limiter;
        let own = || typed.downcast_ref().cloned().map(AtOnce::Own);
        let shared = || typed.downcast_ref().cloned().map(AtOnce::Shared);
        let at_once = own().or_else(shared);
        Gate { settings, at_once, any: Arc::new(limiter), only_policy: OnceLock::new(), fits: OnceLock::new() }
    }

    /// The settings, to be changed: what followed from them before is forgotten.
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        (self.only_policy, self.fits) = Default::default();
        &mut self.settings
    }

    /// Has requests reserved.
    pub(crate) fn reserve_for(&mut self, lasts: Duration) {
        // A reservation has allocations of its own: those of the other path do not matter.
        self.at_once = None;
        self.settings_mut().reserves = Some(lasts);
    }

    /// Asks about a request.
    #[inline]
    pub(crate) fn ask(self: &Arc<Self>, head: Head<'_>) -> GateResult {
        let settings = &self.settings;
        let key = (settings.key)(head);
        let key = match (&key, settings.keyless) {
            (Some(key), _) => key,
            (None, Keyless::Refuse(status)) => return Err(Detour::Refused(Box::new(Refused::keyless(status)))),
            (None, Keyless::Pass) => return Ok(None),
            (None, Keyless::Share) => &NO_KEY,
        };
        let attributes = (!settings.attributes.is_empty()).then(|| settings.attributes_of(head));
        let cost = settings.cost.as_ref().map_or(1, |cost| cost(head));
        let amounts = (!settings.amounts.is_empty()).then(|| settings.amounts_of(head));
        let id = settings.id.as_ref().and_then(|id| id(head)?.into_text());
        let (attributes, amounts) = (attributes.as_deref().unwrap_or_default(), amounts.as_deref().unwrap_or_default());
        self.put(&Call { key, attributes, cost, amounts, id: id.as_deref() })
    }

    /// Decides a call, and keeps it if it is to be settled.
    #[inline]
    fn put(self: &Arc<Self>, call: &Call<'_>) -> GateResult {
        let Some(at_once) = &self.at_once else {
            return Err(self.ask_later(call));
        };
        let mut fields = None;
        let tell = |decision: &Decision, limits: &[Check<'_>]| fields = self.fields(decision, limits);
        let decided = at_once.check(&self.settings, call, tell);
        match &decided {
            Ok(decision) if decision.is_allowed() && decision.delay().is_zero() && self.settings.settle.is_none() => {
                Ok(fields)
            }
            _ => Err(self.detour(call, answer(decided, fields))),
        }
    }

    #[cold]
    fn detour(&self, call: &Call<'_>, answer: AdmissionResult) -> Detour {
        match answer {
            Ok(admission) => {
                let kept = self.settings.settle.is_some().then(|| Arc::new(call.keep()));
                Detour::Admitted(Box::new(admission), kept)
            }
            Err(refused) => Detour::Refused(refused),
        }
    }

    #[cold]
    fn ask_later(self: &Arc<Self>, call: &Call<'_>) -> Detour {
        let call = Arc::new(call.keep());
        let kept = self.settings.settle.is_some().then(|| Arc::clone(&call));
        let answer = match self.settings.reserves {
            Some(lasts) => self.any.reserve(Arc::clone(self), call, lasts),
            None => self.any.ask(Arc::clone(self), call),
        };
        Detour::Later(answer, kept)
    }

    /// Corrects a charge; what is to be told of it thereafter.
    pub(crate) fn settle(self: &Arc<Self>, call: Arc<OwnedCall>, settlement: Settlement) -> Later<Option<Fields>> {
        self.any.settle(Arc::clone(self), call, settlement)
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Policy {
        self.any.policy()
    }

    /// A sleep by the store's clock.
    pub(crate) fn sleep(&self, wait: Duration) -> Sleep {
        Sleep::new(Arc::clone(&self.any), wait)
    }
}

impl AtOnce {
    #[inline]
    fn check(
        &self,
        settings: &Settings,
        call: &Call<'_>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        let mut text = Text::default();
        if call.is_plain(settings) {
            // A request is large: this one need not be in memory.
            let key = call.key.to_key(settings.ipv6_bits, &mut text);
            self.check_request(Request::new(key).cost(call.cost), settings, tell)
        } else {
            self.check_request(call.request(settings, &mut text), settings, tell)
        }
    }

    #[inline(always)]
    fn check_request(
        &self,
        request: Request<'_>,
        settings: &Settings,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> Result<Decision, CheckError> {
        match (self, settings.styles.is_empty()) {
            (AtOnce::Own(limiter), true) => limiter.check(request),
            (AtOnce::Own(limiter), false) => limiter.check_with_limits(request, tell),
            (AtOnce::Shared(limiter), true) => limiter.check(request),
            (AtOnce::Shared(limiter), false) => limiter.check_with_limits(request, tell),
        }
    }
}

trait AnyLimiter: Send + Sync {
    fn ask(&self, gate: Arc<Gate>, call: Arc<OwnedCall>) -> Later<AdmissionResult>;
    fn reserve(&self, gate: Arc<Gate>, call: Arc<OwnedCall>, lasts: Duration) -> Later<AdmissionResult>;
    fn settle(&self, gate: Arc<Gate>, call: Arc<OwnedCall>, settlement: Settlement) -> Later<Option<Fields>>;
    fn policy(&self) -> Policy;
    fn clock(&self) -> &dyn Clock;
}

impl<S: Store> AnyLimiter for Limiter<S> {
    fn ask(&self, gate: Arc<Gate>, call: Arc<OwnedCall>) -> Later<AdmissionResult> {
        let limiter = self.clone();
        Box::pin(async move {
            let (call, mut text) = (call.call(), Text::default());
            let (request, mut fields) = (call.request(&gate.settings, &mut text), None);
            let tell = |decision: &Decision, limits: &[Check<'_>]| fields = gate.fields(decision, limits);
            let decided = limiter.decide_with_limits_async(Verb::Charge, request, tell).await;
            answer(decided, fields)
        })
    }

    fn reserve(&self, gate: Arc<Gate>, call: Arc<OwnedCall>, lasts: Duration) -> Later<AdmissionResult> {
        Box::pin(reserved::reserve(self.clone(), gate, call, lasts))
    }

    fn settle(&self, gate: Arc<Gate>, call: Arc<OwnedCall>, settlement: Settlement) -> Later<Option<Fields>> {
        let limiter = self.clone();
        Box::pin(async move {
            let (call, mut text) = (call.call(), Text::default());
            let (request, mut fields) = (call.settling(&gate.settings, &mut text), None);
            let tell = |decision: &Decision, limits: &[Check<'_>]| fields = gate.fields(decision, limits);
            match settlement {
                Settlement::Keep => {}
                // What cannot be given back stays charged: against the caller, as always.
                Settlement::Refund => drop(limiter.decide_with_limits_async(Verb::Refund, request, tell).await),
                Settlement::Charge(cost) => {
                    let request = request.in_addition();
                    // The amounts have been charged.
                    let request = gate.settings.amounts.iter().fold(request, |asked, (unit, _)| asked.amount(unit, 0));
                    charge_up_to(&limiter, request, cost, tell).await;
                }
            }
            fields
        })
    }

    fn policy(&self) -> Policy {
        self.policy()
    }

    fn clock(&self) -> &dyn Clock {
        self.store().clock()
    }
}

/// How often a charge is tried, each time for less: others may be faster, and a
/// rule may charge several times the cost.
const ATTEMPTS: usize = 16;

/// Charges `cost`, or as much of it as there is.
async fn charge_up_to<S: Store>(
    limiter: &Limiter<S>,
    request: Request<'_>,
    cost: u64,
    mut tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
) {
    // No more than `most` is left to be charged, and `next` is tried.
    let (mut most, mut next) = (cost, cost);
    for _ in 0..ATTEMPTS {
        match limiter.decide_with_limits_async(Verb::Charge, request.clone().cost(next), &mut tell).await {
            Ok(decision) if decision.is_allowed() => {
                most -= next;
                next = if decision.remaining() == Some(0) { 0 } else { most.div_ceil(2) };
            }
            Ok(decision) => {
                most = next - 1;
                // As much as remains is right where a unit costs one, and the
                // refusal of a single unit tells when there is more.
                let remaining = decision.remaining().unwrap_or(most).max(1);
                next = if remaining <= most { remaining } else { most.div_ceil(2) };
            }
            Err(CheckError::Unsatisfiable { cost, capacity, .. }) => {
                let fits = u128::from(next) * u128::from(capacity) / u128::from(cost.max(1));
                most = u64::try_from(fits).unwrap_or(u64::MAX).min(next - 1);
                next = most;
            }
            Err(_) => break,
        }
        if next == 0 {
            break;
        }
    }
}

/// A sleep and the limiter by whose clock it ends; no particular runtime is needed.
pub(crate) struct Sleep {
    limiter: Arc<dyn AnyLimiter>,
    sleep: store::Sleep,
}

impl Sleep {
    fn new(limiter: Arc<dyn AnyLimiter>, wait: Duration) -> Sleep {
        let until = limiter.clock().now().saturating_add(Micros::from_duration(wait));
        Sleep { limiter, sleep: store::Sleep::until(until) }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        self.sleep.poll(self.limiter.clock(), context)
    }
}
