//! Spans of decisions: one for each, whichever wire asked, in the trace of its caller.

use std::net::SocketAddr;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tempfile::TempDir;
use tidegate::{ManualClock, MemoryStore, Micros};
use tidegate_server::{Server, Settings, StartError};
use tidegate_testkit::servers::{self, GUARD, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Collector, collector, text, value};
use crate::support::client::{METHOD, channel, request};
use crate::support::messages::RateLimitResponse;

const POLICY: &str = "
[rules.users]
limit = \"2/min\"
key = [\"user\"]
";

const FILE: &str = "
domain: files
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }
";

const PARENT: &str = "b7ad6b7169203331";
const SAMPLED: &str = "01";
const NOT_SAMPLED: &str = "00";

/// The parent of the span with this trace, as a caller writes it.
fn traceparent(trace: u8, flags: &str) -> String {
    format!("00-{}-{PARENT}-{flags}", format!("{trace:02x}").repeat(16))
}

fn wires(settings: Settings) -> (Settings, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [policy, file] = ["policy.toml", "files.yaml"].map(|name| folder.path().join(name));
    std::fs::write(&policy, POLICY).unwrap();
    std::fs::write(&file, FILE).unwrap();
    let any = || vec!["127.0.0.1:0".parse().unwrap()];
    let settings = Settings {
        resp: any(),
        grpc: any(),
        policy: Some(policy),
        envoy_config: vec![file],
        otlp_traces: true,
        ..settings
    };
    (settings, folder)
}

fn memory() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::at(Micros::new(1_000_000_000))).build().unwrap()
}

async fn http(address: SocketAddr, traceparent: Option<String>, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let field = traceparent.map(|parent| format!("traceparent: {parent}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         {field}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn grpc(address: SocketAddr, traceparent: &str, domain: &str, descriptors: &[&str]) -> i32 {
    let mut client = tonic::client::Grpc::new(channel(address).await);
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(request(domain, descriptors));
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    let codec = tonic_prost::ProstCodec::default();
    let answer: RateLimitResponse = client.unary(request, METHOD.parse().unwrap(), codec).await.unwrap().into_inner();
    answer.overall_code
}

async fn resp(address: SocketAddr, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{commands}QUIT\r\n").as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    answers
}

fn spans(collector: &Collector) -> Vec<Span> {
    let messages = collector.traces.lock().unwrap().clone();
    let resources = messages.into_iter().flat_map(|message| message.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

/// The spans of a trace that a caller began.
fn of_trace(spans: &[Span], trace: u8) -> Vec<&Span> {
    let found: Vec<&Span> = spans.iter().filter(|span| span.trace_id == [trace; 16]).collect();
    for span in &found {
        assert_eq!(span.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31], "{span:?}");
    }
    found
}

/// What a span says: namespace, rule, whether it was limited, cost, limit, remaining, verb.
type Said<'a> = (Option<&'a Value>, &'a str, bool, [i64; 3], &'a str);

fn said(span: &Span) -> Said<'_> {
    let attributes = &span.attributes;
    let number = |name: &str| match value(attributes, name) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{name} is {other:?}"),
    };
    let numbers = ["ratelimit.hits_addend", "ratelimit.most_restrictive.limit", "ratelimit.most_restrictive.remaining"];
    let limited = value(attributes, "ratelimit.limited") == Some(&Value::BoolValue(true));
    let namespace = value(attributes, "ratelimit.namespace");
    let verb = text(attributes, "tidegate.verb");
    (namespace, text(attributes, "ratelimit.limit_name"), limited, numbers.map(number), verb)
}

#[tokio::test]
async fn each_decision_is_a_span_in_the_trace_of_its_caller_by_every_wire() {
    let (collector, serving, settings) = collector().await;
    let (settings, _folder) = wires(settings);
    let server = Server::start(settings, memory()).await.unwrap();
    let [web, rls, redis] = [server.http_socket(), server.grpc_socket(), server.resp_socket()].map(Option::unwrap);
    let alice = r#"{"attributes": {"user": "alice"}, "cost": 2}"#;
    assert_eq!(http(web, Some(traceparent(1, SAMPLED)), alice).await, 200);
    assert_eq!(http(web, Some(traceparent(2, SAMPLED)), alice).await, 429);
    assert_eq!(http(web, Some(traceparent(3, NOT_SAMPLED)), alice).await, 429);
    let too_much = r#"{"attributes": {"user": "alice"}, "cost": 3}"#;
    assert_eq!(http(web, Some(traceparent(4, SAMPLED)), too_much).await, 422);
    assert_eq!(grpc(rls, &traceparent(5, SAMPLED), "edge", &["user=bob"]).await, 1);
    for (trace, code) in [(6, 1), (7, 2)] {
        assert_eq!(grpc(rls, &traceparent(trace, SAMPLED), "files", &["user=carol"]).await, code);
    }
    let answers =
        resp(redis, "TIDEGATE.CHECK KEY dave LIMIT 1/min\r\nCL.THROTTLE dave 4 5 60\r\nCL.THROTTLE dave 4 5 60 2\r\n")
            .await;
    assert_eq!(answers.lines().filter(|line| line.starts_with('*')).count(), 3, "{answers}");
    assert!(server.drain().await);
    serving.abort();

    let spans = spans(&collector);
    let edge = Value::StringValue("edge".into());
    let files = Value::StringValue("files".into());
    let file_rule = said(of_trace(&spans, 6)[0]).1;
    assert!(file_rule.contains("user"), "{file_rule}");
    for (trace, protocol, expected) in [
        (1, "http", (None, "users", false, [2, 2, 0], "charge")),
        (2, "http", (None, "users", true, [2, 2, 0], "charge")),
        (5, "grpc", (Some(&edge), "users", false, [1, 2, 1], "charge")),
        (6, "grpc", (Some(&files), file_rule, false, [1, 1, 0], "charge")),
        (7, "grpc", (Some(&files), file_rule, true, [1, 1, 0], "charge")),
    ] {
        let [span] = of_trace(&spans, trace)[..] else { panic!("trace {trace} in {spans:?}") };
        assert_eq!(said(span), expected);
        assert_eq!(text(&span.attributes, "tidegate.protocol"), protocol);
        assert_eq!((span.name.as_str(), span.kind()), ("ratelimit.decide", SpanKind::Server));
        assert!(0 < span.start_time_unix_nano && span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.status.is_none(), "a refusal is no error");
    }
    let refused = &of_trace(&spans, 2)[0].attributes;
    assert_eq!(value(refused, "tidegate.retry_after_secs"), Some(&Value::IntValue(60)));
    assert_eq!(value(refused, "ratelimit.most_restrictive.reset_secs"), Some(&Value::IntValue(60)));
    assert!(of_trace(&spans, 3).is_empty(), "the caller does not sample it");
    let [failed] = of_trace(&spans, 4)[..] else { panic!("{spans:?}") };
    assert_eq!(text(&failed.attributes, "error.type"), "unsatisfiable");
    assert_eq!(failed.status.as_ref().unwrap().code, 2);

    let begun_here: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(begun_here.len(), 3, "the three of RESP: {spans:?}");
    assert!(begun_here.iter().all(|span| text(&span.attributes, "tidegate.protocol") == "resp"));
    assert_eq!(begun_here.iter().map(|span| said(span).3[0]).collect::<Vec<_>>(), [1, 1, 2], "in their order");
    let mut ids: Vec<&[u8]> = begun_here.iter().map(|span| &span.trace_id[..]).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each is a trace of its own");

    let sent: Vec<u8> = collector.traces.lock().unwrap().iter().flat_map(Message::encode_to_vec).collect();
    for key in ["alice", "bob", "carol", "dave"] {
        assert!(!sent.windows(key.len()).any(|bytes| bytes == key.as_bytes()), "{key} is not to be sent");
    }
}

#[tokio::test]
async fn keys_are_sent_where_they_are_asked_for_and_a_ratio_of_zero_leaves_sampled_callers() {
    let (collector, serving, settings) = collector().await;
    let (settings, _folder) = wires(settings);
    let settings = Settings { otlp_traces_keys: true, otlp_traces_ratio: 0.0, ..settings };
    let server = Server::start(settings, memory()).await.unwrap();
    let address = server.http_socket().unwrap();
    for (traceparent, user) in [(None, "alice"), (Some(traceparent(1, SAMPLED)), "bob")] {
        assert_eq!(http(address, traceparent, &format!(r#"{{"attributes": {{"user": "{user}"}}}}"#)).await, 200);
    }
    let rls = server.grpc_socket().unwrap();
    assert_eq!(grpc(rls, &traceparent(2, SAMPLED), "files", &["user=carol"]).await, 1);
    assert!(server.drain().await);
    serving.abort();
    let spans = spans(&collector);
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!(text(&of_trace(&spans, 1)[0].attributes, "tidegate.key"), "bob");
    assert!(text(&of_trace(&spans, 2)[0].attributes, "tidegate.key").contains("carol"));
}

#[tokio::test]
async fn several_descriptors_on_redis_are_spans_of_one_trace() {
    let (collector, serving, settings) = collector().await;
    let (settings, _folder) = wires(settings);
    let redis = servers::Server::start();
    let store_deadline_ms = u64::try_from(GUARD.as_millis()).unwrap();
    let settings = Settings { store: redis.url().parse().unwrap(), store_deadline_ms, ..settings };
    let server = Server::open(settings).await.unwrap();
    let address = server.grpc_socket().unwrap();
    assert_eq!(grpc(address, &traceparent(1, SAMPLED), "edge", &["user=a", "user=b"]).await, 1);
    assert!(server.drain().await);
    serving.abort();
    let spans = spans(&collector);
    assert_eq!((spans.len(), of_trace(&spans, 1).len()), (2, 2), "{spans:?}");
}

#[tokio::test]
async fn spans_that_the_collector_refuses_are_counted() {
    let (collector, serving, settings) = collector().await;
    let (settings, _folder) = wires(Settings { otlp_header: Vec::new(), ..settings });
    let server = Server::start(settings, memory()).await.unwrap();
    let address = server.resp_socket().unwrap();
    let answers = resp(address, &"CL.THROTTLE alice 4 5 60\r\n".repeat(20)).await;
    assert_eq!(answers.lines().filter(|line| line.starts_with('*')).count(), 20);
    let metrics = Arc::clone(&server.app().records.metrics);
    let refused = "tidegate_trace_spans_total{reason=\"not-taken\"} 20\n";
    let count = move || Some(metrics.text()).filter(|text| text.contains(refused)).ok_or("not all of 20");
    tokio::task::spawn_blocking(move || eventually("the count of refused spans", count)).await.unwrap();
    assert!(spans(&collector).is_empty());
    serving.abort();
}

#[tokio::test]
async fn traces_without_a_collector_are_an_error_at_the_start() {
    let settings = Settings { http: Vec::new(), otlp_traces: true, ..Settings::default() };
    let refused = Server::start(settings, memory()).await.err().unwrap();
    assert!(matches!(refused, StartError::Otlp(_)) && refused.to_string().contains("give --otlp URL"), "{refused}");
}
