//! Who asks, for what, at what cost.

mod attributes;
mod key;

pub(crate) use attributes::Attributes;
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
///
/// Where a policy has [rules](crate::Rule), a request also has attributes, by
/// which the rules know whether they apply and whose limit it is:
///
/// ```
/// use tidegate::{Limit, Limiter, Policy, Request, Rule};
///
/// let policy = Policy::new().rule(Rule::new("orders", Limit::per_minute(1)).key(["user", "endpoint"]));
/// let limiter = Limiter::new(policy);
/// let order = Request::user("alice").with("endpoint", "POST /orders");
/// assert!(limiter.is_allowed(order.clone()) && !limiter.is_allowed(order));
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) rule: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A request of cost 1.
    #[inline]
    pub fn new(key: impl Into<Key<'a>>) -> Request<'a> {
        Request { key: key.into(), cost: 1, attributes: Attributes::None, rule: None }
    }

    /// A request of a user: the key, and the attribute `user`.
    pub fn user(user: impl Into<KeyPart<'a>>) -> Request<'a> {
        let user = user.into();
        Request::new(Key::part(user)).with("user", user)
    }

    /// Adds an attribute, or changes it.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: impl Into<KeyPart<'a>>) -> Request<'a> {
        self.attributes.add(name, value.into());
        self
    }

    /// Sets the cost. A cost of zero asks without taking anything.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Request<'a> {
        self.cost = cost;
        self
    }

    /// Asks one rule, by its name, whatever else matches.
    #[must_use]
    pub fn rule(mut self, name: &'a str) -> Request<'a> {
        self.rule = Some(name);
        self
    }
}

impl<'a, K: Into<Key<'a>>> From<K> for Request<'a> {
    #[inline]
    fn from(key: K) -> Request<'a> {
        Request::new(key)
    }
}
