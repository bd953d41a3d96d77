//! The service: asks, and lets pass or answers itself.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::answers::{Answers, Http, refuse};
use crate::future::{After, ResponseFuture};
use crate::gate::{Detour, Gate};
use crate::head::Head;

/// A service whose requests are limited: made by
/// [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is; only a call is charged.
pub struct RateLimit<S, A = Http> {
    inner: S,
    gate: Arc<Gate>,
    answers: PhantomData<fn() -> A>,
}

impl<S, A> RateLimit<S, A> {
    pub(crate) fn new(inner: S, gate: Arc<Gate>) -> RateLimit<S, A> {
        RateLimit { inner, gate, answers: PhantomData }
    }
}

impl<S: Clone, A> Clone for RateLimit<S, A> {
    fn clone(&self) -> Self {
        RateLimit::new(self.inner.clone(), Arc::clone(&self.gate))
    }
}

impl<S: fmt::Debug, A> fmt::Debug for RateLimit<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, A, B, R> Service<Request<B>> for RateLimit<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Answers<R>,
    R: http_body::Body,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.gate.ask(Head::of(&request, &self.gate.settings.client_ip)) {
            Ok(fields) => ResponseFuture::serving(self.inner.call(request), After::Tell(fields)),
            Err(detour) => self.go_round(detour, request),
        }
    }
}

impl<S, A> RateLimit<S, A> {
    /// What becomes of a request that does not go straight on.
    #[inline(never)]
    fn go_round<B, R>(&mut self, detour: Detour, request: Request<B>) -> ResponseFuture<S, B, A>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        A: Answers<R>,
    {
        match detour {
            Detour::Refused(refused) => {
                ResponseFuture::refused(refuse::<A, R, B>(&self.gate.settings, *refused, &request))
            }
            Detour::Admitted(admission, kept) => {
                let delay = admission.delay;
                let after = After::new(&self.gate, *admission, kept);
                if delay.is_zero() {
                    return ResponseFuture::serving(self.inner.call(request), after);
                }
                ResponseFuture::delayed(self.gate.sleep(delay), after, self.take_ready(), request)
            }
            Detour::Later(answer, kept) => {
                let gate = Arc::clone(&self.gate);
                ResponseFuture::asking(answer, kept, gate, self.take_ready(), request)
            }
        }
    }
}

impl<S: Clone, A> RateLimit<S, A> {
    /// The inner service that has been polled ready: a clone takes its place.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}
