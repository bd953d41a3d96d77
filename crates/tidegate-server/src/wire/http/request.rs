//! Requests as JSON.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::problem::Problem;
use crate::ask::call::{Call, MAX_TTL_MS};
use crate::ask::request::{Ask, MAX_COST, Parts};
use crate::wire::json::{self, FromObject, Shape, Whole, given};

/// The longest that a caller may wait, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// One request or several.
#[derive(Debug)]
// One is what most are: it is decided where it was read.
#[allow(clippy::large_enum_variant)]
pub(super) enum OneOrBatch<'a> {
    One(Ask<'a>),
    Batch(Vec<Ask<'a>>),
}

/// Reads what a call asks, once or several times.
pub(super) fn read(call: Call, body: &[u8], max_batch: usize) -> Result<OneOrBatch<'_>, Problem> {
    if !is_batch(body) {
        return read_one(call, body).map(OneOrBatch::One);
    }
    let documents = json::read_by(Batch { bound: max_batch }, body)?;
    let asks = documents.into_iter().map(|document| document.into_ask(call));
    Ok(OneOrBatch::Batch(asks.collect::<Result<_, _>>()?))
}

/// Reads one request, on a path that does not wait.
pub(super) fn read_one(call: Call, body: &[u8]) -> Result<Ask<'_>, Problem> {
    AskDocument::read(body)?.into_ask(call)
}

/// Reads one request, and how long its caller would wait.
pub(super) fn read_waiting(call: Call, body: &[u8]) -> Result<(Ask<'_>, Duration), Problem> {
    let mut document = AskDocument::read(body)?;
    let timeout = document.timeout_ms.take();
    let ask = document.into_ask(call)?;
    let Whole(timeout) = timeout.ok_or(Problem::NoTimeout { bound: MAX_TIMEOUT_MS })?;
    Ok((ask, Duration::from_millis(timeout)))
}

fn is_batch(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// One request, borrowed from the body that it came in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskDocument<'a> {
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    attributes: Named<'a, Value<'a>>,
    #[serde(default, deserialize_with = "given")]
    cost: Option<Whole<MAX_COST>>,
    #[serde(borrow, default)]
    amounts: Named<'a, Whole<MAX_COST>>,
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

impl Shape for AskDocument<'_> {
    const EXPECTED: &'static str =
        "an object with attributes, key, cost, amounts, rule, id, ttl_ms, limit and timeout_ms";
}

impl<'a> AskDocument<'a> {
    /// The one request, where a batch makes no sense.
    fn read(body: &'a [u8]) -> Result<AskDocument<'a>, Problem> {
        if is_batch(body) {
            return Err(Problem::NoBatch);
        }
        let FromObject(document) = json::read(body)?;
        Ok(document)
    }

    /// Refuses a timeout: on a path that does not wait, its caller expects something else.
    fn into_ask(self, call: Call) -> Result<Ask<'a>, Problem> {
        let AskDocument { key, attributes, cost, amounts, limit, rule, id, ttl_ms, timeout_ms } = self;
        let text = |text: Option<Text<'a>>| text.map(|Text(text)| text);
        let ask = Ask::new(
            call,
            Parts {
                key: key.map(|Text(key)| bytes(key)),
                attributes: attributes.0.into_iter().map(|(name, Value(value))| (name, bytes(value))).collect(),
                cost: cost.map(|Whole(cost)| cost),
                amounts: amounts.0.into_iter().map(|(unit, Whole(amount))| (unit, amount)).collect(),
                rule: text(rule),
                id: text(id),
                ttl_ms: ttl_ms.map(|Whole(ttl)| ttl),
                limit: text(limit),
            },
        )?;
        if timeout_ms.is_some() { Err(Problem::TimeoutWithoutWait) } else { Ok(ask) }
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A list of requests, of which no more than so many are kept.
#[derive(Clone, Copy)]
struct Batch {
    bound: usize,
}

impl<'de> DeserializeSeed<'de> for Batch {
    type Value = Vec<AskDocument<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Batch {
    type Value = Vec<AskDocument<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut documents, Batch { bound }) = (Vec::new(), self);
        while let Some(FromObject(document)) = list.next_element()? {
            if documents.len() == bound {
                return Err(A::Error::custom(format_args!(
                    "the batch has more than {bound} requests: send at most {bound} at a time"
                )));
            }
            documents.push(document);
        }
        Ok(documents)
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
    /// All of them, for errors.
    const EXPECTED: &'static str;
}

impl Member for Value<'_> {
    const EXPECTED: &'static str = "an object whose values are strings or whole numbers";
}

impl Member for Whole<MAX_COST> {
    const EXPECTED: &'static str = "an object whose values are whole numbers";
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
                write!(f, "a string, or a whole number of at most {MAX_COST}")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Owned(text.to_owned())))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Value<'de>, E> {
                match number <= MAX_COST {
                    true => Ok(Value(Cow::Owned(number.to_string()))),
                    false => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value<'de>, E> {
                match number.unsigned_abs() <= MAX_COST {
                    true => Ok(Value(Cow::Owned(number.to_string()))),
                    false => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(Values)
    }
}
