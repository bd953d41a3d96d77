//! The shape of a policy file: what serde reads, and what editors are told.
//!
//! The comments on these fields are the help that an editor shows.

mod notify;
mod priority;
mod words;

use std::fmt;

pub(crate) use notify::Notify;
pub(crate) use priority::PriorityFile;
#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
#[cfg(test)]
use std::borrow::Cow;
use std::num::NonZeroU32;
use tidegate::{Condition, KeyAttribute, Limit, Missing, Network, Setting, WarmUp};
pub use words::Words;

/// A policy, or a part of one that others include.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// More files with rules, overrides and lists, relative to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The rules, by their names. All that apply must let a request pass.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub rules: Named<RuleFile>,
    /// The rule for requests that no other one applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<RuleFile>,
    /// More overrides for rules that stand elsewhere: by rule, attribute, and
    /// value or pattern.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub overrides: Named<Named<Named<Words<Setting>>>>,
    /// Who is refused or let pass before any rule is asked.
    #[serde(default, skip_serializing_if = "Lists::is_empty")]
    pub lists: Lists,
}

/// One rule: a limit, the requests that it applies to, and whose it is.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// The limit in words, such as "100/min burst 20"; or "unlimited", or
    /// "blocked".
    pub limit: Words<Setting>,
    /// What must hold of the request's attributes: all of these.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub r#match: Named<Match>,
    /// The attributes whose values share a limit: none for one limit on all.
    /// Left out: the key that the request was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<KeyPart>>,
    /// What becomes of requests that lack an attribute of the key: "error" (unless
    /// given), "skip" or "shared".
    #[serde(default, skip_serializing_if = "WhenMissing::is_error")]
    pub missing: WhenMissing,
    /// What a request is charged, if not its own cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What the limit counts in place of the cost: the amount of this that a request
    /// takes, such as "tokens". At most 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The amount of a request that does not say how much of the unit it takes: 0 unless
    /// given, and 1 of the unit "requests".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_amount: Option<u64>,
    /// What becomes of a request that takes more than the limit can ever let pass: "error"
    /// (unless given), or "clamp", which charges all of the limit.
    #[serde(default, skip_serializing_if = "Estimate::is_error")]
    pub estimate: Estimate,
    /// Only watch: count and tell, never refuse.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// A limit to watch in place of this one, before it replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Words<Limit>>,
    /// How the limits climb for new keys, such as "10 over 5min": from ten
    /// units per period to all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Words<WarmUp>>,
    /// Classes of requests by an attribute, and how much of the limit each leaves to others,
    /// such as { attribute = "priority", low = "50%", critical = "0%" }. Other values, and
    /// requests without the attribute, are of the class that leaves most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PriorityFile>,
    /// At which shares of the limit observers are told, such as ["50%", "80%", "100%"]: once
    /// for each key, threshold and period.
    #[serde(default, skip_serializing_if = "Notify::is_empty")]
    pub notify: Notify,
    /// Who answers when the store cannot: "open", "closed", or
    /// { local = 4 } for a quarter of the limit in each of four processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Other limits by the value of an attribute, such as a plan.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub tiers: Named<Named<Words<Setting>>>,
    /// Other limits for some values of an attribute, or for those that match
    /// a pattern with * or ?. They come before tiers.
    #[serde(default, skip_serializing_if = "Named::is_empty")]
    pub overrides: Named<Named<Words<Setting>>>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Who is refused or let pass before any rule is asked.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lists {
    /// Requests for which one of these holds are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Listed>,
    /// Requests for which one of these holds pass, unless they are denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Listed>,
}

impl Lists {
    fn is_empty(&self) -> bool {
        self.deny.is_empty() && self.allow.is_empty()
    }
}

/// What is asked of an attribute: to be exactly a text, or one of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// It is exactly this.
    Equals(String),
    /// It is this and perhaps more.
    Prefix(String),
    /// It matches this pattern.
    Glob(String),
    /// It is an address in this network.
    Cidr(Words<Network>),
    /// It is there, or it is not.
    Present(bool),
}

/// [`Match`] with a word for what is asked.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedMatch {
    /// The attribute is exactly this.
    Equals(String),
    /// The attribute begins with this.
    Prefix(String),
    /// The attribute matches this pattern: * for anything, ? for one character.
    Glob(String),
    /// The attribute is an address in this network.
    Cidr(Words<Network>),
    /// Whether the attribute is there, whatever it is.
    Present(bool),
}

impl From<&Match> for Condition {
    fn from(wanted: &Match) -> Condition {
        match wanted {
            Match::Equals(text) => Condition::Equals(text.clone()),
            Match::Prefix(prefix) => Condition::StartsWith(prefix.clone()),
            Match::Glob(pattern) => Condition::Matches(pattern.clone()),
            Match::Cidr(network) => Condition::Within(network.0),
            Match::Present(true) => Condition::Present,
            Match::Present(false) => Condition::Absent,
        }
    }
}

impl Serialize for Match {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Match::Equals(text) => serializer.serialize_str(text),
            Match::Prefix(prefix) => NamedMatch::Prefix(prefix.clone()).serialize(serializer),
            Match::Glob(pattern) => NamedMatch::Glob(pattern.clone()).serialize(serializer),
            Match::Cidr(network) => NamedMatch::Cidr(*network).serialize(serializer),
            Match::Present(present) => NamedMatch::Present(*present).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Match, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Match;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a table with one of equals, prefix, glob, cidr, present")
            }

            fn visit_str<E>(self, text: &str) -> Result<Match, E> {
                Ok(Match::Equals(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Match, A::Error> {
                if map.size_hint() == Some(0) {
                    return Err(A::Error::custom("say what is asked: one of equals, prefix, glob, cidr, present"));
                }
                Ok(match NamedMatch::deserialize(MapAccessDeserializer::new(map))? {
                    NamedMatch::Equals(text) => Match::Equals(text),
                    NamedMatch::Prefix(prefix) => Match::Prefix(prefix),
                    NamedMatch::Glob(pattern) => Match::Glob(pattern),
                    NamedMatch::Cidr(network) => Match::Cidr(network),
                    NamedMatch::Present(present) => Match::Present(present),
                })
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
impl JsonSchema for Match {
    fn schema_name() -> Cow<'static, str> {
        "Match".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What is asked of an attribute: exactly a text, or one of prefix, glob, cidr, present.",
            "anyOf": [{ "type": "string" }, generator.subschema_for::<NamedMatch>()],
        })
    }
}

/// An attribute of a key: as it is, or made coarser.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, schemars(untagged))]
pub enum KeyPart {
    /// The attribute as it is; the attribute ip is an address, and counts by the
    /// first 64 bits of IPv6.
    Attribute(String),
    /// The attribute, made coarser, or the first of several that is there.
    Coarser(CoarseKeyPart),
}

/// An attribute of a key, made coarser, or the first of several that is there.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schemars(extend("oneOf" = [{ "required": ["attribute"] }, { "required": ["first"] }])))]
pub struct CoarseKeyPart {
    /// The attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// In place of one attribute: the first of these that the request has, such
    /// as ["user", "ip"].
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_least_one")]
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub first: Vec<String>,
    /// How many bits of an IPv4 address count: 32 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bits::<32, _>")]
    #[cfg_attr(test, schemars(range(max = 32)))]
    pub ipv4: Option<u8>,
    /// How many bits of an IPv6 address count: 64 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bits::<128, _>")]
    #[cfg_attr(test, schemars(range(max = 128)))]
    pub ipv6: Option<u8>,
    /// Take Alice and ALICE for alice.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_case: bool,
}

fn bits<'de, const MAX: u8, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    match u64::deserialize(deserializer)? {
        bits if bits <= u64::from(MAX) => Ok(u8::try_from(bits).ok()),
        bits => Err(D::Error::custom(format_args!("an address has no {bits} bits: give at most {MAX}"))),
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Vec::deserialize(deserializer)? {
        names if names.is_empty() => Err(D::Error::custom("name at least one attribute, such as [\"user\", \"ip\"]")),
        names => Ok(names),
    }
}

impl CoarseKeyPart {
    /// The attributes, of which the first that the request has counts.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.attribute.iter().chain(&self.first).map(String::as_str)
    }
}

impl From<&KeyPart> for KeyAttribute {
    fn from(part: &KeyPart) -> KeyAttribute {
        let part = match part {
            KeyPart::Attribute(name) => return KeyAttribute::new(name),
            KeyPart::Coarser(part) => part,
        };
        let mut names = part.names();
        let mut attribute = KeyAttribute::new(names.next().unwrap_or_default());
        for name in names {
            attribute = attribute.or(name);
        }
        if part.ipv4.is_some() || part.ipv6.is_some() {
            attribute = attribute.by_network(part.ipv4.unwrap_or(32), part.ipv6.unwrap_or(64));
        }
        if part.ignore_case { attribute.ignoring_case() } else { attribute }
    }
}

impl Serialize for KeyPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            KeyPart::Attribute(attribute) => serializer.serialize_str(attribute),
            KeyPart::Coarser(part) => part.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for KeyPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyPart, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = KeyPart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or a table with attribute or first")
            }

            fn visit_str<E>(self, text: &str) -> Result<KeyPart, E> {
                Ok(KeyPart::Attribute(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KeyPart, A::Error> {
                let part = CoarseKeyPart::deserialize(MapAccessDeserializer::new(map))?;
                match (&part.attribute, part.first.is_empty()) {
                    (Some(_), true) | (None, false) => Ok(KeyPart::Coarser(part)),
                    (Some(_), false) => Err(A::Error::custom("give either attribute or first, not both")),
                    (None, true) => Err(A::Error::custom("say which attribute: give either attribute or first")),
                }
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

/// What becomes of requests that lack an attribute of the key.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenMissing {
    /// They are answered by an error that names the rule and the attribute.
    #[default]
    Error,
    /// The rule does not apply to them.
    Skip,
    /// They share one limit.
    Shared,
}

impl WhenMissing {
    fn is_error(&self) -> bool {
        *self == WhenMissing::Error
    }
}

impl From<WhenMissing> for Missing {
    fn from(missing: WhenMissing) -> Missing {
        match missing {
            WhenMissing::Error => Missing::Error,
            WhenMissing::Skip => Missing::Skip,
            WhenMissing::Shared => Missing::Shared,
        }
    }
}

/// What a request is charged.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// So many times its own cost.
    Times(u64),
    /// This, whatever it costs.
    Always(u64),
}

/// What becomes of a request that takes more than the limit can ever let pass.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimate {
    /// It is answered by an error.
    #[default]
    Error,
    /// It is charged all of the limit.
    Clamp,
}

impl Estimate {
    fn is_error(&self) -> bool {
        *self == Estimate::Error
    }
}

/// Who answers when the store cannot.
#[cfg_attr(test, derive(JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Everything passes.
    Open,
    /// Nothing passes.
    Closed,
    /// Each of so many processes decides by itself, with its share of the limit.
    Local(NonZeroU32),
}

/// A condition on one attribute: an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The attribute.
    pub attribute: String,
    /// What is asked of it.
    pub wanted: Match,
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&self.attribute, &self.wanted)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listed, D::Error> {
        struct OneEntry;

        impl<'de> Visitor<'de> for OneEntry {
            type Value = Listed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with one attribute")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
                match map.next_entry()? {
                    Some((attribute, wanted)) => Ok(Listed { attribute, wanted }),
                    None => Err(A::Error::custom("say which attribute, and what is asked of it")),
                }
            }
        }

        deserializer.deserialize_map(OneEntry)
    }
}

#[cfg(test)]
impl JsonSchema for Listed {
    fn schema_name() -> Cow<'static, str> {
        "Listed".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An attribute, and what is asked of it.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": generator.subschema_for::<Match>(),
        })
    }
}

/// Values by name, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<V>(pub Vec<(String, V)>);

impl<V> Named<V> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V> Default for Named<V> {
    fn default() -> Named<V> {
        Named(Vec::new())
    }
}

impl<'a, V> IntoIterator for &'a Named<V> {
    type Item = &'a (String, V);
    type IntoIter = std::slice::Iter<'a, (String, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<V: Serialize> Serialize for Named<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Named<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<V>, D::Error> {
        struct InOrder<V>(std::marker::PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for InOrder<V> {
            type Value = Named<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }

        deserializer.deserialize_map(InOrder(std::marker::PhantomData))
    }
}

#[cfg(test)]
impl<V: JsonSchema> JsonSchema for Named<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("NamedOf{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<V>() })
    }
}
