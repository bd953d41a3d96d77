//! The response to come: asked for, held back, served, settled.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate::Decision;
use tower_service::Service;

use crate::fields::Standing;
use crate::gate::{Later, Sleep};
use crate::grpc;
use crate::question::{Answer, Question, Refused};
use crate::service::{Answers, refuse};
use crate::settings::Settings;
use crate::settle::{Outcome, Settlement};

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
            after: Option<After>,
        },
        Settling {
            settling: Later<Option<Decision>>,
            result: Option<Result<S::Response, S::Error>>,
            after: Option<After>,
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
    Asking { answer: Later<Answer>, question: Option<Arc<Question<'static>>>, settings: Arc<Settings> },
    Delayed { sleep: Sleep, after: Option<After> },
}

/// What is left to do when the response is there.
pub(crate) struct After {
    pub(crate) settings: Arc<Settings>,
    pub(crate) standing: Option<Standing>,
    /// The question, if it is to be settled.
    pub(crate) question: Option<Arc<Question<'static>>>,
}

const DONE: &str = "the future is not polled again once it is done";

impl<S: Service<Request<B>>, B, A> ResponseFuture<S, B, A> {
    fn new(step: Step<S, B>) -> Self {
        ResponseFuture { step, answers: PhantomData }
    }

    pub(crate) fn refused(response: S::Response) -> Self {
        ResponseFuture::new(Step::Refused { response: Some(response) })
    }

    pub(crate) fn serving(future: S::Future, after: Option<After>) -> Self {
        ResponseFuture::new(Step::Serving { future, after })
    }

    pub(crate) fn delayed(sleep: Sleep, after: Option<After>, service: S, request: Request<B>) -> Self {
        let stage = Stage::Delayed { sleep, after };
        ResponseFuture::new(Step::Waiting { waiting: Some(Box::new(Waiting { service, request, stage })) })
    }

    pub(crate) fn asking(
        answer: Later<Answer>,
        question: Option<Arc<Question<'static>>>,
        settings: Arc<Settings>,
        service: S,
        request: Request<B>,
    ) -> Self {
        let stage = Stage::Asking { answer, question, settings };
        ResponseFuture::new(Step::Waiting { waiting: Some(Box::new(Waiting { service, request, stage })) })
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
                    let result = ready!(future.poll(context));
                    match after.take() {
                        None => return Poll::Ready(result),
                        Some(after) => match after.settle(&result) {
                            None => return Poll::Ready(after.tell(result)),
                            Some(settling) => Step::Settling { settling, result: Some(result), after: Some(after) },
                        },
                    }
                }
                StepView::Refused { response } => return Poll::Ready(Ok(response.take().expect(DONE))),
                StepView::Waiting { waiting } => {
                    let after = match ready!(waiting.as_mut().expect(DONE).poll(context)) {
                        Ok(after) => after,
                        Err((refused, settings)) => {
                            let waiting = waiting.take().expect(DONE);
                            let to_grpc = grpc::is_grpc(waiting.request.headers());
                            return Poll::Ready(Ok(refuse::<A, R>(&settings, refused, to_grpc)));
                        }
                    };
                    let Waiting { mut service, request, stage: _ } = *waiting.take().expect(DONE);
                    Step::Serving { future: service.call(request), after }
                }
                StepView::Settling { settling, result, after } => {
                    let decision = ready!(settling.as_mut().poll(context));
                    let mut after = after.take().expect(DONE);
                    after.now_stands(decision);
                    return Poll::Ready(after.tell(result.take().expect(DONE)));
                }
            };
            step.set(next);
        }
    }
}

/// What became of a wait: what is left to do later, or how to say no.
type Passed = Result<Option<After>, (Box<Refused>, Arc<Settings>)>;

impl<S, B> Waiting<S, B> {
    /// Ready when the request may go on, or may not.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Passed> {
        if let Stage::Asking { answer, question, settings } = &mut self.stage {
            let admission = match ready!(answer.as_mut().poll(context)) {
                Ok(admission) => admission,
                Err(refused) => return Poll::Ready(Err((refused, Arc::clone(settings)))),
            };
            let sleep = settings.gate.sleep(admission.delay);
            let question = question.take().filter(|_| !admission.is_repeated);
            let after = After { settings: Arc::clone(settings), standing: admission.standing, question };
            self.stage = Stage::Delayed { sleep, after: Some(after) };
        }
        match &mut self.stage {
            Stage::Delayed { sleep, after } => {
                ready!(sleep.poll(context));
                Poll::Ready(Ok(after.take()))
            }
            Stage::Asking { .. } => Poll::Pending,
        }
    }
}

impl After {
    /// Begins to settle, if there is anything to be done.
    fn settle<R: Body, E>(&self, result: &Result<Response<R>, E>) -> Option<Later<Option<Decision>>> {
        let (settle, question) = (self.settings.settle.as_ref()?, self.question.as_ref()?);
        let nothing = HeaderMap::new();
        let outcome = match result {
            Ok(response) => Outcome {
                status: response.status(),
                headers: response.headers(),
                size: response.body().size_hint().exact(),
            },
            Err(_) => Outcome { status: StatusCode::INTERNAL_SERVER_ERROR, headers: &nothing, size: None },
        };
        match settle(outcome) {
            Settlement::Keep | Settlement::Charge(0) => None,
            settlement @ (Settlement::Refund | Settlement::Charge(_)) => {
                Some(self.settings.gate.settle(Arc::clone(&self.settings), Arc::clone(question), settlement))
            }
        }
    }

    fn now_stands(&mut self, decision: Option<Decision>) {
        if let (Some(standing), Some(decision)) = (&mut self.standing, decision) {
            standing.decision = decision;
        }
    }

    /// The response, which tells of the limit.
    fn tell<R, E>(&self, result: Result<Response<R>, E>) -> Result<Response<R>, E> {
        let mut response = result?;
        if let Some(standing) = &self.standing {
            standing.tell(&self.settings.styles, response.headers_mut());
        }
        Ok(response)
    }
}
