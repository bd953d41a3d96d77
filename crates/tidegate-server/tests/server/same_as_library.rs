//! What the wire says is what the library says, on every recorded trace, and
//! in the words of the layer.

use std::convert::Infallible;
use std::fmt::Write;

use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use tidegate::{Algorithm, Limiter, ManualClock, MemoryStore, Micros};
use tidegate_server::{Server, Settings};
use tidegate_testkit::{Action, Answer, RECORDED, Step, Trace, block_on};
use tidegate_tower::{RateLimitLayer, by};
use tower::{ServiceExt, service_fn};

use crate::server::client::Connection;
use crate::server::running::Folder;

pub(crate) fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().unwrap()
}

/// Asks the same of a server and of a limiter, step by step.
async fn compare(name: &str, trace: &Trace, settings: Settings, inline: Option<String>) {
    let clock = ManualClock::default();
    let server = Server::start(settings, store(&clock)).await.unwrap();
    let address = server.http_socket().unwrap().to_string();
    let limiter = Limiter::with_store(trace.policy(), store(&clock)).unwrap();
    let (name, trace) = (name.to_owned(), trace.clone());
    let compared = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(&address);
        for step in trace.steps() {
            clock.set(Micros::new(trace.start().get().saturating_add(step.at.get())));
            for _ in 0..step.times.get() {
                let expected = Answer::of(step.ask(&limiter, Micros::ZERO)).unwrap();
                let found = over_http(&mut connection, step, inline.as_deref());
                assert_eq!(found, expected, "{name}: {step}");
            }
        }
    });
    compared.await.unwrap();
    assert!(server.drain().await);
}

fn over_http(connection: &mut Connection, step: &Step, limit: Option<&str>) -> Answer {
    let (path, cost) = match step.action {
        Action::Charge(cost) => ("/v1/check", cost),
        Action::Peek(cost) => ("/v1/peek", cost),
        Action::Report(cost) => ("/v1/report", cost),
        Action::Refund(cost) => ("/v1/refund", cost),
        Action::Reset => ("/v1/reset", 0),
        Action::Settle(..) | Action::Renew(_) => unreachable!("over a wire a charge is known by its id"),
    };
    let request = json!({ "key": key(step), "cost": cost, "limit": limit });
    let answer = connection.post(path, &request.to_string()).unwrap();
    let json = answer.json();
    let number = |field: &str| json[field].as_u64().unwrap();
    if answer.status == 422 {
        return Answer::Impossible;
    }
    assert_eq!(json["degraded"], Value::Bool(false));
    let reset_after = Some(Micros::new(number("reset_after_us")));
    let remaining = number("remaining");
    if json["allowed"] == true {
        assert_eq!(answer.status, 200);
        return Answer::Allow { remaining, delay: Micros::new(number("delay_us")), reset_after };
    }
    assert_eq!(answer.status, if step_is_charge(step) { 429 } else { 200 });
    Answer::Wait { retry_after: Micros::new(number("retry_after_us")), remaining: Some(remaining), reset_after }
}

/// The key of a step, which may be empty; that of a request may not.
fn key(step: &Step) -> String {
    format!("key {}", step.key)
}

fn step_is_charge(step: &Step) -> bool {
    matches!(step.action, Action::Charge(_))
}

pub(crate) fn settings() -> Settings {
    Settings { http: vec!["127.0.0.1:0".parse().unwrap()], drain_grace_ms: 0, ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_come_with_the_question_decide_as_the_library() {
    for recorded in RECORDED {
        let trace = recorded.trace().unwrap();
        let [limit] = trace.limits() else { continue };
        compare(recorded.name, &trace, settings(), Some(limit.to_string())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_policy_file_decide_as_the_library() {
    let folder = Folder::new();
    for recorded in RECORDED {
        let trace = recorded.trace().unwrap();
        let policy = Some(folder.write("policy.toml", &policy_of(&trace)).into());
        compare(recorded.name, &trace, Settings { policy, ..settings() }, None).await;
    }
}

pub(crate) fn policy_of(trace: &Trace) -> String {
    let mut text = String::new();
    for (number, limit) in trace.limits().iter().enumerate() {
        writeln!(text, "[rules.\"r{number}, \\\"é\\\"\"]\nlimit = \"{limit}\"").unwrap();
    }
    text
}

/// The two write their fields each for itself: a layer knows no server.
#[tokio::test(flavor = "multi_thread")]
async fn callers_are_told_of_limits_in_the_words_of_the_layer() {
    let folder = Folder::new();
    for recorded in RECORDED {
        let trace = recorded.trace().unwrap();
        if trace.limits().iter().any(|limit| limit.algorithm() == Algorithm::LeakyBucket) {
            continue; // The layer would wait until it is a request's turn.
        }
        let file = folder.write("policy.toml", &policy_of(&trace));
        let clock = ManualClock::default();
        let limiter = Limiter::with_store(tidegate_config::load(&file).unwrap(), store(&clock)).unwrap();
        let policy = Some(file.into());
        let server = Server::start(Settings { policy, ..settings() }, store(&clock)).await.unwrap();
        let address = server.http_socket().unwrap().to_string();
        let compared = tokio::task::spawn_blocking(move || {
            let mut connection = Connection::open(&address);
            for step in trace.steps() {
                clock.set(Micros::new(trace.start().get().saturating_add(step.at.get())));
                let Action::Charge(cost) = step.action else { continue };
                for _ in 0..step.times.get() {
                    let request = json!({ "key": key(step), "cost": cost });
                    let answer = connection.post("/v1/check", &request.to_string()).unwrap();
                    if answer.status != 422 {
                        let told = told_by(|name| answer.header(name).map(str::to_owned));
                        assert_eq!(told, told_by_the_layer(&limiter, step, cost), "{}: {step}", recorded.name);
                    }
                }
            }
        });
        compared.await.unwrap();
        assert!(server.drain().await);
    }
}

const FIELDS: [&str; 3] = ["ratelimit", "ratelimit-policy", "retry-after"];

fn told_by(field: impl Fn(&str) -> Option<String>) -> [Option<String>; 3] {
    FIELDS.map(field)
}

fn told_by_the_layer(limiter: &Limiter, step: &Step, cost: u64) -> [Option<String>; 3] {
    let layer = RateLimitLayer::new(limiter.clone()).key(by::extension(|key: &String| key.into())).cost(move |_| cost);
    let inner = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let request = Request::builder().extension(step.key.clone()).body(String::new()).unwrap();
    let response = block_on(tower::Layer::layer(&layer, inner).oneshot(request)).unwrap();
    let headers: &HeaderMap = response.headers();
    told_by(|name| Some(headers.get(name)?.to_str().unwrap().to_owned()))
}
