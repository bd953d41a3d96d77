//! Bodies that count against the server's [budget of bytes](crate::buffered): of requests as
//! they arrive, and of answers until they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::buffered::{Buffered, FREE, Held};

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
    pub(super) fn new(body: Incoming, held: Arc<Held>) -> Counted {
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

/// An answer that counts until it is sent, if it is large.
pub(super) fn counted(response: Response<Body>, buffered: &Arc<Buffered>) -> Response<Body> {
    match http_body::Body::size_hint(response.body()).exact() {
        Some(length) if length > FREE as u64 => response.map(|body| {
            let held = buffered.hold_anyway(usize::try_from(length).unwrap_or(usize::MAX));
            Body::new(Unsent { body, chunk: Bytes::new(), _held: held })
        }),
        _ => response,
    }
}

struct Unsent {
    body: Body,
    /// What the body has given and was not passed on yet.
    chunk: Bytes,
    _held: Held,
}

impl http_body::Body for Unsent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.chunk.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.chunk = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.chunk.len().min(MAX_CHUNK);
        Poll::Ready(Some(Ok(Frame::data(self.chunk.split_to(length)))))
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
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[tokio::test]
    async fn a_large_answer_is_sent_in_chunks_and_counts_to_its_end() {
        let bytes = Gauge::default();
        let buffered = Buffered::new(0, bytes.clone(), Default::default());
        let small = counted(Response::new(Body::from(vec![1; FREE])), &buffered);
        assert_eq!(bytes.get(), 0);
        drop(small);
        let text: Vec<u8> = (0..=250).cycle().take(3 * MAX_CHUNK + 7).collect();
        let mut answer = counted(Response::new(Body::from(text.clone())), &buffered).into_body();
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
}
