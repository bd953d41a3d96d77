//! A proxy of pingora that admits 60 requests a minute of each client, three at once.
//!
//! ```text
//! cd examples/pingora
//! cargo run -- 127.0.0.1:6188 127.0.0.1:8000
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:6188/; done
//! ```
//!
//! A third argument is another limit, such as `1000/h`. Building takes CMake, which pingora's compression needs.
//!
//! The limiter, the policy, the client's address, the answer to a refusal and the RateLimit fields are those of
//! tidegate's tower layer; [`Proxy`] is what a proxy of yours would copy.

use std::error::Error;

use async_trait::async_trait;
use bytes::Bytes;
use http::Extensions;
use pingora_core::Result;
use pingora_core::server::Server;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tidegate::kernel::Verb;
use tidegate::store::Check;
use tidegate::{Decision, Limit, Limiter, Request, Rule};
use tidegate_tower::fields::rate_limit_fields;
use tidegate_tower::{ClientIp, Refusal};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("give an address to listen on, and the one of the upstream".into());
    };
    let limit: Limit = arguments.next().as_deref().unwrap_or("60/min burst 3").parse()?;
    let limiter = Limiter::new(Rule::new("clients", limit).key(["ip"]));
    // Behind a load balancer: `ClientIp::behind(1)`, or better its networks.
    let proxy = Proxy { limiter, client_ip: ClientIp::peer(), upstream };
    let mut server = Server::new(None)?;
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, proxy);
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever()
}

/// Decides each request before it goes to the upstream.
struct Proxy {
    limiter: Limiter,
    client_ip: ClientIp,
    upstream: String,
}

/// Names and values of header fields.
type Fields = Vec<(&'static str, String)>;

#[async_trait]
impl ProxyHttp for Proxy {
    /// What the client is told of its limits.
    type CTX = Fields;

    fn new_ctx(&self) -> Fields {
        Fields::new()
    }

    /// Decides a request by its attributes `ip`, `method` and `path`; a header that your proxy has authenticated is one
    /// more `with`.
    async fn request_filter(&self, session: &mut Session, told: &mut Fields) -> Result<bool> {
        let mut extensions = Extensions::new();
        if let Some(peer) = session.client_addr().and_then(|peer| peer.as_inet()) {
            extensions.insert(*peer);
        }
        let head = session.req_header();
        let address = self.client_ip.of(&head.headers, &extensions);
        let mut question = Request::without_key().with("method", head.method.as_str()).with("path", head.uri.path());
        if let Some(address) = address {
            question = question.with("ip", address);
        }
        let mut fields = Fields::new();
        let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
        let decision = match self.limiter.decide_with_limits_async(Verb::Charge, question, tell).await {
            Ok(decision) => decision,
            Err(error) => return refuse(session, &Refusal::from(error), Fields::new()).await,
        };
        if !decision.is_allowed() {
            return refuse(session, &Refusal::by(decision), fields).await;
        }
        // Only a leaky bucket has one.
        if !decision.delay().is_zero() {
            tokio::time::sleep(decision.delay()).await;
        }
        *told = fields;
        Ok(false)
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        told: &mut Fields,
    ) -> Result<()> {
        told.drain(..).try_for_each(|(name, value)| response.insert_header(name, value))
    }

    async fn upstream_peer(&self, _session: &mut Session, _told: &mut Fields) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream.as_str(), false, String::new())))
    }
}

/// Answers in place of the upstream.
async fn refuse(session: &mut Session, refusal: &Refusal, fields: Fields) -> Result<bool> {
    let body = Bytes::from(refusal.problem());
    let mut response = ResponseHeader::build(refusal.status(), Some(fields.len() + 3))?;
    response.insert_header("content-type", "application/problem+json")?;
    response.insert_header("content-length", body.len().to_string())?;
    if let Some(seconds) = refusal.retry_after() {
        response.insert_header("retry-after", seconds.to_string())?;
    }
    for (name, value) in fields {
        response.insert_header(name, value)?;
    }
    // The body of the request has not been read.
    session.set_keepalive(None);
    session.write_response_header(Box::new(response), false).await?;
    session.write_response_body(Some(body), true).await?;
    Ok(true)
}
