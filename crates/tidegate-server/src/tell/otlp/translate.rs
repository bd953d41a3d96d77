//! Metrics as Prometheus has them, in the words of OTLP; and the envelope of spans.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as trace;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as prometheus;

/// Who sends: the same in every message.
pub(super) struct Translator {
    resource: Resource,
    start: u64,
}

impl Translator {
    /// A translator for a process that has counted since `start`.
    pub(super) fn new(start: SystemTime) -> Translator {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
        let mut attributes = vec![
            attribute("service.name", named.unwrap_or_else(|| "tidegate".into())),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", format!("{host}:{}", std::process::id())),
        ];
        let more = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        for (name, value) in more.split(',').filter_map(|pair| pair.split_once('=')) {
            let name = name.trim();
            if !name.is_empty() && attributes.iter().all(|known| known.key != name) {
                attributes.push(attribute(name, value.trim()));
            }
        }
        Translator { resource: Resource { attributes, ..Resource::default() }, start: nanos(start) }
    }

    /// A message with everything, as it was at `now`.
    pub(super) fn request(
        &self,
        families: Vec<prometheus::MetricFamily>,
        now: SystemTime,
    ) -> ExportMetricsServiceRequest {
        let span = Span { start: self.start, now: nanos(now) };
        let metrics = families.into_iter().filter_map(|family| span.metric(family)).collect();
        let metrics = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
        let metrics = ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![metrics],
            ..ResourceMetrics::default()
        };
        ExportMetricsServiceRequest { resource_metrics: vec![metrics] }
    }

    /// A message with spans.
    pub(super) fn spans(&self, spans: impl Iterator<Item = trace::Span>) -> ExportTraceServiceRequest {
        let scope_spans =
            trace::ScopeSpans { scope: Some(scope()), spans: spans.collect(), ..trace::ScopeSpans::default() };
        let spans = trace::ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..trace::ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tidegate".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}

/// The time that totals are about, in nanoseconds since 1970.
struct Span {
    start: u64,
    now: u64,
}

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

impl Span {
    fn metric(&self, family: prometheus::MetricFamily) -> Option<Metric> {
        let kind = family.r#type();
        let points = family.metric;
        let data = match kind {
            prometheus::MetricType::Counter => Data::Sum(Sum {
                data_points: points.into_iter().filter_map(|point| self.counter(point)).collect(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            prometheus::MetricType::Gauge => {
                Data::Gauge(Gauge { data_points: points.into_iter().filter_map(|point| self.gauge(point)).collect() })
            }
            prometheus::MetricType::Histogram => Data::Histogram(Histogram {
                data_points: points.into_iter().filter_map(|point| self.histogram(point)).collect(),
                aggregation_temporality: CUMULATIVE,
            }),
            // None of ours.
            prometheus::MetricType::Summary
            | prometheus::MetricType::Untyped
            | prometheus::MetricType::GaugeHistogram => return None,
        };
        // A collector that speaks with Prometheus appends it again.
        let name = family.name.strip_suffix("_total").unwrap_or(&family.name).to_owned();
        Some(Metric { name, description: family.help, unit: family.unit, data: Some(data), ..Metric::default() })
    }

    fn counter(&self, point: prometheus::Metric) -> Option<NumberDataPoint> {
        let value = point.counter?.value;
        Some(NumberDataPoint { start_time_unix_nano: self.start, ..self.number(point.label, value) })
    }

    fn gauge(&self, point: prometheus::Metric) -> Option<NumberDataPoint> {
        let value = point.gauge?.value;
        Some(self.number(point.label, value))
    }

    /// All numbers of ours are whole, and below 2^53.
    fn number(&self, labels: Vec<prometheus::LabelPair>, value: f64) -> NumberDataPoint {
        NumberDataPoint {
            attributes: attributes(labels),
            time_unix_nano: self.now,
            value: Some(Number::AsInt(value as i64)),
            ..NumberDataPoint::default()
        }
    }

    fn histogram(&self, point: prometheus::Metric) -> Option<HistogramDataPoint> {
        let histogram = point.histogram?;
        let bounded = histogram.bucket.iter().filter(|bucket| bucket.upper_bound < f64::MAX);
        let (explicit_bounds, mut cumulative): (Vec<f64>, Vec<u64>) =
            bounded.map(|bucket| (bucket.upper_bound, bucket.cumulative_count)).unzip();
        cumulative.push(histogram.sample_count);
        let before = std::iter::once(0).chain(cumulative.iter().copied());
        let bucket_counts = before.zip(&cumulative).map(|(before, count)| count.saturating_sub(before)).collect();
        Some(HistogramDataPoint {
            attributes: attributes(point.label),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: histogram.sample_count,
            sum: Some(histogram.sample_sum),
            bucket_counts,
            explicit_bounds,
            ..HistogramDataPoint::default()
        })
    }
}

fn attributes(labels: Vec<prometheus::LabelPair>) -> Vec<KeyValue> {
    labels.into_iter().map(|label| attribute(label.name, label.value)).collect()
}

pub(super) fn attribute(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
    pair(key, Value::StringValue(value.into()))
}

/// An attribute of any kind.
pub(super) fn pair(key: impl Into<String>, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
