//! A limiter on any store, without its type.
//!
//! The memory store answers at once and without an allocation; every other
//! one by a future.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::{CheckError, Clock, Decision, Limiter, MemoryStore, Meter, Micros, Request, Store};

use crate::head::Text;
use crate::question::{Answer, Put, Question, answer};
use crate::settings::Settings;
use crate::settle::Settlement;

pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A limiter, whatever its store.
#[derive(Clone)]
pub(crate) struct Gate {
    at_once: Option<AtOnce>,
    any: Arc<dyn AnyLimiter>,
}

/// Those that never wait.
#[derive(Clone)]
enum AtOnce {
    Own(Limiter),
    Shared(Limiter<Arc<MemoryStore>>),
}

/// What came of asking.
pub(crate) enum Asked {
    Now(Answer, Option<Arc<Question<'static>>>),
    Later(Later<Answer>, Option<Arc<Question<'static>>>),
}

impl Gate {
    pub(crate) fn new<S: Store>(limiter: Limiter<S>) -> Gate {
        let typed: &dyn Any = &limiter;
        let own = || typed.downcast_ref().cloned().map(AtOnce::Own);
        let shared = || typed.downcast_ref().cloned().map(AtOnce::Shared);
        Gate { at_once: own().or_else(shared), any: Arc::new(limiter) }
    }

    /// Asks, and keeps the question if it is to be settled.
    #[inline]
    pub(crate) fn ask(&self, settings: &Arc<Settings>, question: Question<'_>) -> Asked {
        let Some(at_once) = &self.at_once else {
            let question = Arc::new(question.into_owned());
            let kept = settings.settle.is_some().then(|| Arc::clone(&question));
            return Asked::Later(self.any.ask(Arc::clone(settings), question), kept);
        };
        let decided = at_once.check(question.request(settings, &mut Text::default()));
        let answer = answer(decided, |decision| {
            settings.standing(decision, &question, |request, show| at_once.for_each_meter(request, show))
        });
        let was_charged = answer.as_ref().is_ok_and(|admission| !admission.is_repeated);
        let is_to_be_settled = settings.settle.is_some() && was_charged;
        let kept = is_to_be_settled.then(|| Arc::new(question.into_owned()));
        Asked::Now(answer, kept)
    }

    pub(crate) fn settle(
        &self,
        settings: Arc<Settings>,
        question: Arc<Question<'static>>,
        settlement: Settlement,
    ) -> Later<Option<Decision>> {
        self.any.settle(settings, question, settlement)
    }

    /// A sleep by the store's clock.
    pub(crate) fn sleep(&self, wait: Duration) -> Sleep {
        Sleep::new(Arc::clone(&self.any), wait)
    }
}

impl AtOnce {
    #[inline]
    fn check(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        match self {
            AtOnce::Own(limiter) => limiter.check(request),
            AtOnce::Shared(limiter) => limiter.check(request),
        }
    }

    #[inline]
    fn for_each_meter(&self, request: Put<'_>, show: impl FnMut(&Meter)) {
        match self {
            AtOnce::Own(limiter) => limiter.for_each_meter(request, show),
            AtOnce::Shared(limiter) => limiter.for_each_meter(request, show),
        }
    }
}

trait AnyLimiter: Send + Sync {
    fn ask(&self, settings: Arc<Settings>, question: Arc<Question<'static>>) -> Later<Answer>;
    fn settle(
        &self,
        settings: Arc<Settings>,
        question: Arc<Question<'static>>,
        settlement: Settlement,
    ) -> Later<Option<Decision>>;
    fn clock(&self) -> &dyn Clock;
}

impl<S: Store> AnyLimiter for Limiter<S> {
    fn ask(&self, settings: Arc<Settings>, question: Arc<Question<'static>>) -> Later<Answer> {
        let limiter = self.clone();
        Box::pin(async move {
            let mut text = Text::default();
            let decided = limiter.check_async(question.request(&settings, &mut text)).await;
            answer(decided, |decision| {
                settings.standing(decision, &question, |request, show| limiter.for_each_meter(request, show))
            })
        })
    }

    fn settle(
        &self,
        settings: Arc<Settings>,
        question: Arc<Question<'static>>,
        settlement: Settlement,
    ) -> Later<Option<Decision>> {
        let limiter = self.clone();
        Box::pin(async move {
            let mut text = Text::default();
            let request = question.settling(&settings, &mut text);
            match settlement {
                Settlement::Keep => None,
                // What cannot be given back stays charged: against the caller, as always.
                Settlement::Refund => limiter.refund_async(request).await.ok(),
                Settlement::Charge(cost) => charge_up_to(&limiter, request, cost).await,
            }
        })
    }

    fn clock(&self) -> &dyn Clock {
        self.store().clock()
    }
}

/// How often a charge is tried, each time for less: others may be faster.
const ATTEMPTS: usize = 8;

/// Charges `cost`, or as much of it as there is.
async fn charge_up_to<S: Store>(limiter: &Limiter<S>, request: Request<'_>, cost: u64) -> Option<Decision> {
    let (mut cost, mut last) = (cost, None);
    for _ in 0..ATTEMPTS {
        if cost == 0 {
            break;
        }
        let most = match limiter.check_async(request.clone().cost(cost)).await {
            Ok(decision) if decision.is_allowed() => return Some(decision),
            Ok(decision) => {
                last = Some(decision);
                decision.remaining()
            }
            Err(CheckError::Unsatisfiable { capacity, .. }) => capacity,
            Err(_) => break,
        };
        cost = most.min(cost - 1);
    }
    last
}

/// Sleeps by a store's clock; no particular runtime is needed.
pub(crate) struct Sleep {
    limiter: Arc<dyn AnyLimiter>,
    until: Micros,
}

impl Sleep {
    fn new(limiter: Arc<dyn AnyLimiter>, wait: Duration) -> Sleep {
        let until = limiter.clock().now().saturating_add(Micros::from_duration(wait));
        Sleep { limiter, until }
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        poll_clock(self.limiter.clock(), self.until, context)
    }
}

/// Ready once a clock has reached an instant.
pub(crate) fn poll_clock(clock: &dyn Clock, until: Micros, context: &Context<'_>) -> Poll<()> {
    if clock.now() >= until {
        return Poll::Ready(());
    }
    clock.wake_at(until, context.waker());
    // The clock may have moved on before it knew of us.
    if clock.now() >= until { Poll::Ready(()) } else { Poll::Pending }
}
