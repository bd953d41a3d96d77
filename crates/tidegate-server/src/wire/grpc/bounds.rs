//! Bounds on what clients of gRPC send, for every service: layers before it.
//!
//! A message begins with its length, and the gRPC library reserves that much when it has read five
//! bytes. So the message of a unary call is [read whole](crate::wire::http::body::whole) before the library sees it:
//! memory is taken as bytes arrive, within `--max-body`, `--body-seconds` and the server's
//! budget. Calls that go on, as to watch health, are bounded in number.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::middleware::Next;
use axum::{BoxError, body::Bytes};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::Sleep;
use tonic::{Code, Status};

use crate::run::peer::Peer;
use crate::run::shares::{Full, Share, Shares};
use crate::wire::http::body::{Unread, whole};

/// The longest message to the services beside that of the limits.
pub(super) const MAX_SMALL_MESSAGE: usize = 64 * 1024;

/// A message is preceded by whether it is compressed, and by its length in four bytes.
const PREFIX: usize = 5;

/// The bounds of one call.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) max_message: usize,
    pub(super) timeout: Duration,
    /// Calls that go on after their message.
    pub(super) streams: Arc<Shares>,
}

impl Bounds {
    fn stream(&self, address: Option<IpAddr>) -> Result<Share, Status> {
        self.streams.take(address, 1).map_err(|full| {
            let words = match full {
                Full::Total => format!("{} of these streams are open already: retry later", self.streams.total()),
                Full::Address => {
                    format!("this address has {} of these streams open: close one of them", self.streams.each())
                }
            };
            Status::resource_exhausted(words)
        })
    }
}

/// Hands a call on when its one message is there. What answers with a stream holds one of the places for streams.
pub(super) async fn in_one_message(bounds: Bounds, request: Request<Body>, next: Next) -> Response<Body> {
    let read = async {
        let is_stream = request.uri().path().ends_with("/Watch");
        let address = Peer::of(request.extensions()).address();
        let stream = is_stream.then(|| bounds.stream(address)).transpose()?;
        let (head, body) = request.into_parts();
        let message = whole(body, bounds.max_message.saturating_add(PREFIX), bounds.timeout).await;
        let message = message.map_err(|unread| bounds.status(unread))?;
        complete(&message)?;
        Ok::<_, Status>((Request::from_parts(head, Body::from(message)), stream))
    };
    match read.await {
        Ok((request, None)) => next.run(request).await,
        Ok((request, Some(stream))) => next.run(request).await.map(|body| {
            Body::new(body.map_frame(move |frame| {
                // The place is free when the body has ended.
                let _ = &stream;
                frame
            }))
        }),
        Err(status) => status.into_http(),
    }
}

impl Bounds {
    fn status(&self, unread: Unread) -> Status {
        let Bounds { max_message, timeout, .. } = self;
        match unread {
            Unread::TooLong => Status::new(Code::OutOfRange, format!("the message is longer than {max_message} bytes")),
            Unread::TooSlow => {
                Status::new(Code::DeadlineExceeded, format!("the message did not arrive within {timeout:?}"))
            }
            Unread::BrokenOff => Status::new(Code::Cancelled, "the stream ended before the whole message arrived"),
            Unread::OverBudget(over) => Status::new(Code::ResourceExhausted, over.to_string()),
        }
    }
}

/// Whether what arrived is one message of the length that it says.
fn complete(message: &[u8]) -> Result<(), Status> {
    let Some((prefix, rest)) = message.split_first_chunk::<PREFIX>() else {
        return Err(Status::invalid_argument(format!("{} bytes are no message", message.len())));
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if usize::try_from(length) != Ok(rest.len()) {
        let words = format!("the message declares {length} bytes, and {} arrived: send one message", rest.len());
        return Err(Status::invalid_argument(words));
    }
    Ok(())
}

/// Hands a call on whose requests are a stream, one of a few, which ends in time.
pub(super) async fn in_time(bounds: Bounds, request: Request<Body>, next: Next) -> Response<Body> {
    match bounds.stream(Peer::of(request.extensions()).address()) {
        Ok(share) => {
            let deadline = Box::pin(tokio::time::sleep(bounds.timeout));
            next.run(request.map(|body| Body::new(UntilDeadline { body, deadline, _share: share }))).await
        }
        Err(status) => status.into_http(),
    }
}

/// Requests that end when their time is over.
struct UntilDeadline {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    _share: Share,
}

impl http_body::Body for UntilDeadline {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("the stream was open for as long as --body-seconds allows".into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::Router;
    use futures_util::stream::pending;
    use tidegate::MemoryStore;
    use tower::ServiceExt;

    use super::*;
    use crate::run::peer::Link;
    use crate::wire::grpc::router;
    use crate::{Server, Settings};

    #[tokio::test]
    async fn streams_of_health_and_reflection_are_bounded_over_all_listeners() {
        let settings = Settings { http: Vec::new(), grpc_reflection: true, ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let listeners: [Router; 2] = [router(server.app()), router(server.app())];
        let link = Link::new(Peer::Tcp("192.0.2.1:7".parse().unwrap()));
        for (path, bound) in
            [("/grpc.health.v1.Health/Watch", 32), ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 4)]
        {
            let mut open = Vec::new();
            for number in 0..bound + 2 {
                let request = Request::post(path).extension(link.clone()).header("content-type", "application/grpc");
                // One message, which is empty, or none for now.
                let body = match bound {
                    32 => Body::from(&b"\0\0\0\0\0"[..]),
                    _ => Body::from_stream(pending::<Result<Bytes, BoxError>>()),
                };
                let request = request.body(body).unwrap();
                let answer = listeners[number % 2].clone().oneshot(request).await.unwrap();
                let refused = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
                assert_eq!(refused.as_deref(), (number >= bound).then_some("8"), "{path}: {number}");
                open.push(answer);
            }
        }
    }

    #[test]
    fn a_message_is_as_long_as_it_says() {
        assert!(complete(b"\0\0\0\0\0").is_ok() && complete(b"\0\0\0\0\x03abc").is_ok());
        for wrong in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x03abcd", b"\0\xff\xff\xff\xff"] {
            assert!(complete(wrong).is_err(), "{wrong:?}");
        }
    }
}
