//! A real tonic server and client.

use std::net::{Ipv4Addr, SocketAddr};

use tidegate::{Limit, Limiter, Policy};
use tidegate_tower::{RateLimitLayer, by, settle};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

async fn client(limiter: Limiter) -> HealthClient<Channel> {
    client_of(RateLimitLayer::new(limiter).http_attributes().attribute("tenant", by::header("x-tenant"))).await
}

async fn client_of(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let (_, service) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer.grpc()).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("a URI");
    HealthClient::new(endpoint.connect().await.expect("a server"))
}

async fn check(client: &mut HealthClient<Channel>) -> Result<http::HeaderMap, Status> {
    let response = client.check(Request::new(HealthCheckRequest { service: String::new() })).await?;
    Ok(response.metadata().clone().into_headers())
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_with_the_time_to_wait() {
    let mut client = client(Limiter::new(Policy::new().limit("calls", Limit::per_hour(2)))).await;
    for remaining in [1, 0] {
        let headers = check(&mut client).await.expect("admitted");
        assert!(headers["ratelimit"].to_str().is_ok_and(|field| field.contains(&format!(";r={remaining};"))));
    }
    let status = check(&mut client).await.expect_err("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    let delay = details.retry_info().and_then(|info| info.retry_delay).expect("a time to wait");
    assert!((1_200..=1_800).contains(&delay.as_secs()), "{delay:?}");
    assert_eq!(details.quota_failure().map(|failure| failure.violations[0].subject.as_str()), Some("calls"));
    assert!(status.metadata().contains_key("retry-after") && status.metadata().contains_key("ratelimit"));
}

#[tokio::test]
async fn a_cost_that_can_never_pass_is_the_callers_fault() {
    let policy = Policy::new().rule(tidegate::Rule::new("costly", Limit::per_hour(2)).fixed_cost(3).key(["path"]));
    let status = check(&mut client(Limiter::new(policy)).await).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn only_calls_that_fail_count_if_only_failures_do() {
    let layer = RateLimitLayer::new(Limiter::new(Limit::per_hour(2))).settle(settle::only_failures());
    let mut client = client_of(layer).await;
    let mut codes = Vec::new();
    for service in ["", "unknown", "", "", "unknown", ""] {
        let response = client.check(Request::new(HealthCheckRequest { service: service.to_owned() })).await;
        codes.push(response.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    use Code::{NotFound, Ok, ResourceExhausted};
    assert_eq!(codes, [Ok, NotFound, Ok, Ok, NotFound, ResourceExhausted]);
}

#[tokio::test]
async fn an_id_of_another_request_is_the_callers_fault() {
    let layer = RateLimitLayer::new(Limiter::new(Limit::per_hour(9)));
    let mut client = client_of(layer.attribute("tenant", by::header("x-tenant")).id(by::header("x-id"))).await;
    let mut ask = async |tenant: &'static str| {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        for (name, value) in [("x-id", "order-17"), ("x-tenant", tenant)] {
            request.metadata_mut().insert(name, value.parse().expect("a value"));
        }
        client.check(request).await
    };
    for _ in 0..2 {
        ask("a").await.expect("admitted");
    }
    let status = ask("b").await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "Request id belongs to another request"));
}
