//! Rate limits of [`tidegate`] as one tower layer: for axum, tonic and hyper,
//! and two more for clients.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::RateLimitLayer;
//!
//! let limiter = Limiter::new(Limit::per_minute(60).burst(10));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter));
//! ```
//!
//! That is all: each client address may send 60 requests a minute and ten at
//! once, and is told so. Serve it with
//! `app.into_make_service_with_connect_info::<SocketAddr>()`, so that the layer
//! knows the client's address; otherwise it answers 500 and says why.
//!
//! ```text
//! HTTP/1.1 200 OK
//! ratelimit-policy: "60/min burst 10";q=10;w=10
//! ratelimit: "60/min burst 10";r=9;t=1
//!
//! HTTP/1.1 429 Too Many Requests
//! ratelimit-policy: "60/min burst 10";q=10;w=10
//! ratelimit: "60/min burst 10";r=0;t=1
//! retry-after: 1
//! content-type: application/problem+json
//! ```
//!
//! # Whose limit
//!
//! A request counts against the client's address, unless
//! [`key`](RateLimitLayer::key) says otherwise: one of those in [`by`], or a
//! function of the request's [`Head`].
//!
//! ```
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::{RateLimitLayer, by};
//!
//! let limiter = Limiter::new(Limit::per_minute(100));
//! let layer = RateLimitLayer::new(limiter.clone()).key(by::first_of(by::api_key(), by::client_ip()));
//! let layer = RateLimitLayer::new(limiter).key(|request| Some(request.header("x-tenant")?.into()));
//! # let _ = layer;
//! ```
//!
//! A request without a key is refused, and never shares a limit with others by
//! accident; [`Keyless`] is where to choose otherwise. The same holds for a
//! request that lacks an attribute of a rule's key: it is refused with 422, unless
//! the rule [says otherwise](tidegate::Rule::missing).
//!
//! Rules of a [`Policy`](tidegate::Policy) know requests by attributes. The
//! layer tells them what it is asked to:
//! [`http_attributes`](RateLimitLayer::http_attributes) for what every request
//! has, [`attribute`](RateLimitLayer::attribute) for a tenant or a plan. A policy
//! that needs another attribute does not start: the layer panics when it is put
//! around a service, and [`checked`](RateLimitLayer::checked) says the same as an
//! error. A policy that comes [later](tidegate::Limiter::set_policy) and needs
//! another one has its requests refused with 422.
//!
//! Headers are [unauthenticated](by#headers-are-unauthenticated): a tier by a header
//! lets each caller choose its tier. Take it from an
//! [extension](by::extension) that an authentication layer sets.
//!
//! # Client addresses
//!
//! The peer's address cannot be forged; everything in a header can. So no header
//! is believed until [`ClientIp`] says who may write it: a number of proxies,
//! or the networks they are in. Addresses of IPv6 count by their first 64 bits,
//! because that is what one customer has.
//!
//! ```
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::{ClientIp, RateLimitLayer};
//!
//! let proxies = ClientIp::behind_any_of(["10.0.0.0/8".parse()?]);
//! let layer = RateLimitLayer::new(Limiter::new(Limit::per_minute(100))).client_ip(proxies);
//! # let _ = layer;
//! # Ok::<(), tidegate::ConfigError>(())
//! ```
//!
//! # What is answered
//!
//! | | HTTP | gRPC | `Retry-After` |
//! |---|---|---|---|
//! | a limit is used up | 429, `quota-exceeded` | `RESOURCE_EXHAUSTED`, `RetryInfo`, `QuotaFailure` | yes |
//! | a rule or the deny list blocks the request | 403 | `PERMISSION_DENIED` | no |
//! | an attribute of a rule's key is missing | 422, `missing-attribute` | `INVALID_ARGUMENT` | no |
//! | an attribute that is an address is not one | 422, `not-an-address` | `INVALID_ARGUMENT` | no |
//! | the cost can never pass | 422, `unsatisfiable` | `INVALID_ARGUMENT` | no |
//! | the [id](RateLimitLayer::id) belongs to another request | 422, `id-reused` | `INVALID_ARGUMENT` | no |
//! | the policy no longer has the layer's [rule](RateLimitLayer::rule) | 422, `unknown-rule` | `INVALID_ARGUMENT` | no |
//! | the store failed, and the failure mode is none or refuses | 503, `temporary-reduced-capacity` | `UNAVAILABLE` | yes |
//! | the request has no key | 500, or as [`Keyless`] says | `INTERNAL` | no |
//! | a rule counts by the client's address, and the server did not tell the peer's | 500 | `INTERNAL` | no |
//!
//! The problem types of 422 are `urn:problem-type:tidegate:` and the word above.
//! Bodies are problem documents (RFC 9457), or whatever
//! [`respond`](RateLimitLayer::respond) makes. Requests of gRPC are known by
//! their content type. `Retry-After` is in whole seconds, rounded up, at least
//! one.
//!
//! The fields are those of draft-ietf-httpapi-ratelimit-headers-10; older ones
//! are [styles](HeaderStyle). `RateLimit` is about the limit that binds,
//! `RateLimit-Policy` lists all that the request had to pass. `q` and `w` of a
//! bucket are its burst and the time in which it fills, `t` is when the next unit
//! comes; of a window they are its count and length, and `t` is when it ends. `qu` is the
//! rule's [unit](tidegate::Rule::unit), unless that is requests: `content-bytes` for the
//! unit `bytes`, `concurrent-requests` for limits on requests in flight, and others by name. Where
//! several layers have a say, the tighter limit is told. A key is never told,
//! except as a [keyed hash](RateLimitLayer::partition_key).
//!
//! # Costs
//!
//! [`cost`](RateLimitLayer::cost) reads it from the request;
//! [`settle`](RateLimitLayer::settle) corrects it by the response: only failures
//! count, only successes, or the size. A request is always charged before it is
//! served, so that no crowd gets past a limit meanwhile.
//!
//! ```
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::{RateLimitLayer, settle};
//!
//! let logins = RateLimitLayer::new(Limiter::new(Limit::per_hour(5))).settle(settle::only_failures());
//! # let _ = logins;
//! ```
//!
//! [`amount`](RateLimitLayer::amount) reads what a request takes of other
//! [units](tidegate::Rule::unit) than its cost: bytes, tokens.
//!
//! # Requests in flight
//!
//! [`reserve`](RateLimitLayer::reserve) has each request hold a reservation until
//! its response body has ended or is dropped. Then permits of limits on
//! [requests in flight](tidegate::Limit::in_flight) are given back, and a [`Tally`]
//! that saw the body pass says what was taken in fact.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::RateLimitLayer;
//!
//! let limiter = Limiter::new(Limit::in_flight(4, Duration::from_secs(60)));
//! let layer = RateLimitLayer::new(limiter).reserve();
//! # let _ = layer;
//! ```
//!
//! Without `reserve` a permit is held until it expires. The feature `usage` has a
//! tally for language models.
//!
//! A leaky bucket's delay is waited for before the inner service is called, by
//! the clock of the store; no particular runtime is needed.
//!
//! # Stores
//!
//! Any: [`RateLimitLayer::new`] takes a limiter on the memory store, on Redis or
//! on one of your own, and the type is the same. The memory store is asked at
//! once, without a box. Failure modes, shadows, candidates and observers are the
//! limiter's.
//!
//! # tonic, hyper, clients
//!
//! ```
//! # use tidegate::{Limit, Limiter};
//! # use tidegate_tower::RateLimitLayer;
//! # let limiter = Limiter::new(Limit::per_second(100));
//! let server = tonic::transport::Server::builder().layer(RateLimitLayer::new(limiter).grpc());
//! # let _ = server;
//! ```
//!
//! The feature `tonic` finds the peer's address there; a hyper server puts a
//! `SocketAddr` into the request's extensions. The body of a response must be
//! made of a `String` (axum's, `Full`), or with `grpc` be empty by default
//! (tonic's). For clients there is [`client`].
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `axum`, by default | `ConnectInfo` as the peer's address; `by::route` |
//! | `tonic` | `TcpConnectInfo` as the peer's address |
//! | `usage` | the tokens that a language model used, read from its response |
//!
//! # Promises
//!
//! - Being ready charges nothing; a request is charged once, when it is called.
//! - A response that is dropped before its request was decided has charged
//!   nothing; dropped later, the charge stays, whatever
//!   [`settle`](RateLimitLayer::settle) would have said.
//! - What a [reserved](RateLimitLayer::reserve) request holds is given back once:
//!   at the end of its response body, or when its body or future is dropped.
//! - Clones of a layer and its services are one limit.
//! - A refused request never reaches the inner service.
//!
//! Not promised: that a settlement is exact among concurrent requests of one key.
//! Until the response is there, the request counts as charged.

// In the order of their dependencies: a module uses only modules above it.
mod forwarded;
mod line;
mod partition;
pub mod settle;
mod tally;

mod client_ip;
pub mod fields;
mod hold;
#[cfg(feature = "usage")]
pub mod usage;

mod head;
mod refusal;

pub mod by;
mod grpc;

mod settings;

mod call;

mod answers;
mod gate;

pub mod client;
mod fit;
mod future;

mod service;

mod layer;

mod reserve;

pub use answers::{Answers, Grpc, Http};
pub use client_ip::ClientIp;
pub use fields::HeaderStyle;
pub use fit::LayerError;
pub use forwarded::ForwardingHeader;
pub use future::ResponseFuture;
pub use head::{Head, Value};
pub use layer::RateLimitLayer;
pub use refusal::{Reason, Refusal};
pub use reserve::{Reserve, ReserveLayer, ReservedBody, ReservedFuture};
pub use service::RateLimit;
pub use settings::Keyless;
pub use tally::{BodyEnd, Spent, Tally};

/// The code in the README and in the book compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/book/src/migrate/tower-governor.md")]
#[doc = include_str!("../../../docs/book/src/start/axum.md")]
struct Documents;

/// The code in the guide to gateways, too.
#[cfg(all(doctest, feature = "usage"))]
#[doc = include_str!("../../../docs/book/src/recipes/llm.md")]
struct Gateways;
