//! Questions as JSON, and what they ask of whom.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use tidegate::Request;
use tidegate_config::MAX_UNIT_LENGTH;

use super::problem::Problem;
use crate::app::App;
use crate::call::{Call, MAX_AMOUNTS, MAX_TTL_MS};
use crate::inline::Inline;
use crate::json::{self, FromObject, MAX_TEXT, MAX_WHOLE, Shape, Whole, given};

const MAX_ATTRIBUTES: usize = 64;

/// The longest that a caller may wait, in milliseconds.
const MAX_PATIENCE_MS: u64 = 60_000;

/// One question, borrowed from the body that it came in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question<'a> {
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
    patience_ms: Option<Whole<MAX_PATIENCE_MS>>,
}

impl Shape for Question<'_> {
    const EXPECTED: &'static str =
        "an object with attributes, key, cost, amounts, rule, id, ttl_ms, limit and patience_ms";
}

/// One question or several.
#[derive(Debug)]
// One is what most are: it is decided where it was read.
#[allow(clippy::large_enum_variant)]
pub(super) enum Questions<'a> {
    One(Question<'a>),
    Batch(Vec<Question<'a>>),
}

impl<'a> Questions<'a> {
    pub(super) fn parse(body: &'a [u8], app: &App) -> Result<Questions<'a>, Problem> {
        let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        if !is_batch {
            return Question::parse(body).map(Questions::One);
        }
        let questions: Vec<FromObject<Question<'a>>> = json::read(body)?;
        let questions: Vec<Question<'a>> = questions.into_iter().map(|question| question.0).collect();
        let (found, bound) = (questions.len(), app.settings.max_batch);
        if found > bound {
            return Err(Problem::BatchTooLong { bound, found });
        }
        questions.iter().try_for_each(Question::examine)?;
        Ok(Questions::Batch(questions))
    }

    /// The one question, where a batch makes no sense.
    pub(super) fn one(body: &'a [u8]) -> Result<Question<'a>, Problem> {
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Problem::NoBatch);
        }
        Question::parse(body)
    }
}

impl<'a> Question<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Question<'a>, Problem> {
        let FromObject(question): FromObject<Question<'a>> = json::read(body)?;
        question.examine()?;
        Ok(question)
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
            _ => Ok(Asked { question: self, call }),
        }
    }

    /// The limit that came with the question; without one, the policy decides.
    pub(super) fn inline(&self, app: &App) -> Result<Option<Arc<Inline>>, Problem> {
        self.limit.as_ref().map(|words| app.inline_words(&words.0)).transpose().map_err(Problem::from)
    }

    /// How long the caller would wait.
    pub(super) fn patience(&self) -> Result<Duration, Problem> {
        let Whole(patience) = self.patience_ms.ok_or(Problem::NoPatience { bound: MAX_PATIENCE_MS })?;
        Ok(Duration::from_millis(patience))
    }

    /// Refuses patience on a path that does not wait: its caller expects something else.
    pub(super) fn without_patience(&self) -> Result<(), Problem> {
        if self.patience_ms.is_some() { Err(Problem::PatienceWithoutWait) } else { Ok(()) }
    }
}

/// A question, and what is asked with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'q> {
    question: &'q Question<'q>,
    call: Call,
}

/// The question in the library's words: as a check asks it.
impl<'q> From<&'q Question<'_>> for Request<'q> {
    fn from(question: &'q Question<'_>) -> Request<'q> {
        Asked { question, call: Call::Check }.into()
    }
}

/// The question in the library's words. Its key, if left out, is the attribute `user`.
impl<'q> From<Asked<'q>> for Request<'q> {
    fn from(Asked { question, call }: Asked<'q>) -> Request<'q> {
        let attributes = &question.attributes.0;
        let user = || attributes.iter().find(|(name, _)| name == "user").map(|(_, Value(value))| &**value);
        let mut request = match question.key.as_ref().map(|key| &*key.0).or_else(user) {
            Some(key) => Request::new(key),
            None => Request::without_key(),
        };
        for (name, Value(value)) in attributes {
            request = request.with(name, &**value);
        }
        if let Some(rule) = &question.rule {
            request = request.rule(&rule.0);
        }
        if let Some(id) = &question.id {
            request = request.id(&id.0);
        }
        if let Some(Whole(ttl)) = question.ttl_ms {
            request = request.lasts(Duration::from_millis(ttl));
        }
        let amounts = question.amounts.0.iter().map(|(unit, Whole(amount))| (&**unit, *amount));
        call.of(request, question.cost.map(|Whole(cost)| cost), amounts)
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

/// What has a name in a question.
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
