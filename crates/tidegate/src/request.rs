//! Who asks, for what, at what cost.

mod amounts;
mod attributes;
mod key;
mod owned;
mod text;

pub use amounts::Amounts;
pub(crate) use amounts::NamedAmounts;
pub(crate) use attributes::Attributes;
pub(crate) use key::Part;
pub use key::{Key, KeyPart};
pub use owned::OwnedRequest;

use std::time::Duration;

use crate::fnv::Fnv;

/// One request to a limiter: a key and a cost of one, unless set otherwise.
///
/// Anything that makes a [`Key`] makes a request:
///
/// ```
/// use tidegate::{Limit, Limiter, Request};
///
/// let limiter = Limiter::new(Limit::per_minute(100));
/// assert!(limiter.allow("alice"));
/// assert!(limiter.allow(("alice", "POST /orders")));
/// assert!(limiter.allow(Request::new("alice").cost(5)));
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
/// assert!(limiter.allow(order.clone()) && !limiter.allow(order));
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
    pub(crate) attributes: Attributes<'a>,
    pub(crate) rule: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    /// For how many milliseconds the id is remembered; zero for as long as the store does.
    pub(crate) lasts_ms: u32,
    /// What it is charged by the names of what is counted.
    pub(crate) amounts: NamedAmounts<'a>,
    pub(crate) extent: Extent,
    /// What it does not bring.
    pub(crate) without: Without,
}

/// What of a request's cost is told.
///
/// As wide as the two flags beside it: then they fill a word with the milliseconds, which
/// is copied at once. Of three parts, the processor waits for each to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Extent {
    /// All.
    #[default]
    Whole,
    /// All, as far as it can be told before: it is to be settled.
    Estimate,
    /// What comes in addition to what was charged before.
    InAddition,
    /// Only what is named: the rest stays as it was charged.
    Named,
    /// That there is none.
    Nothing,
}

/// What a request does not bring, and what that means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// It has no key: a rule that counts by the request's key lacks it.
    pub(crate) key: bool,
    /// It is partial by design: what would be an error skips the rule.
    pub(crate) skips: bool,
}

/// By what a store knows a request that it has decided before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId<'a> {
    /// The caller's name for the request.
    pub text: &'a str,
    /// What was asked for, as a hash: an id that comes with another one is an
    /// error.
    pub payload: u64,
    /// For how many milliseconds it is to be remembered; zero for as long as the store
    /// remembers ids.
    pub lasts_ms: u32,
    /// What is done under it.
    pub purpose: Purpose,
}

impl<'a> RequestId<'a> {
    /// Of a request that is to be carried out once.
    ///
    /// ```
    /// use tidegate::store::{Purpose, RequestId};
    ///
    /// let id = RequestId::once("order-17", 42);
    /// assert_eq!((id.text, id.purpose), ("order-17", Purpose::Once));
    /// ```
    #[must_use]
    pub const fn once(text: &'a str, payload: u64) -> RequestId<'a> {
        RequestId { text, payload, lasts_ms: 0, purpose: Purpose::Once }
    }
}

/// What is done under an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To be carried out, once.
    #[default]
    Once,
    /// To correct what was carried out under it, once.
    Settle,
    /// To renew the charges that were made under it.
    Renew,
}

impl<'a> Request<'a> {
    /// A request of cost 1.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow(Request::new("alice")));
    /// assert!(limiter.allow(Request::new(("tenant-7", "alice"))));
    /// ```
    #[inline]
    pub fn new(key: impl Into<Key<'a>>) -> Request<'a> {
        let (key, attributes) = (key.into(), Attributes::None);
        let (amounts, extent, without) = (NamedAmounts::default(), Extent::Whole, Without::default());
        Request { key, cost: 1, attributes, rule: None, id: None, lasts_ms: 0, amounts, extent, without }
    }

    /// A request that has attributes and no key: to a rule that counts by the
    /// request's key, the key is [missing](crate::Missing).
    ///
    /// ```
    /// use tidegate::{CheckError, Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_minute(100));
    /// let error = limiter.check(Request::without_key().with("user", "alice"));
    /// assert!(matches!(error, Err(CheckError::MissingAttribute { .. })));
    /// ```
    #[must_use]
    pub fn without_key() -> Request<'a> {
        Request { without: Without { key: true, skips: false }, ..Request::new(()) }
    }

    /// A request of a user: the key, and the attribute `user`.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("users", Limit::per_hour(1)).key(["user"]));
    /// assert!(limiter.allow(Request::user("alice")) && !limiter.allow(Request::user("alice")));
    /// ```
    #[inline]
    pub fn user(user: impl Into<KeyPart<'a>>) -> Request<'a> {
        let user = user.into();
        let key = Key::part(user.clone());
        Request { attributes: Attributes::user(user), ..Request::new(key) }
    }

    /// Adds an attribute, or changes it.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tenants", Limit::per_hour(1)).key(["tenant"]));
    /// let request = |user| Request::user(user).with("tenant", "acme");
    /// assert!(limiter.allow(request("alice")) && !limiter.allow(request("bob")));
    /// ```
    #[must_use]
    #[inline]
    pub fn with(mut self, name: &'a str, value: impl Into<KeyPart<'a>>) -> Request<'a> {
        self.attributes.add(name, value.into());
        self
    }

    /// Skips rules whose key attributes this request lacks, where that would be an
    /// error: for protocols whose requests are partial by design, such as Envoy's
    /// descriptors.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("tenants", Limit::per_hour(1)).key(["tenant"]));
    /// assert!(limiter.check(Request::user("alice")).is_err());
    /// assert!(limiter.check(Request::user("alice").partial())?.is_unlimited());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn partial(mut self) -> Request<'a> {
        self.without.skips = true;
        self
    }

    /// Sets the cost. A cost of zero asks without taking anything.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert_eq!(limiter.check(Request::new("alice").cost(4))?.remaining(), Some(6));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn cost(mut self, cost: u64) -> Request<'a> {
        self.cost = cost;
        self
    }

    /// Asks for the cost in addition to what the same request was charged
    /// before: rules that [always](crate::Rule::fixed_cost) charge the same have
    /// had it, and are charged nothing.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request, Rule};
    ///
    /// let limiter = Limiter::new(Rule::new("requests", Limit::per_hour(10)).fixed_cost(1));
    /// assert_eq!(limiter.check("alice")?.remaining(), Some(9));
    /// let more = limiter.check(Request::new("alice").cost(5).in_addition())?;
    /// assert_eq!(more.remaining(), Some(9));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn in_addition(mut self) -> Request<'a> {
        self.extent = Extent::InAddition;
        self
    }

    pub(crate) fn is_in_addition(&self) -> bool {
        self.extent == Extent::InAddition
    }

    /// Makes the cost an estimate that is to be settled:
    /// [`Limiter::reserve`](crate::Limiter::reserve), for protocols that read the verb from a
    /// wire. The request is charged as any other under its [id](Request::id); observers are told that it
    /// is a reservation.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let reserved = limiter.check(Request::new("alice").cost(8).id("call-1").into_estimate())?;
    /// assert_eq!(reserved.remaining(), Some(2));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn into_estimate(mut self) -> Request<'a> {
        if self.extent == Extent::Whole {
            self.extent = Extent::Estimate;
        }
        self
    }

    /// Makes the request that corrects its reservation to `actual`:
    /// [`Limiter::settle`](crate::Limiter::settle), for protocols that read the verb from a wire.
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let call = Request::new("alice").cost(8).id("call-1");
    /// let _ = limiter.check_async(call.clone().into_estimate()).await?;
    /// let _ = limiter.decide_async(Verb::SETTLE, call.into_settlement(3)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_settlement(mut self, actual: impl Into<Amounts<'a>>) -> Request<'a> {
        let Amounts { cost, named } = actual.into();
        self.extent = if cost.is_some() { Extent::Whole } else { Extent::Named };
        (self.cost, self.amounts) = (cost.unwrap_or(0), named);
        self
    }

    /// Makes the request that takes its reservation back:
    /// [`Limiter::release`](crate::Limiter::release).
    ///
    /// ```
    /// use tidegate::kernel::Verb;
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// # async fn run() -> Result<(), tidegate::CheckError> {
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let call = Request::new("alice").cost(8).id("call-1");
    /// let _ = limiter.check_async(call.clone().into_estimate()).await?;
    /// let _ = limiter.decide_async(Verb::SETTLE, call.into_release()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_release(mut self) -> Request<'a> {
        self.extent = Extent::Nothing;
        self
    }

    /// Says how much of something the request takes, for rules that [count](crate::Rule::unit)
    /// that.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy, Request, Rule};
    ///
    /// let tokens = Rule::new("tokens", Limit::per_minute(1_000)).unit("tokens");
    /// let limiter = Limiter::new(Policy::new().rule(tokens).limit("requests", Limit::per_minute(10)));
    /// let decision = limiter.check(Request::new("alice").amount("tokens", 995))?;
    /// assert_eq!(decision.remaining(), Some(5));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    pub fn amount(mut self, unit: &'a str, amount: u64) -> Request<'a> {
        self.amounts.set(unit, amount);
        self
    }

    /// Has the [id](Request::id) remembered for so long, instead of as long as the store
    /// remembers ids: a reservation can be settled until then. Rounded up to milliseconds;
    /// at most 49 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// let call = limiter.reserve(Request::new("alice").cost(8).lasts(Duration::from_secs(3_600)))?.made().expect("admitted");
    /// let _ = call.settle(3)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn lasts(mut self, time: Duration) -> Request<'a> {
        let millis = time.as_nanos().div_ceil(1_000_000).max(1);
        self.lasts_ms = u32::try_from(millis).unwrap_or(u32::MAX);
        self
    }

    /// Names this request, so that it is charged once however often it is
    /// sent: while its id is remembered, the same request gets the decision
    /// that it was admitted with. A refusal charged nothing, and is decided anew.
    ///
    /// An id belongs to the first part of the key that is asked about first. One
    /// that comes with another key, attribute or cost is an error. A caller that can
    /// choose ids can have a request pass twice for one charge: take them from
    /// callers you trust.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let limiter = Limiter::new(Limit::per_minute(10));
    /// let order = Request::new("alice").cost(3).id("order-17");
    /// assert_eq!(limiter.check(order.clone())?.remaining(), Some(7));
    /// assert_eq!(limiter.check(order)?.remaining(), Some(7));
    /// assert!(limiter.check(Request::new("alice").cost(9).id("order-17")).is_err());
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn id(mut self, id: &'a str) -> Request<'a> {
        self.id = Some(id);
        self
    }

    /// The key that it brings, if it brings one.
    ///
    /// ```
    /// use tidegate::{Key, Request};
    ///
    /// assert_eq!(Request::new("alice").own_key(), Some(&Key::from("alice")));
    /// assert_eq!(Request::without_key().own_key(), None);
    /// ```
    #[must_use]
    pub fn own_key(&self) -> Option<&Key<'a>> {
        (!self.without.key).then_some(&self.key)
    }

    /// Its attributes in the order in which they were given, each value as a key of one part: of a
    /// name that is there twice, the last counts.
    ///
    /// ```
    /// use tidegate::Request;
    ///
    /// let request = Request::user("alice").with("endpoint", "POST /orders");
    /// let names: Vec<&str> = request.attributes().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["user", "endpoint"]);
    /// ```
    pub fn attributes(&self) -> impl Iterator<Item = (&str, Key<'_>)> {
        self.attributes.iter().map(|(name, value)| (name, Key::part(value.into())))
    }

    /// The value of an attribute as a key; none if it is missing, or an address, which a
    /// rule takes by its network.
    #[inline]
    pub(crate) fn key_by(&self, attribute: &str) -> Option<Key<'_>> {
        match self.attributes.get(attribute)? {
            Part::Address(_) => None,
            value => Some(Key::part(value.into())),
        }
    }

    /// Whether its key is its user, and that and the cost are all that a limit by user needs.
    #[inline(always)]
    pub(crate) fn is_of_user(&self) -> bool {
        matches!(self.attributes, Attributes::User(_)) && self.id.is_none() && self.rule.is_none()
    }

    /// Whether there is memory to be freed with it.
    #[inline(always)]
    pub(crate) fn is_on_heap(&self) -> bool {
        self.key.is_on_heap() || matches!(self.attributes, Attributes::Many(_)) || !self.amounts.is_empty()
    }

    /// Whether it is that of a limit without keys: nothing is told of it but its cost.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        let is_usual = self.extent == Extent::Whole && self.lasts_ms == 0 && self.without == Without::default();
        is_usual && self.is_plain() && matches!(self.attributes, Attributes::None) && self.key.is_bare()
    }

    /// Whether the key and the cost are all that a limit on every request needs.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.id.is_none() && self.rule.is_none() && !self.without.key && self.amounts.is_empty()
    }

    /// What the id of this request stands for: the same in every process.
    pub(crate) fn payload(&self) -> u64 {
        let mut hash = Fnv::default();
        let mut part = |bytes: &[u8]| {
            hash.write(&(bytes.len() as u64).to_le_bytes());
            hash.write(bytes);
        };
        part(&[u8::from(self.key.is_composite()), u8::from(self.rule.is_some())]);
        part(self.key.as_bytes());
        part(&self.cost.to_le_bytes());
        part(self.rule.unwrap_or_default().as_bytes());
        let mut attributes: Vec<_> = self.attributes.iter().rev().collect();
        attributes.sort_by_key(|(name, _)| *name);
        // Of a name that is there twice, the last counts.
        attributes.dedup_by_key(|(name, _)| *name);
        for (name, value) in attributes {
            part(name.as_bytes());
            value.with_bytes(|bytes| part(bytes));
        }
        if self.is_in_addition() {
            part(b"in addition");
        }
        for (unit, amount) in self.amounts.sorted() {
            part(unit.as_bytes());
            part(&amount.to_le_bytes());
        }
        hash.finish()
    }

    /// Asks one rule, by its name, whatever else matches. If it has a
    /// [candidate](crate::Rule::candidate), that watches as always.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Policy, Request};
    ///
    /// let policy = Policy::new().limit("burst", Limit::per_second(5)).limit("daily", Limit::per_day(9));
    /// let limiter = Limiter::new(policy);
    /// assert_eq!(limiter.check(Request::new("alice").rule("daily"))?.remaining(), Some(8));
    /// assert_eq!(limiter.peek(Request::new("alice").rule("burst"))?.remaining(), Some(5));
    /// # Ok::<(), tidegate::CheckError>(())
    /// ```
    #[must_use]
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_key_of_its_own_unless_it_says_that_it_has_none() {
        assert_eq!(Request::new("alice").own_key(), Some(&Key::from("alice")));
        assert_eq!(Request::new(()).own_key(), Some(&Key::from(())));
        assert_eq!(Request::without_key().own_key(), None);
    }

    #[test]
    fn only_a_whole_cost_becomes_an_estimate() {
        assert_eq!(Request::new("alice").into_estimate().extent, Extent::Estimate);
        assert_eq!(Request::new("alice").in_addition().into_estimate().extent, Extent::InAddition);
    }

    #[test]
    fn a_request_owns_memory_if_a_part_of_it_does() {
        assert!(!Request::user("alice").cost(2).id("once").is_on_heap());
        let others = [Request::new("alice".repeat(20)), Request::new("alice").amount("tokens", 1)];
        assert!(others.iter().all(Request::is_on_heap));
    }

    #[test]
    fn a_bare_request_says_nothing_but_its_cost() {
        assert!(Request::new(()).is_bare() && Request::from("").cost(3).is_bare());
        let others = [
            Request::new("alice"),
            Request::without_key(),
            Request::new(Key::of(std::iter::empty::<KeyPart<'_>>())),
            Request::new(()).with("user", "alice"),
            Request::new(()).id("once"),
            Request::new(()).rule("limit"),
            Request::new(()).amount("tokens", 1),
            Request::new(()).into_estimate(),
            Request::new(()).lasts(std::time::Duration::from_secs(1)),
        ];
        assert!(others.iter().all(|request| !request.is_bare()));
    }
}
