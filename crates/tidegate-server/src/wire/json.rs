//! JSON bodies: objects that are objects, and errors in the words of JSON.
//!
//! serde takes `["alice", 3]` for an object by the order of its fields, and its
//! errors name types of Rust.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde_json::error::Category;
use serde_path_to_error::Track;
use tidegate::Micros;

/// A time as JSON has it: in whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    Micros::from_duration(time).get()
}

/// The longest value or path that an error repeats, in characters.
const MAX_SHOWN: usize = 100;

/// Why a body cannot be read, and where.
#[derive(Debug, thiserror::Error)]
#[error("{problem} (line {line}, column {column})")]
pub(crate) struct JsonError {
    problem: String,
    line: usize,
    column: usize,
}

/// Reads a body.
pub(crate) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, JsonError> {
    read_by(PhantomData::<T>, body)
}

/// Reads a body by a seed, such as one that has a bound.
pub(crate) fn read_by<'de, S: DeserializeSeed<'de> + Copy>(seed: S, body: &'de [u8]) -> Result<S::Value, JsonError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    read.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let said = error.to_string();
        let said = said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said);
        let problem = match error.classify() {
            Category::Data => wrong_value(said, || path(seed, body)),
            _ if body.trim_ascii().is_empty() => "the body is empty: send JSON".into(),
            _ => format!("the body is not valid JSON: {}", plain(said).replace("ident", "true, false or null")),
        };
        JsonError { problem, line, column }
    })
}

/// What serde says of valid JSON, without its types.
fn wrong_value(said: &str, path: impl FnOnce() -> String) -> String {
    let mismatch = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "));
    if let Some((found, expected)) = mismatch.and_then(|words| words.rsplit_once(", expected ")) {
        let expected = match expected {
            "a sequence" => "a list",
            "a boolean" => "true or false",
            other => other,
        };
        return format!("{} must be {expected}, not {}", path(), value(found));
    }
    match said.strip_prefix("missing field ") {
        Some(field) => format!("field {} is missing", plain(field)),
        None => plain(said),
    }
}

/// A value as JSON has it, from serde's words for it.
fn value(words: &str) -> String {
    let number = |kind| words.strip_prefix(kind)?.strip_suffix('`');
    let value = ["integer `", "floating point `", "boolean `"].into_iter().find_map(number);
    shortened(match (value, words) {
        (Some(value), _) => value,
        (None, "map") => "an object",
        (None, "sequence") => "a list",
        (None, other) => other.strip_prefix("string ").unwrap_or(other),
    })
}

/// Which part of a body is wrong: `attributes.user`, or `[2].cost` in a batch.
fn path<'de>(seed: impl DeserializeSeed<'de>, body: &'de [u8]) -> String {
    let (mut json, mut track) = (serde_json::Deserializer::from_slice(body), Track::new());
    let read = seed.deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let path = read.err().map(|_| track.path().to_string());
    path.filter(|path| path != ".").map_or_else(|| "the body".into(), |path| shortened(&path))
}

fn plain(words: &str) -> String {
    words.replace('`', "'")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

/// What may only come as an object.
pub(crate) trait Shape {
    /// What is expected, for the error.
    const EXPECTED: &'static str;
}

/// A value that came as an object.
#[derive(Debug)]
pub(crate) struct FromObject<T>(pub(crate) T);

impl<'de, T: Shape + Deserialize<'de>> Deserialize<'de> for FromObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FromObject<T>, D::Error> {
        struct ObjectOf<T>(PhantomData<T>);

        impl<'de, T: Shape + Deserialize<'de>> Visitor<'de> for ObjectOf<T> {
            type Value = FromObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<FromObject<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(FromObject)
            }
        }

        deserializer.deserialize_map(ObjectOf(PhantomData))
    }
}

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole<const MAX: u64, const MIN: u64 = 0>(pub(crate) u64);

impl<'de, const MAX: u64, const MIN: u64> Deserialize<'de> for Whole<MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole<MAX, MIN>, D::Error> {
        deserializer.deserialize_u64(Number::<MAX, MIN>).map(Whole)
    }
}

/// A field that may be left out, and is not null.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same, or its text: protobuf's JSON has both.
#[derive(Clone, Copy)]
pub(crate) struct WholeOrText<const MAX: u64>(pub(crate) u64);

impl<'de, const MAX: u64> Deserialize<'de> for WholeOrText<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WholeOrText<MAX>, D::Error> {
        deserializer.deserialize_any(Number::<MAX, 0>).map(WholeOrText)
    }
}

struct Number<const MAX: u64, const MIN: u64>;

impl<const MAX: u64, const MIN: u64> Visitor<'_> for Number<MAX, MIN> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match (MIN..=MAX).contains(&number) {
            true => Ok(number),
            false => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        name: String,
        #[serde(default)]
        list: Vec<bool>,
        count: Option<Whole<9>>,
    }

    impl Shape for Sample {
        const EXPECTED: &'static str = "an object with name, list and count";
    }

    #[test]
    fn errors_name_the_field_the_place_and_what_is_expected() {
        for (body, said) in [
            ("", "the body is empty: send JSON (line 1, column 0)"),
            ("{\n \"name\": tru}", "the body is not valid JSON: expected true, false or null (line 2, column 13)"),
            ("{\"name\": \"a\" 1}", "the body is not valid JSON: expected ',' or '}' (line 1, column 14)"),
            ("[]", "the body must be an object with name, list and count, not a list (line 1, column 0)"),
            ("{\"name\": 5}", "name must be a string, not 5 (line 1, column 10)"),
            ("{\"name\": null}", "name must be a string, not null (line 1, column 13)"),
            ("{\"list\": {}}", "list must be a list, not an object (line 1, column 9)"),
            ("{\"list\": [true, \"x\"]}", "list[1] must be true or false, not \"x\" (line 1, column 19)"),
            ("{\"count\": 10}", "count must be a whole number from 0 to 9, not 10 (line 1, column 12)"),
            ("{\"count\": -1}", "count must be a whole number from 0 to 9, not -1 (line 1, column 12)"),
            ("{\"count\": 1.5}", "count must be a whole number from 0 to 9, not 1.5 (line 1, column 13)"),
            ("{\"count\": \"1\"}", "count must be a whole number from 0 to 9, not \"1\" (line 1, column 13)"),
            ("{\"nam\": 5}", "unknown field 'nam', expected one of 'name', 'list', 'count' (line 1, column 6)"),
            ("{}", "field 'name' is missing (line 1, column 2)"),
        ] {
            assert_eq!(read::<FromObject<Sample>>(body.as_bytes()).unwrap_err().to_string(), said, "{body}");
        }
        let long = format!("{{\"count\": {:?}}}", "x".repeat(5_000));
        assert!(read::<FromObject<Sample>>(long.as_bytes()).unwrap_err().to_string().len() < 200);
    }
}
