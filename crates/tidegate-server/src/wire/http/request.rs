//! Requests as JSON, and what they ask of whom.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use tidegate::Request;
use tidegate_config::MAX_UNIT_LENGTH;

use super::problem::Problem;
use crate::ask::call::{Call, MAX_AMOUNTS, MAX_TTL_MS};
use crate::ask::inline::Inline;
use crate::wire::app::App;
use crate::wire::json::{self, FromObject, MAX_TEXT, MAX_WHOLE, Shape, Whole, given};

const MAX_ATTRIBUTES: usize = 64;

/// The longest that a caller may wait, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// One request, borrowed from the body that it came in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRequest<'a> {
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    attributes: Named<'a, Value<'a>>,
    #[serde(default, deserialize_with = "given")]
    cost: Option<Whole<MAX_WHOLE>>,
    #[serde(borrow, default)]
    amounts: Named<'a, Whole<MAX_WHOLE>>,
    #[serde(borrow, default)]
    limit: Option<Text<'a>>,
    #[serde(borrow, default)]
    rule: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default, deserialize_with = "given")]
    ttl_ms: Option<Whole<MAX_TTL_MS, 1>>,
    #[serde(default)]
    timeout_ms: Option<Whole<MAX_TIMEOUT_MS>>,
}

impl Shape for CheckRequest<'_> {
    const EXPECTED: &'static str =
        "an object with attributes, key, cost, amounts, rule, id, ttl_ms, limit and timeout_ms";
}

/// One request or several.
#[derive(Debug)]
// One is what most are: it is decided where it was read.
#[allow(clippy::large_enum_variant)]
pub(super) enum CheckRequests<'a> {
    One(CheckRequest<'a>),
    Batch(Vec<CheckRequest<'a>>),
}

impl<'a> CheckRequests<'a> {
    pub(super) fn parse(body: &'a [u8], app: &App) -> Result<CheckRequests<'a>, Problem> {
        let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        if !is_batch {
            return CheckRequest::parse(body).map(CheckRequests::One);
        }
        let checks = json::read_by(Batch { bound: app.settings.max_batch }, body)?;
        checks.iter().try_for_each(CheckRequest::examine)?;
        Ok(CheckRequests::Batch(checks))
    }

    /// The one request, where a batch makes no sense.
    pub(super) fn one(body: &'a [u8]) -> Result<CheckRequest<'a>, Problem> {
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Problem::NoBatch);
        }
        CheckRequest::parse(body)
    }
}

/// A list of requests, of which no more than so many are kept.
#[derive(Clone, Copy)]
struct Batch {
    bound: usize,
}

impl<'de> DeserializeSeed<'de> for Batch {
    type Value = Vec<CheckRequest<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Batch {
    type Value = Vec<CheckRequest<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut checks, Batch { bound }) = (Vec::new(), self);
        while let Some(FromObject(check)) = list.next_element()? {
            if checks.len() == bound {
                return Err(A::Error::custom(format_args!(
                    "the batch has more than {bound} requests: send at most {bound} at a time"
                )));
            }
            checks.push(check);
        }
        Ok(checks)
    }
}

impl<'a> CheckRequest<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<CheckRequest<'a>, Problem> {
        let FromObject(check): FromObject<CheckRequest<'a>> = json::read(body)?;
        check.examine()?;
        Ok(check)
    }

    /// What JSON cannot say of itself.
    fn examine(&self) -> Result<(), Problem> {
        let at_most = |bound, what, text: &str| match text.len() {
            found if found > bound => Err(Problem::TextTooLong { what, found, bound }),
            _ => Ok(()),
        };
        let within = |what, text: &str| at_most(MAX_TEXT, what, text);
        for (what, text) in [("key", &self.key), ("limit", &self.limit), ("rule", &self.rule), ("id", &self.id)] {
            text.as_ref().map_or(Ok(()), |text| within(what, &text.0))?;
        }
        let found = self.attributes.0.len();
        if found > MAX_ATTRIBUTES {
            return Err(Problem::TooManyAttributes { bound: MAX_ATTRIBUTES, found });
        }
        for (name, value) in &self.attributes.0 {
            within("the name of an attribute", name)?;
            within("the value of an attribute", &value.0)?;
        }
        if self.amounts.0.len() > MAX_AMOUNTS {
            return Err(Problem::TooManyAmounts { bound: MAX_AMOUNTS, found: self.amounts.0.len() });
        }
        for (unit, _) in &self.amounts.0 {
            at_most(MAX_UNIT_LENGTH, "the name of a unit", unit)?;
        }
        if self.ttl_ms.is_some() && self.id.is_none() {
            return Err(Problem::TtlWithoutId);
        }
        if self.key.as_ref().is_some_and(|key| key.0.is_empty()) {
            return Err(Problem::EmptyKey);
        }
        let by_policy = found > 0 || self.rule.is_some();
        match (&self.limit, &self.key) {
            (Some(_), None) => Err(Problem::InlineByKeyOnly),
            (Some(_), Some(_)) if by_policy => Err(Problem::InlineByKeyOnly),
            (None, None) if !by_policy => Err(Problem::NoKey),
            _ => Ok(()),
        }
    }

    /// What a call asks with it.
    pub(super) fn of(&self, call: Call) -> Result<Asked<'_>, Problem> {
        match &self.id {
            None if call.needs_id() => Err(Problem::NoId),
            _ => Ok(Asked { check: self, call }),
        }
    }

    /// The limit that came with the request; without one, the policy decides.
    pub(super) fn inline(&self, app: &App) -> Result<Option<Arc<Inline>>, Problem> {
        self.limit.as_ref().map(|words| app.engine.inline_words(&words.0)).transpose().map_err(Problem::from)
    }

    /// How long the caller would wait.
    pub(super) fn timeout(&self) -> Result<Duration, Problem> {
        let Whole(timeout) = self.timeout_ms.ok_or(Problem::NoTimeout { bound: MAX_TIMEOUT_MS })?;
        Ok(Duration::from_millis(timeout))
    }

    /// Refuses timeout on a path that does not wait: its caller expects something else.
    pub(super) fn without_timeout(&self) -> Result<(), Problem> {
        if self.timeout_ms.is_some() { Err(Problem::TimeoutWithoutWait) } else { Ok(()) }
    }
}

/// A request, and what is asked with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'q> {
    check: &'q CheckRequest<'q>,
    call: Call,
}

/// The request in the library's words: as a check asks it.
impl<'q> From<&'q CheckRequest<'_>> for Request<'q> {
    fn from(check: &'q CheckRequest<'_>) -> Request<'q> {
        Asked { check, call: Call::Check }.into()
    }
}

/// The request in the library's words. Its key, if left out, is the attribute `user`.
impl<'q> From<Asked<'q>> for Request<'q> {
    fn from(Asked { check, call }: Asked<'q>) -> Request<'q> {
        let attributes = &check.attributes.0;
        let user = || attributes.iter().find(|(name, _)| name == "user").map(|(_, Value(value))| &**value);
        let mut request = match check.key.as_ref().map(|key| &*key.0).or_else(user) {
            Some(key) => Request::new(key),
            None => Request::without_key(),
        };
        for (name, Value(value)) in attributes {
            request = request.with(name, &**value);
        }
        if let Some(rule) = &check.rule {
            request = request.rule(&rule.0);
        }
        if let Some(id) = &check.id {
            request = request.id(&id.0);
        }
        if let Some(Whole(ttl)) = check.ttl_ms {
            request = request.lasts(Duration::from_millis(ttl));
        }
        let amounts = check.amounts.0.iter().map(|(unit, Whole(amount))| (&**unit, *amount));
        call.of(request, check.cost.map(|Whole(cost)| cost), amounts)
    }
}

/// Text that is borrowed if it has no escapes: serde borrows a `Cow` only
/// where it stands alone.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Names and values, in the order in which they came.
#[derive(Debug)]
struct Named<'a, V>(Vec<(Cow<'a, str>, V)>);

impl<V> Default for Named<'_, V> {
    fn default() -> Self {
        Named(Vec::new())
    }
}

/// What has a name in a request.
trait Member {
    /// One of them, for errors.
    const WHAT: &'static str;
    /// All of them, for errors.
    const EXPECTED: &'static str;
    /// The most of them.
    const MAX: usize;
}

impl Member for Value<'_> {
    const WHAT: &'static str = "attribute";
    const EXPECTED: &'static str = "an object whose values are strings or whole numbers";
    const MAX: usize = MAX_ATTRIBUTES;
}

impl Member for Whole<MAX_WHOLE> {
    const WHAT: &'static str = "amount";
    const EXPECTED: &'static str = "an object whose values are whole numbers";
    const MAX: usize = MAX_AMOUNTS;
}

impl<'de: 'a, 'a, V: Member + Deserialize<'de>> Deserialize<'de> for Named<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<'a, V>, D::Error> {
        struct Members<V>(PhantomData<V>);
        impl<'de, V: Member + Deserialize<'de>> Visitor<'de> for Members<V> {
            type Value = Named<'de, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(V::EXPECTED)
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Named<'de, V>, M::Error> {
                let mut members: Vec<(Cow<'de, str>, V)> = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    // Bodies are bounded; this bounds the comparing as well.
                    if members.len() < V::MAX && members.iter().any(|(known, _)| *known == name) {
                        return Err(M::Error::custom(format_args!("{} {name:?} is given twice", V::WHAT)));
                    }
                    members.push((name, value));
                }
                Ok(Named(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The value of an attribute: a number is the same as its text.
#[derive(Debug)]
struct Value<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value<'a>, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // A larger one may have been rounded on its way, and would be another key.
                write!(f, "a string, or a whole number of at most {MAX_WHOLE}")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Owned(text.to_owned())))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Value<'de>, E> {
                match number <= MAX_WHOLE {
                    true => Ok(Value(Cow::Owned(number.to_string()))),
                    false => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value<'de>, E> {
                match number.unsigned_abs() <= MAX_WHOLE {
                    true => Ok(Value(Cow::Owned(number.to_string()))),
                    false => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(Values)
    }
}
