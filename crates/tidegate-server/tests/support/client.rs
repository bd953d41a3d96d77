//! Clients of the tests: gRPC by tonic, and HTTP by hand.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_config::envoy::Hits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;

use super::messages::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::messages::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

pub(crate) const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) struct Client(tonic::client::Grpc<Channel>);

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        Client::over(channel(address).await)
    }

    pub(crate) fn over(channel: Channel) -> Client {
        Client(tonic::client::Grpc::new(channel))
    }

    pub(crate) async fn ask(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, tonic::Status> {
        self.ask_as(request, None).await
    }

    pub(crate) async fn ask_as(
        &mut self,
        request: RateLimitRequest,
        token: Option<&str>,
    ) -> Result<RateLimitResponse, tonic::Status> {
        self.0.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::default();
        let mut request = tonic::Request::new(request);
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let answer = self.0.unary(request, METHOD.parse().unwrap(), codec).await;
        answer.map(tonic::Response::into_inner)
    }
}

/// A request of descriptors in short: `user=a path=/b`, with `+3` to be charged
/// three, `?` to peek, `!3` to report three, `-2` for a refund of two, `@10/2` for a limit of ten in
/// the second unit, which is a minute.
pub(crate) fn request(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|text| {
        let (mut entries, hits) = parse(text);
        let (hits_addend, is_negative_hits) = match hits {
            Hits::Charge(1) if !text.contains('+') => (None, false),
            Hits::Charge(hits) => (Some(hits), false),
            Hits::Peek => (Some(0), false),
            Hits::Report(hits) => {
                entries.push(("tidegate", "report"));
                (Some(hits), false)
            }
            Hits::Refund(hits) => (Some(hits), true),
        };
        let limit = text.split(' ').find_map(|word| word.strip_prefix('@')).map(|limit| {
            let (requests, unit) = limit.split_once('/').unwrap();
            RateLimitOverride { requests_per_unit: requests.parse().unwrap(), unit: unit.parse().unwrap() }
        });
        let entry = |(key, value): (&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        RateLimitDescriptor { entries: entries.into_iter().map(entry).collect(), limit, hits_addend, is_negative_hits }
    });
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.collect(), hits_addend: 0 }
}

pub(crate) fn parse(text: &str) -> (Vec<(&str, &str)>, Hits) {
    let (mut entries, mut hits) = (Vec::new(), Hits::Charge(1));
    for word in text.split(' ') {
        if word == "?" {
            hits = Hits::Peek;
        } else if let Some(number) = word.strip_prefix('+') {
            hits = Hits::Charge(number.parse().unwrap());
        } else if let Some(number) = word.strip_prefix('-') {
            hits = Hits::Refund(number.parse().unwrap());
        } else if let Some(number) = word.strip_prefix('!') {
            hits = Hits::Report(number.parse().unwrap());
        } else if !word.starts_with('@') {
            entries.push(word.split_once('=').unwrap());
        }
    }
    (entries, hits)
}

/// Any bytes as the body of a call: the status that comes back.
pub(crate) async fn raw(address: SocketAddr, path: &str, body: &[u8]) -> Option<u32> {
    call(address, path, Full::new(Bytes::copy_from_slice(body))).await
}

/// A call whose body never ends: the status that comes back.
pub(crate) async fn begin(address: SocketAddr, path: &str) -> Option<u32> {
    let body = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    call(address, path, body).await
}

async fn call<B>(address: SocketAddr, path: &str, body: B) -> Option<u32>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let body = Box::pin(body);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = ::http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    let status = head.headers.get("grpc-status").cloned();
    let status = match status {
        Some(status) => Some(status),
        None => body.collect().await.unwrap().trailers().and_then(|trailers| trailers.get("grpc-status").cloned()),
    };
    connection.abort();
    status?.to_str().ok()?.parse().ok()
}

/// One request of HTTP/1.1: the status and the body.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
