//! One request, as every wire asks it: read by the wire, held to the same rules here.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Request;
use tidegate_config::MAX_UNIT_LENGTH;

use super::call::{Call, MAX_TTL_MS};
use super::engine::Engine;
use super::inline::{Inline, InlineError};

/// The most attributes of one request.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
/// The most amounts of one request.
pub(crate) const MAX_AMOUNTS: usize = 16;
/// The longest key, name or value of a request, in bytes.
pub(crate) const MAX_TEXT: usize = 4096;
/// The largest cost or amount: the largest number that every reader of JSON takes for what it is. Limits end far below.
pub(crate) const MAX_COST: u64 = (1 << 53) - 1;

/// What a wire has read of a request.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) key: Option<Cow<'a, [u8]>>,
    pub(crate) attributes: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
    pub(crate) cost: Option<u64>,
    pub(crate) amounts: Vec<(Cow<'a, str>, u64)>,
    pub(crate) rule: Option<Cow<'a, str>>,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) ttl_ms: Option<u64>,
    /// A limit in words, in place of the policy.
    pub(crate) limit: Option<Cow<'a, str>>,
}

/// A valid request, and what is asked with it.
#[derive(Debug)]
pub struct Ask<'a> {
    call: Call,
    parts: Parts<'a>,
}

/// Why a request is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum AskError {
    #[error("{what} has {found} bytes: send at most {bound}")]
    TextTooLong { what: &'static str, found: usize, bound: usize },
    #[error("the request has {found} {what}: send at most {bound}")]
    TooMany { what: &'static str, found: usize, bound: usize },
    #[error("{what} {name:?} is given twice")]
    Twice { what: &'static str, name: String },
    #[error("{what} is {found}: send a whole number from 0 to {MAX_COST}")]
    CostTooHigh { what: &'static str, found: u64 },
    #[error("the time to live is {found} ms: send a whole number from 1 to {MAX_TTL_MS}")]
    Ttl { found: u64 },
    #[error("the time to live is how long the id is remembered: send \"id\" beside it, or leave it out")]
    TtlWithoutId,
    #[error("id is missing: send the id of the reservation, a text of your choice that no other request has")]
    NoId,
    #[error("key is empty: send the key that the request counts against, or leave it out")]
    EmptyKey,
    #[error(
        "a limit that comes with the request replaces the policy and goes by the key alone: send \"key\" beside \"limit\", \
         and neither \"attributes\" nor \"rule\""
    )]
    InlineByKeyOnly,
    #[error("the request has neither a key nor attributes: send attributes, such as a user, or a key")]
    NoKey,
}

impl<'a> Ask<'a> {
    /// # Errors
    /// The first thing that is not valid.
    pub(crate) fn new(call: Call, parts: Parts<'a>) -> Result<Ask<'a>, AskError> {
        let Parts { key, attributes, cost, amounts, rule, id, ttl_ms, limit } = &parts;
        within("key", key.as_deref().map_or(0, <[u8]>::len))?;
        for (what, text) in [("limit", limit), ("rule", rule), ("id", id)] {
            within(what, text.as_deref().map_or(0, str::len))?;
        }
        at_most(MAX_ATTRIBUTES, "attributes", attributes.len())?;
        for (name, value) in attributes {
            within("the name of an attribute", name.len())?;
            within("the value of an attribute", value.len())?;
        }
        once("attribute", attributes)?;
        at_most(MAX_AMOUNTS, "amounts", amounts.len())?;
        for (unit, amount) in amounts {
            text_within(MAX_UNIT_LENGTH, "the name of a unit", unit.len())?;
            payable("an amount", *amount)?;
        }
        once("amount", amounts)?;
        payable("the cost", cost.unwrap_or_default())?;
        match (id, ttl_ms) {
            (_, Some(found)) if !(1..=MAX_TTL_MS).contains(found) => return Err(AskError::Ttl { found: *found }),
            (None, Some(_)) => return Err(AskError::TtlWithoutId),
            (None, None) if call.needs_id() => return Err(AskError::NoId),
            _ => {}
        }
        if key.as_deref().is_some_and(<[u8]>::is_empty) {
            return Err(AskError::EmptyKey);
        }
        let is_by_policy = !attributes.is_empty() || rule.is_some();
        match (limit, key) {
            (Some(_), None) => Err(AskError::InlineByKeyOnly),
            (Some(_), Some(_)) if is_by_policy => Err(AskError::InlineByKeyOnly),
            (None, None) if !is_by_policy => Err(AskError::NoKey),
            _ => Ok(Ask { call, parts }),
        }
    }

    /// The limit that came with the request; without one, the policy decides.
    pub(crate) fn inline(&self, engine: &Engine) -> Result<Option<Arc<Inline>>, InlineError> {
        self.parts.limit.as_deref().map(|words| engine.inline_words(words)).transpose()
    }
}

/// The request in the library's words. Its key, if left out, is the attribute `user`.
impl<'q> From<&'q Ask<'_>> for Request<'q> {
    fn from(Ask { call, parts }: &'q Ask<'_>) -> Request<'q> {
        let user = || parts.attributes.iter().find(|(name, _)| name == "user").map(|(_, value)| value);
        let mut request = match parts.key.as_ref().or_else(user) {
            Some(key) => Request::new(&**key),
            None => Request::without_key(),
        };
        for (name, value) in &parts.attributes {
            request = request.with(name, &**value);
        }
        if let Some(rule) = &parts.rule {
            request = request.rule(rule);
        }
        if let Some(id) = &parts.id {
            request = request.id(id);
        }
        if let Some(ttl) = parts.ttl_ms {
            request = request.lasts(Duration::from_millis(ttl));
        }
        call.of(request, parts.cost, parts.amounts.iter().map(|(unit, amount)| (&**unit, *amount)))
    }
}

fn within(what: &'static str, found: usize) -> Result<(), AskError> {
    text_within(MAX_TEXT, what, found)
}

fn text_within(bound: usize, what: &'static str, found: usize) -> Result<(), AskError> {
    if found > bound { Err(AskError::TextTooLong { what, found, bound }) } else { Ok(()) }
}

fn at_most(bound: usize, what: &'static str, found: usize) -> Result<(), AskError> {
    if found > bound { Err(AskError::TooMany { what, found, bound }) } else { Ok(()) }
}

fn payable(what: &'static str, found: u64) -> Result<(), AskError> {
    if found > MAX_COST { Err(AskError::CostTooHigh { what, found }) } else { Ok(()) }
}

/// They are few: each is compared with all before it.
fn once<V>(what: &'static str, members: &[(Cow<'_, str>, V)]) -> Result<(), AskError> {
    let is_known =
        |(place, (name, _)): &(usize, &(Cow<'_, str>, V))| members[..*place].iter().any(|(known, _)| known == name);
    match members.iter().enumerate().find(is_known) {
        Some((_, (name, _))) => Err(AskError::Twice { what, name: name.to_string() }),
        None => Ok(()),
    }
}
