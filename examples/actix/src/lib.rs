//! Rate limits of tidegate in actix-web: one middleware function, to be copied.
//!
//! The limiter, the policy, the client's address, the answer to a refusal and the RateLimit fields are those of the
//! tower layer. Only the wire is written here: actix has header types of its own.

use std::net::IpAddr;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpResponse, rt};
use tidegate::kernel::Verb;
use tidegate::store::Check;
use tidegate::{Decision, Limiter, Request};
use tidegate_tower::fields::rate_limit_fields;
use tidegate_tower::{ClientIp, Refusal};

/// What decides. Put it into the `app_data` of the server, outside the closure: one for all workers.
pub struct RateLimit {
    limiter: Limiter,
    client_ip: ClientIp,
}

impl RateLimit {
    /// Limits by the address of the peer, unless [`client_ip`](RateLimit::client_ip) names proxies.
    #[must_use]
    pub fn new(limiter: Limiter) -> RateLimit {
        RateLimit { limiter, client_ip: ClientIp::peer() }
    }

    /// Which proxies are believed.
    #[must_use]
    pub fn client_ip(mut self, client_ip: ClientIp) -> RateLimit {
        self.client_ip = client_ip;
        self
    }

    fn address_of(&self, request: &ServiceRequest) -> Option<IpAddr> {
        let mut extensions = http::Extensions::new();
        if let Some(peer) = request.peer_addr() {
            extensions.insert(peer);
        }
        self.client_ip.of(&headers_of(request), &extensions)
    }
}

/// Decides a request by its attributes `ip`, `method` and `path`, and tells the client of its limits.
///
/// # Errors
/// Those of the services behind it: a refusal is a response.
pub async fn rate_limit(
    limits: Data<RateLimit>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let (method, path) = (request.method().as_str().to_owned(), request.path().to_owned());
    let mut question = Request::without_key().with("method", &*method).with("path", &*path);
    if let Some(address) = limits.address_of(&request) {
        question = question.with("ip", address);
    }
    let mut fields = Vec::new();
    let tell = |decision: &Decision, limits: &[Check<'_>]| fields = rate_limit_fields(decision, limits);
    let decision = match limits.limiter.decide_with_limits_async(Verb::Charge, question, tell).await {
        Ok(decision) => decision,
        Err(error) => return Ok(request.into_response(response(&Refusal::from(error)))),
    };
    let mut answer = if decision.is_allowed() {
        // Only a leaky bucket has one.
        if !decision.delay().is_zero() {
            rt::time::sleep(decision.delay()).await;
        }
        next.call(request).await?.map_into_boxed_body()
    } else {
        request.into_response(response(&Refusal::by(decision)))
    };
    write(fields, answer.headers_mut());
    Ok(answer)
}

fn response(refusal: &Refusal) -> HttpResponse {
    let status = StatusCode::from_u16(refusal.status().as_u16()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = HttpResponse::build(status).content_type("application/problem+json").body(refusal.problem());
    let wait = refusal.retry_after().map(|seconds| ("retry-after", seconds.to_string()));
    write(wait.into_iter().collect(), response.headers_mut());
    response
}

fn write(fields: Vec<(&'static str, String)>, headers: &mut HeaderMap) {
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// The headers of a request as tidegate-tower reads them.
fn headers_of(request: &ServiceRequest) -> http::HeaderMap {
    let fields = request.headers().iter().filter_map(|(name, value)| {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, http::HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    fields.collect()
}
