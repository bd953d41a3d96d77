//! A client-side limit: requests wait before they are sent.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::store::{Sleep, Store};
use tidegate::{AcquireError, Limiter, Micros};
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxError, BoxFuture};

/// Makes requests wait until a limiter admits them: first come, first served
/// for each key.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limit, Limiter};
/// use tidegate_tower::client::AcquireLayer;
///
/// let limiter = Limiter::new(Limit::per_second(5));
/// let one_limit = AcquireLayer::new(limiter.clone()).timeout(Duration::from_secs(10));
/// let by_host = AcquireLayer::new(limiter)
///     .key(|request: &http::Request<String>| request.uri().host().unwrap_or("").to_owned());
/// # let _ = (one_limit, by_host);
/// ```
///
/// It takes requests of any type. A request that could not be admitted in time
/// fails with an [`AcquireError`], and was not charged; nor is one that is
/// dropped before it is admitted. What a leaky bucket asks for as a delay is
/// waited for as well, and is part of the time.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct AcquireLayer<K = Everything> {
    limiter: Arc<dyn AnyAcquire>,
    key: K,
    timeout: Duration,
}

/// One key for all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everything;

/// Whose limit a request counts against.
pub trait KeyFor<Q> {
    /// The key.
    fn key_for(&self, request: &Q) -> String;
}

impl<Q> KeyFor<Q> for Everything {
    fn key_for(&self, _: &Q) -> String {
        String::new()
    }
}

impl<Q, F: Fn(&Q) -> String> KeyFor<Q> for F {
    fn key_for(&self, request: &Q) -> String {
        self(request)
    }
}

/// How long a request waits unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

impl AcquireLayer {
    /// One key for all requests, and a timeout of 30 s.
    pub fn new<S: Store>(limiter: Limiter<S>) -> AcquireLayer {
        AcquireLayer { limiter: Arc::new(limiter), key: Everything, timeout: DEFAULT_TIMEOUT }
    }
}

impl<K> AcquireLayer<K> {
    /// Whose limit a request counts against.
    pub fn key<Q, F: Fn(&Q) -> String>(self, key: F) -> AcquireLayer<F> {
        AcquireLayer { limiter: self.limiter, key, timeout: self.timeout }
    }

    /// How long a request may wait.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<S, K: Clone> Layer<S> for AcquireLayer<K> {
    type Service = Acquire<S, K>;

    fn layer(&self, inner: S) -> Acquire<S, K> {
        Acquire { inner, layer: self.clone() }
    }
}

impl<K> fmt::Debug for AcquireLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireLayer").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A service whose requests wait for a limiter: made by [`AcquireLayer`].
#[derive(Clone, Debug)]
pub struct Acquire<S, K = Everything> {
    inner: S,
    layer: AcquireLayer<K>,
}

impl<S, Q, K> Service<Q> for Acquire<S, K>
where
    S: Service<Q> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    Q: Send + 'static,
    K: KeyFor<Q>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<S::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let admitted = self.layer.limiter.acquire_and_delay(self.layer.key.key_for(&request), self.layer.timeout);
        Box::pin(async move {
            admitted.await?;
            ready.call(request).await.map_err(Into::into)
        })
    }
}

/// A limiter on any store.
trait AnyAcquire: Send + Sync {
    fn acquire_and_delay(
        &self,
        key: String,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<(), AcquireError>> + Send>>;
}

impl<S: Store> AnyAcquire for Limiter<S> {
    fn acquire_and_delay(
        &self,
        key: String,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<(), AcquireError>> + Send>> {
        let limiter = self.clone();
        Box::pin(async move {
            let clock = limiter.store().clock();
            let deadline = clock.now().saturating_add(Micros::from_duration(timeout));
            let decision = limiter.acquire_async(key.as_str(), timeout).await?;
            if decision.delay().is_zero() {
                return Ok(());
            }
            let until = clock.now().saturating_add(Micros::from_duration(decision.delay()));
            if until > deadline {
                if !decision.is_degraded() {
                    // What cannot be given back stays charged: against the caller.
                    let _ = limiter.refund_async(key.as_str()).await;
                }
                return Err(AcquireError::Timeout { timeout });
            }
            let mut sleep = Sleep::until(until);
            poll_fn(|context| sleep.poll(clock, context)).await;
            Ok(())
        })
    }
}
