//! Calls of gRPC that announce much and send little: no service reserves what has not arrived.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{once, pending};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_testkit::servers::GUARD;
use tokio::net::TcpStream;

use crate::server::client::{ALICE, post};
use crate::server::running::Running;

/// A message of 4 MiB, and one of 32 bytes, of which only the beginning is ever sent.
const LONG: &[u8] = b"\0\0\x40\0\0begin";
const SHORT: &[u8] = b"\0\0\0\0\x20begin";

/// Streams at a time, each on one of two connections: 800 MiB announced.
const STREAMS: usize = 200;

/// What the address space of the server may be, and how much of it may be in memory.
const ADDRESS_SPACE_KIB: usize = 1_000_000;
const MAX_MEMORY: usize = 128 << 20;

/// Opens streams that never end, and waits until the server has ended all of them.
async fn announce(address: SocketAddr, path: &str, begin: &'static [u8]) -> Vec<Option<u32>> {
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        statuses.extend((0..STREAMS / 2).map(|_| {
            let mut sender = sender.clone();
            let frame = Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(begin)));
            let body = StreamBody::new(Box::pin(once(async { frame }).chain(pending())));
            let request = http::Request::post(format!("http://{address}{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(body)
                .unwrap();
            async move {
                sender.ready().await.unwrap();
                let (head, body) = sender.send_request(request).await.unwrap().into_parts();
                let at_once = head.headers.get("grpc-status").cloned();
                let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
                let status = at_once.or_else(|| trailers.get("grpc-status").cloned())?;
                status.to_str().ok()?.parse().ok()
            }
        }));
    }
    tokio::time::timeout(GUARD, join_all(statuses)).await.expect("every stream is ended")
}

#[test]
fn streams_that_announce_more_than_they_send_are_ended_and_reserve_nothing() {
    let limit = format!("-v {ADDRESS_SPACE_KIB}");
    let small = ["--threads", "2", "--max-keys", "1000"];
    let arguments = [&small[..], &["--body-seconds", "1", "--grpc-reflection", "--max-body", "8000000"]].concat();
    let server = Running::under(&limit, &arguments);
    let address = server.address().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for (path, begin, expected) in [
        ("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", LONG, &[4][..]),
        ("/grpc.health.v1.Health/Check", LONG, &[4]),
        // Some are not begun: the number of streams has a bound.
        ("/grpc.health.v1.Health/Watch", LONG, &[4, 8]),
        (reflection, LONG, &[0, 8, 11]),
        (reflection, SHORT, &[0, 8]),
    ] {
        let statuses = runtime.block_on(announce(address, path, begin));
        assert_eq!(statuses.len(), STREAMS, "{path}");
        assert!(
            statuses.iter().all(|status| status.is_some_and(|code| expected.contains(&code))),
            "{path}: {statuses:?}"
        );
        assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200, "{path}");
    }
    let peak = server.peak_memory();
    assert!(peak < MAX_MEMORY, "{} MiB", peak >> 20);
    assert!(server.stop().success());
}

#[test]
fn reflection_is_off_unless_asked_for() {
    let server = Running::start(&["--grpc", "127.0.0.1:0"]);
    let address = server.address_of("grpc").parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert!(runtime.block_on(announce(address, path, LONG)).iter().all(|status| *status == Some(12)));
}
