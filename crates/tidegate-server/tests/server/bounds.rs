//! What the server holds for its clients is bounded, and a client that takes all it can leaves room for others.

use std::net::TcpStream;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_testkit::servers::eventually;

use crate::server::client::{ALICE, Connection, curl, post, try_curl};
use crate::server::running::{Running, tidegate_under};
use crate::server::transports::Certificates;

/// A connection that has been let in.
fn inside(server: &Running) -> Connection {
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.post("/v1/check", ALICE).unwrap().status, 200);
    connection
}

fn assert_metric(server: &Running, line: &str) {
    let text = curl(&[&server.url("/metrics")]).body;
    assert!(text.lines().any(|found| found == line), "{line}: {text}");
}

#[test]
fn connections_of_resp_leave_http_open() {
    let server = Running::start(&["--resp", "127.0.0.1:0", "--max-connections", "4"]);
    let idle: Vec<Connection> = (0..4)
        .map(|_| {
            let mut connection = Connection::open(server.address_of("resp"));
            connection.send(b"PING\r\n").unwrap();
            assert_eq!(connection.line().unwrap(), "+PONG\r\n");
            connection
        })
        .collect();
    assert!(Connection::open(server.address_of("resp")).is_closed());
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
    assert_metric(&server, r#"tidegate_connections_refused_total{protocol="resp",reason="full"} 1"#);
    assert_metric(&server, r#"tidegate_connections_open{protocol="resp"} 4"#);
    drop(idle);
}

#[test]
fn a_server_that_is_full_answers_its_operators_and_tells_others_to_retry() {
    let server = Running::start(&["--max-connections", "2"]);
    let all = [inside(&server), inside(&server)];
    for path in ["/healthz", "/readyz", "/healthcheck", "/metrics", "/admin/v1/policy"] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            // The place of the one before may not be free yet.
            let answer = eventually("a place", || try_curl(&[version, &server.url(path)]));
            assert_eq!(answer.status, 200, "{path} {version}: {answer:?}");
            assert!(version != "--http1.1" || answer.header("connection") == Some("close"), "{path}: {answer:?}");
        }
    }
    let mut other = Connection::open(server.address());
    let refused = other.post("/v1/check", ALICE).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(other.is_closed(), "there is one request");
    assert!(Connection::open(server.address()).is_closed(), "a client that sends nothing keeps no place");
    drop(all);
}

/// What is accepted beyond the pool has one request, on each listener of HTTP.
#[test]
fn a_server_that_is_full_answers_one_request_of_a_connection_for_debugging() {
    let server = Running::start(&["--max-connections", "2", "--debug", "127.0.0.1:0"]);
    let all = [inside(&server), inside(&server)];
    let mut connection = Connection::open(server.address_of("debug"));
    connection.send(b"GET /stats HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let stats = connection.answer().unwrap();
    assert_eq!((stats.status, stats.header("connection")), (200, Some("close")), "{stats:?}");
    assert!(connection.is_closed());
    drop(all);
}

#[test]
fn one_address_cannot_take_all_connections() {
    let server = Running::start(&["--max-connections", "8", "--max-connections-per-address", "2"]);
    let all = [inside(&server), inside(&server)];
    assert_eq!(Connection::open(server.address()).post("/v1/check", ALICE).unwrap().status, 503);
    let url = server.url("/v1/check");
    assert_eq!(curl(&["--interface", "127.0.0.2", "--json", ALICE, &url]).status, 200);
    let metrics = curl(&["--interface", "127.0.0.2", &server.url("/metrics")]).body;
    assert!(metrics.contains(r#"connections_refused_total{protocol="http",reason="address"} 1"#), "{metrics}");
    drop(all);
}

#[test]
fn stalled_handshakes_give_way_to_new_ones() {
    let certificates = Certificates::new();
    let server = certificates.start(&["--max-connections", "16"]);
    let ca = certificates.path("ca.pem");
    let url = |path| format!("https://{}{path}", server.address());
    // Five times as many as there may be.
    let stalled: Vec<TcpStream> = (0..320).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for _ in 0..20 {
        assert_eq!(curl(&["--cacert", &ca, "--json", ALICE, &url("/v1/check")]).status, 200);
    }
    let metrics = curl(&["--cacert", &ca, &url("/metrics")]).body;
    let dropped = r#"tidegate_connections_refused_total{protocol="http",reason="handshake"} "#;
    let dropped: u64 = metrics.lines().find_map(|line| line.strip_prefix(dropped)).unwrap().parse().unwrap();
    assert!(dropped > 0, "{metrics}");
    drop(stalled);
}

#[test]
fn more_connections_than_open_files_are_an_error_only_if_they_were_asked_for() {
    let asked = tidegate_under("-n 300").args(["serve", "--http", "127.0.0.1:0", "--max-connections", "1000"]).output();
    let asked = asked.unwrap();
    let words = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(2), "{words}");
    for word in ["--max-connections 1000 needs 1160 open files", "grants 300", "ulimit -n", "to 140 or less"] {
        assert!(words.contains(word), "{word}: {words}");
    }
    let server = Running::under("-n 300", &[]);
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
}

#[test]
fn what_is_beyond_the_budget_is_told_to_retry_and_small_requests_are_answered() {
    let server = Running::start(&["--max-buffered", "1000"]);
    let check = |body: &str| post(&server.url("/v1/check"), body);
    let long = format!("{ALICE}{}", " ".repeat(8_000));
    let refused = check(&long);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("--max-buffered"), "{refused:?}");
    let batch = |length| format!("[{}]", vec![ALICE; length].join(","));
    assert_eq!(check(&batch(17)).status, 503, "its answer would be long");
    assert_eq!((check(&batch(16)).status, check(ALICE).status), (200, 200));
    assert_metric(&server, r#"tidegate_requests_shed_total{reason="buffered"} 2"#);
    assert_metric(&server, "tidegate_buffered_bytes 0");
}

/// A client of HTTP/2 that reads nothing of any answer.
async fn reads_nothing(url: &str) -> impl Sized + use<> {
    let uri: http::Uri = url.parse().unwrap();
    let stream = tokio::net::TcpStream::connect(uri.authority().unwrap().as_str()).await.unwrap();
    let mut client = http2::Builder::new(TokioExecutor::new());
    let client = client.initial_stream_window_size(0).handshake(TokioIo::new(stream));
    let (mut sender, connection) = client.await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    (answer, sender)
}

#[test]
fn answers_that_are_always_in_memory_leave_the_budget_to_others() {
    let server = Running::start(&["--max-buffered", "100000"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _unread = runtime.block_on(reads_nothing(&server.url("/openapi.json")));
    assert_metric(&server, "tidegate_buffered_bytes 0");
    let batch = format!("[{}]", vec![ALICE; 17].join(","));
    assert_eq!(post(&server.url("/v1/check"), &batch).status, 200);
}

/// Each stops one byte before its end: 375 MiB in all.
#[test]
fn bodies_that_never_end_take_no_more_than_the_budget() {
    const BODIES: usize = 1_500;
    const BUDGET: usize = 64 << 20;
    const BOUND: usize = 2 * BUDGET + (64 << 20);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let budget = BUDGET.to_string();
    let server =
        Running::start(&["--max-buffered", &budget, "--max-connections-per-address", "2000", "--max-keys", "1000"]);
    let length = 256 << 10;
    let head = format!(
        "POST /v1/peek HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let request = [head.as_bytes(), &vec![b' '; length - 1]].concat();
    let held: Vec<Connection> = (0..BODIES)
        .map(|_| {
            let mut connection = Connection::open(server.address());
            // One that is refused may be closed before all is sent.
            let _ = connection.send(&request);
            connection
        })
        .collect();
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
    let metrics = curl(&[&server.url("/metrics")]).body;
    let number = |name: &str| -> usize {
        metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    };
    assert!((BUDGET / 2..=BUDGET + (1 << 20)).contains(&number("tidegate_buffered_bytes")), "{metrics}");
    assert!(number(r#"tidegate_requests_shed_total{reason="buffered"}"#) > BODIES / 2, "{metrics}");
    let peak = server.peak_memory();
    assert!(peak < BOUND, "{} MiB", peak >> 20);
    drop(held);
    eventually("what was held to be given back", || {
        let metrics = curl(&[&server.url("/metrics")]).body;
        if metrics.contains("\ntidegate_buffered_bytes 0\n") { Ok(()) } else { Err(metrics) }
    });
}
