//! Values that a file gives in words: limits and networks.

#[cfg(test)]
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate::{Floor, Limit, Network, Setting, WarmUp};

use crate::suggest;

/// A value that is text in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<T>(pub T);

/// What can be said in words.
pub trait InWords: Sized {
    /// What the words are, for messages and editors.
    const WHAT: &'static str;
    /// Words that are right, for editors.
    const EXAMPLES: &'static [&'static str];

    /// The value of the words, or what is wrong with them.
    fn from_words(text: &str) -> Result<Self, String>;

    /// The words of the value.
    fn to_words(&self) -> String;
}

impl InWords for Setting {
    const WHAT: &'static str = "a limit in words, such as \"100/min\", or \"unlimited\" or \"blocked\"";
    const EXAMPLES: &'static [&'static str] = &["100/min burst 20", "sliding-log 5/10s", "unlimited", "blocked"];

    fn from_words(text: &str) -> Result<Setting, String> {
        match text {
            "unlimited" => Ok(Setting::Unlimited),
            "blocked" => Ok(Setting::Blocked),
            _ => match text.parse() {
                Ok(limit) => Ok(Setting::Limit(limit)),
                Err(error) => Err(match suggest::nearest(text, ["unlimited", "blocked"]) {
                    Some(meant) => format!("cannot read {text:?} as a limit: did you mean {meant:?}?"),
                    None => error.to_string(),
                }),
            },
        }
    }

    fn to_words(&self) -> String {
        match self {
            Setting::Limit(limit) => limit.to_string(),
            Setting::Unlimited => "unlimited".into(),
            Setting::Blocked => "blocked".into(),
        }
    }
}

/// Types that the library reads and writes.
macro_rules! in_words_of_the_library {
    ($($type:ty: $what:literal, $examples:expr;)+) => {$(
        impl InWords for $type {
            const WHAT: &'static str = $what;
            const EXAMPLES: &'static [&'static str] = &$examples;

            fn from_words(text: &str) -> Result<$type, String> {
                text.parse().map_err(|error: tidegate::ConfigError| error.to_string())
            }

            fn to_words(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

in_words_of_the_library! {
    Limit: "a limit in words, such as \"100/min\"", ["100/min burst 20", "sliding-log 5/10s"];
    WarmUp: "a warm-up in words, such as \"10 over 5min\"", ["10 over 5min"];
    Floor: "how much is left to others: a share below 100%, such as \"20%\", or units, such as \"200\"", ["20%", "200"];
    Network: "a network, such as \"10.0.0.0/8\"", ["10.0.0.0/8", "2001:db8::/32"];
}

impl<T: InWords> Serialize for Words<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_words())
    }
}

impl<'de, T: InWords> Deserialize<'de> for Words<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words<T>, D::Error> {
        struct Text<T>(PhantomData<T>);

        impl<T: InWords> Visitor<'_> for Text<T> {
            type Value = Words<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WHAT)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Words<T>, E> {
                T::from_words(text).map(Words).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text(PhantomData))
    }
}

#[cfg(test)]
impl<T: InWords> JsonSchema for Words<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Words".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": T::WHAT, "examples": T::EXAMPLES })
    }
}
