//! Reservations over HTTP and RESP: the library's answers, on both stores.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::{Amounts, CheckError, Decision, Limiter, ManualClock, Request};
use tidegate_redis::{RedisStore, Servers};
use tidegate_server::{AnyStore, Server, Settings};
use tidegate_testkit::servers::{self, GUARD, Reply};

use crate::server::client::{Connection, curl, post};
use crate::server::running::{Folder, Running};
use crate::server::same_as_library::{settings, store};

const POLICY: &str = "
[rules.tokens]
limit = 'sliding-log 1000/d debt 500'
key = ['user']
unit = 'tokens'
default_amount = 50
[rules.spend]
limit = '10000/d'
key = ['user']
[rules.chats]
limit = 'in-flight 2 for 60s'
key = ['user']
";

/// What is asked, of whom and with which id.
#[derive(Clone, Copy, Default)]
struct Step {
    call: &'static str,
    user: &'static str,
    id: Option<&'static str>,
    cost: Option<u64>,
    tokens: Option<u64>,
    ttl_ms: Option<u64>,
    /// How long before it nothing happens.
    after: Duration,
}

const fn step(call: &'static str, user: &'static str, id: &'static str) -> Step {
    Step { call, user, id: Some(id), cost: None, tokens: None, ttl_ms: None, after: Duration::ZERO }
}

impl Step {
    const fn cost(self, cost: u64) -> Step {
        Step { cost: Some(cost), ..self }
    }

    const fn tokens(self, tokens: u64) -> Step {
        Step { tokens: Some(tokens), ..self }
    }

    const fn ttl_ms(self, ttl_ms: u64) -> Step {
        Step { ttl_ms: Some(ttl_ms), ..self }
    }

    const fn without_id(self) -> Step {
        Step { id: None, ..self }
    }

    const fn after(self, seconds: u64) -> Step {
        Step { after: Duration::from_secs(seconds), ..self }
    }

    fn body(&self) -> String {
        let mut body = json!({ "attributes": { "user": self.user }, "id": self.id });
        let mut set = |name: &str, value: Option<Value>| {
            value.map(|value| body.as_object_mut().unwrap().insert(name.to_owned(), value))
        };
        set("cost", self.cost.map(Value::from));
        set("ttl_ms", self.ttl_ms.map(Value::from));
        set("amounts", self.tokens.map(|tokens| json!({ "tokens": tokens })));
        body.to_string()
    }

    fn command(&self) -> String {
        let option =
            |name: &str, value: Option<String>| value.map_or(String::new(), |value| format!(" {name} {value}"));
        let number = |value: Option<u64>| value.map(|number| number.to_string());
        let cost = option("COST", number(self.cost));
        let (id, ttl) = (option("ID", self.id.map(str::to_owned)), option("TTL", number(self.ttl_ms)));
        let tokens = option("AMOUNT tokens", number(self.tokens));
        format!("TIDEGATE.{} user {}{id}{cost}{tokens}{ttl}", self.call.to_uppercase(), self.user)
    }

    fn of_library(&self, limiter: &Limiter) -> Value {
        let mut request = Request::user(self.user);
        if let Some(id) = self.id {
            request = request.id(id);
        }
        if let Some(ttl) = self.ttl_ms {
            request = request.lasts(Duration::from_millis(ttl));
        }
        let whole = || {
            let request = request.clone().cost(self.cost.unwrap_or(1));
            self.tokens.iter().fold(request, |request, tokens| request.amount("tokens", *tokens))
        };
        let decided = match self.call {
            "check" => limiter.check(whole()),
            "peek" => limiter.peek(whole()),
            "report" => limiter.report(whole()),
            "reserve" => limiter.reserve(whole()).map(|outcome| {
                let decision = outcome.decision().clone();
                if let Some(reservation) = outcome.made() {
                    reservation.leave_open();
                }
                decision
            }),
            "settle" => {
                let actual = self.cost.map_or_else(Amounts::new, Amounts::from);
                limiter.settle(request, self.tokens.iter().fold(actual, |all, tokens| all.amount("tokens", *tokens)))
            }
            "renew" => limiter.renew(whole()),
            "release" => limiter.release(whole()),
            other => panic!("{other}"),
        };
        said(decided)
    }
}

/// Each step, in an order in which every outcome comes about.
const STEPS: &[Step] = &[
    step("reserve", "alice", "a-1").cost(5).tokens(400),
    step("reserve", "alice", "a-1").cost(5).tokens(400),
    step("settle", "alice", "a-1").tokens(100),
    step("settle", "alice", "a-1").tokens(900).cost(1),
    step("release", "alice", "a-1"),
    step("peek", "alice", "").without_id().tokens(901),
    step("check", "alice", "a-2").tokens(100),
    step("settle", "alice", "a-2").tokens(150).cost(30),
    step("reserve", "alice", "a-3").tokens(300),
    step("settle", "alice", "a-3").tokens(1_100).cost(9),
    step("reserve", "alice", "a-4").tokens(1),
    step("reserve", "dave", "d-1").tokens(300),
    step("settle", "dave", "d-1").tokens(5_000),
    step("report", "erin", "").without_id().tokens(1_600),
    step("reserve", "erin", "e-1").tokens(1_001),
    step("reserve", "bob", "b-1"),
    step("reserve", "bob", "b-2").cost(7),
    step("reserve", "bob", "b-2").cost(8),
    step("reserve", "bob", "b-3"),
    step("release", "bob", "b-1"),
    step("reserve", "bob", "b-3"),
    step("release", "bob", "b-1"),
    step("settle", "bob", "none").tokens(1),
    step("renew", "bob", "none"),
    step("release", "bob", "none"),
    step("settle", "carol", "b-2"),
    step("reserve", "carol", "c-1").ttl_ms(45_000),
    step("renew", "bob", "b-2"),
    // From here on time passes.
    step("renew", "bob", "b-2").after(40),
    step("settle", "carol", "c-1").after(4),
    step("reserve", "carol", "c-1").ttl_ms(45_000),
    step("settle", "carol", "c-1").tokens(2).after(46),
    step("renew", "bob", "b-3"),
    step("renew", "bob", "b-2"),
    step("settle", "bob", "b-2").tokens(0).cost(0),
];

fn said(decided: Result<Decision, CheckError>) -> Value {
    let micros = |time: Duration| time.as_micros() as u64;
    match decided {
        Err(error) => json!({ "error": error.reason() }),
        Ok(decision) => {
            let mut json = json!({
                "allowed": decision.is_allowed(),
                "rule": decision.rule().as_str(),
                "limit": decision.capacity(),
                "remaining": decision.remaining(),
                "retry_after_us": decision.retry_after().map(micros),
                "reset_after_us": decision.reset_after().map(micros),
                "delay_us": micros(decision.delay()),
                "degraded": decision.is_degraded(),
            });
            if decision.unrecorded() > 0 {
                json["unrecorded"] = decision.unrecorded().into();
            }
            json
        }
    }
}

fn over_http(connection: &mut Connection, step: &Step) -> Value {
    let answer = connection.post(&format!("/v1/{}", step.call), &step.body()).unwrap();
    let mut json = answer.json();
    let kind = json["type"].as_str().and_then(|kind| kind.rsplit([':', '#']).next()).unwrap_or_default().to_owned();
    let expected = match (json.get("allowed").and_then(Value::as_bool), step.call, &*kind) {
        (Some(false), "reserve" | "check", "quota-exceeded") => 429,
        (Some(false), "renew", "expired") => 409,
        (Some(_), _, "") => 200,
        (None, _, "not-reserved") => 404,
        (None, _, "unsatisfiable" | "id-reused") => 422,
        other => panic!("{other:?}: {answer:?}"),
    };
    assert_eq!(answer.status, expected, "{answer:?}");
    assert!(expected != 409 || answer.header("retry-after").is_none(), "no wait helps: {answer:?}");
    if json.get("allowed").is_none() {
        return json!({ "error": kind });
    }
    let fields = json.as_object_mut().unwrap();
    fields.retain(|field, _| !["type", "title", "status", "violated-policies"].contains(&field.as_str()));
    json
}

fn over_resp(connection: &mut servers::Connection, step: &Step) -> Value {
    let command = step.command();
    let words: Vec<&str> = command.split(' ').collect();
    match connection.command(&words).unwrap() {
        Reply::Error(words) => {
            let code = words.split(' ').next().unwrap();
            let reasons = ["not-reserved", "unsatisfiable", "id-reused"];
            let reason = reasons.into_iter().find(|reason| reason.replace('-', "").to_uppercase() == code);
            json!({ "error": reason.unwrap_or_else(|| panic!("{words}")) })
        }
        Reply::Array(items) => {
            let pairs = items.chunks(2).map(|pair| {
                let value = match (&*pair[0].text(), &pair[1]) {
                    ("allowed" | "degraded", Reply::Integer(number)) => Value::from(*number == 1),
                    (_, Reply::Integer(number)) => Value::from(*number),
                    (_, Reply::Nil) => Value::Null,
                    (_, text) => Value::from(text.text()),
                };
                (pair[0].text(), value)
            });
            Value::Object(pairs.collect::<Map<String, Value>>())
        }
        other => panic!("{other:?}"),
    }
}

/// A server of both protocols by the policy.
async fn start(folder: &Folder, store: impl Into<AnyStore>) -> (Server, String, SocketAddr) {
    let policy = Some(folder.write("policy.toml", POLICY).into());
    let resp = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(Settings { policy, resp, ..settings() }, store).await.unwrap();
    let (http, resp) = (server.http_socket().unwrap().to_string(), server.resp_socket().unwrap());
    (server, http, resp)
}

fn library(clock: &ManualClock) -> Limiter {
    let policy = tidegate_config::parse(POLICY, tidegate_config::Format::Toml, "policy.toml".as_ref()).unwrap();
    Limiter::with_store(policy, store(clock)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_a_reservation_is_answered_as_by_the_library() {
    let (folder, clock) = (Folder::new(), ManualClock::default());
    clock.advance(Duration::from_secs(1_800_000_000));
    let limiter = library(&clock);
    let (by_http, http, _) = start(&folder, store(&clock)).await;
    let (by_resp, _, resp) = start(&folder, store(&clock)).await;
    let compared = tokio::task::spawn_blocking(move || {
        let (mut http, mut resp) = (Connection::open(&http), servers::Connection::open(resp).unwrap());
        let mut outcomes: Vec<String> = Vec::new();
        for (number, step) in STEPS.iter().enumerate() {
            clock.advance(step.after);
            let expected = step.of_library(&limiter);
            let what = format!("{number}: {}", step.command());
            assert_eq!(over_http(&mut http, step), expected, "HTTP {what}");
            assert_eq!(over_resp(&mut resp, step), expected, "RESP {what}");
            let told = ["allowed", "error", "unrecorded"].map(|field| expected[field].to_string());
            outcomes.push(format!("{} {}", step.call, told.join(" ")));
        }
        for outcome in [
            "reserve true null null",
            "reserve false null null",
            "reserve null \"unsatisfiable\" null",
            "reserve null \"id-reused\" null",
            "settle true null null",
            "settle true null 3500",
            "settle null \"not-reserved\" null",
            "renew true null null",
            "renew false null null",
            "renew null \"not-reserved\" null",
            "release true null null",
            "release null \"not-reserved\" null",
        ] {
            assert!(outcomes.iter().any(|found| found == outcome), "{outcome} does not come about: {outcomes:#?}");
        }
    });
    compared.await.unwrap();
    assert!(by_http.drain().await && by_resp.drain().await);
}

/// By the time of Redis, so that only what does not depend on it is compared.
#[tokio::test(flavor = "multi_thread")]
async fn reservations_on_redis_are_those_of_the_library() {
    let folder = Folder::new();
    let limiter = library(&ManualClock::default());
    let redis = tokio::task::spawn_blocking(servers::Server::start).await.unwrap();
    let on_redis = |prefix: &str| {
        let servers = Servers::parse(&redis.url()).unwrap();
        RedisStore::builder(servers).prefix(prefix).deadline(GUARD).build().unwrap()
    };
    let (by_http, http, _) = start(&folder, on_redis("http")).await;
    let (by_resp, _, resp) = start(&folder, on_redis("resp")).await;
    let compared = tokio::task::spawn_blocking(move || {
        let (mut http, mut resp) = (Connection::open(&http), servers::Connection::open(resp).unwrap());
        let timeless = |said: Value| {
            ["allowed", "error", "unrecorded", "rule", "limit", "remaining"].map(|field| said[field].clone())
        };
        for step in STEPS.iter().take_while(|step| step.after.is_zero()) {
            let expected = timeless(step.of_library(&limiter));
            assert_eq!(timeless(over_http(&mut http, step)), expected, "HTTP {}", step.command());
            assert_eq!(timeless(over_resp(&mut resp, step)), expected, "RESP {}", step.command());
        }
    });
    compared.await.unwrap();
    assert!(by_http.drain().await && by_resp.drain().await);
}

#[test]
fn a_batch_of_reservations_is_answered_each_for_itself() {
    let server = Running::start(&[]);
    let batch = |call: &str, ids: &[&str]| {
        let all: Vec<Value> =
            ids.iter().map(|id| json!({ "key": "alice", "limit": "in-flight 2 for 60s", "id": id })).collect();
        let answer = post(&server.url(&format!("/v1/{call}")), &Value::from(all).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        json.as_array().unwrap().iter().map(|item| item["status"].as_u64().unwrap_or(200)).collect::<Vec<u64>>()
    };
    assert_eq!(batch("reserve", &["1", "2", "3", "1"]), [200, 200, 429, 200]);
    assert_eq!(batch("renew", &["1", "3"]), [200, 404]);
    assert_eq!(batch("settle", &["1", "3"]), [200, 404]);
    assert_eq!(batch("release", &["1", "2", "9"]), [200, 200, 404]);
    assert_eq!(batch("reserve", &["4", "5", "6"]), [200, 200, 429]);
    let mixed = r#"[{"key": "bob", "limit": "in-flight 2 for 60s", "id": "1"}, {"key": "bob", "limit": "1/h"}]"#;
    assert_eq!(post(&server.url("/v1/reserve"), mixed).status, 400);
    let peeked = post(&server.url("/v1/peek"), r#"{"key": "bob", "limit": "in-flight 2 for 60s"}"#);
    assert_eq!(peeked.json()["remaining"], 2, "nothing was decided");
    let metrics = curl(&[&server.url("/metrics")]).body;
    // The second settlement of the first is a repetition.
    for line in [
        "tidegate_reservations_total{step=\"reserved\"} 4\n",
        "tidegate_reservations_total{step=\"renewed\"} 1\n",
        "tidegate_reservations_total{step=\"settled\"} 1\n",
        "tidegate_reservations_total{step=\"released\"} 1\n",
        "tidegate_reservations_open 2\n",
        "tidegate_reservations_expired_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let picture = curl(&[&server.url("/admin/v1/live")]).json();
    let held = &picture["reservations"];
    assert_eq!((&held["open"], &held["oldest"][0]["key"]), (&2.into(), &"alice".into()), "{held}");
    assert_eq!((&held["oldest"][0]["id"], &held["oldest"][1]["id"]), (&"4".into(), &"5".into()), "{held}");
    assert!(metrics.contains("tidegate_repeated_decisions_total{rule=\"inline\"} 2\n"), "{metrics}");
}

#[test]
fn a_limit_on_requests_in_flight_is_told_without_a_window() {
    let server = Running::start(&[]);
    let body = r#"{"key": "alice", "limit": "in-flight 2 for 60s", "id": "1"}"#;
    let answer = post(&server.url("/v1/reserve"), body);
    assert_eq!(answer.header("ratelimit-policy"), Some(r#""inline";q=2;qu="concurrent-requests""#));
    assert!(answer.header("ratelimit").is_some_and(|field| field.starts_with(r#""inline";r=1"#)), "{answer:?}");
}
