//! Metrics and spans at a collector: a real one's services, and what the server sends them.

mod metrics;
mod spans;

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tidegate_server::Settings;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// Keeps what arrives with the right header.
#[derive(Clone, Default)]
struct Collector {
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
    traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics.lock().unwrap().push(known(request)?);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.traces.lock().unwrap().push(known(request)?);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn known<T>(request: Request<T>) -> Result<T, Status> {
    if request.metadata().get("x-tenant").is_none_or(|tenant| tenant != "harbour") {
        return Err(Status::unauthenticated("no such tenant"));
    }
    Ok(request.into_inner())
}

/// A collector that serves, and the settings of a server that sends to it.
async fn collector() -> (Collector, JoinHandle<()>, Settings) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = Collector::default();
    let (metrics, traces) = (MetricsServiceServer::new(collector.clone()), TraceServiceServer::new(collector.clone()));
    let serving = tokio::spawn(async move {
        let server = tonic::transport::Server::builder().add_service(metrics).add_service(traces);
        server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    let settings = Settings {
        http: vec!["127.0.0.1:0".parse().unwrap()],
        drain_grace_ms: 0,
        otlp: Some(format!("http://{address}")),
        otlp_header: vec!["x-tenant=harbour".into()],
        ..Settings::default()
    };
    (collector, serving, settings)
}

fn value<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.as_ref().unwrap().value.as_ref()
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    match value(attributes, name).unwrap() {
        Value::StringValue(text) => text,
        other => panic!("{name} is {other:?}"),
    }
}
