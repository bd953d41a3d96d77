//! Metrics sent to a collector by OTLP over gRPC, at an interval and once more
//! at the end; and spans of decisions, where they are asked for.
//!
//! The numbers are those of `/metrics`, all of them, read at that moment:
//! nothing is counted twice. A collector that is away costs a warning when it
//! goes, and nothing else: totals since the start lose nothing by a gap. Spans
//! that it does not take are dropped, and counted.

mod spans;
mod translate;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tracing::{info, warn};

use self::spans::SpanSender;
use self::translate::Translator;
use crate::settings::Settings;
use crate::tell::metrics::Metrics;
use crate::tell::trace::Spans;

/// How long a collector may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why metrics cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// No collector can have this address.
    #[error("--otlp {url:?} is not an address of a collector: write http://host:4317 or https://host:4317")]
    Endpoint {
        /// What was given.
        url: String,
        /// What is wrong with it.
        source: tonic::transport::Error,
    },
    /// Spans without a collector.
    #[error("--otlp-traces needs a collector that spans are sent to: give --otlp URL")]
    NoCollector,
    /// A header that cannot be sent.
    #[error("--otlp-header {header:?} is not a header: write name=value")]
    Header {
        /// What was given.
        header: String,
    },
}

/// Sends metrics and spans until it is told to finish.
pub(crate) struct Exporter {
    finish: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Exporter {
    /// Begins, if the settings name a collector.
    pub(crate) fn start(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Option<Exporter>, OtlpError> {
        let Some(url) = &settings.otlp else {
            return if settings.otlp_traces { Err(OtlpError::NoCollector) } else { Ok(None) };
        };
        let channel = channel(url)?;
        let headers: Headers =
            settings.otlp_header.iter().map(|header| parse(header.expose())).collect::<Result<_, _>>()?;
        let translator = Arc::new(Translator::new(SystemTime::now()));
        let mut sender = Sender {
            client: MetricsServiceClient::new(channel.clone()),
            collector: Collector::new("metrics", &headers),
            translator: Arc::clone(&translator),
            metrics: Arc::clone(metrics),
        };
        let finish = CancellationToken::new();
        let told = finish.clone();
        let mut ticks = tokio::time::interval(Duration::from_secs(settings.otlp_interval_seconds));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let task = tokio::spawn(async move {
            ticks.tick().await;
            while told.run_until_cancelled(ticks.tick()).await.is_some() {
                sender.send().await;
            }
            sender.send().await;
        });
        let mut tasks = vec![task];
        if settings.otlp_traces {
            let (ratio, keys) = (settings.otlp_traces_ratio, settings.otlp_traces_keys);
            let (spans, waiting) = Spans::new(ratio, keys, metrics.tracer.count("queue-full"));
            let sender = SpanSender::new(waiting, channel, Collector::new("spans", &headers), translator, metrics);
            tasks.push(tokio::spawn(sender.send_all(finish.clone())));
            metrics.tracer.start(spans);
        }
        Ok(Some(Exporter { finish, tasks }))
    }

    /// Sends what there is, and ends.
    pub(crate) async fn finish(self) {
        self.finish.cancel();
        for task in self.tasks {
            if task.await.is_err() {
                warn!("the last metrics or spans were not sent");
            }
        }
    }
}

struct Sender {
    client: MetricsServiceClient<Channel>,
    collector: Collector,
    translator: Arc<Translator>,
    metrics: Arc<Metrics>,
}

impl Sender {
    async fn send(&mut self) {
        let message = self.translator.request(self.metrics.families(), SystemTime::now());
        let sent = self.client.export(self.collector.request(message)).await;
        self.collector.note(sent.err());
    }
}

type Headers = Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>;

/// How a collector is spoken to, and whether it was there the last time.
struct Collector {
    what: &'static str,
    headers: Headers,
    is_away: bool,
}

impl Collector {
    fn new(what: &'static str, headers: &Headers) -> Collector {
        Collector { what, headers: headers.clone(), is_away: false }
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(TIMEOUT);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }

    /// Tells of a collector that goes or comes back.
    fn note(&mut self, failure: Option<tonic::Status>) {
        let is_away = failure.is_some();
        match failure {
            None if self.is_away => info!("the collector takes {} again", self.what),
            Some(status) if !self.is_away => warn!(%status, "the collector takes no {}", self.what),
            None | Some(_) => {}
        }
        self.is_away = is_away;
    }
}

/// A channel that connects when it is needed, and again when it must.
fn channel(url: &str) -> Result<Channel, OtlpError> {
    let wrong = |source| OtlpError::Endpoint { url: url.to_owned(), source };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(wrong)?;
    let endpoint = endpoint.connect_timeout(TIMEOUT).timeout(TIMEOUT);
    let endpoint = match endpoint.uri().scheme_str() {
        Some("https") => endpoint.tls_config(ClientTlsConfig::new().with_enabled_roots()).map_err(wrong)?,
        _ => endpoint,
    };
    Ok(endpoint.connect_lazy())
}

fn parse(header: &str) -> Result<(MetadataKey<Ascii>, MetadataValue<Ascii>), OtlpError> {
    let parsed = header
        .split_once('=')
        .and_then(|(name, value)| Some((name.trim().to_ascii_lowercase().parse().ok()?, value.trim().parse().ok()?)));
    // The value may be a secret: only the name is repeated.
    let name = || header.split('=').next().unwrap_or_default().to_owned();
    parsed.ok_or_else(|| OtlpError::Header { header: name() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_a_name_and_a_value() {
        let (name, value) = parse("Authorization=Bearer a=b").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer a=b"));
        for wrong in ["", "name", "=value", "a name=value", "name=\u{7}"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let error = parse("a name=secret").unwrap_err().to_string();
        assert!(error.contains("a name") && !error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn an_address_is_a_url() {
        for wrong in ["", "not a url", "http://"] {
            assert!(channel(wrong).is_err(), "{wrong:?}");
        }
        for right in ["http://127.0.0.1:4317", "https://collector:4317"] {
            assert!(channel(right).is_ok(), "{right}");
        }
    }
}
