//! A limit that holds a reservation until the response body has ended.
//!
//! The request is decided and answered by the same code as without a reservation; this is a
//! layer of its own because the type of the body differs.

mod body;
mod future;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::response::Parts;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

pub use self::body::ReservedBody;
pub use self::future::ReservedFuture;
use crate::answers::{Answers, Http};
use crate::layer::RateLimitLayer;
use crate::service::RateLimit;
use crate::tally::{Tally, TallyFn};

/// Limits the requests of a service, and holds what each takes until its response body has
/// ended: made by [`RateLimitLayer::reserve`].
///
/// A permit of a limit on [requests in flight](tidegate::Limit::in_flight) is given back when
/// the body has ended, when it is dropped before its end, and when the inner service fails,
/// panics or is cancelled. Estimates stay charged, unless a [tally](ReserveLayer::tally) says
/// what was taken.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limit, Limiter, Policy, Rule};
/// use tidegate_tower::{BodyEnd, RateLimitLayer, Spent, Tally, by};
///
/// /// Counts bytes.
/// #[derive(Default)]
/// struct Bytes(u64);
///
/// impl Tally for Bytes {
///     fn data(&mut self, data: &[u8]) {
///         self.0 += data.len() as u64;
///     }
///
///     fn spent(&mut self, _: BodyEnd) -> Option<Spent> {
///         Some(Spent::new().amount("bytes", self.0))
///     }
/// }
///
/// let policy = Policy::new()
///     .limit("at once", Limit::in_flight(4, Duration::from_secs(60)))
///     .rule(Rule::new("bytes", Limit::per_hour(1_000_000)).unit("bytes").default_amount(10_000));
/// let layer = RateLimitLayer::new(Limiter::new(policy))
///     .key(by::api_key())
///     .reserve()
///     .tally(|_| Bytes::default());
/// # let _ = layer;
/// ```
///
/// The reservation is settled in the background ([`Store::in_background`]), and no response
/// waits for that. With the memory store it is done when the body says that it has ended. With
/// Redis it takes a round trip more, in which the permit is still held.
///
/// A [request that comes again](RateLimitLayer::id) holds nothing and settles nothing.
///
/// [`Store::in_background`]: tidegate::store::Store::in_background
#[must_use = "a layer does nothing until it is put around a service"]
pub struct ReserveLayer<A = Http> {
    limit: RateLimitLayer<A>,
    tally: Option<TallyFn>,
}

/// As long as stores remember ids unless told otherwise.
const RESERVATION_LASTS: Duration = Duration::from_secs(300);

impl<A> RateLimitLayer<A> {
    /// Has each request hold a reservation until its response body has ended, so that limits on
    /// [requests in flight](tidegate::Limit::in_flight) count the requests whose responses are
    /// still on their way, and estimates can be corrected: see [`ReserveLayer`].
    ///
    /// Call it last: all else is said before. [`settle`](RateLimitLayer::settle) has no effect
    /// then, since [`ReserveLayer::tally`] settles.
    pub fn reserve(self) -> ReserveLayer<A> {
        ReserveLayer { limit: self.reserving(RESERVATION_LASTS), tally: None }
    }
}

impl<A> ReserveLayer<A> {
    /// What a response took: the function gets the head of each response and makes a [`Tally`],
    /// which sees the body. The feature `usage` has one for language models.
    pub fn tally<T: Tally>(mut self, tally: impl Fn(&Parts) -> T + Send + Sync + 'static) -> Self {
        self.tally = Some(Arc::new(move |parts| Box::new(tally(parts))));
        self
    }

    /// For how long the store keeps a reservation: five minutes, unless set. One that has
    /// expired can no longer be settled, and its estimates stay charged.
    ///
    /// A frame of the body renews it, together with its permits, once a third of this time or
    /// of the shortest expiry of its permits has passed. So this, and the expiry, must be longer
    /// than the time until the first frame, and one and a half times the time between two frames.
    pub fn lasts(mut self, time: Duration) -> Self {
        self.limit = self.limit.reserving(time);
        self
    }
}

impl<A> Clone for ReserveLayer<A> {
    fn clone(&self) -> Self {
        ReserveLayer { limit: self.limit.clone(), tally: self.tally.clone() }
    }
}

impl<S, A> Layer<S> for ReserveLayer<A> {
    type Service = Reserve<S, A>;

    /// # Panics
    /// If the layer does not fit the policy of its limiter: see
    /// [`checked`](RateLimitLayer::checked).
    fn layer(&self, inner: S) -> Reserve<S, A> {
        Reserve { limited: self.limit.layer(inner), tally: self.tally.clone() }
    }
}

impl<A> fmt::Debug for ReserveLayer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReserveLayer").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A service whose requests are limited, and hold what they take until their responses have
/// ended: made by [`ReserveLayer`].
pub struct Reserve<S, A = Http> {
    limited: RateLimit<S, A>,
    tally: Option<TallyFn>,
}

impl<S: Clone, A> Clone for Reserve<S, A> {
    fn clone(&self) -> Self {
        Reserve { limited: self.limited.clone(), tally: self.tally.clone() }
    }
}

impl<S: fmt::Debug, A> fmt::Debug for Reserve<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("limited", &self.limited).finish_non_exhaustive()
    }
}

impl<S, A, B, R> Service<Request<B>> for Reserve<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Answers<R>,
    R: http_body::Body,
{
    type Response = Response<ReservedBody<R>>;
    type Error = S::Error;
    type Future = ReservedFuture<S, B, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.limited.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ReservedFuture::new(self.limited.call(request), self.tally.clone())
    }
}
