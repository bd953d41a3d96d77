//! Spans on their way to the collector: in batches, as they come.
//!
//! The attributes go by the names that limitador uses, as there is no convention for them yet. What it has no name for
//! is below `tidegate.`.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1 as trace;
use prometheus_client::metrics::counter::Counter;
use tidegate::kernel::Verb;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::translate::{Translator, attribute, pair};
use super::{Collector, TIMEOUT};
use crate::tell::metrics::Metrics;
use crate::tell::trace::{Decided, Span};

/// Spans of one message.
const MAX_BATCH: usize = 512;

/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_millis(500);

const NAME: &str = "ratelimit.decide";

/// Sends spans.
pub(super) struct SpanSender {
    waiting: Receiver<Span>,
    batch: Vec<Span>,
    client: TraceServiceClient<Channel>,
    collector: Collector,
    translator: Arc<Translator>,
    sent: Counter,
    not_taken: Counter,
}

impl SpanSender {
    pub(super) fn new(
        waiting: Receiver<Span>,
        channel: Channel,
        collector: Collector,
        translator: Arc<Translator>,
        metrics: &Metrics,
    ) -> SpanSender {
        SpanSender {
            waiting,
            batch: Vec::with_capacity(MAX_BATCH),
            client: TraceServiceClient::new(channel),
            collector,
            translator,
            sent: metrics.tracer.count("sent"),
            not_taken: metrics.tracer.count("not-taken"),
        }
    }

    /// Sends spans until it is told to finish, and then those that wait, as far as there is time.
    pub(super) async fn send_all(mut self, told: CancellationToken) {
        while told.run_until_cancelled(self.fill()).await == Some(true) {
            self.send().await;
        }
        self.waiting.close();
        let rest = async {
            while !self.batch.is_empty() || self.waiting.recv_many(&mut self.batch, MAX_BATCH).await > 0 {
                self.send().await;
            }
        };
        let _ = timeout(TIMEOUT, rest).await;
    }

    /// Waits for a batch; says whether there is one. Nothing is lost if this is given up.
    async fn fill(&mut self) -> bool {
        self.waiting.recv_many(&mut self.batch, MAX_BATCH).await;
        let more = async {
            while let room @ 1.. = MAX_BATCH - self.batch.len()
                && self.waiting.recv_many(&mut self.batch, room).await > 0
            {}
        };
        let _ = timeout(LINGER, more).await;
        !self.batch.is_empty()
    }

    async fn send(&mut self) {
        let count = self.batch.len() as u64;
        let message = self.translator.spans(self.batch.drain(..).map(translate));
        let sent = self.client.export(self.collector.request(message)).await;
        let counter = if sent.is_ok() { &self.sent } else { &self.not_taken };
        counter.inc_by(count);
        self.collector.note(sent.err());
    }
}

fn translate(span: Span) -> trace::Span {
    let mut attributes = vec![attribute("tidegate.protocol", span.protocol.as_str())];
    attributes.extend(span.namespace.map(|namespace| attribute("ratelimit.namespace", namespace)));
    attributes.extend(span.key.map(|key| attribute("tidegate.key", key)));
    let status = match span.outcome {
        Ok(decided) => {
            describe(&decided, &mut attributes);
            None
        }
        Err(reason) => {
            attributes.push(attribute("error.type", reason));
            let code = trace::status::StatusCode::Error.into();
            Some(trace::Status { code, message: "there was no decision".into() })
        }
    };
    trace::Span {
        trace_id: span.trace_id.into(),
        span_id: span.span_id.into(),
        parent_span_id: span.parent_id.map(Vec::from).unwrap_or_default(),
        name: NAME.into(),
        kind: trace::span::SpanKind::Server.into(),
        start_time_unix_nano: span.began,
        end_time_unix_nano: span.ended,
        attributes,
        status,
        ..trace::Span::default()
    }
}

fn describe(decided: &Decided, attributes: &mut Vec<KeyValue>) {
    let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    attributes.extend([
        number("ratelimit.hits_addend", decided.cost),
        pair("ratelimit.limited", Value::BoolValue(!decided.allowed)),
        attribute("ratelimit.limit_name", decided.rule.as_str()),
        attribute("tidegate.verb", verb(decided.verb)),
    ]);
    let numbers = [
        ("ratelimit.most_restrictive.limit", decided.capacity),
        ("ratelimit.most_restrictive.remaining", decided.remaining),
        ("ratelimit.most_restrictive.reset_secs", decided.reset_after.map(seconds)),
        ("tidegate.retry_after_secs", decided.retry_after.map(seconds)),
    ];
    attributes.extend(numbers.into_iter().filter_map(|(name, value)| Some(number(name, value?))));
    for (name, holds) in [("tidegate.degraded", decided.degraded), ("tidegate.repeated", decided.repeated)] {
        attributes.extend(holds.then(|| pair(name, Value::BoolValue(true))));
    }
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Charge => "charge",
        Verb::Peek => "peek",
        Verb::Report => "report",
        Verb::Refund => "refund",
        Verb::Reset => "reset",
        Verb::Settle(_) => "settle",
        Verb::Renew(_) => "renew",
    }
}

fn number(name: &str, value: u64) -> KeyValue {
    pair(name, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}
