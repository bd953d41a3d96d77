//! Several descriptors by the policy, and a store or a client that goes away between them.

use super::*;
use crate::support::faulty::Faulty;

/// Asks by a policy of its own, on a server of Redis whose calls fail by number.
async fn start_on_redis(policy: &str, mode: &str, proxy: &Faulty) -> Running {
    let store = tidegate_redis::RedisStore::builder(tidegate_redis::Servers::parse(&proxy.url()).unwrap());
    let store = store.deadline(GUARD).build().unwrap();
    let policy = policy.to_owned();
    let mode: OnFailure = mode.parse().unwrap();
    start_on(store, ManualClock::default(), |settings| {
        settings.on_failure = mode;
        fs::write(settings.policy.as_ref().unwrap(), policy).unwrap();
    })
    .await
}

const TWO_LIMITS: &str = r#"
[rules.user]
limit = "4/d"
key = ["user"]
missing = "skip"

[rules.path]
limit = "7/d"
key = ["path"]
missing = "skip"
"#;

#[tokio::test]
async fn a_store_that_fails_half_way_keeps_nothing_of_what_was_charged() {
    let redis = tidegate_testkit::servers::Server::start();
    let proxy = Faulty::before(redis.address());
    let mut running = start_on_redis(TWO_LIMITS, "error", &proxy).await;
    assert_eq!(running.left("edge", &["path=/a", "user=a"]).await, (true, vec![6, 3]));
    // One call decides both. Where one brings its own limit, both are asked, the first is charged, and the second is not.
    for (number, user) in [(1, "user=a"), (4, "user=a @9/4")] {
        proxy.fail_at(number);
        let status = running.client.ask(request("edge", &["path=/a", user])).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert_eq!(running.left("edge", &["path=/a ?"]).await, (true, vec![6]), "{user}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_half_way_is_not_charged() {
    let redis = tidegate_testkit::servers::Server::start();
    let proxy = Faulty::before(redis.address());
    let mut running = start_on_redis(TWO_LIMITS, "error", &proxy).await;
    let address = running.server.http_socket().unwrap();
    let body = r#"{"domain": "edge", "descriptors": [
        {"entries": [{"key": "path", "value": "/a"}]},
        {"entries": [{"key": "user", "value": "a"}], "limit": {"requests_per_unit": 9, "unit": "DAY"}}]}"#;
    let both = ["path=/a", "user=a @9/4"];
    for over_json in [false, true] {
        assert!(running.left("edge", &both).await.0);
        let used = running.left("edge", &["path=/a ?"]).await;
        let mut held = proxy.hold_at(4);
        tokio::select! {
            () = held.has_come() => {}
            answer = running.client.ask(request("edge", &both)), if !over_json => panic!("{answer:?}"),
            answer = http(address, "POST", "/json", body), if over_json => panic!("{answer:?}"),
        }
        // Time for the server to notice; if it takes longer, the store has failed before the client has gone.
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(held);
        let given_back = async { while running.left("edge", &["path=/a ?"]).await != used {} };
        assert!(tokio::time::timeout(GUARD, given_back).await.is_ok(), "over JSON: {over_json}");
    }
}

#[tokio::test]
async fn units_admitted_by_the_fallback_are_not_refunded_to_the_store() {
    let redis = tidegate_testkit::servers::Server::start();
    let proxy = Faulty::before(redis.address());
    let mut running = start_on_redis(TWO_LIMITS, "open", &proxy).await;
    assert_eq!(running.left("edge", &["path=/a"]).await, (true, vec![6]));
    // All three are asked; the first passes without the store, the second by it, and the third is refused.
    proxy.fail_at(4);
    let (passes, _) = running.left("edge", &["path=/a", "path=/a +4", "path=/a +4"]).await;
    assert!(!passes);
    assert_eq!(running.left("edge", &["path=/a ?"]).await, (true, vec![6]), "one was used before");
}
