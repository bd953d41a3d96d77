//! A request that outlives what it was made of.

use super::{Extent, Key, KeyPart, Request, Without};

/// A request that borrows nothing: for [observers](crate::Observer) that keep requests, to have them decided again.
///
/// ```
/// use tidegate::{Limit, Limiter, OwnedRequest, Request};
///
/// let kept = OwnedRequest::new(&Request::user("alice").cost(2));
/// let limiter = Limiter::new(Limit::per_minute(3));
/// assert!(limiter.allow(kept.lent()) && !limiter.allow(kept.lent()));
/// ```
#[derive(Debug)]
pub struct OwnedRequest {
    key: Key<'static>,
    cost: u64,
    attributes: Vec<(String, KeyPart<'static>)>,
    rule: Option<String>,
    id: Option<String>,
    lasts_ms: u32,
    amounts: Vec<(String, u64)>,
    extent: Extent,
    without: Without,
}

impl OwnedRequest {
    /// Keeps a request.
    #[must_use]
    pub fn new(request: &Request<'_>) -> OwnedRequest {
        let Request { key, cost, attributes, rule, id, lasts_ms, amounts, extent, without } = request;
        let attributes = attributes.iter().map(|(name, value)| (name.to_owned(), KeyPart::from(value).into_owned()));
        OwnedRequest {
            attributes: attributes.collect(),
            key: key.clone().into_owned(),
            cost: *cost,
            rule: rule.map(str::to_owned),
            id: id.map(str::to_owned),
            lasts_ms: *lasts_ms,
            amounts: amounts.iter().map(|(unit, amount)| (unit.to_owned(), amount)).collect(),
            extent: *extent,
            without: *without,
        }
    }

    /// The same, with this id unless it has one.
    pub(crate) fn or_id(self, id: impl FnOnce() -> String) -> OwnedRequest {
        OwnedRequest { id: Some(self.id.unwrap_or_else(id)), ..self }
    }

    /// Its [id](Request::id), if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Its cost.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The bytes that it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        let value = |value: &KeyPart<'_>| value.as_part().with_bytes(<[u8]>::len);
        let attribute =
            |(name, part): &(String, KeyPart<'_>)| name.len() + value(part) + size_of::<(String, KeyPart<'_>)>();
        let amount = |(unit, _): &(String, u64)| unit.len() + size_of::<(String, u64)>();
        size_of::<OwnedRequest>()
            + self.key.as_bytes().len()
            + self.attributes.iter().map(attribute).sum::<usize>()
            + self.amounts.iter().map(amount).sum::<usize>()
            + [&self.rule, &self.id].into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// The request.
    #[must_use]
    pub fn lent(&self) -> Request<'_> {
        let mut request = Request {
            cost: self.cost,
            rule: self.rule.as_deref(),
            id: self.id.as_deref(),
            lasts_ms: self.lasts_ms,
            extent: self.extent,
            without: self.without,
            ..Request::new(&self.key)
        };
        for (name, value) in &self.attributes {
            request = request.with(name, value.clone());
        }
        for (unit, amount) in &self.amounts {
            request = request.amount(unit, *amount);
        }
        request
    }
}
