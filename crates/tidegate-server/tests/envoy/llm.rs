//! A model behind Envoy, as `docs/book/src/recipes/llm.md` shows it: Envoy reads the tokens of
//! each response, and tidegate counts them.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::Random;
use tidegate_testkit::servers::{Permit, eventually};

use crate::envoy::model::{Model, Reply};
use crate::envoy::running::{Process, Response, Tidegate, post, proxy, send, unused_port};

const ENVOY: &str = include_str!("../../../../deploy/envoy/llm.yaml");
const POLICY: &str = include_str!("../../../../deploy/envoy/llm.toml");

/// What the configuration charges for a response that tells no usage.
const UNTOLD: u64 = 50;

/// The tokens of each user.
const LIMIT: u64 = 1_000;

/// Envoy before a model, with a limit for each user.
struct Gateway {
    port: u16,
    tidegate: Tidegate,
    model: Model,
    _proxy: Process,
    _folder: TempDir,
    _permit: Permit,
}

impl Gateway {
    fn start() -> Gateway {
        let permit = Permit::wait(2);
        let folder = tempfile::tempdir().unwrap();
        // A window of ten years: none ends during the test.
        let policy = changed(POLICY, "sliding-log 100000/min", &format!("fixed {LIMIT}/3650day"));
        let file = folder.path().join("llm.toml");
        std::fs::write(&file, policy).unwrap();
        let tidegate = Tidegate::start(&["--policy", file.to_str().unwrap()]);
        let (port, model) = (unused_port(), Model::start());
        let ports = [(10000, port), (8000, model.port), (8081, tidegate.grpc)];
        let config = ports.iter().fold(ENVOY.to_owned(), |config, (shown, used)| {
            changed(&config, &format!("port_value: {shown} "), &format!("port_value: {used} "))
        });
        // A slow machine is not a server that is away, and without an answer no request may pass here.
        let config = changed(&config, "timeout: 0.25s", "timeout: 30s\n                      failure_mode_deny: true");
        let proxy = proxy(folder.path(), &config, port);
        Gateway { port, tidegate, model, _proxy: proxy, _folder: folder, _permit: permit }
    }

    fn call(&self, user: &str, reply: Reply) -> Response {
        post(self.port, "/v1/chat/completions", &headers(user), &reply.call())
    }

    /// Asks tidegate itself, without Envoy.
    fn ask(&self, verb: &str, user: &str, cost: u64) -> Value {
        let body = json!({"attributes": {"llm_user": user}, "cost": cost}).to_string();
        let answer = post(self.tidegate.http, &format!("/v1/{verb}"), "content-type: application/json\r\n", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    fn remaining(&self, user: &str) -> u64 {
        self.ask("peek", user, 0)["remaining"].as_u64().unwrap()
    }

    /// Waits until this is charged: Envoy reports a response after its end, and no request waits for that.
    fn wait_for_charged(&self, user: &str, charged: u64) {
        eventually("the tokens to be counted", || match self.remaining(user) {
            remaining if remaining == LIMIT - charged => Ok(()),
            remaining => Err(format!("{remaining} of {LIMIT} remain after {charged}")),
        });
    }
}

fn headers(user: &str) -> String {
    format!("x-user: {user}\r\ncontent-type: application/json\r\naccept-encoding: gzip\r\n")
}

/// Reads whole events of a response in chunks, and closes the connection.
fn read_events(stream: TcpStream, count: usize) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let mut body = String::new();
    while body.matches("\n\n").count() < count {
        let mut length = String::new();
        reader.read_line(&mut length).unwrap();
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        let mut chunk = vec![0; length + "\r\n".len()];
        reader.read_exact(&mut chunk).unwrap();
        body += str::from_utf8(&chunk[..length]).unwrap();
    }
}

/// A text in which one thing is another.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in {text}");
    text.replace(from, to)
}

#[test]
fn tokens_of_plain_and_streamed_responses_are_counted_to_the_token() {
    let gateway = Gateway::start();
    let replies = [
        Reply::Plain { tokens: 120 },
        Reply::Streamed { tokens: 233 },
        Reply::Plain { tokens: 1 },
        Reply::Counting { tokens: 97 },
        Reply::Plain { tokens: 0 },
        Reply::Error,
        Reply::Streamed { tokens: 1 },
    ];
    for reply in replies {
        let answer = gateway.call("ada", reply);
        assert_eq!(answer.status, if matches!(reply, Reply::Error) { 400 } else { 200 }, "{reply:?}: {answer:?}");
        gateway.wait_for_charged("ada", gateway.model.tokens("ada"));
    }
    assert_eq!(gateway.model.tokens("ada"), 452);
    assert_eq!(gateway.call("ada", Reply::Error).headers["x-ratelimit-remaining"], "548");

    // Into debt: what remains admits one more response, however long it is.
    assert_eq!(gateway.call("ada", Reply::Plain { tokens: 448 }).status, 200);
    gateway.wait_for_charged("ada", 900);
    assert_eq!(gateway.call("ada", Reply::Streamed { tokens: 777 }).status, 200);
    gateway.wait_for_charged("ada", LIMIT);
    let owed = gateway.model.tokens("ada") - LIMIT;
    assert_eq!(owed, 677);
    let calls = gateway.model.calls("ada");
    for reply in [Reply::Plain { tokens: 1 }, Reply::Streamed { tokens: 1 }, Reply::Silent] {
        let refused = gateway.call("ada", reply);
        assert_eq!((refused.status, refused.headers["x-ratelimit-remaining"].as_str()), (429, "0"), "{reply:?}");
    }
    assert_eq!(gateway.model.calls("ada"), calls, "a refused call does not reach the model");

    // The debt is exact: refused with all of it paid back, admitted with one token more.
    assert_eq!(gateway.ask("refund", "ada", owed)["remaining"], 0);
    assert_eq!(gateway.call("ada", Reply::Plain { tokens: 1 }).status, 429);
    assert_eq!(gateway.ask("refund", "ada", 1)["remaining"], 1);
    assert_eq!(gateway.call("ada", Reply::Plain { tokens: 1 }).status, 200);
    gateway.wait_for_charged("ada", LIMIT);
    assert_eq!(gateway.call("ada", Reply::Plain { tokens: 1 }).status, 429);
    assert_eq!(gateway.remaining("bob"), LIMIT, "other users have limits of their own");
}

#[test]
fn tokens_of_responses_at_the_same_time_are_counted_to_the_token() {
    const CLIENTS: u64 = 6;
    let gateway = Gateway::start();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut random = Random::new(client);
                for _ in 0..10 {
                    let tokens = random.within(1..=15);
                    let replies = [Reply::Plain { tokens }, Reply::Streamed { tokens }, Reply::Counting { tokens }];
                    let reply = random.choose(&replies);
                    let answer = gateway.call("ada", reply);
                    assert_eq!(answer.status, 200, "{reply:?}: {answer:?}");
                }
            });
        }
    });
    assert_eq!(gateway.model.calls("ada"), 10 * CLIENTS);
    gateway.wait_for_charged("ada", gateway.model.tokens("ada"));
}

#[test]
fn responses_without_usage_are_charged_the_fallback() {
    let gateway = Gateway::start();
    for (reply, charged) in [(Reply::Silent, UNTOLD), (Reply::Text, 2 * UNTOLD)] {
        assert_eq!(gateway.call("ada", reply).status, 200, "{reply:?}");
        gateway.wait_for_charged("ada", charged);
    }

    // A client that closes its connection is charged what the model has told so far.
    for (reply, user, charged) in [(Reply::SilentEndless, "bob", UNTOLD), (Reply::Endless, "eve", 7)] {
        let stream = send(gateway.port, "POST", "/v1/chat/completions", &headers(user), &reply.call());
        read_events(stream, 2);
        gateway.wait_for_charged(user, charged);
    }
}

#[test]
fn the_configuration_of_the_document_is_that_of_these_tests() {
    let document = include_str!("../../../../docs/book/src/recipes/llm.md");
    let tested: Vec<&str> = ENVOY.lines().map(str::trim).collect();
    let shown: Vec<&str> =
        document.split("```yaml\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap().lines()).collect();
    assert!(shown.len() > 20, "{shown:?}");
    let other: Vec<&&str> = shown.iter().filter(|line| !tested.contains(&line.trim())).collect();
    assert!(other.is_empty(), "{other:?}");
    assert!(ENVOY.contains(&format!("value: {{ tokens: {UNTOLD} }}")));
}
