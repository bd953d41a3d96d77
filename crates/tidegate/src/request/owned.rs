//! A request that outlives what it was made of.

use super::{Extent, Key, KeyPart, Request, Without};

/// What it takes to ask for the same request again.
pub(crate) struct OwnedRequest {
    key: Key<'static>,
    cost: u64,
    attributes: Vec<(String, KeyPart<'static>)>,
    rule: Option<String>,
    id: String,
    lasts_ms: u32,
    amounts: Vec<(String, u64)>,
    extent: Extent,
    without: Without,
}

impl OwnedRequest {
    /// Keeps a request, which gets this id unless it has one.
    pub(crate) fn new(request: Request<'_>, id: impl FnOnce() -> String) -> OwnedRequest {
        let Request { key, cost, attributes, rule, id: given, lasts_ms, amounts, extent, without } = request;
        let attributes = attributes.iter().map(|(name, value)| (name.to_owned(), KeyPart::from(value).into_owned()));
        OwnedRequest {
            attributes: attributes.collect(),
            key: key.into_owned(),
            cost,
            rule: rule.map(str::to_owned),
            id: given.map_or_else(id, str::to_owned),
            lasts_ms,
            amounts: amounts.iter().map(|(unit, amount)| (unit.to_owned(), amount)).collect(),
            extent,
            without,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn lent(&self) -> Request<'_> {
        let mut request = Request {
            cost: self.cost,
            rule: self.rule.as_deref(),
            id: Some(&self.id),
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
