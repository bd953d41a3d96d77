//! Spans as they are made: sampled, and put into a bounded queue without waiting.

use std::cell::OnceCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::Either;
use http::HeaderMap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::{Event, Key};
use tokio::sync::mpsc;

use super::Decided;
use super::parent::Parent;
use crate::run::protocol::Protocol;
use crate::tell::refused::shown;

/// Spans that wait to be sent; further ones are dropped, and counted.
const MAX_WAITING: usize = 8_192;

/// Characters of a namespace that are sent.
const MAX_NAMESPACE: usize = 200;

tokio::task_local! {
    static CURRENT: Request;
}

/// The request that is being answered.
#[derive(Clone)]
struct Request {
    parent: Option<Parent>,
    protocol: Protocol,
    began: u64,
    namespace: OnceCell<Box<str>>,
}

/// Where spans go, if anywhere.
pub(crate) struct Tracer {
    spans: OnceLock<Spans>,
    counts: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Tracer {
    /// One without spans, whose counts are shown.
    pub(crate) fn new(registry: &mut Registry) -> Tracer {
        let counts = Family::default();
        let help = "Spans of decisions that were sampled, by what became of them";
        registry.register("trace_spans", help, counts.clone());
        Tracer { spans: OnceLock::new(), counts }
    }

    /// Counts spans of which the same became.
    pub(crate) fn count(&self, reason: &'static str) -> Counter {
        self.counts.get_or_create_owned(&[("reason", reason)])
    }

    /// From now on there are spans.
    pub(crate) fn start(&self, spans: Spans) {
        // A server does this once, when it starts.
        let _ = self.spans.set(spans);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.spans.get().is_some()
    }

    /// The request that a wire has begun to read, by its protocol and its head, if it has one.
    pub(crate) fn origin<'h>(&self, read: impl FnOnce() -> (Protocol, Option<&'h HeaderMap>)) -> Origin {
        if !self.is_on() {
            return Origin(None);
        }
        let (protocol, headers) = read();
        let parent = headers.and_then(Parent::of);
        // The caller has decided whether there are spans of its trace.
        let is_wanted = parent.is_none_or(|parent| parent.is_sampled);
        Origin(is_wanted.then(|| Request { parent, protocol, began: now(), namespace: OnceCell::new() }))
    }

    /// A limiter made a decision.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        if !self.is_on() || event.shadow {
            return;
        }
        let decision = event.decision;
        let decided = Decided {
            verb: event.verb,
            cost: event.cost,
            allowed: decision.is_allowed(),
            rule: decision.rule().clone(),
            capacity: decision.capacity(),
            remaining: decision.remaining(),
            reset_after: decision.reset_after(),
            retry_after: decision.retry_after().filter(|_| !decision.is_allowed()),
            degraded: decision.is_degraded(),
            repeated: decision.is_repeated(),
        };
        self.decided(decided, event.key);
    }

    /// A decision was made, by a limiter or past them.
    pub(crate) fn decided(&self, decided: Decided, key: &Key<'_>) {
        if let Some(spans) = self.spans.get() {
            spans.end(Ok(decided), Some(key));
        }
    }

    /// There was no decision.
    pub(crate) fn failed(&self, reason: &'static str) {
        if let Some(spans) = self.spans.get() {
            spans.end(Err(reason), None);
        }
    }
}

/// A request, of which there may be spans.
pub(crate) struct Origin(Option<Request>);

impl Origin {
    /// The request that is being answered, for a task that goes on with it.
    pub(crate) fn current() -> Origin {
        Origin(CURRENT.try_with(Request::clone).ok())
    }

    /// What the limits of the request are a part of: the domain of Envoy.
    pub(crate) fn set_namespace(namespace: &str) {
        let _ = CURRENT.try_with(|request| {
            request.namespace.get_or_init(|| namespace.chars().take(MAX_NAMESPACE).collect());
        });
    }

    /// Answers the request: decisions meanwhile are its spans.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> + use<F> {
        match self.0 {
            Some(request) => Either::Left(CURRENT.scope(request, work)),
            None => Either::Right(work),
        }
    }
}

/// A decision, or none, in its trace.
pub(crate) struct Span {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
    pub(crate) parent_id: Option<[u8; 8]>,
    /// In nanoseconds since 1970.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) protocol: Protocol,
    pub(crate) namespace: Option<Box<str>>,
    /// The decision, or why there was none.
    pub(crate) outcome: Result<Decided, &'static str>,
    /// Only where keys are to be sent.
    pub(crate) key: Option<String>,
}

/// Makes spans.
pub(crate) struct Spans {
    queue: mpsc::Sender<Span>,
    dropped: Counter,
    /// Of 2^63 traces that begin here, so many are sampled.
    sampled: u64,
    with_keys: bool,
    ids: RandomState,
    made: AtomicU64,
}

impl Spans {
    /// Samples a share of 0 to 1 of the traces that begin here. Spans come out of the other end.
    pub(crate) fn new(share: f64, with_keys: bool, dropped: Counter) -> (Spans, mpsc::Receiver<Span>) {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let sampled = (share * (1_u64 << 63) as f64) as u64;
        let (ids, made) = (RandomState::new(), AtomicU64::new(0));
        (Spans { queue, dropped, sampled, with_keys, ids, made }, waiting)
    }

    /// Ends a span of the current request, if it is sampled.
    fn end(&self, outcome: Result<Decided, &'static str>, key: Option<&Key<'_>>) {
        let span = CURRENT.try_with(|request| self.span(request, outcome, key));
        if let Ok(Some(span)) = span
            && self.queue.try_send(span).is_err()
        {
            self.dropped.inc();
        }
    }

    fn span(&self, request: &Request, outcome: Result<Decided, &'static str>, key: Option<&Key<'_>>) -> Option<Span> {
        let number = self.made.fetch_add(1, Relaxed);
        let [high, low, span_id] = [0, 1, 2].map(|part: u8| self.ids.hash_one((number, part)).max(1));
        // By the trace id, as samplers elsewhere do: the same share samples the same traces.
        if request.parent.is_none() && low >> 1 >= self.sampled {
            return None;
        }
        let own = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Some(Span {
            trace_id: request.parent.map_or(own, |parent| parent.trace_id),
            span_id: span_id.to_be_bytes(),
            parent_id: request.parent.map(|parent| parent.span_id),
            began: request.began,
            ended: now().max(request.began),
            protocol: request.protocol,
            namespace: request.namespace.get().cloned(),
            outcome,
            key: key.filter(|_| self.with_keys).map(shown),
        })
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn fail(tracer: &Tracer, times: usize) {
        let work = async { (0..times).for_each(|_| tracer.failed("store")) };
        tracer.origin(|| (Protocol::Resp, None)).scope(work).await;
    }

    #[tokio::test]
    async fn spans_that_find_no_room_are_dropped_and_counted() {
        let (tracer, dropped) = (Tracer::new(&mut Registry::default()), Counter::default());
        fail(&tracer, 1).await;
        let (spans, mut waiting) = Spans::new(1.0, false, dropped.clone());
        tracer.start(spans);
        fail(&tracer, MAX_WAITING + 3).await;
        assert_eq!((waiting.len(), dropped.get()), (MAX_WAITING, 3));
        let (one, other) = (waiting.recv().await.unwrap(), waiting.recv().await.unwrap());
        assert!(one.trace_id != other.trace_id && one.span_id != other.span_id && one.parent_id.is_none());
        tracer.failed("store");
        assert_eq!((waiting.len(), dropped.get()), (MAX_WAITING - 2, 3), "no request, no span");
    }

    #[tokio::test]
    async fn a_share_of_the_traces_is_sampled() {
        for (share, expected) in [(0.0, 0..=0), (1.0, 4_000..=4_000), (0.25, 800..=1_200)] {
            let tracer = Tracer::new(&mut Registry::default());
            let (spans, waiting) = Spans::new(share, false, Counter::default());
            tracer.start(spans);
            fail(&tracer, 4_000).await;
            assert!(expected.contains(&waiting.len()), "{share}: {}", waiting.len());
        }
    }
}
