//! Where the answers are those of the reference service, envoyproxy/ratelimit.

use super::*;

/// Six a minute after five of ten leave none: what counts is the domain, the
/// entries and the unit, as in the reference service.
async fn overrides_count_by_entries_and_unit(running: &mut Running, domain: &str) {
    for (text, expected) in [
        ("user=o +5 @10/2", (true, 5)),
        ("user=o @6/2", (true, 0)),
        ("user=o @6/2", (false, 0)),
        ("user=o @5/2", (false, 0)),
        ("user=o @10/2", (true, 3)),
        ("user=o @5000/2", (true, 4_992)),
        ("user=o -4 @10/2", (true, 6)),
        ("user=o ? @6/2", (true, 2)),
        ("user=o @6/3", (true, 5)),
        ("user=other @6/2", (true, 5)),
    ] {
        let (allowed, left) = running.left(domain, &[text]).await;
        assert_eq!((allowed, left[0]), expected, "{domain}: {text}");
    }
}

#[tokio::test]
async fn overrides_of_one_unit_count_together_in_memory() {
    let mut running = start(|_| {}).await;
    for domain in ["files", "edge"] {
        overrides_count_by_entries_and_unit(&mut running, domain).await;
    }
    // And with the limit of the file, which is three a minute.
    assert_eq!(running.left("files", &["user=f +2"]).await, (true, vec![1]));
    assert_eq!(running.left("files", &["user=f @9/2"]).await, (true, vec![6]));
    assert_eq!(running.left("files", &["user=f"]).await, (false, vec![0]));
    assert_eq!(running.left("files", &["user=f @9/2", "user=f +0"]).await, (false, vec![6, 0]));
}

#[tokio::test]
async fn overrides_of_one_unit_count_together_on_redis() {
    let redis = tidegate_testkit::servers::Server::start();
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000_000_000));
    let store = tidegate_redis::RedisStore::builder(tidegate_redis::Servers::parse(&redis.url()).unwrap());
    let store = store.deadline(GUARD).clock(clock.clone()).build().unwrap();
    let mut running = start_on(store, clock, |_| {}).await;
    for domain in ["files", "edge"] {
        overrides_count_by_entries_and_unit(&mut running, domain).await;
    }
    assert_eq!(running.left("files", &["user=f +2"]).await, (true, vec![1]));
    assert_eq!(running.left("files", &["user=f @9/2"]).await, (true, vec![6]));
    assert_eq!(running.left("files", &["user=f"]).await, (false, vec![0]));
}

#[tokio::test]
async fn a_client_that_waits_until_the_reset_passes() {
    let mut running = start(|_| {}).await;
    let mut hour = 1_700_000_000_000_000;
    let limits = [("files", "user=a"), ("files", "path=/a"), ("edge", "user=a"), ("edge", "user=a @2/2")];
    for (domain, descriptor) in limits {
        for offset in [1, 250_000, 500_000, 999_999] {
            hour += 3_600_000_000;
            let began = hour + offset;
            running.clock.set(Micros::new(began));
            let refused = loop {
                let response = running.ask(domain, &[descriptor]).await;
                if response.overall_code() == Limit::OverLimit {
                    break response;
                }
            };
            let told = refused.statuses[0].duration_until_reset.unwrap();
            assert_eq!(told.nanos, 0, "Envoy would drop it");
            running.clock.set(Micros::new(began + told.seconds as u64 * 1_000_000));
            assert!(running.left(domain, &[descriptor]).await.0, "{domain} {descriptor}, {told:?} after {began}");
        }
    }
}

#[tokio::test]
async fn a_domain_of_no_file_has_no_limit_unless_a_policy_was_given() {
    let mut running = start(|settings| settings.policy = None).await;
    let asked = ["user=a +1000", "user=a @1/2", "user=a @0/2", "path=/a -3", "path=/a ?"];
    for _ in 0..3 {
        let response = running.ask("edge", &asked).await;
        assert_eq!((response.overall_code(), response.statuses.len()), (Limit::Ok, asked.len()));
        for status in &response.statuses {
            assert_eq!((status.code(), status.current_limit.as_ref(), status.limit_remaining), (Limit::Ok, None, 0));
            assert_eq!(until_reset(status), None);
        }
    }
    assert_eq!(running.left("files", &["user=a +3"]).await, (true, vec![0]), "the file decides its own domain");
    // Without files, the built-in policy: 20 at once for each descriptor.
    let mut running = start(|settings| (settings.policy, settings.envoy_config) = (None, Vec::new())).await;
    assert_eq!(running.left("edge", &["user=a +15"]).await, (true, vec![5]));
    assert_eq!(running.left("edge", &["user=a +15"]).await, (false, vec![5]));
}

#[tokio::test]
async fn a_rule_whose_key_the_descriptor_lacks_does_not_apply_to_it() {
    let policy = r#"
[rules.user]
limit = "5/h"
key = ["user"]

[rules.both]
limit = "4/h"
key = ["user", "path"]

[rules.tenant]
limit = "3/h"
key = ["tenant"]
missing = "shared"
match.domain = "shared"
"#;
    let mut running = start(|settings| fs::write(settings.policy.as_ref().unwrap(), policy).unwrap()).await;
    let unknown = running.ask("edge", &["ip=1"]).await;
    assert_eq!((unknown.overall_code(), unknown.statuses[0].current_limit.as_ref()), (Limit::Ok, None));
    assert_eq!(running.left("edge", &["user=a"]).await, (true, vec![4]), "one of the two");
    assert_eq!(running.left("edge", &["user=a path=/a"]).await, (true, vec![3]), "both");
    assert_eq!(running.left("edge", &["path=/a"]).await, (true, vec![0]), "none, and nothing is left of none");
    // One limit for all descriptors that lack the attribute, because the rule says so.
    assert_eq!(running.left("shared", &["ip=1"]).await, (true, vec![2]));
    assert_eq!(running.left("shared", &["ip=2"]).await, (true, vec![1]));
    assert_eq!(running.left("shared", &["tenant=t"]).await, (true, vec![2]));
    assert_eq!(running.left("shared", &["ip=3 +2"]).await, (false, vec![1]));
}

#[tokio::test]
async fn metadata_is_merged_deeply_and_the_first_value_stays() {
    let file = "
domain: told
descriptors:
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 9 }, metadata: { x: 1, deep: { one: a, both: a }, list: [1] } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 9 }, metadata: { x: 2, y: 2, deep: { both: b, two: b }, list: [2] } }
  - { key: c, rate_limit: { unit: hour, requests_per_unit: 9 }, metadata: { deep: text, y: { z: 1 } } }
  - { key: d, rate_limit: { unlimited: true }, metadata: { unlimited: true } }
  - { key: e, rate_limit: { unit: hour, requests_per_unit: 0 }, metadata: { refused: true } }
";
    let mut running = start(|settings| {
        settings.envoy_metadata = true;
        fs::write(settings.envoy_config[0].join("told.yaml"), file).unwrap();
    })
    .await;
    let mut told = async |descriptors: &[&str]| {
        let metadata = running.ask("told", descriptors).await.dynamic_metadata.unwrap();
        json(&Kind::StructValue(metadata))
    };
    let metadata = told(&["a=1", "b=1 +2", "c=1", "d=1", "e=1 ? @3/2"]).await;
    let expected = serde_json::json!({
        "x": 1.0, "y": 2.0, "deep": { "one": "a", "both": "a", "two": "b" }, "list": [1.0],
    });
    assert_eq!(metadata["metadata"], expected);
    let expected = serde_json::json!([
        { "entries": ["a=1"] },
        { "entries": ["b=1"], "hitsAddend": 2.0 },
        { "entries": ["c=1"] },
        { "entries": ["d=1"] },
        { "entries": ["e=1"], "hitsAddend": 0.0, "limit": "requests_per_unit:3 unit:MINUTE" },
    ]);
    assert_eq!(metadata["descriptors"], expected);
    let metadata = told(&["c=1", "b=1", "e=1"]).await;
    let expected = serde_json::json!({ "deep": "text", "y": { "z": 1.0 }, "x": 2.0, "list": [2.0] });
    assert_eq!(metadata["metadata"], expected, "whatever the first says");
}

fn json(kind: &Kind) -> serde_json::Value {
    let of = |value: &prost_types::Value| json(value.kind.as_ref().unwrap());
    match kind {
        Kind::NullValue(_) => serde_json::Value::Null,
        Kind::NumberValue(number) => serde_json::json!(number),
        Kind::StringValue(text) => serde_json::json!(text),
        Kind::BoolValue(value) => serde_json::json!(value),
        Kind::StructValue(table) => table.fields.iter().map(|(name, value)| (name.clone(), of(value))).collect(),
        Kind::ListValue(list) => list.values.iter().map(of).collect(),
    }
}
