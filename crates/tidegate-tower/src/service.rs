//! The service: asks, and lets pass or answers itself.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::future::{After, ResponseFuture};
use crate::gate::Detour;
use crate::grpc;
use crate::head::Head;
use crate::question::Refused;
use crate::refusal::Refusal;
use crate::settings::{RespondFn, Settings};

/// A service whose requests are limited: made by
/// [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is; only a call is charged.
pub struct RateLimit<S, A = Http> {
    inner: S,
    settings: Arc<Settings>,
    answers: PhantomData<fn() -> A>,
}

impl<S, A> RateLimit<S, A> {
    pub(crate) fn new(inner: S, settings: Arc<Settings>) -> RateLimit<S, A> {
        RateLimit { inner, settings, answers: PhantomData }
    }
}

impl<S: Clone, A> Clone for RateLimit<S, A> {
    fn clone(&self) -> Self {
        RateLimit::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S: fmt::Debug, A> fmt::Debug for RateLimit<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Refusals are responses of HTTP, for bodies that can be made of text; to
/// requests of gRPC, a status.
#[derive(Clone, Copy, Debug)]
pub enum Http {}

/// Refusals are statuses of gRPC, for any body that can be empty.
#[derive(Clone, Copy, Debug)]
pub enum Grpc {}

/// How a service with bodies of this type says no.
pub trait Answers<R>: sealed::Answers<R> {}
impl<R, A: sealed::Answers<R>> Answers<R> for A {}

pub(crate) mod sealed {
    use super::*;

    pub trait Answers<R> {
        #[doc(hidden)]
        fn response(refusal: &Refusal, to_grpc: ToGrpc, respond: Option<&RespondFn>) -> Response<R>;
    }

    /// Whether the request is one of gRPC.
    #[derive(Clone, Copy, Debug)]
    pub struct ToGrpc(pub(crate) bool);
}

impl<R: From<String>> sealed::Answers<R> for Http {
    fn response(refusal: &Refusal, to_grpc: sealed::ToGrpc, respond: Option<&RespondFn>) -> Response<R> {
        let response = match respond {
            _ if to_grpc.0 => grpc::response(refusal),
            Some(respond) => respond(refusal),
            None => refusal.response(),
        };
        response.map(R::from)
    }
}

impl<R: Default> sealed::Answers<R> for Grpc {
    fn response(refusal: &Refusal, _: sealed::ToGrpc, _: Option<&RespondFn>) -> Response<R> {
        grpc::response(refusal)
    }
}

/// The response to a request that was refused.
pub(crate) fn refuse<A: Answers<R>, R, B>(settings: &Settings, refused: Refused, request: &Request<B>) -> Response<R> {
    let Refused { refusal, fields } = refused;
    let refusal = refusal.or_no_peer(|attribute| settings.lacks_only_peer(attribute, request));
    let to_grpc = sealed::ToGrpc(grpc::is_grpc(request.headers()));
    let mut response = A::response(&refusal, to_grpc, settings.respond.as_ref());
    refusal.tell_retry_after(response.headers_mut());
    if let Some(mut fields) = fields {
        fields.tell(response.headers_mut());
    }
    response
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
        match self.settings.ask(Head::of(&request, &self.settings.client_ip)) {
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
            Detour::Refused(refused) => ResponseFuture::refused(refuse::<A, R, B>(&self.settings, *refused, &request)),
            Detour::Delayed(sleep, after) => ResponseFuture::delayed(sleep, *after, self.take_ready(), request),
            Detour::None(after) => ResponseFuture::serving(self.inner.call(request), *after),
            Detour::Later(answer, kept) => {
                let settings = Arc::clone(&self.settings);
                ResponseFuture::asking(answer, kept, settings, self.take_ready(), request)
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
