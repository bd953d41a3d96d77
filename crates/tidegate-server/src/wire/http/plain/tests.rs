//! Plain requests are answered as hyper answers them.

use std::sync::Arc;

use axum::Router;
use tidegate::{ManualClock, MemoryStore};
use tidegate_testkit::Random;
use tokio::io::{AsyncReadExt, duplex};

use super::head::{MAX_FIELDS, check};
use super::*;
use crate::run::peer::Peer;
use crate::settings::rights::Right;
use crate::wire::http::{router, serve_all, serve_connection};
use crate::{Server, Settings};

const BODY: &str = r#"{"key":"alice","limit":"5/min"}"#;

fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    let fields = format!("host: localhost\r\ncontent-type: application/json\r\n{fields}");
    format!("POST /v1/check HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

fn plain_body(arrived: &str) -> Option<&str> {
    let arrived = arrived.as_bytes();
    let rest = arrived.strip_prefix(b"POST /v1/check")?;
    let Plain { asks: Asks::Check(body), length, .. } = check(arrived, rest, 100)? else { return None };
    assert!(arrived[..length].ends_with(body));
    Some(std::str::from_utf8(body).unwrap())
}

#[test]
fn a_plain_question_is_known_and_nothing_else_is_taken_for_one() {
    assert_eq!(plain_body(&post("", BODY)), Some(BODY));
    assert_eq!(plain_body(&post("Connection: Keep-Alive\r\nx: y\r\n", "{}")), Some("{}"));
    assert_eq!(plain_body(&(post("", "{}") + "GET /")), Some("{}"), "what follows is the next one's");
    for other in [
        post("transfer-encoding: chunked\r\n", "{}"),
        post("expect: 100-continue\r\n", "{}"),
        post("upgrade: h2c\r\n", "{}"),
        post("connection: close\r\n", "{}"),
        post("content-length: 2\r\n", "{}"),
        post("content-length : 2\r\n", "{}"),
        post(" folded: x\r\n", "{}"),
        post("host: y\r\n", "{}"),
        post("x: y\n", "{}"),
        post("", "{}").replace("host: localhost\r\n", ""),
        post("", "{}").replace("2\r\n\r\n", "2\r\n\n"),
        post("", "{}").replace("HTTP/1.1", "HTTP/1.0"),
        post("", "{}").replace("/v1/check", "/v1/check?"),
        post("", "{}").replace("length: 2", "length: +2"),
        post("", "{}").replace("length: 2", "length: 2, 2"),
        post("", "{}").replace("length: 2", "length:"),
        post("", "{}").replace("content-length: 2\r\n", ""),
        post("Host: localhost\r\n", "{}"),
        post("authorization: a\r\nauthorization: a\r\n", "{}"),
        post("", &"x".repeat(101)),
        post(&"x: y\r\n".repeat(MAX_FIELDS), "{}"),
    ] {
        assert_eq!(plain_body(&other), None, "{other}");
    }
    let whole = post("", BODY);
    for length in 0..whole.len() {
        assert_eq!(plain_body(&whole[..length]), None, "half a request");
    }
}

/// Who reads first.
#[derive(Clone, Copy)]
enum First {
    Plain,
    Hyper,
}

/// All that a new server says to what arrives in these pieces, but the date.
async fn said(pieces: &[&[u8]], first: First) -> String {
    said_with(Settings::default(), pieces, first).await
}

async fn said_with(settings: Settings, pieces: &[&[u8]], first: First) -> String {
    said_to(Peer::Unix, settings, pieces, first).await
}

async fn said_to(peer: Peer, settings: Settings, pieces: &[&[u8]], first: First) -> String {
    let store = MemoryStore::builder().max_keys(100).clock(ManualClock::default()).build().unwrap();
    let settings = Settings { http: Vec::new(), threads: std::num::NonZeroUsize::new(1), ..settings };
    let server = Server::start(settings, store).await.unwrap();
    let app = Arc::clone(server.app());
    let (mut client, server_side) = duplex(1 << 20);
    let stream = Stream::new(server_side, peer);
    let router = router(Arc::clone(&app), Router::new());
    let serving = tokio::spawn(async move {
        match first {
            First::Plain => serve_all(stream, app, router).await,
            First::Hyper => serve_connection(stream, app, router).await,
        }
    });
    for piece in pieces {
        // A client that is disconnected early may not get to say it all.
        let _ = client.write_all(piece).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    let _ = client.shutdown().await;
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said).await;
    serving.await.unwrap();
    let said = String::from_utf8_lossy(&said);
    said.split("\r\n").filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\r\n")
}

/// The server closes before the runtime has looked at the socket, in which the next request waits.
#[tokio::test]
async fn a_request_that_is_in_the_socket_when_the_server_closes_is_answered() {
    for (first, path) in [(First::Plain, "/v1/check"), (First::Hyper, "/v1/check"), (First::Plain, "/v1/peek")] {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let app = Arc::clone(server.app());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::new(listener.accept().await.unwrap().0, Peer::Unix);
        let (drain, router) = (app.guards.drain.clone(), router(Arc::clone(&app), Router::new()));
        let serving = tokio::spawn(async move {
            match first {
                First::Plain => serve_all(stream, app, router).await,
                First::Hyper => serve_connection(stream, app, router).await,
            }
        });
        let request = post("", BODY).replace("/v1/check", path);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"}") {
            assert_ne!(client.read_buf(&mut said).await.unwrap(), 0);
        }
        // From here to the next await, only this task runs.
        assert_eq!(client.try_write(request.as_bytes()).unwrap(), request.len());
        drain.close();
        client.read_to_end(&mut said).await.unwrap();
        drop(client);
        serving.await.unwrap();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{said}");
        assert_eq!(said.matches("connection: close\r\n").count(), 1, "{said}");
    }
}

#[tokio::test]
async fn plain_questions_are_answered_to_the_letter_as_by_hyper() {
    let asked = [
        post("", BODY).repeat(7),
        post("", "{}") + &post("", "[]") + &post("", "[{},{}]"),
        post("", r#"{"cost":9,"key":"alice","limit":"5/min"}"#),
        post("", "nonsense") + &post("", BODY),
        post("", r#"{"rule":"unheard of"}"#),
        post("", BODY) + "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" + &post("", BODY),
        post("", BODY) + &post("connection: close\r\n", BODY) + &post("", BODY),
        post("", BODY) + "rubbish",
    ];
    for asked in asked {
        let plain = said(&[asked.as_bytes()], First::Plain).await;
        assert!(plain.starts_with("HTTP/1.1 "), "{plain}");
        assert!(plain.contains("\r\nx-content-type-options: nosniff\r\n"), "{plain}");
        assert_eq!(plain, said(&[asked.as_bytes()], First::Hyper).await, "{asked}");
    }
}

#[tokio::test]
async fn callers_that_are_not_permitted_are_refused_as_by_hyper() {
    let open = Settings::default();
    let closed = Settings { admin_token: Some("s3cret".into()), ..Settings::default() };
    let some = Settings { anonymous: vec![Right::Check], ..closed.clone() };
    let with = |from: &str, to: &str| post("", BODY).replace(from, to);
    let bearer = |token: &str| post(&format!("authorization: Bearer {token}\r\n"), BODY);
    let basic = post("authorization: Basic s3cret\r\n", BODY);
    for (settings, asked, status) in [
        (&open, post("", BODY), 200),
        (&open, with("localhost", "LocalHost.:7400"), 200),
        (&open, with("localhost", "127.9.9.9:7400"), 200),
        (&open, with("localhost", "[::1]:7400"), 200),
        (&open, with("localhost", "evil.example:7400"), 421),
        (&open, with("localhost", "192.0.2.1"), 421),
        (&open, with("localhost", "localhost.evil.example"), 421),
        (&open, with("localhost", ""), 421),
        (&open, with("host: localhost\r\n", ""), 400),
        (&open, post("host: localhost\r\n", BODY), 400),
        (&open, post("sec-fetch-site: cross-site\r\n", BODY), 403),
        (&open, post("sec-fetch-site: same-site\r\n", BODY), 403),
        (&open, post("sec-fetch-site: same-origin\r\nsec-fetch-site: same-origin\r\n", BODY), 403),
        (&open, post("sec-fetch-site: same-origin\r\norigin: http://localhost\r\n", BODY), 200),
        (&open, post("origin: http://localhost:1\r\n", BODY), 403),
        (&open, post("origin: http://evil.example\r\n", BODY), 403),
        (&open, post("origin: null\r\n", BODY), 403),
        (&open, with("application/json", "Application/JSON; charset=utf-8"), 200),
        (&open, with("application/json", "text/plain"), 415),
        (&open, with("application/json", "application/jsonp"), 415),
        (&open, with("content-type: application/json\r\n", ""), 415),
        (&open, bearer("ignored"), 200),
        (&closed, post("", BODY), 401),
        (&closed, bearer("s3cret"), 200),
        (&closed, bearer("s3cret").replace("localhost", "evil.example"), 200),
        (&closed, bearer("s3cret").replace("application/json", "text/plain"), 200),
        (&closed, bearer("s3cret") + &bearer("s3cret"), 200),
        (&closed, bearer("s3cret") + &bearer("s3creT"), 200),
        (&closed, bearer("s3creT"), 401),
        (&closed, bearer("s3cret").replace("content-type", "authorization: Bearer s3cret\r\ncontent-type"), 401),
        (&closed, basic.clone(), 401),
        (&some, post("", BODY), 200),
        (&some, with("localhost", "evil.example"), 421),
        (&some, basic, 401),
    ] {
        let plain = said_with(settings.clone(), &[asked.as_bytes()], First::Plain).await;
        assert!(plain.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {asked}\n{plain}");
        assert_eq!(plain, said_with(settings.clone(), &[asked.as_bytes()], First::Hyper).await, "{asked}");
    }
}

const PROXY: &str = "10.0.0.9:4711";

/// A request of a proxy, for a client at 192.0.2.1.
fn forward(query: &str, fields: &str) -> String {
    let said = "x-forwarded-for: 192.0.2.1\r\nx-forwarded-method: POST\r\nx-forwarded-uri: /orders?x=1\r\n";
    format!("GET /v1/forward-auth{query} HTTP/1.1\r\nhost: localhost\r\n{said}{fields}\r\n")
}

/// Answers by either path, of servers that trust the proxy and have a token.
async fn forwarded(peer: &str, anonymous: &[Right], asked: &str) -> [String; 2] {
    let admin_token = (!anonymous.is_empty()).then(|| "s3cret".into());
    let trusted_proxy = vec!["10.0.0.0/8".parse().unwrap()];
    let settings = Settings { trusted_proxy, admin_token, anonymous: anonymous.to_vec(), ..Settings::default() };
    let peer = Peer::Tcp(peer.parse().unwrap());
    let mut answers = [String::new(), String::new()];
    for (answer, first) in answers.iter_mut().zip([First::Plain, First::Hyper]) {
        *answer = said_to(peer, settings.clone(), &[asked.as_bytes()], first).await;
    }
    answers
}

#[tokio::test]
async fn plain_requests_of_proxies_are_answered_to_the_letter_as_by_hyper() {
    let ok = forward("", "");
    for (peer, asked, status) in [
        (PROXY, ok.clone(), 204),
        (PROXY, ok.repeat(3) + &post("", BODY) + &ok, 204),
        (PROXY, ok.replace("GET", "DELETE"), 204),
        (PROXY, ok.replace("GET", "HEAD"), 204),
        (PROXY, forward("?", ""), 204),
        (PROXY, forward("?cost=1000000", ""), 422),
        (PROXY, forward("?cost=1000000", "").replace("GET", "HEAD"), 422),
        (PROXY, forward("?cost=6", "").repeat(9), 204),
        (PROXY, forward("?cost=6&deny-status=403", "accept: text/html\r\n").repeat(9), 204),
        (PROXY, forward("?rule=no", "accept: text/plain\r\n"), 422),
        (PROXY, forward("?rule=no&x", ""), 400),
        (PROXY, forward("?cost=0", "").replace("/orders?x=1", "/orders?cost=0"), 400),
        ("203.0.113.5:1", forward("?cost=0", "").replace("/orders?x=1", "/orders?cost=0"), 204),
        (PROXY, forward("?a b", ""), 400),
        (PROXY, forward("?rule=\"", ""), 400),
        (PROXY, forward("?key=header.x-user", "x-user: a\r\n"), 204),
        (PROXY, forward("?key=header.x-user", "x-user: a\r\nx-user: b\r\n"), 400),
        (PROXY, forward("?key=header.x-user", ""), 422),
        (PROXY, forward("", "content-length: 0\r\n"), 204),
        (PROXY, forward("", "content-length: 4\r\n") + "body", 204),
        (PROXY, forward("", "host: other\r\n"), 400),
        (PROXY, ok.replace("host: localhost\r\n", ""), 400),
        // What a browser says is said of the client of a proxy, and of the caller itself if it is no proxy.
        (PROXY, forward("", "origin: http://evil.example\r\nsec-fetch-site: cross-site\r\n"), 204),
        ("203.0.113.5:1", forward("", "origin: http://evil.example\r\n"), 403),
        (PROXY, ok.replace("localhost", "shop.example"), 204),
        ("203.0.113.5:1", ok.replace("localhost", "shop.example"), 421),
        ("203.0.113.5:1", ok.clone(), 204),
        ("203.0.113.5:1", ok.replace("GET", "POST"), 204),
    ] {
        let [plain, hyper] = forwarded(peer, &[], &asked).await;
        assert!(plain.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {asked}\n{plain}");
        assert_eq!(plain, hyper, "{asked}");
    }
}

#[tokio::test]
async fn a_wrong_token_that_a_proxy_passes_on_is_not_the_proxys() {
    let with = |token: &str| forward("?cost=0", &format!("authorization: Bearer {token}\r\n"));
    // More failures than any address may have.
    let guesses = with("guess").repeat(50) + &with("s3cret");
    for (anonymous, peer, asked, status) in [
        (Right::Check, PROXY, forward("", ""), 204),
        (Right::Check, PROXY, guesses, 204),
        (Right::Check, "203.0.113.5:1", with("guess"), 401),
        (Right::Metrics, PROXY, with("s3cret"), 204),
        (Right::Metrics, PROXY, with("guess"), 401),
        (Right::Metrics, PROXY, forward("", ""), 401),
    ] {
        let [plain, hyper] = forwarded(peer, &[anonymous], &asked).await;
        let answers = plain.matches("HTTP/1.1 ").count();
        assert_eq!(plain.matches(&format!("HTTP/1.1 {status} ")).count(), answers, "{asked}\n{plain}");
        assert_eq!(plain, hyper, "{asked}");
    }
}

#[tokio::test]
async fn heads_that_proxies_may_read_otherwise_are_refused_on_either_path() {
    let get = |fields: &str| format!("GET /healthz HTTP/1.1\r\n{fields}\r\n");
    let chunks = "transfer-encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\nx: y\r\n\r\n";
    let chunked = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{chunks}");
    for irregular in [
        post("host: y\r\n", BODY),
        post("x: y\n", BODY),
        post("", BODY).replace("host: localhost\r\n", ""),
        post("", BODY).replace("\r\n\r\n", "\r\n\n"),
        post("", BODY).replace("\r\n", "\n"),
        "\n".to_owned() + &post("", BODY),
        get(""),
        get("host: x\r\nhost: x\r\n"),
        get("host: x\n"),
    ] {
        // First, after an answer by the fast path, and after bodies that hyper reads, with lines of their own.
        for before in ["", &post("", BODY), &post("expect: x\r\n", "\n\n"), &chunked] {
            let asked = format!("{before}{irregular}{}", post("", BODY));
            let plain = said(&[asked.as_bytes()], First::Plain).await;
            assert_eq!(plain, said(&[asked.as_bytes()], First::Hyper).await, "{asked}");
            let answers: Vec<&str> = plain.split("HTTP/1.1 ").skip(1).collect();
            assert_eq!(answers.len(), 1 + usize::from(!before.is_empty()), "{asked}{plain}");
            let last = answers.last().unwrap();
            assert!(last.starts_with("400 ") && last.contains("connection: close"), "{asked}{plain}");
        }
    }
    // HTTP/1.0 knows no Host.
    let old = said(&[b"GET /healthz HTTP/1.0\r\n\r\n"], First::Plain).await;
    assert!(old.starts_with("HTTP/1.0 200"), "{old}");
}

#[tokio::test]
async fn whatever_arrives_in_whatever_pieces_is_answered_as_by_hyper() {
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    for round in 0..400 {
        let asked = odd_questions(&mut random.fork());
        let cut = random.within(0..=asked.len() as u64) as usize;
        let (first, second) = asked.split_at(cut);
        let pieces = if random.percent(50) { vec![&asked[..]] } else { vec![first, second] };
        let (plain, hyper) = (said(&pieces, First::Plain).await, said(&pieces, First::Hyper).await);
        assert_eq!(plain, hyper, "seed {seed}, round {round}: {}", String::from_utf8_lossy(&asked));
    }
}

/// A few requests, most of them with something wrong.
fn odd_questions(random: &mut Random) -> Vec<u8> {
    let fields = [
        "",
        "host: example.com\r\n",
        "origin: http://localhost\r\n",
        "origin: null\r\n",
        "sec-fetch-site: cross-site\r\n",
        "content-type: text/plain\r\n",
        "authorization: Bearer x\r\n",
        "connection: keep-alive\r\n",
        "Connection: close\r\n",
        "transfer-encoding: chunked\r\n",
        "Content-Length: 2\r\n",
        "content-length: 0\r\n",
        "expect: 100-continue\r\n",
        "x: \t y \r\n",
        "x: y\n",
        "host: y\r\n",
        "x\r\n",
        ": y\r\n",
    ];
    let bodies = ["{}", BODY, "", "2\r\n{}\r\n0\r\n\r\n", "[{},{}]", "{\"key\":7}"];
    let mut asked = Vec::new();
    for _ in 0..random.within(1..=3) {
        let mut request = match random.percent(50) {
            true => post(random.choose(&fields), random.choose(&bodies)).into_bytes(),
            false => forward(random.choose(&["", "?cost=2", "?rule=x&key=ip"]), random.choose(&fields)).into_bytes(),
        };
        if random.percent(40) {
            let at = random.within(0..=request.len() as u64 - 1) as usize;
            match random.within(0..=2) {
                0 => request[at] = random.choose(b"\r\n :09azAZ{}\"\x00\x80/"),
                1 => request.insert(at, random.choose(b"\r\n :09azAZ{}\"\x00\x80/")),
                _ => drop(request.remove(at)),
            }
        }
        asked.append(&mut request);
    }
    // Hyper answers half a head at the end of a connection only if it has answered another.
    asked.extend_from_slice(post("", BODY).as_bytes());
    asked
}
