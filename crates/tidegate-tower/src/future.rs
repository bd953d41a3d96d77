//! The response to come: asked for, held back, served, settled.

use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::answers::{Answers, refuse};
use crate::call::{Admission, AdmissionResult, OwnedCall, Refused};
use crate::fields::Fields;
use crate::gate::{Gate, Later, Sleep};
use crate::hold::Hold;
use crate::settle::{ResponseHead, Settlement};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit).
    ///
    /// Dropped before its request was decided, it has charged nothing that
    /// the store did not hear of; dropped later, the charge stays.
    #[must_use = "a future does nothing until it is polled"]
    pub struct ResponseFuture<S, B, A>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<S, B>,
        answers: PhantomData<fn() -> A>,
    }
}

pin_project! {
    #[project = StepView]
    enum Step<S, B>
    where
        S: Service<Request<B>>,
    {
        Refused { response: Option<S::Response> },
        Waiting { waiting: Option<Box<Waiting<S, B>>> },
        Serving {
            #[pin]
            future: S::Future,
            after: After,
        },
        Settling {
            settling: Later<Option<Fields>>,
            result: Option<Result<S::Response, S::Error>>,
            fields: Option<Fields>,
        },
    }
}

/// A request that cannot go on yet, and the service that is ready for it.
struct Waiting<S, B> {
    service: S,
    request: Request<B>,
    stage: Stage,
}

enum Stage {
    Asking { answer: Later<AdmissionResult>, call: Option<Arc<OwnedCall>>, gate: Arc<Gate> },
    Delayed { sleep: Sleep, after: After },
}

/// What is left to do when the response is there.
pub(crate) enum After {
    Tell(Option<Fields>),
    Settle(Box<Unsettled>),
    Hold(Box<Holding>),
}

/// What the request holds until its response is taken, and what that tells.
pub(crate) struct Holding {
    hold: Option<Box<dyn Hold>>,
    fields: Option<Fields>,
}

/// A charge that the response may correct, and what it tells if it does not.
pub(crate) struct Unsettled {
    gate: Arc<Gate>,
    call: Arc<OwnedCall>,
    /// Whether there is anything to be given back.
    is_charged: bool,
    fields: Option<Fields>,
}

const DONE: &str = "the future is not polled again once it is done";

impl<S: Service<Request<B>>, B, A> ResponseFuture<S, B, A> {
    fn new(step: Step<S, B>) -> Self {
        ResponseFuture { step, answers: PhantomData }
    }

    pub(crate) fn refused(response: S::Response) -> Self {
        ResponseFuture::new(Step::Refused { response: Some(response) })
    }

    pub(crate) fn serving(future: S::Future, after: After) -> Self {
        ResponseFuture::new(Step::Serving { future, after })
    }

    pub(crate) fn delayed(sleep: Sleep, after: After, service: S, request: Request<B>) -> Self {
        let stage = Stage::Delayed { sleep, after };
        ResponseFuture::new(Step::Waiting { waiting: Some(Box::new(Waiting { service, request, stage })) })
    }

    pub(crate) fn asking(
        answer: Later<AdmissionResult>,
        call: Option<Arc<OwnedCall>>,
        gate: Arc<Gate>,
        service: S,
        request: Request<B>,
    ) -> Self {
        let stage = Stage::Asking { answer, call, gate };
        ResponseFuture::new(Step::Waiting { waiting: Some(Box::new(Waiting { service, request, stage })) })
    }
}

impl<S: Service<Request<B>>, B, A> ResponseFuture<S, B, A> {
    /// What the request holds, for the body of the response that this future was ready with.
    pub(crate) fn take_hold(self: Pin<&mut Self>) -> Option<Box<dyn Hold>> {
        let StepView::Serving { after: After::Hold(holding), .. } = self.project().step.project() else { return None };
        holding.hold.take()
    }
}

impl<S, B, A, R> Future for ResponseFuture<S, B, A>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: Answers<R>,
    R: Body,
{
    type Output = Result<Response<R>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                StepView::Serving { future, after } => {
                    let mut polled = future.poll(context);
                    let Poll::Ready(result) = &mut polled else { return Poll::Pending };
                    let unsettled = match after {
                        After::Tell(fields) => {
                            tell(fields, result);
                            return polled;
                        }
                        After::Hold(holding) => {
                            tell(&mut holding.fields, result);
                            return polled;
                        }
                        After::Settle(unsettled) => unsettled,
                    };
                    match unsettled.settle(result) {
                        None => {
                            tell(&mut unsettled.fields, result);
                            return polled;
                        }
                        Some(settling) => {
                            let fields = unsettled.fields.take();
                            Step::Settling { settling, result: Some(ready!(polled)), fields }
                        }
                    }
                }
                StepView::Refused { response } => return Poll::Ready(Ok(response.take().expect(DONE))),
                StepView::Waiting { waiting } => {
                    let after = match ready!(waiting.as_mut().expect(DONE).poll(context)) {
                        Ok(after) => after,
                        Err((refused, gate)) => {
                            let waiting = waiting.take().expect(DONE);
                            return Poll::Ready(Ok(refuse::<A, R, B>(&gate.settings, *refused, &waiting.request)));
                        }
                    };
                    let Waiting { mut service, request, stage: _ } = *waiting.take().expect(DONE);
                    Step::Serving { future: service.call(request), after }
                }
                StepView::Settling { settling, result, fields } => {
                    let settled = ready!(settling.as_mut().poll(context));
                    let mut result = result.take().expect(DONE);
                    tell(&mut settled.or_else(|| fields.take()), &mut result);
                    return Poll::Ready(result);
                }
            };
            step.set(next);
        }
    }
}

/// What became of a wait: what is left to do later, or how to say no.
type Passed = Result<After, (Box<Refused>, Arc<Gate>)>;

impl<S, B> Waiting<S, B> {
    /// Ready when the request may go on, or may not.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Passed> {
        if let Stage::Asking { answer, call, gate } = &mut self.stage {
            let admission = match ready!(answer.as_mut().poll(context)) {
                Ok(admission) => admission,
                Err(refused) => return Poll::Ready(Err((refused, Arc::clone(gate)))),
            };
            let sleep = gate.sleep(admission.delay);
            let after = After::new(gate, admission, call.take());
            self.stage = Stage::Delayed { sleep, after };
        }
        match &mut self.stage {
            Stage::Delayed { sleep, after } => {
                ready!(sleep.poll(context));
                Poll::Ready(Ok(mem::replace(after, After::Tell(None))))
            }
            Stage::Asking { .. } => Poll::Pending,
        }
    }
}

impl After {
    /// What follows from an admission: a kept call is to be settled,
    /// unless that was done before.
    #[inline]
    pub(crate) fn new(gate: &Arc<Gate>, admission: Admission, call: Option<Arc<OwnedCall>>) -> After {
        let Admission { delay: _, is_repeated, is_degraded, fields, hold } = admission;
        if hold.is_some() {
            return After::Hold(Box::new(Holding { hold, fields }));
        }
        match call.filter(|_| !is_repeated) {
            None => After::Tell(fields),
            Some(call) => {
                let gate = Arc::clone(gate);
                After::Settle(Box::new(Unsettled { gate, call, is_charged: !is_degraded, fields }))
            }
        }
    }
}

impl Unsettled {
    /// Begins to settle, if there is anything to be done.
    fn settle<R: Body, E>(&self, result: &Result<Response<R>, E>) -> Option<Later<Option<Fields>>> {
        let Unsettled { gate, call, is_charged, fields: _ } = self;
        let settle = gate.settings.settle.as_ref()?;
        let nothing = HeaderMap::new();
        let head = match result {
            Ok(response) => {
                ResponseHead { status: response.status(), headers: response.headers(), size: size_of(response) }
            }
            Err(_) => ResponseHead { status: StatusCode::INTERNAL_SERVER_ERROR, headers: &nothing, size: None },
        };
        match settle(head) {
            Settlement::Keep | Settlement::Charge(0) => None,
            // The store may be back, and would give back what others were charged.
            Settlement::Refund if !is_charged => None,
            settlement @ (Settlement::Refund | Settlement::Charge(_)) => {
                Some(gate.settle(Arc::clone(call), settlement))
            }
        }
    }
}

/// The size of a body: its own, or that of a stream whose header tells.
fn size_of<R: Body>(response: &Response<R>) -> Option<u64> {
    let body = response.body();
    let own = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    own.or_else(|| response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok())
}

/// Has the response, if there is one, tell of the limit.
#[inline]
fn tell<R, E>(fields: &mut Option<Fields>, result: &mut Result<Response<R>, E>) {
    if let (Some(fields), Ok(response)) = (fields, result) {
        fields.tell(response.headers_mut());
    }
}
