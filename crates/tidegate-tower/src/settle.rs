//! What becomes of a charge when the response is known.
//!
//! A request is charged before it is served, so that no crowd gets past a
//! limit; the response can only correct that.

use http::{HeaderMap, HeaderName, StatusCode};

/// What the response makes of the charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It stays as it is.
    Keep,
    /// It is given back, unless the store failed and the fallback decided.
    Refund,
    /// So much more is charged, as far as there is any left: a limit has no
    /// debts. Rules that [always](tidegate::Rule::fixed_cost) cost the same are not
    /// charged again.
    Charge(u64),
}

/// A response, as far as a settlement needs it. A service that fails without
/// one is taken for the status 500.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'r> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) size: Option<u64>,
}

impl<'r> ResponseHead<'r> {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// The size of the body, if it or `Content-Length` tells before it is sent.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether it is of a call of gRPC that has failed, as far as its headers tell.
    fn is_failed_call(&self) -> bool {
        self.headers.get(GRPC_STATUS).is_some_and(|status| status != "0")
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Only failures count: attempts to log in, for example. A call of gRPC fails
/// by its own status if that is in the headers, which is where it is unless
/// messages came before it.
pub fn only_failures() -> impl Fn(ResponseHead<'_>) -> Settlement + Send + Sync + 'static {
    |head| {
        let failed = head.status.is_client_error() || head.status.is_server_error();
        if failed || head.is_failed_call() { Settlement::Keep } else { Settlement::Refund }
    }
}

/// Only 2xx counts, and of the calls of gRPC those that have not
/// [failed](only_failures).
pub fn only_successes() -> impl Fn(ResponseHead<'_>) -> Settlement + Send + Sync + 'static {
    |head| {
        let succeeded = head.status.is_success() && !head.is_failed_call();
        if succeeded { Settlement::Keep } else { Settlement::Refund }
    }
}

/// A response costs one unit for every so many bytes, and at least the one
/// that its request cost; a stream of unknown [size](ResponseHead::size), no
/// more than that.
pub fn by_size(bytes_per_unit: u64) -> impl Fn(ResponseHead<'_>) -> Settlement + Send + Sync + 'static {
    move |head| {
        let units = head.size.unwrap_or(0).div_ceil(bytes_per_unit.max(1));
        Settlement::Charge(units.saturating_sub(1))
    }
}
