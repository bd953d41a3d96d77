//! Keeping to what servers say: `Retry-After` and the RateLimit fields.
//!
//! For each server that has said anything, one remembers how many more
//! requests it will take and until when. Nothing is guessed: a server that
//! says nothing is asked as ever.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::header::{AGE, HOST};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use tidegate::store::Sleep;
use tidegate::{Clock, Micros, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxError, BoxFuture};
use crate::fields::{Report, report_of, retry_after_of};

/// Holds requests back as long as their server has asked for.
///
/// A response of 429 or 503 with `Retry-After` holds back all requests to that
/// host until then. One with `RateLimit` fields (or their elders, see
/// [`HeaderStyle`](crate::HeaderStyle)) lets as many pass as it says are left,
/// and holds back the rest. Cached responses say nothing.
///
/// It does not repeat requests: put `tower::retry` outside of it, and each
/// attempt waits as it should. A request that would have to wait longer than
/// its timeout fails with [`TooLong`] at once.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct HonourLayer {
    hosts: Arc<Hosts>,
    timeout: Duration,
}

/// The wait that a server asked for is longer than the timeout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is to be left alone for another {wait:?}: ask again later or allow more time")]
pub struct TooLong {
    /// The server.
    pub host: String,
    /// For how long.
    pub wait: Duration,
}

/// How long a request waits unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for HonourLayer {
    fn default() -> HonourLayer {
        HonourLayer::new()
    }
}

impl HonourLayer {
    /// A timeout of 30 s.
    pub fn new() -> HonourLayer {
        HonourLayer::with_clock(SystemClock::new())
    }

    /// The same by another clock.
    pub fn with_clock(clock: impl Clock) -> HonourLayer {
        HonourLayer {
            hosts: Arc::new(Hosts { clock: Box::new(clock), words: Mutex::default() }),
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// How long a request may wait.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<S> Layer<S> for HonourLayer {
    type Service = Honour<S>;

    fn layer(&self, inner: S) -> Honour<S> {
        Honour { inner, layer: self.clone() }
    }
}

impl fmt::Debug for HonourLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HonourLayer").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A service that keeps to what servers say: made by [`HonourLayer`].
#[derive(Clone, Debug)]
pub struct Honour<S> {
    inner: S,
    layer: HonourLayer,
}

impl<S, B, R> Service<Request<B>> for Honour<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<Response<R>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let HonourLayer { hosts, timeout } = self.layer.clone();
        let host = host_of(&request);
        Box::pin(async move {
            hosts.wait(&host, timeout).await?;
            let response = ready.call(request).await.map_err(Into::into)?;
            hosts.heard(host, &response);
            Ok(response)
        })
    }
}

/// The host and port that a request goes to, without credentials. Where
/// it is sent over a connection of its own, only a field tells.
fn host_of<B>(request: &Request<B>) -> String {
    let field = || request.headers().get(HOST)?.to_str().ok();
    let host = request.uri().authority().map(Authority::as_str).or_else(field).unwrap_or("");
    host.rsplit('@').next().unwrap_or(host).to_ascii_lowercase()
}

/// What servers have said.
struct Hosts {
    clock: Box<dyn Clock>,
    words: Mutex<HashMap<String, Word>>,
}

/// So many more until then.
#[derive(Clone, Copy, Debug)]
struct Word {
    remaining: u64,
    until: Micros,
    /// Whether the server itself said that there are none left.
    is_last: bool,
}

/// Servers whose words are remembered; of more, nothing is.
const MAX_HOSTS: usize = 10_000;

/// The longest that a server is believed.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

impl Hosts {
    fn words(&self) -> MutexGuard<'_, HashMap<String, Word>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request may go to the host, and counts it.
    async fn wait(&self, host: &str, timeout: Duration) -> Result<(), TooLong> {
        let deadline = self.clock.now().saturating_add(Micros::from_duration(timeout));
        while let Some(until) = self.held_back_until(host) {
            if until > deadline {
                let wait = until.saturating_since(self.clock.now()).to_duration();
                return Err(TooLong { host: host.to_owned(), wait });
            }
            let mut sleep = Sleep::until(until);
            poll_fn(|context| sleep.poll(&*self.clock, context)).await;
        }
        Ok(())
    }

    /// Until when the host is to be left alone; `None` if the request may go.
    fn held_back_until(&self, host: &str) -> Option<Micros> {
        let mut words = self.words();
        let word = words.get_mut(host)?;
        if word.until <= self.clock.now() {
            words.remove(host);
            return None;
        }
        match word.remaining.checked_sub(1) {
            Some(fewer) => {
                word.remaining = fewer;
                None
            }
            None => Some(word.until),
        }
    }

    fn heard<R>(&self, host: String, response: &Response<R>) {
        let headers = response.headers();
        if headers.get(AGE).is_some_and(|age| age != "0") {
            return;
        }
        let refused = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let told_to_wait = refused.then(|| retry_after_of(headers, SystemTime::now())).flatten();
        let (remaining, wait) = match (told_to_wait, report_of(headers)) {
            (Some(wait), _) => (0, wait),
            (None, Some(Report { remaining, more_in: Some(seconds) })) => (remaining, Duration::from_secs(seconds)),
            (None, Some(Report { more_in: None, .. }) | None) => return,
        };
        let now = self.clock.now();
        let until = now.saturating_add(Micros::from_duration(wait.min(MAX_WAIT)));
        let mut words = self.words();
        if words.len() >= MAX_HOSTS && !words.contains_key(&host) {
            words.retain(|_, word| word.until > now);
            if words.len() >= MAX_HOSTS {
                return;
            }
        }
        let word = Word { remaining, until, is_last: remaining == 0 };
        // An answer that was on its way before a refusal does not lift it.
        let known = words.entry(host).or_insert(word);
        if !known.is_last || known.until <= now || word.is_last && until > known.until {
            *known = word;
        }
    }
}
