//! Bodies that count against the server's [budget of bytes](crate::run::buffered): of requests as
//! they arrive, and of answers until they are sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::run::buffered::{Buffered, FREE, Held, OverBudget};

/// So much of an answer is given to the HTTP library at a time: it holds what it is given, and asks for
/// more when that is sent.
const MAX_CHUNK: usize = 16 * 1024;

/// The body of a request.
pub(crate) struct Counted {
    body: Incoming,
    held: Arc<Held>,
}

impl Counted {
    /// What is held is given back when the last of the two is dropped.
    pub(crate) fn new(body: Incoming, held: Arc<Held>) -> Counted {
        Counted { body, held }
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            self.held.add(frame.data_ref().map_or(0, Bytes::len))?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Says of a response that its body is in memory in any case, and takes none of the budget.
#[derive(Clone, Copy)]
pub(crate) struct Static;

/// The answers of a connection that wait for its client to read them.
#[derive(Default)]
pub(crate) struct Unread {
    /// Held by each answer that began to wait, or of which something was sent, in this period.
    period: Mutex<Arc<()>>,
}

impl Unread {
    fn period(&self) -> Arc<()> {
        Arc::clone(&self.period.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a period, and returns the last one: answers hold it that wait, and of which nothing was sent since.
    pub(crate) fn next_period(&self) -> Arc<()> {
        std::mem::take(&mut self.period.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An answer of which parts wait for the client: they share it.
struct Waiting {
    unread: Arc<Unread>,
    /// In which something was sent last.
    period: Mutex<Arc<()>>,
}

impl Waiting {
    fn of(unread: &Arc<Unread>) -> Arc<Waiting> {
        Arc::new(Waiting { unread: Arc::clone(unread), period: Mutex::new(unread.period()) })
    }

    fn is_sent(&self) {
        *self.period.lock().unwrap_or_else(PoisonError::into_inner) = self.unread.period();
    }
}

/// What is known of a request when it is answered.
pub(crate) struct Answering<'a, T> {
    pub(crate) buffered: &'a Arc<Buffered>,
    pub(crate) method: Method,
    /// Of a connection that cannot tell by its socket what its client has read.
    pub(crate) unread: Option<&'a Arc<Unread>>,
    /// Kept until the answer is sent, if it is known whole: a stream does not end by itself.
    pub(crate) open: T,
}

impl<T: Send + Sync + 'static> Answering<'_, T> {
    /// An answer that counts until it is sent, if it is large; on a connection of HTTP/2, any that is not empty is
    /// known to wait.
    ///
    /// # Errors
    /// If it is large, the request changed nothing, and the server may not hold more.
    pub(crate) fn counted(self, response: Response<Body>) -> Result<Response<Body>, OverBudget> {
        let Answering { buffered, method, unread, open } = self;
        let length = http_body::Body::size_hint(response.body()).exact();
        let large = length.filter(|length| *length > FREE as u64);
        if length == Some(0) || (large.is_none() && unread.is_none()) {
            return Ok(response);
        }
        let is_static = response.extensions().get::<Static>().is_some();
        let counts = large.filter(|_| !is_static);
        let counts = counts.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        let held = match method {
            Method::GET => buffered.hold_read(counts)?,
            _ => buffered.hold_anyway(counts),
        };
        let by_chunk = length.is_none().then(|| Arc::clone(buffered));
        let (unread, held) = (unread.cloned(), Arc::new((held, length.map(|_| open))));
        let (chunk, waiting) = (Bytes::new(), Weak::new());
        Ok(response.map(|body| Body::new(Unsent { body, chunk, unread, waiting, by_chunk, held })))
    }
}

struct Unsent<T> {
    body: Body,
    /// What the body has given and was not passed on yet.
    chunk: Bytes,
    unread: Option<Arc<Unread>>,
    /// Since its first part that waits.
    waiting: Weak<Waiting>,
    /// Of an answer whose length is not known, and of which each chunk counts by itself.
    by_chunk: Option<Arc<Buffered>>,
    held: Arc<(Held, Option<T>)>,
}

impl<T> Unsent<T> {
    /// Counts the chunk, if it does by itself and is large.
    fn count_chunk(&mut self) {
        if let Some(buffered) = &self.by_chunk {
            let bytes = Some(self.chunk.len()).filter(|bytes| *bytes > FREE);
            self.held = Arc::new((buffered.hold_anyway(bytes.unwrap_or(0)), None));
        }
    }
}

/// A part of an answer. The HTTP library drops it when it is sent, which may be long after the body has ended.
struct Part<T> {
    bytes: Bytes,
    waiting: Option<Arc<Waiting>>,
    _held: Arc<(Held, Option<T>)>,
}

impl<T> Drop for Part<T> {
    fn drop(&mut self) {
        self.waiting.iter().for_each(|waiting| waiting.is_sent());
    }
}

impl<T> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> http_body::Body for Unsent<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.chunk.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.chunk = data;
                        self.count_chunk();
                    }
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.chunk.len().min(MAX_CHUNK);
        let bytes = self.chunk.split_to(length);
        let waiting = self.unread.as_ref().map(|unread| self.waiting.upgrade().unwrap_or_else(|| Waiting::of(unread)));
        self.waiting = waiting.as_ref().map(Arc::downgrade).unwrap_or_default();
        let part = Part { bytes, waiting, _held: Arc::clone(&self.held) };
        if self.chunk.is_empty() {
            self.count_chunk();
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunk.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let chunk = self.chunk.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + chunk);
        }
        hint.set_lower(hint.lower() + chunk);
        hint
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;

    use http_body::Body as _;
    use http_body_util::BodyExt;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[tokio::test]
    async fn a_large_answer_is_sent_in_chunks_and_counts_to_its_end() {
        let bytes = Gauge::default();
        let (buffered, unread) = (Buffered::new(0, bytes.clone(), Default::default()), Arc::<Unread>::default());
        let counted = |body| {
            let answering = Answering { buffered: &buffered, method: Method::POST, unread: Some(&unread), open: () };
            answering.counted(Response::new(body)).unwrap()
        };
        let mut small = counted(Body::from(vec![1; FREE])).into_body();
        let part = small.frame().await.unwrap().unwrap();
        assert_eq!((bytes.get(), Arc::strong_count(&unread.next_period())), (0, 2));
        drop(part);
        let text: Vec<u8> = (0..=250).cycle().take(3 * MAX_CHUNK + 7).collect();
        let mut answer = counted(Body::from(text.clone())).into_body();
        let mut sent = Vec::new();
        while let Some(frame) = answer.frame().await {
            assert_eq!(bytes.get(), text.len() as i64);
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= MAX_CHUNK);
            sent.extend_from_slice(&data);
            assert_eq!(answer.size_hint().exact(), Some((text.len() - sent.len()) as u64));
        }
        assert!(sent == text && answer.is_end_stream());
        drop(answer);
        assert_eq!(bytes.get(), 0);
    }

    #[tokio::test]
    async fn an_answer_of_unknown_length_counts_by_its_chunks() {
        let bytes = Gauge::default();
        let (buffered, unread) = (Buffered::new(0, bytes.clone(), Default::default()), Arc::<Unread>::default());
        let answering = Answering { buffered: &buffered, method: Method::POST, unread: Some(&unread), open: () };
        let chunks = [vec![1; FREE], vec![2; MAX_CHUNK + 1], vec![3; FREE + 1]].map(Ok::<_, axum::Error>);
        let body = Body::from_stream(futures_util::stream::iter(chunks));
        let mut answer = answering.counted(Response::new(body)).unwrap().into_body();
        let mut parts = Vec::new();
        let whole = MAX_CHUNK + 1;
        for held in [0, whole, whole, whole + FREE + 1] {
            parts.push(answer.frame().await.unwrap().unwrap());
            assert_eq!(bytes.get(), held as i64);
        }
        parts.drain(..2);
        assert_eq!(bytes.get(), (whole + FREE + 1) as i64, "a part of the chunk waits");
        parts.remove(0);
        assert_eq!(bytes.get(), (FREE + 1) as i64);
        parts.clear();
        assert_eq!(bytes.get(), 0);
    }

    /// The HTTP library holds four parts at a time, and one is sent in each period.
    #[tokio::test]
    async fn an_answer_that_is_read_steadily_does_not_count_as_unread() {
        let buffered = Buffered::new(0, Gauge::default(), Default::default());
        let (unread, is_unread) = (Arc::<Unread>::default(), |period: &Arc<()>| Arc::strong_count(period) > 1);
        let answering = Answering { buffered: &buffered, method: Method::POST, unread: Some(&unread), open: () };
        let mut answer = answering.counted(Response::new(Body::from(vec![1; 8 * MAX_CHUNK]))).unwrap().into_body();
        let mut parts = VecDeque::new();
        for _ in 0..4 {
            parts.push_back(answer.frame().await);
        }
        let mut period = unread.next_period();
        for _ in 0..4 {
            assert!(is_unread(&period));
            parts.pop_front();
            assert!(!is_unread(&period));
            period = unread.next_period();
            parts.push_back(answer.frame().await);
        }
        unread.next_period();
        assert!(is_unread(&period), "nothing was sent");
    }

    #[tokio::test]
    async fn a_part_of_an_answer_counts_and_waits_until_it_is_sent_though_the_body_has_ended() {
        let bytes = Gauge::default();
        let (buffered, unread) = (Buffered::new(0, bytes.clone(), Default::default()), Arc::<Unread>::default());
        let answering = Answering { buffered: &buffered, method: Method::POST, unread: Some(&unread), open: () };
        let mut answer = answering.counted(Response::new(Body::from(vec![1; FREE + 1]))).unwrap().into_body();
        let part = answer.frame().await.unwrap().unwrap();
        assert!(answer.is_end_stream());
        drop(answer);
        let period = unread.next_period();
        assert_eq!((Arc::strong_count(&period), bytes.get()), (2, FREE as i64 + 1));
        drop(part);
        assert_eq!((Arc::strong_count(&period), bytes.get()), (1, 0));
    }
}
