//! The layer: what is limited, by what, and how that is told.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tidegate::Limiter;
use tidegate::store::Store;
use tower_layer::Layer;

use crate::answers::{Grpc, Http};
use crate::by;
use crate::client_ip::ClientIp;
use crate::fields::HeaderStyle;
use crate::fit::LayerError;
use crate::gate::Gate;
use crate::head::{Head, Value};
use crate::refusal::Refusal;
use crate::service::RateLimit;
use crate::settings::{Keyless, Settings, http_attributes};
use crate::settle::{ResponseHead, Settlement};

/// Limits the requests of a service.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate::{Limit, Limiter};
/// use tidegate_tower::RateLimitLayer;
///
/// let limiter = Limiter::new(Limit::per_minute(60).burst(10));
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter));
/// ```
///
/// Each client's address has a limit of its own; see [`key`](RateLimitLayer::key)
/// for others. Clones of the layer, and of the services it makes, share the
/// limiter.
///
/// A policy that needs an attribute which the layer does not supply does not
/// start: see [`checked`](RateLimitLayer::checked).
///
/// For a server that speaks nothing but gRPC see [`grpc`](RateLimitLayer::grpc).
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RateLimitLayer<A = Http> {
    gate: Arc<Gate>,
    answers: PhantomData<fn() -> A>,
}

impl RateLimitLayer {
    /// A layer for a limiter on any store: by client address, with the
    /// fields of the current draft.
    pub fn new<S: Store>(limiter: Limiter<S>) -> RateLimitLayer {
        let settings = Settings {
            client_ip: ClientIp::peer(),
            key: Arc::new(by::client_ip()),
            keyless: Keyless::default(),
            ipv6_bits: IPV6_BITS,
            attributes: Vec::new(),
            rule: None,
            cost: None,
            amounts: Vec::new(),
            id: None,
            styles: vec![HeaderStyle::Draft10],
            secret: None,
            respond: None,
            settle: None,
            reserves: None,
        };
        RateLimitLayer { gate: Arc::new(Gate::new(limiter, settings)), answers: PhantomData }
    }

    /// The response to a request that is refused, in place of the problem
    /// document. `Retry-After` and the fields are added where they are missing.
    /// Requests of gRPC are answered in their own way all the same.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # use tidegate_tower::RateLimitLayer;
    /// let layer = RateLimitLayer::new(Limiter::new(Limit::per_second(10))).respond(|refusal| {
    ///     let mut response = http::Response::new("slow down\n".to_owned());
    ///     *response.status_mut() = refusal.status();
    ///     response
    /// });
    /// ```
    pub fn respond(mut self, respond: impl Fn(&Refusal) -> Response<String> + Send + Sync + 'static) -> Self {
        self.settings_mut().respond = Some(Arc::new(respond));
        self
    }

    /// The same layer for a service whose bodies cannot be made of text, such
    /// as tonic's: every refusal is a gRPC status.
    ///
    /// Without this, too, requests of gRPC are answered by a status.
    pub fn grpc(self) -> RateLimitLayer<Grpc> {
        RateLimitLayer { gate: self.gate, answers: PhantomData }
    }
}

/// The part of an IPv6 address that one customer has, as a rule.
const IPV6_BITS: u8 = 64;

impl<A> RateLimitLayer<A> {
    /// Whose limit a request counts against: one of those in [`by`], or a
    /// function of your own.
    ///
    /// Rules that have a [key of attributes](tidegate::Rule::key) do not count by
    /// it. A request must have one all the same, or meets
    /// [`keyless`](RateLimitLayer::keyless): where all rules are such,
    /// [`by::everyone`] will do.
    pub fn key(mut self, key: impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static) -> Self {
        self.settings_mut().key = Arc::new(key);
        self
    }

    /// What becomes of a request without a key: refused with 500, unless set.
    pub fn keyless(mut self, keyless: Keyless) -> Self {
        self.settings_mut().keyless = keyless;
        self
    }

    /// Whose address a client's is: the peer's, unless set.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.settings_mut().client_ip = client_ip;
        self
    }

    /// By how many bits an IPv6 address counts as a key: 64, unless set.
    pub fn ipv6_bits(mut self, bits: u8) -> Self {
        self.settings_mut().ipv6_bits = bits;
        self
    }

    /// Tells the policy's rules of an attribute, such as the tenant. It is
    /// missing where the function returns `None`, or a [combination](by::both): a
    /// rule that counts by it refuses the request with 422, unless the rule [says
    /// otherwise](tidegate::Rule::missing).
    ///
    /// Take attributes that decide how much a caller may do from what an
    /// authentication layer has put into the request's extensions. A
    /// [header](by::header) is whatever the caller wrote.
    ///
    /// ```
    /// use tidegate::{Condition, Limit, Limiter, Policy, Rule};
    /// use tidegate_tower::{RateLimitLayer, by};
    ///
    /// # struct Claims { tenant: String }
    /// let policy = Policy::new()
    ///     .rule(Rule::new("tenant", Limit::per_second(100)).key(["tenant"]))
    ///     .rule(Rule::new("writes", Limit::per_second(5)).when("method", Condition::Equals("POST".into())).key(["ip"]));
    /// let layer = RateLimitLayer::new(Limiter::new(policy))
    ///     .http_attributes()
    ///     .attribute("tenant", by::extension(|claims: &Claims| claims.tenant.as_str().into()));
    /// ```
    pub fn attribute(
        mut self,
        name: impl Into<String>,
        value: impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static,
    ) -> Self {
        self.settings_mut().attributes.push((name.into().into(), Arc::new(value)));
        self
    }

    /// The attributes `method`, `path`, `ip`, and, with the feature `axum`,
    /// `route`.
    pub fn http_attributes(mut self) -> Self {
        let attributes = http_attributes().into_iter().map(|(name, value)| (name.into(), value));
        self.settings_mut().attributes.extend(attributes);
        self
    }

    /// Asks this rule of the policy, whatever else matches: policies by route
    /// on one limiter. A name that the policy does not have is an
    /// [error](LayerError::UnknownRule).
    pub fn rule(mut self, name: impl Into<String>) -> Self {
        self.settings_mut().rule = Some(name.into().into());
        self
    }

    /// What a request costs: 1, unless set.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.settings_mut().cost = Some(Arc::new(cost));
        self
    }

    /// How much a request takes of a [unit](tidegate::Rule::unit), such as tokens. Where the
    /// function returns `None`, it takes the rule's
    /// [default amount](tidegate::Rule::default_amount).
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy, Rule};
    /// use tidegate_tower::RateLimitLayer;
    ///
    /// let uploads = Rule::new("uploads", Limit::per_hour(1_000_000)).unit("bytes");
    /// let layer = RateLimitLayer::new(Limiter::new(Policy::new().rule(uploads)))
    ///     .amount("bytes", |request| request.content_length());
    /// # let _ = layer;
    /// ```
    ///
    /// What is known only when the response has ended is an estimate here: see
    /// [`reserve`](RateLimitLayer::reserve).
    pub fn amount(
        mut self,
        unit: impl Into<String>,
        amount: impl Fn(Head<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.settings_mut().amounts.push((unit.into().into(), Arc::new(amount)));
        self
    }

    /// The same layer, which reserves: to be put into a [`Reserve`](crate::Reserve).
    pub(crate) fn reserving(mut self, lasts: Duration) -> Self {
        Arc::make_mut(&mut self.gate).reserve_for(lasts);
        self
    }

    /// What names a request, so that one that is sent again is charged once:
    /// see [`Request::id`](tidegate::Request::id). Without a name it is charged
    /// each time; a name that belongs to another request is refused with 422.
    ///
    /// A request that comes again passes, and its response settles nothing.
    /// A client that can choose names can have requests pass without a charge: take
    /// names only from clients you trust.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # use tidegate_tower::{RateLimitLayer, by};
    /// let limiter = Limiter::new(Limit::per_minute(60));
    /// let layer = RateLimitLayer::new(limiter).key(by::api_key()).id(by::header("idempotency-key"));
    /// ```
    pub fn id(mut self, id: impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static) -> Self {
        self.settings_mut().id = Some(Arc::new(id));
        self
    }

    /// What the response makes of the charge: see [`settle`](crate::settle). A
    /// request whose client went away stays charged.
    pub fn settle(mut self, settle: impl Fn(ResponseHead<'_>) -> Settlement + Send + Sync + 'static) -> Self {
        self.settings_mut().settle = Some(Arc::new(settle));
        self
    }

    /// How responses tell of the limit, in addition to the `Retry-After` of a
    /// refusal: [`Draft10`](HeaderStyle::Draft10), unless set. None says nothing.
    pub fn headers(mut self, styles: impl IntoIterator<Item = HeaderStyle>) -> Self {
        self.settings_mut().styles = styles.into_iter().collect();
        self
    }

    /// Tells in the fields whose quota it is (`pk`): a hash of the key that a
    /// limit counts by, with this secret, which all processes of a service should
    /// have in common.
    pub fn partition_key(mut self, secret: [u8; 16]) -> Self {
        self.settings_mut().secret = Some(secret);
        self
    }

    /// The same layer, if it fits the policy of its limiter: it supplies each
    /// [required](tidegate::Rule::required_attributes) key attribute of the rules
    /// that it asks, and the policy has the rule that it
    /// [names](RateLimitLayer::rule).
    ///
    /// A layer that does not fit panics when it is put around a service, which axum
    /// does to a `route_layer` when the app becomes a make-service. Call this to get
    /// an error instead, where the policy is not written in the program.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Rule};
    /// use tidegate_tower::{RateLimitLayer, by};
    ///
    /// let limiter = Limiter::new(Rule::new("orders", Limit::per_minute(10)).key(["user"]));
    /// assert!(RateLimitLayer::new(limiter.clone()).checked().is_err());
    /// assert!(RateLimitLayer::new(limiter).attribute("user", by::header("x-user")).checked().is_ok());
    /// ```
    ///
    /// The policy counts that is in force at the first of these calls. One that
    /// [comes later](Limiter::set_policy) and needs another attribute or has no
    /// such rule does not stop the service: requests are refused with 422.
    ///
    /// # Errors
    /// [`LayerError`] says which rule needs what, and what to call.
    pub fn checked(self) -> Result<Self, LayerError> {
        self.gate.check_fit()?;
        Ok(self)
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.gate).settings_mut()
    }
}

impl<A> Clone for RateLimitLayer<A> {
    fn clone(&self) -> Self {
        RateLimitLayer { gate: Arc::clone(&self.gate), answers: PhantomData }
    }
}

impl<S, A> Layer<S> for RateLimitLayer<A> {
    type Service = RateLimit<S, A>;

    /// # Panics
    /// If the layer does not fit the policy of its limiter: see
    /// [`checked`](RateLimitLayer::checked).
    fn layer(&self, inner: S) -> RateLimit<S, A> {
        if let Err(error) = self.gate.check_fit() {
            panic!("{error}");
        }
        RateLimit::new(inner, Arc::clone(&self.gate))
    }
}

impl<A> fmt::Debug for RateLimitLayer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { client_ip, keyless, styles, .. } = &self.gate.settings;
        let mut shown = f.debug_struct("RateLimitLayer");
        shown.field("client_ip", client_ip).field("keyless", keyless).field("headers", styles).finish_non_exhaustive()
    }
}
