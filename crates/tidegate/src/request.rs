//! Who asks, and at what cost.

mod key;

pub use key::{Key, KeyPart};

/// One question to a limiter: a key and a cost of one, unless told otherwise.
///
/// Anything that makes a [`Key`] makes a request:
///
/// ```
/// use tidegate::{Limit, Limiter, Request};
///
/// let limiter = Limiter::new(Limit::per_minute(100));
/// assert!(limiter.is_allowed("alice"));
/// assert!(limiter.is_allowed(("alice", "POST /orders")));
/// assert!(limiter.is_allowed(Request::new("alice").cost(5)));
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
}

impl<'a> Request<'a> {
    /// A request of cost 1.
    #[inline]
    pub fn new(key: impl Into<Key<'a>>) -> Request<'a> {
        Request { key: key.into(), cost: 1 }
    }

    /// Sets the cost. A cost of zero asks without taking anything.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Request<'a> {
        self.cost = cost;
        self
    }
}

impl<'a, K: Into<Key<'a>>> From<K> for Request<'a> {
    #[inline]
    fn from(key: K) -> Request<'a> {
        Request::new(key)
    }
}
