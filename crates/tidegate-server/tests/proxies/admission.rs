//! As many requests pass as the limit says, by the clock of the store, under load and whatever clients claim.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_testkit::servers::{GUARD, Permit};

use crate::proxies::client::Client;
use crate::proxies::proxy::{Fail, Kind};
use crate::proxies::running::{Tidegate, Upstream};

/// The bucket takes half a minute to fill: nothing of it is lost while a machine under load holds the clients up.
const BURST: u64 = 300;
const PER_SECOND: u64 = 10;
const POLICY: &str = r#"
[rules.clients]
limit = "10/s burst 300"
match = { path = { prefix = "/limited" } }
key = ["ip", "method", "scheme", "host"]
"#;

const CLIENTS: u64 = 6;
/// The clients share an address of loopback that is not the proxy's.
const ADDRESS: &str = "127.0.9.1";

/// What one client has seen. Times are from the beginning of all.
#[derive(Debug)]
struct Seen {
    passed: u64,
    refused: u64,
    first_answer: Duration,
    last_answer: Duration,
    /// When the last request that was refused was sent.
    last_refused: Duration,
}

/// Headers by which a client would have another address, or have asked for something that is not limited.
fn forged(number: u64) -> String {
    let address = format!("198.51.{}.{}", number / 250 % 250, number % 250);
    let addresses = format!("x-forwarded-for: {address}\r\nx-real-ip: {address}\r\nforwarded: for={address}\r\n");
    let urls = "x-forwarded-uri: /free\r\nx-original-uri: /free\r\nx-original-url: http://free.example/free\r\n";
    let others = "x-forwarded-host: free.example\r\nx-forwarded-method: PUT\r\nx-original-method: PUT\r\n\
                  x-forwarded-proto: https\r\nauthorization: Bearer guess\r\norigin: http://evil.example\r\n\
                  sec-fetch-site: cross-site\r\naccept: application/json\r\n";
    format!("{addresses}x-forwarded-for: {address}\r\n{urls}{others}")
}

fn ask(port: u16, began: Instant, time: Duration, refusals: &AtomicU64, number: u64) -> Seen {
    let mut client = Client::open(port, ADDRESS);
    let zero = Duration::ZERO;
    let mut seen = Seen { passed: 0, refused: 0, first_answer: zero, last_answer: zero, last_refused: zero };
    for turn in 0.. {
        let sent = began.elapsed();
        // However slow the machine is, the burst is used up.
        if sent > time && refusals.load(Ordering::SeqCst) > 100 {
            break;
        }
        assert!(sent < GUARD, "the limit is never used up");
        let answer = client.get("/limited/x?cost=0", &forged(turn * CLIENTS + number));
        seen.last_answer = began.elapsed();
        if turn == 0 {
            seen.first_answer = seen.last_answer;
        }
        match answer.status {
            200 => seen.passed += 1,
            429 => {
                let retry_after: u64 = answer.headers["retry-after"].parse().unwrap();
                assert!(retry_after >= 1, "{answer:?}");
                (seen.refused, seen.last_refused) = (seen.refused + 1, sent);
                refusals.fetch_add(1, Ordering::SeqCst);
            }
            _ => panic!("{answer:?}"),
        }
    }
    seen
}

fn admits_what_the_limit_says(kind: Kind, time: Duration) {
    let _permit = Permit::wait(2);
    let (tidegate, upstream) = (Tidegate::start(POLICY), Upstream::start());
    let proxy = kind.start(&tidegate, &upstream, Fail::Closed);
    let (refusals, began) = (AtomicU64::new(0), Instant::now());
    let seen: Vec<Seen> = thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| {
            scope.spawn({
                let refusals = &refusals;
                move || ask(proxy.port, began, time, refusals, number)
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let [passed, refused] = [seen.iter().map(|it| it.passed).sum(), seen.iter().map(|it| it.refused).sum::<u64>()];
    let last_answer = seen.iter().map(|it| it.last_answer).max().unwrap();
    let first_answer = seen.iter().map(|it| it.first_answer).min().unwrap();
    let last_refused = seen.iter().map(|it| it.last_refused).max().unwrap();

    // In millionths of a request. All were decided between the beginning and the last answer.
    let fits = |time: Duration| u128::from(BURST) * 1_000_000 + u128::from(PER_SECOND) * time.as_micros();
    let given = u128::from(passed) * 1_000_000;
    assert!(given <= fits(last_answer), "{kind:?} let {passed} pass in {last_answer:?}");
    // And when the last one was refused, less than one request was left of what had come since the first was decided.
    let least = last_refused.saturating_sub(first_answer);
    assert!(given + 1_000_000 > fits(least), "{kind:?} let only {passed} pass in {least:?}");

    // The application, the server and the clients count the same.
    assert_eq!(upstream.served(), passed);
    assert_eq!(["allowed", "refused"].map(|outcome| tidegate.counted("clients", outcome)), [passed, refused]);
    // All of it was charged to what was really asked for.
    let asked = r#""method": "GET", "scheme": "http", "host": "localhost", "path": "/limited/x""#;
    let peeked = tidegate.ask("/v1/peek", &format!(r#"{{"attributes": {{"ip": "{ADDRESS}", {asked}}}}}"#));
    let peeked: serde_json::Value = serde_json::from_str(&peeked).unwrap();
    assert_eq!(peeked["limit"], BURST);
    assert!(peeked["remaining"].as_u64().unwrap() < BURST, "{peeked}");
}

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn nginx_admits_what_the_limit_says() {
    admits_what_the_limit_says(Kind::Nginx, SHORT);
}

#[test]
fn haproxy_admits_what_the_limit_says() {
    admits_what_the_limit_says(Kind::HaProxy, SHORT);
}

#[test]
fn traefik_admits_what_the_limit_says() {
    admits_what_the_limit_says(Kind::Traefik, SHORT);
}

#[test]
fn caddy_admits_what_the_limit_says() {
    admits_what_the_limit_says(Kind::Caddy, SHORT);
}

#[test]
#[ignore = "20 s for each proxy"]
fn all_admit_what_the_limit_says_for_long() {
    for kind in [Kind::Nginx, Kind::HaProxy, Kind::Traefik, Kind::Caddy] {
        admits_what_the_limit_says(kind, LONG);
    }
}
