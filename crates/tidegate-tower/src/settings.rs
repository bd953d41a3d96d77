//! What a layer was told.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};

use crate::by;
use crate::client_ip::ClientIp;
use crate::fields::HeaderStyle;
use crate::head::{Head, Value};
use crate::partition::Secret;
use crate::refusal::Refusal;
use crate::settle::{ResponseHead, Settlement};

pub(crate) type Extract = Arc<dyn for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync>;
pub(crate) type CostFn = Arc<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
pub(crate) type AmountFn = Arc<dyn Fn(Head<'_>) -> Option<u64> + Send + Sync>;
pub(crate) type RespondFn = Arc<dyn Fn(&Refusal) -> Response<String> + Send + Sync>;
pub(crate) type SettleFn = Arc<dyn Fn(ResponseHead<'_>) -> Settlement + Send + Sync>;

/// What becomes of a request without a key: the client's address is unknown,
/// or the header is missing.
///
/// This is about the layer's own [key](crate::RateLimitLayer::key). A request
/// that lacks an attribute of a rule's key is the rule's to decide:
/// [`Missing`](tidegate::Missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyless {
    /// It is refused with this status: 500 unless you choose, because a service
    /// that does not know its clients' addresses was not set up to.
    Refuse(StatusCode),
    /// It passes without a limit.
    Pass,
    /// It shares one key with all others of its kind.
    Share,
}

impl Default for Keyless {
    fn default() -> Keyless {
        Keyless::Refuse(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// What supplies the attributes that every request of HTTP has.
pub(crate) fn http_attributes() -> Vec<(&'static str, Extract)> {
    vec![
        ("method", Arc::new(by::method())),
        ("path", Arc::new(by::path())),
        ("ip", Arc::new(by::client_ip())),
        #[cfg(feature = "axum")]
        ("route", Arc::new(by::route())),
    ]
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) client_ip: ClientIp,
    pub(crate) key: Extract,
    pub(crate) keyless: Keyless,
    pub(crate) ipv6_bits: u8,
    pub(crate) attributes: Vec<(Box<str>, Extract)>,
    pub(crate) rule: Option<Box<str>>,
    pub(crate) cost: Option<CostFn>,
    pub(crate) amounts: Vec<(Box<str>, AmountFn)>,
    pub(crate) id: Option<Extract>,
    pub(crate) styles: Vec<HeaderStyle>,
    pub(crate) secret: Option<Secret>,
    pub(crate) respond: Option<RespondFn>,
    pub(crate) settle: Option<SettleFn>,
    /// For how long the store keeps a reservation, if requests are reserved.
    pub(crate) reserves: Option<Duration>,
}

impl Settings {
    #[inline(never)]
    pub(crate) fn attributes_of<'r>(&self, head: Head<'r>) -> Vec<Option<Value<'r>>> {
        self.attributes.iter().map(|(_, extract)| extract(head)).collect()
    }

    #[inline(never)]
    pub(crate) fn amounts_of(&self, head: Head<'_>) -> Vec<Option<u64>> {
        self.amounts.iter().map(|(_, amount)| amount(head)).collect()
    }

    /// Whether a request would have an attribute that it lacks, had the server told
    /// the layer the peer's address.
    pub(crate) fn lacks_only_peer<B>(&self, attribute: &str, request: &Request<B>) -> bool {
        let told = self.client_ip.clone().peer_from(|_| Some(Ipv4Addr::UNSPECIFIED.into()));
        let mut named = self.attributes.iter().filter(|(name, _)| **name == *attribute);
        named.any(|(_, extract)| extract(Head::of(request, &told)).is_some_and(|value| value.to_attribute().is_some()))
    }
}
