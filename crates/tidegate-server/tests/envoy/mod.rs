//! The binary as others see it: grpcio, and a real Envoy with clients of its own.
//!
//! `cargo xtask install` gets both.

mod llm;
mod model;
mod quota;
mod running;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use tidegate_testkit::servers::{Permit, eventually};

use crate::envoy::running::{Process, Tidegate, get, proxy, python, unused_port};

/// Counted for a year, so that no window ends during the test.
const LIMITS: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: tokens, rate_limit: { unit: year, requests_per_unit: 1000 } }
";

/// Answers every request, and says that it has spent the tokens that it was sent.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            thread::spawn(move || {
                let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let mut head = head.take_while(|line| !line.is_empty());
                let tokens = head.find_map(|line| Some(line.to_lowercase().strip_prefix("x-tokens: ")?.to_owned()));
                head.for_each(drop);
                let tokens = tokens.map(|tokens| format!("x-tokens: {tokens}\r\n")).unwrap_or_default();
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n{tokens}content-length: 3\r\nconnection: close\r\n\r\nup\n");
            });
        }
    });
    port
}

/// A server with the limits in a file of the folder.
fn tidegate(folder: &Path, flags: &[&str]) -> Tidegate {
    let file = folder.join("edge.yaml");
    fs::write(&file, LIMITS).unwrap();
    Tidegate::start(&[&["--envoy-config", file.to_str().unwrap()], flags].concat())
}

/// Envoy between its clients and the upstream, until it answers.
fn limited(folder: &Path, tidegate: u16, deny: bool) -> (Process, u16) {
    let port = unused_port();
    let config = include_str!("../support/envoy.yaml")
        .replace("LISTENER_PORT", &port.to_string())
        .replace("FAILURE_MODE", &deny.to_string())
        .replace("UPSTREAM_PORT", &upstream().to_string())
        .replace("TIDEGATE_PORT", &tidegate.to_string());
    (proxy(folder, &config, port), port)
}

fn through_envoy(deny: bool) {
    let _permit = Permit::wait(2);
    let folder = tempfile::tempdir().unwrap();
    let mut server = tidegate(folder.path(), &["--envoy-headers", "draft-8", "--envoy-problem"]);
    let (_proxy, port) = limited(folder.path(), server.grpc, deny);
    let alice = "x-user: alice\r\n";
    for left in [2, 1, 0] {
        let passed = get(port, "/", alice);
        assert_eq!((passed.status, passed.body.as_str()), (200, "up\n"));
        assert_eq!(passed.headers["x-ratelimit-remaining"], left.to_string());
        assert!(passed.headers["ratelimit"].starts_with(&format!("\"edge.user\";r={left};t=")), "{:?}", passed.headers);
    }
    let refused = get(port, "/", alice);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["x-envoy-ratelimited"], "true");
    assert_eq!(refused.headers["x-ratelimit-limit"], "3, 3;w=31536000");
    assert_eq!(refused.headers["ratelimit-policy"], "\"edge.user\";q=3;w=31536000");
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    assert!(refused.body.contains("\"violated-policies\":[\"edge.user\"]"), "{}", refused.body);

    assert_eq!(get(port, "/", "x-user: bob\r\n").status, 200, "bob has a limit of his own");
    assert_eq!(get(port, "/", "").status, 200, "no descriptor, no limit");
    let cost = |cost: u32| get(port, "/cost", &format!("x-user: carol\r\nx-cost: {cost}\r\n")).status;
    assert_eq!(cost(4), 429, "more than the limit holds is refused, in either mode");
    assert_eq!((cost(2), cost(2), cost(1), cost(0)), (200, 429, 200, 429));

    // What a response has cost is told when it has ended, and no request waits for that.
    let spend = |tokens: u32| get(port, "/tokens", &format!("x-user: dave\r\nx-tokens: {tokens}\r\n"));
    let left = || match spend(0) {
        answer if answer.status == 200 => answer.headers["x-ratelimit-remaining"].parse::<u32>().unwrap(),
        _ => 0,
    };
    for (tokens, expected) in [(700, 300), (100, 200), (1_200, 0)] {
        assert_eq!(spend(tokens).status, 200, "some are left");
        eventually("the tokens to be counted", || match left() {
            left if left == expected => Ok(()),
            left => Err(left),
        });
    }
    assert_eq!(spend(1).status, 429, "a thousand are owed");

    // Another limit, from the moment that the server is told of it.
    fs::write(folder.path().join("edge.yaml"), LIMITS.replace("requests_per_unit: 3", "requests_per_unit: 5")).unwrap();
    let told = Command::new("kill").args(["-HUP", &server.process.id().to_string()]).status().unwrap();
    assert!(told.success());
    eventually("a limit with room for alice", || match get(port, "/cost", "x-user: alice\r\nx-cost: 0\r\n").status {
        200 => Ok(()),
        status => Err(status),
    });
    let more = [get(port, "/", alice), get(port, "/", alice), get(port, "/", alice)].map(|answer| answer.status);
    assert_eq!(more, [200, 200, 429], "what she had used stays used");

    server.process.kill();
    let without = get(port, "/", alice).status;
    assert_eq!(without, if deny { 500 } else { 200 }, "the service is dead");
}

#[test]
fn envoy_refuses_what_the_service_refuses_and_passes_all_without_it() {
    through_envoy(false);
}

#[test]
fn envoy_refuses_what_the_service_refuses_and_passes_nothing_without_it() {
    through_envoy(true);
}

#[test]
fn grpcio_finds_health_reflection_and_the_right_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = tidegate(folder.path(), &["--grpc-reflection"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/grpcio_client.py");
    let seen = Command::new(python()).arg(script).arg(format!("127.0.0.1:{}", server.grpc)).output().unwrap();
    let said = [seen.stdout, seen.stderr].concat();
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_filter_of_the_document_is_that_of_these_tests() {
    let document = include_str!("../../../../docs/book/src/reference/envoy.md");
    let shown = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let tested: Vec<&str> = include_str!("../support/envoy.yaml").lines().map(str::trim).collect();
    assert!(shown.lines().all(|line| tested.contains(&line.trim())), "{shown}");
}
