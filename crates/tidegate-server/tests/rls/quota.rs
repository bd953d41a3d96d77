//! Envoy's rate limit quota service over the wire, on a clock that stands still.

use std::collections::HashMap;

use tidegate_server::AnyStore;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::*;
use crate::rls::access::line;
use crate::support::messages::rate_limit_quota_response::bucket_action::BucketAction as Action;
use crate::support::messages::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::support::messages::rate_limit_strategy::{BlanketRule, Strategy};
use crate::support::messages::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, TokenBucket};

const QUOTA: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

const QUOTAS: &str = r#"
[rules.orders]
limit = "100/s"
key = ["domain", "name"]
match.name = "orders"

[rules.blocked]
limit = "blocked"
match.name = "mallory"
"#;

struct Envoy {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    responses: Streaming<RateLimitQuotaResponse>,
}

/// A report of a bucket whose only attribute is its name.
fn usage(name: &str, allowed: u64, denied: u64) -> BucketQuotaUsage {
    let bucket = if name.is_empty() { HashMap::new() } else { HashMap::from([("name".to_owned(), name.to_owned())]) };
    BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket }),
        time_elapsed: None,
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

fn reports(domain: &str, usages: Vec<BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: usages }
}

impl Envoy {
    async fn open(running: &Running, first: RateLimitQuotaUsageReports) -> Envoy {
        Envoy::open_as(running, first, None).await.unwrap()
    }

    async fn open_as(
        running: &Running,
        first: RateLimitQuotaUsageReports,
        token: Option<&str>,
    ) -> Result<Envoy, tonic::Status> {
        let mut grpc = tonic::client::Grpc::new(client::channel(running.server.grpc_socket().unwrap()).await);
        grpc.ready().await.unwrap();
        let (reports, receiver) = mpsc::channel(16);
        reports.send(first).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(receiver));
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let codec = tonic_prost::ProstCodec::default();
        let responses = grpc.streaming(request, QUOTA.parse().unwrap(), codec).await?.into_inner();
        Ok(Envoy { reports, responses })
    }

    async fn send(&self, message: RateLimitQuotaUsageReports) {
        self.reports.send(message).await.unwrap();
    }

    /// The next action, by the name of its bucket.
    async fn next(&mut self) -> (String, Action) {
        let response = self.responses.message().await.unwrap().expect("the stream goes on");
        let [action] = &response.bucket_action[..] else { panic!("{response:?}") };
        let name = action.bucket_id.as_ref().unwrap().bucket["name"].clone();
        (name, action.bucket_action.unwrap())
    }

    async fn bucket(&mut self) -> TokenBucket {
        match self.next().await.1 {
            Action::QuotaAssignmentAction(assigned) => match assigned.rate_limit_strategy.unwrap().strategy.unwrap() {
                Strategy::TokenBucket(bucket) => bucket,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    async fn end(mut self) -> tonic::Status {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ends without a word"),
                Err(status) => return status,
            }
        }
    }
}

/// A server that has run for so long that no assignment of the one before lives.
async fn quotas(change: impl FnOnce(&mut Settings)) -> Running {
    let policy = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(policy.path(), QUOTAS).unwrap();
    let path = policy.path().to_owned();
    let running = start(|settings| {
        (settings.policy, settings.envoy_config) = (Some(path), Vec::new());
        change(settings);
    })
    .await;
    pass(&running, 60);
    running
}

fn pass(running: &Running, seconds: u64) {
    running.clock.advance(Duration::from_secs(seconds));
}

fn blanket(action: &Action) -> Option<BlanketRule> {
    let Action::QuotaAssignmentAction(assigned) = action else { return None };
    assert_eq!(assigned.assignment_time_to_live.unwrap().seconds, 10);
    match assigned.rate_limit_strategy.as_ref()?.strategy.as_ref()? {
        Strategy::BlanketRule(rule) => BlanketRule::try_from(*rule).ok(),
        Strategy::TokenBucket(_) => None,
    }
}

#[tokio::test]
async fn buckets_are_limited_by_the_rules_of_the_policy() {
    let running = quotas(|_| {}).await;
    for (name, expected) in
        [("nothing", Some(BlanketRule::AllowAll)), ("mallory", Some(BlanketRule::DenyAll)), ("orders", None)]
    {
        let mut envoy = Envoy::open(&running, reports("edge", vec![usage(name, 1, 0)])).await;
        let (told, action) = envoy.next().await;
        assert_eq!((told.as_str(), blanket(&action)), (name, expected), "{action:?}");
    }
    // What was let pass is charged to the limit, for all who ask otherwise.
    let request = Request::without_key().with("domain", "edge").with("name", "orders");
    assert_eq!(running.server.app().engine.limiter.peek_async(request).await.unwrap().remaining(), Some(99));
}

#[tokio::test]
async fn a_share_grows_with_demand_and_goes_on_with_the_same_bucket() {
    let running = quotas(|_| {}).await;
    let mut one = Envoy::open(&running, reports("edge", vec![usage("orders", 1, 0)])).await;
    let first = one.bucket().await;
    let seconds = |bucket: &TokenBucket| bucket.fill_interval.unwrap();
    assert_eq!(
        (first.max_tokens, first.tokens_per_fill, seconds(&first).seconds),
        (75, Some(750), 10),
        "all but a reserve"
    );
    assert_eq!(i64::from(seconds(&first).nanos), seconds(&first).seconds, "by which Envoy tells intervals apart");
    pass(&running, 2);
    one.send(reports("", vec![usage("orders", 200, 200)])).await;
    let more = one.bucket().await;
    assert_eq!((more.max_tokens, more.tokens_per_fill, seconds(&more).seconds), (100, Some(100), 1));
    // A report that changes nothing is not answered; the next message renews.
    one.send(reports("", vec![usage("orders", 200, 200)])).await;
    pass(&running, 4);
    assert_eq!(one.bucket().await, more);
    // A second client has nothing before the first has given something back and that has run out.
    let mut two = Envoy::open(&running, reports("edge", vec![usage("orders", 0, 1)])).await;
    assert_eq!(blanket(&two.next().await.1), Some(BlanketRule::DenyAll));
    pass(&running, 2);
    one.send(reports("", vec![usage("orders", 200, 200)])).await;
    let less = one.bucket().await;
    assert!(less.max_tokens <= 50, "{less:?}");
    let mut told = (less, None);
    while told.1.is_none() {
        // Both are due then.
        pass(&running, 4);
        one.send(reports("", vec![usage("orders", 200, 200)])).await;
        two.send(reports("", vec![usage("orders", 0, 200)])).await;
        told.0 = one.bucket().await;
        let (_, action) = two.next().await;
        told.1 = blanket(&action).is_none().then_some(action);
    }
    let text = running.server.app().records.metrics.text();
    assert!(text.contains("tidegate_rlqs_streams 2") && text.contains("tidegate_rlqs_buckets 2"), "{text}");
    assert!(text.contains("tidegate_rlqs_assignments_total{action=\"share\"}"), "{text}");
}

#[tokio::test]
async fn invalid_reports_end_their_stream_and_no_other() {
    let running = quotas(|_| {}).await;
    let mut good = Envoy::open(&running, reports("edge", vec![usage("orders", 1, 0)])).await;
    good.bucket().await;
    let long = "x".repeat(2_000);
    for (message, word) in [
        (reports("", vec![usage("orders", 1, 0)]), "domain"),
        (reports("edge", vec![usage("", 1, 0)]), "bucket id"),
        (reports("edge", vec![usage(&long, 1, 0)]), "bucket id"),
        (reports("edge", vec![BucketQuotaUsage::default()]), "bucket id"),
    ] {
        let status = Envoy::open(&running, message).await.end().await;
        assert!(status.code() == Code::InvalidArgument && status.message().contains(word), "{status:?}");
    }
    let huge = vec![usage(&"x".repeat(1_000), 1, 0); 100];
    assert_eq!(Envoy::open(&running, reports("edge", huge)).await.end().await.code(), Code::OutOfRange);
    let other = Envoy::open(&running, reports("edge", vec![])).await;
    other.send(reports("other", vec![])).await;
    assert_eq!(other.end().await.code(), Code::InvalidArgument, "another domain");
    let address = running.server.grpc_socket().unwrap();
    for bytes in [&b"\x00\x00\x00\x00\x03\xff\xff\xff"[..], b"\x01\x00\x00\x00\x01x", b"\x00\xff\xff\xff\xff"] {
        assert!(client::raw(address, QUOTA, bytes).await.is_some_and(|status| status != 0), "{bytes:?}");
    }
    // The largest numbers are taken for what they are.
    good.send(reports("edge", vec![usage("orders", u64::MAX, u64::MAX)])).await;
    pass(&running, 4);
    good.send(reports("edge", vec![usage("orders", u64::MAX, u64::MAX)])).await;
    assert_eq!(good.bucket().await.max_tokens, 100);
}

#[tokio::test]
async fn buckets_and_streams_have_bounds() {
    let running = quotas(|_| {}).await;
    let many = (0..300).map(|place| usage(&format!("bucket-{place}"), 1, 0)).collect();
    let mut crowded = Envoy::open(&running, reports("edge", many)).await;
    let response = crowded.responses.message().await.unwrap().unwrap();
    assert_eq!(response.bucket_action.len(), 256);
    assert!(running.server.app().records.metrics.text().contains("tidegate_rlqs_buckets_refused_total 44"));
    // Reports count as bytes that are held only until they are read.
    for _ in 0..200 {
        crowded.send(reports("", (0..200).map(|place| usage(&format!("bucket-{place}"), 1, 0)).collect())).await;
    }
    let mut streams = Vec::new();
    let status = loop {
        match Envoy::open_as(&running, reports("edge", vec![]), None).await {
            Ok(stream) => streams.push(stream),
            Err(status) => break status,
        }
    };
    assert_eq!((streams.len(), status.code()), (255, Code::ResourceExhausted), "{status:?}");
}

#[tokio::test]
async fn streams_need_the_right_to_check_and_end_with_the_server() {
    let running = quotas(|settings| settings.admin_token = Some("secret".parse().unwrap())).await;
    let first = || reports("edge", vec![usage("orders", 1, 0)]);
    let refused = Envoy::open_as(&running, first(), Some("wrong")).await;
    assert_eq!(refused.err().map(|status| status.code()), Some(Code::Unauthenticated));
    let envoy = Envoy::open_as(&running, first(), Some("secret")).await.unwrap();
    let ended = tokio::spawn(envoy.end());
    assert!(matches!(running.server.app().engine.store(), AnyStore::Memory(_)));
    assert!(running.server.drain().await, "no stream keeps the server from its end");
    let status = ended.await.unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_gone_or_lacks_the_right() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let path = file.path().to_owned();
    let all =
        [("gone", "\"check\""), ("less", "\"check\""), ("kept", "\"check\"")].map(|(name, rights)| line(name, rights));
    fs::write(&path, all.concat()).unwrap();
    let running = quotas(|settings| settings.tokens = Some(path)).await;
    let mut open = Vec::new();
    for token in ["gone", "less", "kept"] {
        let envoy = Envoy::open_as(&running, reports("edge", vec![usage("nothing", 1, 0)]), Some(token)).await;
        let mut envoy = envoy.unwrap();
        envoy.next().await;
        open.push(envoy);
    }
    fs::write(file.path(), line("less", "\"metrics\"") + &line("kept", "\"check\"")).unwrap();
    running.server.reload();
    let [gone, less, mut kept] = <[Envoy; 3]>::try_from(open).ok().unwrap();
    // As a new stream would.
    assert_eq!(gone.end().await.code(), Code::Unauthenticated);
    assert_eq!(less.end().await.code(), Code::PermissionDenied);
    pass(&running, 5);
    kept.next().await;
    let text = running.server.app().records.metrics.text();
    assert!(text.contains("tidegate_authentication_failures_total{protocol=\"grpc\"} 0"), "{text}");
}
