//! The attributes that make the key of a rule, and what happens if one is missing.

/// An attribute in the key of a rule: as it is, unless told otherwise.
///
/// An address is taken by its network: the first 64 bits of an IPv6 address,
/// all of an IPv4 address. The attribute `ip` is an address in every policy, and
/// so is one that a rule takes [by network](KeyAttribute::by_network): given as
/// text, however it is spelled, it is parsed, and text that is not an address is an
/// error.
///
/// ```
/// use tidegate::{KeyAttribute, Limit, Limiter, Request, Rule};
///
/// let rule = Rule::new("sign-in", Limit::per_hour(1)).key([KeyAttribute::new("user").ignoring_case()]);
/// let limiter = Limiter::new(rule);
/// assert!(limiter.allow(Request::user("alice")) && !limiter.allow(Request::user("ALICE")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAttribute {
    /// The first of these that the request has.
    pub(super) names: Vec<String>,
    pub(super) ignores_case: bool,
    pub(super) is_address: bool,
    pub(super) ipv4_bits: u8,
    pub(super) ipv6_bits: u8,
}

impl KeyAttribute {
    /// An attribute by its name.
    ///
    /// ```
    /// use tidegate::KeyAttribute;
    ///
    /// assert_eq!(KeyAttribute::new("user").names(), ["user"]);
    /// ```
    pub fn new(name: impl Into<String>) -> KeyAttribute {
        let names = vec![name.into()];
        KeyAttribute { names, ignores_case: false, is_address: false, ipv4_bits: 32, ipv6_bits: 64 }
    }

    /// Another attribute to use where those before it are missing. Keys that
    /// come from different attributes never collide.
    ///
    /// ```
    /// use tidegate::{KeyAttribute, Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("callers", Limit::per_hour(1)).key([KeyAttribute::new("user").or("ip")]);
    /// let limiter = Limiter::new(rule);
    /// let anonymous = |ip| Request::new(()).with("ip", ip);
    /// assert!(limiter.allow(Request::user("alice")) && limiter.allow(anonymous("192.0.2.1")));
    /// assert!(!limiter.allow(anonymous("192.0.2.1")));
    /// ```
    #[must_use]
    pub fn or(mut self, name: impl Into<String>) -> KeyAttribute {
        self.names.push(name.into());
        self
    }

    /// The attribute, and those to use instead of it, in this order.
    ///
    /// ```
    /// use tidegate::KeyAttribute;
    ///
    /// assert_eq!(KeyAttribute::new("user").or("ip").names(), ["user", "ip"]);
    /// ```
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// In words: `user`, or `user or ip`.
    pub(super) fn shown(&self) -> String {
        self.names.join(" or ")
    }

    /// Takes `Alice` and `ALICE` for `alice`.
    ///
    /// ```
    /// use tidegate::{KeyAttribute, Limit, Rule};
    ///
    /// let rule = Rule::new("mail", Limit::per_day(5)).key([KeyAttribute::new("email").ignoring_case()]);
    /// # let _ = rule;
    /// ```
    #[must_use]
    pub fn ignoring_case(mut self) -> KeyAttribute {
        self.ignores_case = true;
        self
    }

    /// Takes addresses by so many bits, also where they are given as text. Where
    /// there are [others](KeyAttribute::or) to choose from, a value that is no
    /// address stays as it is.
    ///
    /// ```
    /// use tidegate::{KeyAttribute, Limit, Limiter, Request, Rule};
    ///
    /// let rule = Rule::new("network", Limit::per_hour(1)).key([KeyAttribute::new("ip").by_network(24, 48)]);
    /// let limiter = Limiter::new(rule);
    /// let from = |ip| Request::new(()).with("ip", ip);
    /// assert!(limiter.allow(from("192.0.2.1")) && !limiter.allow(from("192.0.2.99")));
    /// ```
    #[must_use]
    pub fn by_network(mut self, ipv4_bits: u8, ipv6_bits: u8) -> KeyAttribute {
        (self.is_address, self.ipv4_bits, self.ipv6_bits) = (true, ipv4_bits.min(32), ipv6_bits.min(128));
        self
    }
}

impl<N: Into<String>> From<N> for KeyAttribute {
    fn from(name: N) -> KeyAttribute {
        KeyAttribute::new(name)
    }
}

/// What becomes of a request that lacks an attribute of a rule's key.
///
/// ```
/// use tidegate::{Limit, Limiter, Missing, Request, Rule};
///
/// let rule = |missing| Rule::new("tenant", Limit::per_hour(1)).key(["tenant"]).missing(missing);
/// assert!(Limiter::new(rule(Missing::Error)).check(Request::new("alice")).is_err());
/// assert!(Limiter::new(rule(Missing::Skip)).check(Request::new("alice"))?.is_unlimited());
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is an error: [`CheckError::MissingAttribute`](crate::CheckError::MissingAttribute).
    /// A shadow rule, which never refuses, does not apply.
    #[default]
    Error,
    /// The rule does not apply.
    Skip,
    /// All such requests share one key, which no value is ever taken for.
    Shared,
}
