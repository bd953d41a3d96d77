//! Metrics: the numbers of `/metrics`, at an interval and at the end.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use tidegate::{ManualClock, MemoryStore, Micros};
use tidegate_server::{Server, Settings};
use tidegate_testkit::servers::GUARD;
use tokio::net::TcpListener;

use super::{collector, text};

#[tokio::test]
async fn the_last_decisions_reach_the_collector_before_the_server_ends() {
    let (collector, serving, settings) = collector().await;
    let store = MemoryStore::builder().clock(ManualClock::at(Micros::new(1_000_000_000))).build().unwrap();
    let server = Server::start(settings, store).await.unwrap();
    let app = Arc::clone(server.app());
    let mut allowed = 0;
    for _ in 0..25 {
        allowed += i64::from(app.engine.limiter.check_async("alice").await.unwrap().is_allowed());
    }
    assert!((1..25).contains(&allowed), "{allowed}");
    assert!(server.drain().await);
    serving.abort();

    let received = collector.metrics.lock().unwrap();
    assert!(collector.traces.lock().unwrap().is_empty(), "spans are off unless asked for");
    let resource = &received.last().unwrap().resource_metrics[0];
    assert_eq!(text(&resource.resource.as_ref().unwrap().attributes, "service.name"), "tidegate");
    let metrics = &resource.scope_metrics[0].metrics;
    let metric = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().data.clone().unwrap();
    let Data::Sum(decisions) = metric("tidegate_decisions") else { panic!("decisions are a sum") };
    assert!(decisions.is_monotonic);
    let count = |outcome: &str| {
        let of = |attributes: &[KeyValue]| text(attributes, "outcome") == outcome;
        let points = decisions.data_points.iter().filter(|point| of(&point.attributes));
        points
            .map(|point| match point.value {
                Some(Value::AsInt(count)) => count,
                other => panic!("{other:?}"),
            })
            .sum::<i64>()
    };
    assert_eq!((count("allowed"), count("refused")), (allowed, 25 - allowed));
    let Data::Gauge(keys) = metric("tidegate_store_keys") else { panic!("keys are a gauge") };
    assert_eq!(keys.data_points[0].value, Some(Value::AsInt(1)));
    let Data::Histogram(latency) = metric("tidegate_request_duration_seconds") else { panic!("latency has buckets") };
    for point in &latency.data_points {
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    }
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_keep_the_states_from_their_file() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let settings = Settings {
        http: Vec::new(),
        drain_grace_ms: 0,
        snapshot: Some(states.clone()),
        otlp: Some(format!("http://{}", silent.local_addr().unwrap())),
        // Not before the end.
        otlp_interval_seconds: 3_600,
        ..Settings::default()
    };
    let server = Server::start(settings, MemoryStore::default()).await.unwrap();
    let drained = tokio::spawn(server.drain());
    let last_metrics = tokio::time::timeout(GUARD, silent.accept()).await.unwrap().unwrap();
    assert!(states.exists(), "they are there before the collector is waited for");
    drained.abort();
    drop(last_metrics);
}
