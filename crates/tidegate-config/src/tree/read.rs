//! The types of a file, read from its tree.
//!
//! serde stops at the first error. To tell of all, what is wrong is set
//! aside and the rest read again.

use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, Unexpected, Visitor};

use super::{Entry, Node, Value};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::{Source, Span};
use crate::suggest;

/// Whether a number or a truth value may stand for its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    /// Text is text.
    Quoted,
    /// As in Go's YAML: `404` is text where text is wanted, and nothing is
    /// empty text, or an empty list.
    AsWritten,
}

/// Reads a value, without those of its parts that are wrong. These are
/// taken out of the tree, and told of.
pub(crate) fn read<T: DeserializeOwned>(
    node: &mut Node,
    texts: Texts,
    source: &Source,
    diagnostics: &mut Collector,
) -> Option<T> {
    let mut taken: Vec<(Span, String)> = Vec::new();
    while !diagnostics.is_full() {
        let error = match T::deserialize(Reader { node, texts }) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let span = error.span.unwrap_or(0..0);
        let is_ours = taken.iter().any(|(table, key)| *table == span && explains(key, &error.problem));
        if !is_ours {
            diagnostics.add(|| Diagnostic::at(source, &head(&error.problem, &span, source), error.problem));
        }
        let path: Vec<usize> = error.path.into_iter().rev().collect();
        match node.take_out(&path) {
            Some((from, key)) => taken.push((from, key.unwrap_or_default())),
            None => return None,
        }
    }
    None
}

/// Whether a table or list has a problem only because something was taken out.
fn explains(taken: &str, problem: &Problem) -> bool {
    match problem {
        Problem::Missing { field } => taken == *field || suggest::nearest(taken, [*field]).is_some(),
        _ => true,
    }
}

/// Where to point: a table that lacks a field is shown by its first line.
fn head(problem: &Problem, span: &Span, source: &Source) -> Span {
    match problem {
        Problem::Missing { .. } => {
            let written = source.written(span);
            let line = written.lines().next().unwrap_or_default();
            span.start..span.start + line.len()
        }
        _ => span.clone(),
    }
}

/// Why a value cannot be read, and which.
#[derive(Debug)]
pub(super) struct ReadError {
    problem: Problem,
    span: Option<Span>,
    /// Positions in lists and tables, the innermost first.
    path: Vec<usize>,
}

impl ReadError {
    fn new(problem: Problem) -> ReadError {
        ReadError { problem, span: None, path: Vec::new() }
    }

    /// It is here, if no part of this already said so.
    fn at(mut self, span: &Span) -> ReadError {
        self.span.get_or_insert_with(|| span.clone());
        self
    }

    fn within(mut self, position: usize) -> ReadError {
        self.path.push(position);
        self
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: std::fmt::Display>(message: T) -> ReadError {
        ReadError::new(Problem::Invalid { message: message.to_string() })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> ReadError {
        ReadError::new(Problem::Unexpected { expected: in_words(&expected.to_string()), found: describe(found) })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> ReadError {
        ReadError::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> ReadError {
        ReadError::new(Problem::Unknown { what: "field", found: field.to_owned(), expected })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> ReadError {
        ReadError::new(Problem::Unknown { what: "value", found: variant.to_owned(), expected })
    }

    fn missing_field(field: &'static str) -> ReadError {
        ReadError::new(Problem::Missing { field })
    }
}

/// What serde expects, in the words of a file.
fn in_words(expected: &str) -> String {
    match expected {
        "a string" => "text".into(),
        "a boolean" => "true or false".into(),
        "a map" => "a table".into(),
        "a sequence" => "a list".into(),
        "u32" => format!("a whole number up to {}", u32::MAX),
        "u64" => "a whole number".into(),
        "a nonzero u32" => format!("a whole number from 1 to {}", u32::MAX),
        _ if expected.starts_with("struct ") => "a table".into(),
        _ => expected.to_owned(),
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Str(text) => match text.char_indices().nth(40) {
            Some((end, _)) => format!("the text {:?}..", &text[..end]),
            None => format!("the text {text:?}"),
        },
        Unexpected::Unit => "nothing".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        other => other.to_string(),
    }
}

#[derive(Clone, Copy)]
struct Reader<'n> {
    node: &'n Node,
    texts: Texts,
}

impl<'n> Reader<'n> {
    fn unexpected(&self, expected: &str) -> ReadError {
        let found = match &self.node.value {
            Value::Nothing => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Integer(_, text) | Value::Fraction(text) => {
                let expected = in_words(expected);
                return ReadError::new(Problem::Unexpected { expected, found: format!("the number {text}") })
                    .at(&self.node.span);
            }
            Value::Text(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        };
        ReadError::invalid_type(found, &expected).at(&self.node.span)
    }

    fn visit<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.value {
            Value::Nothing => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(number, text) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => Err(ReadError::invalid_type(Unexpected::Other(text), &visitor)),
            },
            Value::Fraction(text) => Err(ReadError::invalid_type(Unexpected::Other(text), &visitor)),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0, texts: self.texts }),
            Value::Table(entries) => {
                let mut table = Entries { entries, next: 0, texts: self.texts };
                let value = visitor.visit_map(&mut table)?;
                match entries.get(table.next) {
                    None => Ok(value),
                    Some(entry) => {
                        let message = format!("{:?} is one too many: there can be only one here", entry.key);
                        Err(ReadError::custom(message).at(&entry.key_span).within(table.next))
                    }
                }
            }
        }
    }
}

impl<'n> de::Deserializer<'n> for Reader<'n> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.visit(visitor).map_err(|error| error.at(&self.node.span))
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let written = match &self.node.value {
            Value::Integer(_, text) | Value::Fraction(text) => text,
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Nothing if self.texts == Texts::AsWritten => "",
            Value::Nothing | Value::Text(_) | Value::List(_) | Value::Table(_) => return self.deserialize_any(visitor),
        };
        match self.texts {
            Texts::Quoted => self.deserialize_any(visitor),
            Texts::AsWritten => {
                visitor.visit_borrowed_str(written).map_err(|error: ReadError| error.at(&self.node.span))
            }
        }
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match (&self.node.value, self.texts) {
            (Value::Nothing, Texts::AsWritten) => visitor.visit_seq(Items { items: &[], next: 0, texts: self.texts }),
            _ => self.deserialize_any(visitor),
        }
    }

    /// Whatever it is, a fraction too.
    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            Value::Nothing => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self).map_err(|error| error.at(&self.node.span))
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.node.value {
            Value::Text(_) | Value::Table(_) => self.enumerate(visitor).map_err(|error| error.at(&self.node.span)),
            Value::Nothing | Value::Bool(_) | Value::Integer(..) | Value::Fraction(_) | Value::List(_) => {
                Err(self.unexpected(&format!("one of {}", variants.join(", "))))
            }
        }
    }

    /// A table: serde would take a list for its fields in order, too.
    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.node.value {
            Value::List(_) => Err(self.unexpected("a table")),
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'n>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        tuple tuple_struct map identifier
    }
}

impl<'n> Reader<'n> {
    fn enumerate<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.value {
            Value::Table(entries) => match entries.as_slice() {
                [entry] => visitor
                    .visit_enum(Variant {
                        name: &entry.key,
                        span: &entry.key_span,
                        value: Some(&entry.value),
                        texts: self.texts,
                    })
                    .map_err(|error| error.within(0)),
                [_, second, ..] => {
                    let message = format!("{:?} is one too many: there can be only one here", second.key);
                    Err(ReadError::custom(message).at(&second.key_span).within(1))
                }
                [] => Err(self.unexpected("a table with one entry")),
            },
            Value::Text(text) => {
                visitor.visit_enum(Variant { name: text, span: &self.node.span, value: None, texts: self.texts })
            }
            Value::Nothing | Value::Bool(_) | Value::Integer(..) | Value::Fraction(_) | Value::List(_) => {
                Err(self.unexpected("text or a table"))
            }
        }
    }
}

struct Items<'n> {
    items: &'n [Node],
    next: usize,
    texts: Texts,
}

impl<'n> de::SeqAccess<'n> for Items<'n> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let position = self.next;
        self.next += 1;
        seed.deserialize(Reader { node, texts: self.texts })
            .map(Some)
            .map_err(|error| error.at(&node.span).within(position))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.next)
    }
}

struct Entries<'n> {
    entries: &'n [Entry],
    next: usize,
    texts: Texts,
}

impl<'n> de::MapAccess<'n> for &mut Entries<'n> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        let key = de::value::BorrowedStrDeserializer::new(&entry.key);
        seed.deserialize(key).map(Some).map_err(|error: ReadError| error.at(&entry.key_span).within(self.next))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let position = self.next;
        let Some(entry) = self.entries.get(position) else { return Err(ReadError::custom("a value without a key")) };
        self.next += 1;
        seed.deserialize(Reader { node: &entry.value, texts: self.texts })
            .map_err(|error| error.at(&entry.value.span).within(position))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len() - self.next)
    }
}

struct Variant<'n> {
    name: &'n str,
    span: &'n Span,
    value: Option<&'n Node>,
    texts: Texts,
}

impl<'n> de::EnumAccess<'n> for Variant<'n> {
    type Error = ReadError;
    type Variant = Variant<'n>;

    fn variant_seed<V: DeserializeSeed<'n>>(self, seed: V) -> Result<(V::Value, Variant<'n>), ReadError> {
        let name: de::value::BorrowedStrDeserializer<'n, ReadError> =
            de::value::BorrowedStrDeserializer::new(self.name);
        let value = seed.deserialize(name).map_err(|error| error.at(self.span))?;
        Ok((value, self))
    }
}

impl<'n> Variant<'n> {
    fn reader(&self) -> Result<Reader<'n>, ReadError> {
        match self.value {
            Some(node) => Ok(Reader { node, texts: self.texts }),
            None => {
                let message = format!("{:?} alone says too little: give it a value", self.name);
                Err(ReadError::custom(message).at(self.span))
            }
        }
    }
}

impl<'n> de::VariantAccess<'n> for Variant<'n> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.value {
            None => Ok(()),
            Some(node) => {
                let message = format!("{:?} stands alone, without a value", self.name);
                Err(ReadError::custom(message).at(&node.span))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, ReadError> {
        seed.deserialize(self.reader()?)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _length: usize, visitor: V) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self.reader()?, visitor)
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_any(self.reader()?, visitor)
    }
}
