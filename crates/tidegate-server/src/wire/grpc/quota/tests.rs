use std::fs;
use std::future::poll_fn;

use tidegate::{ManualClock, MemoryStore, Micros};

use super::*;
use crate::run::peer::Peer;
use crate::serve::Server;
use crate::settings::Settings;

/// A bucket whose address is none has no limits, which is an error.
const POLICY: &str = r#"
[rules.all]
limit = "100/s"
key = ["domain"]

[rules.addresses]
limit = "100/s"
key = [{ attribute = "address", ipv6 = 56 }]
"#;

/// A stream of a server that is there as long as the stream.
struct Open {
    client: Client,
    server: Server,
    clock: ManualClock,
    receiver: mpsc::Receiver<Response>,
}

impl Open {
    async fn new() -> Open {
        let policy = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        fs::write(policy.path(), POLICY).unwrap();
        let settings = Settings {
            http: vec!["127.0.0.1:0".parse().unwrap()],
            policy: Some(policy.path().to_owned()),
            ..Settings::default()
        };
        let clock = ManualClock::default();
        clock.set(Micros::new(1_700_000_000_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let server = Server::start(settings, store).await.unwrap();
        // No assignment of the server before lives.
        clock.advance(Duration::from_secs(60));
        let (sender, receiver) = mpsc::channel(UNREAD);
        let (app, buckets, domain) = (Arc::clone(server.app()), HashMap::new(), String::new());
        let caller = StreamCaller::new(Protocol::Grpc, Link::new(Peer::Unix), None);
        let client = Client { app, caller, domain, buckets, sender, held: None };
        Open { client, server, clock, receiver }
    }

    /// A number that metrics show.
    fn metric(&self, name: &str) -> u64 {
        let text = self.server.app().records.metrics.text();
        let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    }
}

/// A report of a bucket that let one request pass, by the name of its first attribute and the value of its second.
fn usage(name: &str, place: usize) -> BucketQuotaUsage {
    let bucket = HashMap::from([(name.to_owned(), "none".to_owned()), ("place".to_owned(), place.to_string())]);
    let bucket_id = Some(BucketId { bucket });
    BucketQuotaUsage { bucket_id, num_requests_allowed: 1, ..BucketQuotaUsage::default() }
}

fn message(usages: impl Iterator<Item = BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports { domain: "edge".to_owned(), bucket_quota_usages: usages.collect() }
}

/// How often something is polled until it is done, and what comes of it.
async fn polls<T>(work: impl Future<Output = T>) -> (usize, T) {
    let (mut work, mut polls) = (pin!(work), 0);
    let done = poll_fn(|context| {
        polls += 1;
        work.as_mut().poll(context)
    })
    .await;
    (polls, done)
}

#[tokio::test]
async fn buckets_are_stepped_in_turns() {
    let mut open = Open::new().await;
    open.client.take(message((0..MAX_BUCKETS).map(|place| usage("name", place)))).await.unwrap();
    let (polls, ()) = polls(open.client.step()).await;
    assert!(polls >= MAX_BUCKETS / TURN, "{polls}");
}

#[tokio::test]
async fn reports_of_a_message_are_taken_in_turns() {
    let mut open = Open::new().await;
    let usages = 10 * MAX_BUCKETS;
    let (polls, taken) = polls(open.client.take(message((0..usages).map(|place| usage("name", place))))).await;
    taken.unwrap();
    assert!(polls >= usages / TURN, "{polls}");
}

#[tokio::test]
async fn reports_of_one_bucket_in_a_message_are_taken_as_one() {
    let mut open = Open::new().await;
    open.client.take(message((0..1_000).map(|_| usage("name", 0)))).await.unwrap();
    assert_eq!(
        (open.metric("tidegate_reported_units_total"), open.metric("tidegate_rlqs_reports_total")),
        (1_000, 1_000)
    );
    open.client.take(message((0..1_000).map(|_| usage("address", 0)))).await.unwrap();
    assert_eq!(open.metric("tidegate_errors_total"), 1, "its limits are looked for once");
}

#[tokio::test]
async fn reports_of_buckets_without_room_cost_no_look_at_the_policy() {
    let mut open = Open::new().await;
    let invalid = || (0..MAX_BUCKETS + 44).map(|place| usage("address", place));
    open.client.take(message(invalid())).await.unwrap();
    let counted =
        |open: &Open| (open.metric("tidegate_errors_total"), open.metric("tidegate_rlqs_buckets_refused_total"));
    assert_eq!(counted(&open), (MAX_BUCKETS as u64, 44));
    // Those that have a place keep it, whatever comes before them in a message.
    open.client.take(message((0..MAX_BUCKETS).map(|place| usage("name", place)))).await.unwrap();
    open.client.take(message(invalid().chain([usage("name", 0)]))).await.unwrap();
    assert_eq!(counted(&open), (MAX_BUCKETS as u64, 344));
    assert_eq!(open.metric("tidegate_reported_units_total"), MAX_BUCKETS as u64 + 1);
}

#[tokio::test]
async fn a_message_that_would_come_late_is_not_sent() {
    let mut open = Open::new().await;
    let usages = || message((0..MAX_BUCKETS).map(|place| usage("name", place)));
    for (is_late, is_sent) in [(false, true), (true, false), (false, true)] {
        open.client.take(usages()).await.unwrap();
        let clock = open.clock.clone();
        let mut step = pin!(open.client.step());
        poll_fn(|context| {
            let polled = step.as_mut().poll(context);
            clock.advance(if is_late { Duration::from_secs(1) } else { Duration::ZERO });
            polled
        })
        .await;
        assert_eq!(open.receiver.try_recv().is_ok(), is_sent);
        open.clock.advance(Duration::from_secs(4));
    }
}
