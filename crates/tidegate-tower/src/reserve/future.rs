//! The response to come, whose body takes over what the request holds.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ReservedBody;
use crate::answers::Answers;
use crate::future::ResponseFuture;
use crate::tally::TallyFn;

pin_project! {
    /// The response of a [`Reserve`](crate::Reserve).
    ///
    /// Dropped, it gives back what its request holds. A request that was still undecided has
    /// charged nothing that the store did not hear of.
    #[must_use = "a future does nothing until it is polled"]
    pub struct ReservedFuture<S, B, A>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        response: ResponseFuture<S, B, A>,
        tally: Option<TallyFn>,
    }
}

impl<S: Service<Request<B>>, B, A> ReservedFuture<S, B, A> {
    pub(super) fn new(response: ResponseFuture<S, B, A>, tally: Option<TallyFn>) -> Self {
        ReservedFuture { response, tally }
    }
}

impl<S, B, A, R> Future for ReservedFuture<S, B, A>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: Answers<R>,
    R: Body,
{
    type Output = Result<Response<ReservedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = ready!(this.response.as_mut().poll(context));
        let hold = this.response.take_hold();
        Poll::Ready(result.map(|response| {
            let (parts, body) = response.into_parts();
            let tally = this.tally.as_ref().filter(|_| hold.is_some()).map(|tally| tally(&parts));
            Response::from_parts(parts, ReservedBody::new(body, hold, tally))
        }))
    }
}
