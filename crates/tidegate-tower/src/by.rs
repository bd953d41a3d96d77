//! By what requests are known: ready ways to make keys and attributes.
//!
//! Each is a function of a request's [`Head`], as a closure of your own is:
//!
//! ```
//! use tidegate::{Limit, Limiter};
//! use tidegate_tower::{RateLimitLayer, by};
//!
//! # struct Claims { subject: String }
//! let limiter = Limiter::new(Limit::per_minute(100));
//! let layer = RateLimitLayer::new(limiter.clone()).key(by::header("x-api-key"));
//! let layer = RateLimitLayer::new(limiter.clone()).key(by::first_of(by::api_key(), by::client_ip()));
//! let layer = RateLimitLayer::new(limiter.clone()).key(by::both(by::client_ip(), by::method()));
//! let layer = RateLimitLayer::new(limiter.clone()).key(by::extension(|jwt: &Claims| jwt.subject.as_str().into()));
//! let layer = RateLimitLayer::new(limiter).key(|request| Some(request.uri().host()?.into()));
//! # let _ = layer;
//! ```
//!
//! # Headers are unauthenticated
//!
//! A header is whatever the caller wrote. A key or attribute from [`header`] or
//! [`api_key`] that no other layer has verified means that
//!
//! - a caller has as many limits as it writes different values;
//! - a caller uses up the limit of another by writing that one's value;
//! - a caller chooses its own [tier](tidegate::Rule::tier), and any override or
//!   allow list that asks for the attribute.
//!
//! Put an authentication layer around this one, have it put what it has verified
//! into the request's extensions, and read that with [`extension`]:
//!
//! ```
//! use tidegate::{Limit, Limiter, Rule};
//! use tidegate_tower::{RateLimitLayer, by};
//!
//! /// What the authentication layer knows of a caller.
//! struct Account { user: String, plan: &'static str }
//!
//! let orders = Rule::new("orders", Limit::per_minute(10)).key(["user"]).tier("plan", "pro", Limit::per_minute(100));
//! let layer = RateLimitLayer::new(Limiter::new(orders))
//!     .attribute("user", by::extension(|account: &Account| account.user.as_str().into()))
//!     .attribute("plan", by::extension(|account: &Account| account.plan.into()));
//! # let _ = layer;
//! ```

use http::header::AUTHORIZATION;

use crate::head::{Head, Value};

/// The client's address, by the layer's [`ClientIp`](crate::ClientIp).
pub fn client_ip() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |request| request.client_ip().map(Value::Address)
}

/// A header, if it is there and not empty. It is
/// [unauthenticated](self#headers-are-unauthenticated): the caller chooses it, and
/// with it its key or tier. What decides over a caller's limit belongs in an
/// [`extension`].
pub fn header(name: impl Into<String>) -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    let name = name.into();
    move |request| {
        let value = request.headers().get(&name)?.as_bytes();
        (!value.is_empty()).then_some(value.into())
    }
}

/// The header `X-Api-Key`, or what follows the scheme in `Authorization`. It is
/// [unauthenticated](self#headers-are-unauthenticated), unless a layer around this
/// one refuses keys that do not exist.
///
/// The memory store keeps only a fingerprint of it. A Redis store keeps it as
/// it is, in the name of a key.
pub fn api_key() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |request| {
        let credentials = || {
            let value = request.headers().get(AUTHORIZATION)?.as_bytes();
            let space = value.iter().position(|byte| *byte == b' ')?;
            Some(value[space..].trim_ascii_start())
        };
        let key = request.headers().get("x-api-key").map(http::HeaderValue::as_bytes);
        let key = key.filter(|key| !key.is_empty()).or_else(credentials)?;
        (!key.is_empty()).then_some(key.into())
    }
}

/// The method.
pub fn method() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |request| Some(request.method().as_str().into())
}

/// The path as it was asked for, also within a router that axum has nested.
/// A client can ask for any number of paths, and so make as many keys; `route`
/// has a fixed number.
pub fn path() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |request| {
        // A nested router is given the rest of the path only.
        #[cfg(feature = "axum")]
        if let Some(original) = request.extension::<axum::extract::OriginalUri>() {
            return Some(original.path().into());
        }
        Some(request.uri().path().into())
    }
}

/// The route that axum has matched, such as `/users/{id}`. A path that none
/// matches has no key: use `route_layer`, which has nothing to do with those, or
/// see [`Keyless`](crate::Keyless).
#[cfg(feature = "axum")]
pub fn route() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |request| Some(request.extension::<axum::extract::MatchedPath>()?.as_str().into())
}

/// What an outer layer, such as one that authenticates, has put into the
/// request's extensions: a user, a tenant, a plan, the subject of a token. The
/// caller cannot write it.
pub fn extension<T, F>(read: F) -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static
where
    T: Send + Sync + 'static,
    F: for<'r> Fn(&'r T) -> Value<'r> + Send + Sync + 'static,
{
    move |request| request.extension().map(&read)
}

/// The same for all requests: one limit that they share, by your choice.
pub fn everyone() -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static {
    |_| Some("".into())
}

/// Both together; a request that lacks one of them has none.
pub fn both<A, B>(first: A, second: B) -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static
where
    A: for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static,
    B: for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static,
{
    move |request| Some(Value::All(vec![first(request)?, second(request)?]))
}

/// The first, or else the second. Keys of one are never those of the other.
pub fn first_of<A, B>(first: A, second: B) -> impl for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static
where
    A: for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static,
    B: for<'r> Fn(Head<'r>) -> Option<Value<'r>> + Send + Sync + 'static,
{
    move |request| {
        // A header that holds another client's address must not match that client.
        let (tag, value) = match first(request) {
            Some(value) => (1_u64, value),
            None => (2, second(request)?),
        };
        Some(Value::All(vec![tag.into(), value]))
    }
}
