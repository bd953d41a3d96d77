//! Attacks on connections: sockets that are opened, kept, and never of use.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::wire::{self, ATTACKER};
use super::{Attack, BOUNDS, SERVER, Server, Target};
use crate::findings::Findings;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "idle-resp",
        what: "as many idle connections of RESP as there may be",
        is_quick: true,
        server: Server { flags: &["--max-connections", "1000", "--resp-idle-seconds", "3"], ..SERVER },
        bounds: BOUNDS,
        make: idle_resp,
    },
    Attack {
        name: "idle-http",
        what: "as many idle connections of HTTP as the server takes, from one address",
        is_quick: true,
        server: Server { flags: &["--max-connections", "1000"], ..SERVER },
        bounds: BOUNDS,
        make: idle_http,
    },
    Attack {
        name: "full-pool",
        what: "idle connections from eight addresses take all places of HTTP",
        is_quick: true,
        server: Server { flags: &["--max-connections", "400", "--max-connections-per-address", "400"], ..SERVER },
        bounds: BOUNDS,
        make: full_pool,
    },
    Attack {
        name: "stalled-handshakes",
        what: "3,000 TLS handshakes that are begun and never finished",
        is_quick: true,
        server: Server { flags: &["--max-connections", "2000"], tls: true, files: 8_192, ..SERVER },
        bounds: BOUNDS,
        make: stalled_handshakes,
    },
    Attack {
        name: "never-reads",
        what: "200 clients that send requests without end and read no answer",
        is_quick: false,
        server: SERVER,
        bounds: BOUNDS,
        make: never_reads,
    },
    Attack {
        name: "opens-no-window",
        what: "20 clients of HTTP/2 that ask for 200 long answers each and open no window for them",
        is_quick: false,
        server: SERVER,
        bounds: BOUNDS,
        make: opens_no_window,
    },
    Attack {
        name: "dashboard-streams",
        what: "one client holds as many live streams of the dashboard as it gets",
        is_quick: true,
        server: SERVER,
        bounds: BOUNDS,
        make: dashboard_streams,
    },
];

fn is_answered(target: &Target, path: &str) -> bool {
    target.get(path).is_ok_and(|answer| answer.status == 200)
}

fn idle_resp(target: &mut Target, claims: &mut Findings) {
    let held = wire::connect_many(ATTACKER, target.resp(), 1_000);
    claims.claim(is_answered(target, "/metrics"), || "/metrics was closed".into());
    claims.claim(is_answered(target, "/healthz"), || "/healthz was closed".into());
    let open = held.iter().filter(|stream| !wire::is_closed(stream, Duration::from_secs(30))).count();
    claims.claim(open == 0, || format!("{open} idle connections stay open"));
}

fn idle_http(target: &mut Target, claims: &mut Findings) {
    let held = wire::connect_many(ATTACKER, target.http(), 1_000);
    for path in ["/metrics", "/healthz", "/readyz"] {
        claims.claim(is_answered(target, path), || format!("{path} was closed"));
    }
    let checked = target.post("/v1/check", r#"{"key":"new"}"#);
    claims.claim(checked.as_ref().is_ok_and(|answer| answer.status == 200), || format!("a newcomer: {checked:?}"));
    drop(held);
}

fn full_pool(target: &mut Target, claims: &mut Findings) {
    let addresses = (0..8).map(|number| std::net::Ipv4Addr::new(127, 0, 1, number + 1));
    let held: Vec<TcpStream> = addresses.flat_map(|address| wire::connect_many(address, target.http(), 60)).collect();
    for path in ["/metrics", "/healthz", "/readyz", "/admin/v1/policy"] {
        claims.claim(is_answered(target, path), || format!("{path} was closed"));
    }
    let checked = target.post("/v1/check", r#"{"key":"new"}"#);
    claims.claim(checked.as_ref().is_ok_and(|answer| answer.status == 503), || format!("a newcomer: {checked:?}"));
    drop(held);
}

fn stalled_handshakes(target: &mut Target, claims: &mut Findings) {
    // The head of a record with a ClientHello, and no more.
    let beginning = [0x16, 3, 1, 2, 0];
    let mut held = wire::connect_many(ATTACKER, target.http(), 3_000);
    held.iter_mut().for_each(|stream| drop(stream.write_all(&beginning)));
    for number in 0..20 {
        let answer = target.post("/v1/check", &format!(r#"{{"key":"new-{number}"}}"#));
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("a newcomer: {answer:?}"));
    }
}

fn never_reads(target: &mut Target, claims: &mut Findings) {
    let request = wire::post("/v1/check", "", r#"{"key":"unread"}"#).repeat(200);
    let held = wire::connect_many(ATTACKER, target.http(), 200);
    for mut stream in &held {
        let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
        // Until the server reads no more either.
        while stream.write_all(request.as_bytes()).is_ok() {}
    }
    thread::sleep(Duration::from_secs(45));
    let mut open = 0;
    for mut stream in &held {
        open += u32::from(stream.write_all(request.as_bytes()).is_ok());
    }
    claims.claim(open == 0, || format!("{open} connections that read nothing stay open"));
}

fn opens_no_window(target: &mut Target, claims: &mut Findings) {
    let connect = || wire::get_without_window(target.http(), "/openapi.json", 200).expect("a connection");
    let mut held: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    let batch = format!("[{}]", [r#"{"key":"honest"}"#; 20].join(","));
    let batched = target.post("/v1/check", &batch);
    claims.claim(batched.as_ref().is_ok_and(|answer| answer.status == 200), || format!("an honest batch: {batched:?}"));
    // The server pings a silent client after a minute, and gives it another one.
    let ends = Instant::now() + Duration::from_secs(90);
    held.retain_mut(|stream| {
        let rest = ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let _ = stream.set_read_timeout(Some(rest));
        let read = std::io::copy(stream, &mut std::io::sink());
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    });
    let open = held.len();
    claims.claim(open == 0, || format!("{open} connections that read no answer stay open"));
}

fn dashboard_streams(target: &mut Target, claims: &mut Findings) {
    let request = "GET /admin/v1/live/stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut held = wire::connect_many(ATTACKER, target.http(), 64);
    for stream in &mut held {
        let _ = stream.write_all(request.as_bytes());
    }
    // All of them have been answered, one way or the other, before the next is asked.
    let answered = held.iter().filter(|stream| !wire::is_closed(stream, Duration::from_secs(30))).count();
    claims.claim(answered > 0, || "no stream was given".into());
    let mut honest = wire::connect(std::net::Ipv4Addr::LOCALHOST, target.http()).expect("a connection");
    let _ = honest.write_all(request.as_bytes());
    let mut line = String::new();
    let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(honest), &mut line);
    claims.claim(line.starts_with("HTTP/1.1 200"), || format!("an honest stream: {line}"));
}
