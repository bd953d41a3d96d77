//! Envoy's rate limit service over the wire, on a clock that stands still: what
//! it answers is what the library says.

mod access;
mod addresses;
mod drain;
mod half_way;
mod hostile;
mod inline;
mod quota;
mod reference;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::client;
use crate::support::client::{Client, http, request};
use crate::support::messages::rate_limit_response::{Code as Limit, DescriptorStatus, rate_limit::Unit as WireUnit};
use crate::support::messages::{RateLimitRequest, RateLimitResponse};
use prost::Message;
use prost_types::value::Kind;
use tidegate::{Decision, Limiter, ManualClock, MemoryStore, Micros, Request};
use tidegate_config::Format;
use tidegate_config::envoy::{self, Descriptor, EnvoyLimiter, Hits, Unit};
use tidegate_server::{HeaderStyle, OnFailure, Server, Settings};
use tidegate_testkit::Random;
use tidegate_testkit::servers::GUARD;
use tonic::Code;

const POLICY: &str = r#"
[rules.user]
limit = "5/min burst 4"
key = ["user"]
missing = "skip"
match.domain = "edge"

[rules.path]
limit = "sliding-log 7/10s"
key = ["domain", "path"]
missing = "skip"

[rules.blocked]
limit = "blocked"
match.user = "mallory"
"#;

const FILE: &str = "
domain: files
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 3, name: per_user }, metadata: { tier: free } }
  - { key: path, value: /a*, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: blocked, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: watched, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
";

struct Running {
    server: Server,
    client: Client,
    clock: ManualClock,
    folder: tempfile::TempDir,
}

async fn start(change: impl FnOnce(&mut Settings)) -> Running {
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    start_on(store, clock, change).await
}

async fn start_on(
    store: impl Into<tidegate_server::AnyStore>,
    clock: ManualClock,
    change: impl FnOnce(&mut Settings),
) -> Running {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.toml"), POLICY).unwrap();
    fs::create_dir(folder.path().join("config")).unwrap();
    fs::write(folder.path().join("config/files.yaml"), FILE).unwrap();
    let mut settings = Settings {
        http: vec!["127.0.0.1:0".parse().unwrap()],
        grpc: vec!["127.0.0.1:0".parse().unwrap()],
        policy: Some(folder.path().join("policy.toml")),
        envoy_config: vec![folder.path().join("config")],
        drain_grace_ms: 200,
        drain_seconds: GUARD.as_secs(),
        body_seconds: GUARD.as_secs(),
        ..Settings::default()
    };
    change(&mut settings);
    let server = Server::start(settings, store).await.unwrap();
    let client = Client::connect(server.grpc_socket().unwrap()).await;
    Running { server, client, clock, folder }
}

impl Running {
    async fn ask(&mut self, domain: &str, descriptors: &[&str]) -> RateLimitResponse {
        self.client.ask(request(domain, descriptors)).await.unwrap()
    }

    /// Whether it passes, and what is left to each descriptor.
    async fn left(&mut self, domain: &str, descriptors: &[&str]) -> (bool, Vec<u32>) {
        let response = self.ask(domain, descriptors).await;
        let left = response.statuses.iter().map(|status| status.limit_remaining).collect();
        (response.overall_code() == Limit::Ok, left)
    }
}

fn until_reset(status: &DescriptorStatus) -> Option<Duration> {
    status.duration_until_reset.map(|duration| Duration::try_from(duration).unwrap())
}

/// In whole seconds, rounded up.
fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_nanos().div_ceil(1_000_000_000) as u64)
}

#[tokio::test]
async fn the_policy_decides_as_in_the_library() {
    let mut running = start(|_| {}).await;
    let policy = tidegate_config::parse(POLICY, Format::Toml, "policy.toml".as_ref()).unwrap();
    let store = MemoryStore::builder().clock(running.clock.clone()).build().unwrap();
    let library = Limiter::with_store(policy, store).unwrap();
    let mut random = Random::new(3);
    let mut now = 1_700_000_000_000_000;
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..800 {
        now += random.within(0..=1_500_000);
        running.clock.set(Micros::new(now));
        let domain = random.choose(&["edge", "other"]);
        let (user, path) = (random.choose(&["alice", "bob", "mallory"]), random.choose(&["/a", "/b"]));
        let hits = random.choose(&["", " +1", " +2", " ?", " -1", " +5", " +100", " !2"]);
        let with_path = random.percent(60);
        let text = if with_path { format!("user={user} path={path}{hits}") } else { format!("user={user}{hits}") };
        let response = running.ask(domain, &[&text]).await;
        let mut asked = Request::new("unused").with("user", user).with("domain", domain);
        if with_path {
            asked = asked.with("path", path);
        }
        let decided = match hits {
            " ?" => library.peek(asked),
            " -1" => library.refund(asked).map(Decision::from),
            " !2" => library.report(asked.cost(2)),
            " +2" => library.check(asked.cost(2)),
            " +5" => library.check(asked.cost(5)),
            " +100" => library.check(asked.cost(100)),
            _ => library.check(asked),
        };
        let [status] = &response.statuses[..] else { panic!("one status") };
        match decided {
            Ok(decision) => {
                let is_final = matches!(hits, " -1" | " !2");
                same(&response, status, &decision, is_final, &format!("step {step}: {text}"));
            }
            Err(_) => {
                assert_eq!(status.code(), Limit::OverLimit, "step {step}: what cannot pass is refused, not an error");
                assert_eq!(until_reset(status), None, "step {step}: no waiting helps");
            }
        }
        if response.overall_code() == Limit::Ok { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 150 && refused > 150, "{allowed} allowed, {refused} refused");
    assert!(running.server.drain().await);
}

fn same(response: &RateLimitResponse, status: &DescriptorStatus, decision: &Decision, is_final: bool, step: &str) {
    let passes = decision.is_allowed() || is_final;
    assert_eq!(status.code() == Limit::Ok, passes, "{step}");
    assert_eq!(response.overall_code(), status.code(), "{step}");
    if decision.is_unlimited() {
        assert_eq!(status.current_limit, None, "{step}");
        return;
    }
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.name.as_str(), u64::from(limit.requests_per_unit)),
        (decision.rule().as_str(), decision.capacity().expect("a limit"))
    );
    assert_eq!(Some(u64::from(status.limit_remaining)), decision.remaining(), "{step}");
    let expected = if passes { decision.reset_after() } else { decision.retry_after() };
    assert_eq!(until_reset(status), expected.map(whole), "{step}");
}

#[tokio::test]
async fn files_decide_as_in_the_library() {
    let mut running = start(|_| {}).await;
    let store = MemoryStore::builder().clock(running.clock.clone()).build().unwrap();
    let library = EnvoyLimiter::new(envoy::parse(FILE, Path::new("files.yaml")).unwrap(), store);
    let mut random = Random::new(4);
    let mut now = 1_700_000_000_000_000;
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..800 {
        now += random.within(0..=2_000_000);
        running.clock.set(Micros::new(now));
        let texts: Vec<String> = (0..random.within(1..=3))
            .map(|_| {
                let entries = random.choose(&[
                    "user=alice",
                    "user=bob",
                    "path=/a",
                    "path=/ab",
                    "blocked=x",
                    "free=x",
                    "watched=x",
                    "what=x",
                    "user=alice path=/a",
                ]);
                format!("{entries}{}", random.choose(&["", "", " +2", " ?", " -1", " +9", " !2"]))
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let response = running.ask("files", &texts).await;
        let parsed: Vec<(Vec<(&str, &str)>, Hits)> = texts.iter().map(|text| client::parse(text)).collect();
        let asked: Vec<_> = parsed.iter().map(|(entries, hits)| Descriptor::new(entries).hits(*hits)).collect();
        let answer = library.decide_async("files", &asked).await.unwrap().unwrap();
        assert_eq!(response.overall_code() == Limit::Ok, answer.allowed, "step {step}: {texts:?}");
        assert_eq!(response.statuses.len(), answer.statuses.len());
        for (status, expected) in response.statuses.iter().zip(&answer.statuses) {
            assert_eq!(status.code() == Limit::Ok, expected.allowed, "step {step}: {texts:?}");
            match expected.setting {
                None => assert_eq!((status.current_limit.as_ref(), status.limit_remaining), (None, 0)),
                Some(tidegate::Setting::Unlimited) => {
                    assert_eq!((status.current_limit.as_ref(), status.limit_remaining), (None, u32::MAX));
                }
                Some(setting @ (tidegate::Setting::Blocked | tidegate::Setting::Limit(_))) => {
                    let count = if let tidegate::Setting::Limit(limit) = setting { limit.count() } else { 0 };
                    let shown = status.current_limit.as_ref().unwrap();
                    assert_eq!(u64::from(shown.requests_per_unit), count, "step {step}: {texts:?}");
                    assert_eq!(u64::from(status.limit_remaining), expected.remaining, "step {step}: {texts:?}");
                    let reset = unit_of(shown.unit()).rest(Micros::new(now));
                    assert_eq!(expected.reset_after, reset, "step {step}: {texts:?}");
                    assert_eq!(until_reset(status), Some(whole(reset)), "step {step}: {texts:?}");
                }
            }
        }
        if answer.allowed { allowed += 1 } else { refused += 1 }
    }
    assert!(allowed > 150 && refused > 150, "{allowed} allowed, {refused} refused");
}

fn unit_of(unit: WireUnit) -> Unit {
    match unit {
        WireUnit::Second => Unit::Second,
        WireUnit::Minute => Unit::Minute,
        WireUnit::Hour => Unit::Hour,
        other => panic!("the file has no {other:?}"),
    }
}

#[tokio::test]
async fn several_descriptors_of_a_policy_are_charged_all_or_none() {
    let mut running = start(|_| {}).await;
    assert_eq!(running.left("edge", &["user=a", "path=/a"]).await, (true, vec![3, 6]));
    assert_eq!(running.left("edge", &["user=a +3", "path=/a"]).await, (true, vec![0, 5]));
    assert_eq!(running.left("edge", &["path=/a", "user=a"]).await, (false, vec![5, 0]));
    assert_eq!(running.left("edge", &["path=/a", "user=b +100"]).await, (false, vec![5, 0]));
    assert_eq!(running.left("edge", &["path=/a", "user=a ?"]).await, (false, vec![5, 0]));
    assert_eq!(running.left("edge", &["path=/a -1", "user=a"]).await, (false, vec![5, 0]), "nothing is given back");
    assert_eq!(running.left("edge", &["path=/a -1", "user=b"]).await, (true, vec![6, 3]));
    assert_eq!(running.left("edge", &["path=/a", "path=/a +6"]).await, (false, vec![6, 6]), "together too much");
    assert_eq!(running.left("edge", &["path=/a ?"]).await, (true, vec![6]), "and neither was charged");
    assert_eq!(running.left("edge", &["path=/a -100"]).await, (true, vec![7]), "no more than there is");
}

#[tokio::test]
async fn hits_of_the_request_stand_for_those_of_its_descriptors() {
    let mut running = start(|_| {}).await;
    let mut asked = RateLimitRequest { hits_addend: 2, ..request("files", &["user=a"]) };
    asked.descriptors[0].hits_addend = None;
    assert_eq!(running.client.ask(asked.clone()).await.unwrap().statuses[0].limit_remaining, 1);
    asked.descriptors[0].hits_addend = Some(1);
    assert_eq!(running.client.ask(asked.clone()).await.unwrap().statuses[0].limit_remaining, 0);
    asked.descriptors[0].hits_addend = Some(0);
    assert_eq!(running.client.ask(asked.clone()).await.unwrap().overall_code(), Limit::OverLimit, "a peek");
    asked.descriptors[0].hits_addend = None;
    asked.descriptors[0].is_negative_hits = true;
    assert_eq!(running.client.ask(asked.clone()).await.unwrap().statuses[0].limit_remaining, 2, "two are given back");
    asked.hits_addend = 0;
    asked.descriptors[0].is_negative_hits = false;
    assert_eq!(running.client.ask(asked).await.unwrap().statuses[0].limit_remaining, 1, "none stands for one");
}

#[tokio::test]
async fn a_descriptor_may_bring_a_limit_in_every_domain() {
    let mut running = start(|_| {}).await;
    for domain in ["files", "edge", "unknown"] {
        let response = running.ask(domain, &["user=a +4 @10/2"]).await;
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit()), (10, WireUnit::Minute), "{domain}");
        assert_eq!(response.statuses[0].limit_remaining, 6, "{domain}");
        assert_eq!(running.left(domain, &["user=a +7 @10/2"]).await, (false, vec![6]), "{domain}");
        // None at all, of a unit that ends: 1,700,000,000 is 20 seconds into a minute.
        let blocked = running.ask(domain, &["user=a @0/2"]).await;
        let limit = blocked.statuses[0].current_limit.clone().unwrap();
        assert_eq!(
            (blocked.overall_code(), limit.requests_per_unit, limit.unit()),
            (Limit::OverLimit, 0, WireUnit::Minute)
        );
        assert_eq!(until_reset(&blocked.statuses[0]), Some(Duration::from_secs(40)), "{domain}");
    }
    let blocked = running.ask("files", &["blocked=x"]).await;
    assert_eq!(blocked.statuses[0].current_limit.clone().unwrap().unit(), WireUnit::Second);
    assert_eq!(until_reset(&blocked.statuses[0]), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn without_a_store_there_is_no_answer_unless_someone_stands_in() {
    for (mode, expected) in [("error", None), ("open", Some(Limit::Ok)), ("closed", Some(Limit::OverLimit))] {
        let closed_port = "redis://127.0.0.1:1";
        let store = tidegate_redis::RedisStore::connect(closed_port).await.unwrap();
        let mode: OnFailure = mode.parse().unwrap();
        let mut running = start_on(store, ManualClock::default(), |settings| settings.on_failure = mode).await;
        for (domain, descriptor) in [("files", "user=a"), ("edge", "user=a"), ("edge", "user=a @10/2")] {
            match (running.client.ask(request(domain, &[descriptor])).await, expected) {
                (Ok(response), Some(expected)) => assert_eq!(response.overall_code(), expected),
                (Err(status), None) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
                (answer, _) => panic!("{domain} {descriptor} with {mode:?}: {answer:?}"),
            }
        }
        // A refund has no fallback, and refuses nothing.
        let refunds = ["path=/a -1", "path=/b -1"];
        assert_eq!(running.client.ask(request("edge", &refunds)).await.unwrap_err().code(), Code::Unavailable);
        match (running.client.ask(request("edge", &["path=/a -1", "user=a"])).await, expected) {
            (Ok(response), Some(expected)) => assert_eq!(response.overall_code(), expected),
            (Err(status), None) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
            (answer, _) => panic!("a refund beside a charge with {mode:?}: {answer:?}"),
        }
        assert_eq!(running.left("files", &["what=x"]).await, (true, vec![0]), "no store has to be asked");
    }
}

#[tokio::test]
async fn clients_are_told_as_the_settings_say() {
    let mut running = start(|settings| {
        settings.envoy_headers = HeaderStyle::Draft3;
        settings.envoy_metadata = true;
    })
    .await;
    let headers = |response: &RateLimitResponse| -> Vec<(String, String)> {
        response.response_headers_to_add.iter().map(|header| (header.key.clone(), header.value.clone())).collect()
    };
    let expected = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    // 1,700,000,000 is 20 seconds into a minute.
    let passed = running.ask("files", &["user=a", "free=x"]).await;
    let told = [("RateLimit-Limit", "3, 3;w=60"), ("RateLimit-Remaining", "2"), ("RateLimit-Reset", "40")];
    assert_eq!(headers(&passed), expected(&told));
    assert!(passed.raw_body.is_empty());
    let metadata = passed.dynamic_metadata.clone().unwrap();
    assert_eq!(metadata.fields["domain"].kind, Some(Kind::StringValue("files".into())));
    let Some(Kind::StructValue(inner)) = &metadata.fields["metadata"].kind else { panic!("a struct: {metadata:?}") };
    assert_eq!(inner.fields["tier"].kind, Some(Kind::StringValue("free".into())));
    assert!(headers(&running.ask("files", &["what=x"]).await).is_empty(), "nothing to tell");

    let mut running = start(|settings| {
        settings.envoy_headers = HeaderStyle::Draft8;
        settings.envoy_problem = true;
    })
    .await;
    running.ask("files", &["user=a +3"]).await;
    let refused = running.ask("files", &["user=a", "path=/a"]).await;
    let told = [
        ("RateLimit-Policy", "\"per_user\";q=3;w=60, \"files.path_/a*\";q=2;w=1"),
        ("RateLimit", "\"per_user\";r=0;t=40"),
        ("Retry-After", "40"),
        ("Content-Type", "application/problem+json"),
    ];
    assert_eq!(headers(&refused), expected(&told));
    let problem: serde_json::Value = serde_json::from_slice(&refused.raw_body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["per_user"]));
    assert_eq!(problem["status"], 429);
    assert!(refused.dynamic_metadata.is_none());
    let never = headers(&running.ask("files", &["user=b +4"]).await);
    assert!(never.iter().all(|(name, _)| name != "Retry-After"), "no waiting helps: {never:?}");
}

#[tokio::test]
async fn the_json_twin_says_the_same() {
    let mut running = start(|settings| settings.envoy_problem = true).await;
    let address = running.server.http_socket().unwrap();
    let post = async |body: &str| {
        let (status, body) = http(address, "POST", "/json", body).await;
        (status, serde_json::from_str::<serde_json::Value>(&body).unwrap_or(serde_json::Value::String(body)))
    };
    let asked =
        r#"{"domain": "files", "descriptors": [{"entries": [{"key": "user", "value": "a"}], "hitsAddend": "2"}]}"#;
    let (status, json) = post(asked).await;
    assert_eq!(status, 200, "{json}");
    let limit = serde_json::json!({ "name": "per_user", "requestsPerUnit": 3, "unit": "MINUTE" });
    let status_of = serde_json::json!({
        "code": "OK", "currentLimit": limit, "limitRemaining": 1, "durationUntilReset": "40s",
    });
    assert_eq!(json, serde_json::json!({ "overallCode": "OK", "statuses": [status_of] }));
    assert_eq!(running.left("files", &["user=a ?"]).await, (true, vec![1]), "it is one limit");
    let (status, json) = post(asked).await;
    assert_eq!((status, &json["overallCode"]), (429, &serde_json::json!("OVER_LIMIT")));
    assert!(json["rawBody"].is_string() && json["statuses"][0].get("limitRemaining").is_some());
    // In the other spelling, with units as numbers and without what is null.
    let asked = r#"{"domain": "x", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k"}],
        "limit": {"requests_per_unit": 5, "unit": 2}, "is_negative_hits": null}]}"#;
    let (status, json) = post(asked).await;
    assert_eq!((status, &json["statuses"][0]["limitRemaining"]), (200, &serde_json::json!(2)));
    for invalid in [
        "",
        "[]",
        "{\"domain\": 1}",
        "{\"domain\": \"files\"}",
        "{\"domian\": \"files\"}",
        "{\"hitsAddend\": -1}",
        r#"{"domain": "x", "descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#,
    ] {
        assert_eq!(post(invalid).await.0, 400, "{invalid}");
    }
    assert_eq!(http(address, "GET", "/healthcheck", "").await, (200, "OK".to_owned()));
    assert_eq!(http(address, "GET", "/json", "").await.0, 405);
    let (_, metrics) = http(address, "GET", "/metrics", "").await;
    assert!(
        metrics.contains(r#"decisions_total{rule="files.user",outcome="allowed"} 1"#)
            || metrics.contains(r#"decisions_total{rule="files.user",outcome="Allowed"} 1"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn http_listeners_serve_grpc_too() {
    let running = start(|_| {}).await;
    let mut client = Client::connect(running.server.http_socket().unwrap()).await;
    let response = client.ask(request("files", &["user=a"])).await.unwrap();
    assert_eq!(response.statuses[0].limit_remaining, 2);
}

#[tokio::test]
async fn both_versions_of_reflection_list_the_services() {
    use tonic_reflection::pb::{v1, v1alpha};
    let running = start(|settings| settings.grpc_reflection = true).await;
    let channel = client::channel(running.server.grpc_socket().unwrap()).await;
    // The same messages twice, of two packages.
    macro_rules! services {
        ($version:ident) => {{
            let list = $version::server_reflection_request::MessageRequest::ListServices(String::new());
            let asked = $version::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
            let mut client = $version::server_reflection_client::ServerReflectionClient::new(channel.clone());
            let answers = client.server_reflection_info(tokio_stream::once(asked)).await.unwrap();
            let answer = answers.into_inner().message().await.unwrap().unwrap().message_response;
            let Some($version::server_reflection_response::MessageResponse::ListServicesResponse(list)) = answer else {
                panic!("no list: {answer:?}")
            };
            list.service.into_iter().map(|service| service.name).collect::<Vec<String>>()
        }};
    }
    for names in [services!(v1), services!(v1alpha)] {
        for name in ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
            assert!(names.iter().any(|listed| listed == name), "{name}: {names:?}");
        }
    }
}

#[tokio::test]
async fn health_watchers_see_the_shutdown_and_do_not_delay_it() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    let Running { server, clock: _clock, .. } = start(|_| {}).await;
    let mut health = HealthClient::new(client::channel(server.grpc_socket().unwrap()).await);
    let asked = HealthCheckRequest { service: "envoy.service.ratelimit.v3.RateLimitService".into() };
    let mut seen = health.watch(asked).await.unwrap().into_inner();
    assert_eq!(seen.message().await.unwrap().unwrap().status, 1, "serving");
    let drained = tokio::spawn(server.drain());
    assert_eq!(seen.message().await.unwrap().unwrap().status, 2, "no longer");
    assert!(seen.message().await.unwrap().is_none(), "that was all");
    assert!(drained.await.unwrap(), "no connection is left");
}

#[tokio::test]
async fn files_are_found_where_the_reference_service_looks() {
    let mut running = start(|settings| {
        let root = settings.envoy_config.pop().unwrap().parent().unwrap().to_owned();
        settings.runtime_root = Some(root.parent().unwrap().to_owned());
        settings.runtime_subdirectory = root.file_name().map(Into::into);
    })
    .await;
    assert_eq!(running.left("files", &["user=a"]).await, (true, vec![2]));
    let empty = running.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join(".hidden.yaml"), "domain: x").unwrap();
    let settings = Settings { envoy_config: vec![empty], http: Vec::new(), ..Settings::default() };
    let error = Server::start(settings, MemoryStore::default()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("no descriptor files in"), "{error}");
    let wrong = running.folder.path().join("wrong.yaml");
    fs::write(&wrong, "domain: x\ndescriptors: [{ key: a, rate_limit: { unit: fortnight } }]").unwrap();
    let settings = Settings { envoy_config: vec![wrong], http: Vec::new(), ..Settings::default() };
    let error = Server::start(settings, MemoryStore::default()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("wrong.yaml:2"), "{error}");
}

#[tokio::test]
async fn more_is_given_back_than_any_of_several_rules_holds() {
    let policy = r#"
[rules.wide]
limit = "80/h"
key = ["user"]

[rules.narrow]
limit = "50/h"
key = ["user"]
cost = { times = 5 }
"#;
    let mut running = start(|settings| fs::write(settings.policy.as_ref().unwrap(), policy).unwrap()).await;
    assert_eq!(running.left("edge", &["user=a +9"]).await, (true, vec![5]));
    for descriptors in [&["user=a -1000"][..], &["user=a -1000", "user=b ?"]] {
        let response = running.client.ask(request("edge", descriptors)).await.unwrap();
        assert_eq!(response.overall_code(), Limit::Ok);
        assert_eq!(response.statuses[0].code(), Limit::Ok);
        assert_eq!(response.statuses[0].limit_remaining, 50, "all there was");
    }
}

#[tokio::test]
async fn several_descriptors_that_a_policy_refuses_are_counted_as_one_is() {
    let mut running = start(|_| {}).await;
    assert_eq!(running.left("edge", &["user=a +4", "path=/a"]).await, (true, vec![0, 6]));
    for _ in 0..3 {
        assert_eq!(running.left("edge", &["path=/a", "user=a"]).await, (false, vec![6, 0]));
    }
    let address = running.server.http_socket().unwrap();
    let (_, metrics) = http(address, "GET", "/metrics", "").await;
    assert!(metrics.contains(r#"decisions_total{rule="user",outcome="refused"} 3"#), "{metrics}");
    assert!(metrics.contains(r#"decisions_total{rule="path",outcome="allowed"} 1"#), "{metrics}");
    let (_, refused) = http(address, "GET", "/admin/v1/keys/refused", "").await;
    assert_eq!(refused, r#"[{"rule":"user","key":"a","refused":3,"error":0}]"#);
}

#[tokio::test]
async fn a_quota_that_is_over_is_counted_as_refused_and_not_as_allowed_too() {
    let quotas = "
domain: quotas
descriptors:
  - { key: user, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: team, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 9 } }
";
    let mut running = start(|settings| fs::write(settings.envoy_config[0].join("quotas.yaml"), quotas).unwrap()).await;
    assert_eq!(running.left("quotas", &["user=a", "team=t"]).await, (true, vec![0, 8]));
    assert_eq!(running.left("quotas", &["user=a", "team=t"]).await, (true, vec![0, 7]), "one is enough");
    let (_, metrics) = http(running.server.http_socket().unwrap(), "GET", "/metrics", "").await;
    for (rule, outcome, count) in
        [("user", "allowed", 1), ("user", "refused", 1), ("team", "allowed", 2), ("team", "refused", 0)]
    {
        let line = format!(r#"decisions_total{{rule="quotas.{rule}",outcome="{outcome}"}} {count}"#);
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}
