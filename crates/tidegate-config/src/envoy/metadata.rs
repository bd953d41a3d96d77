//! What a file wants Envoy to be told: any value at all.

use crate::tree::{Node, Value};

/// A value of a descriptor's `metadata`.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// No value.
    Nothing,
    /// A truth value.
    Bool(bool),
    /// A number; Envoy knows only such.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Metadata>),
    /// Names and values, in the order of the file.
    Table(Vec<(String, Metadata)>),
}

impl Metadata {
    pub(super) fn of(node: &Node) -> Metadata {
        match &node.value {
            Value::Nothing => Metadata::Nothing,
            Value::Bool(value) => Metadata::Bool(*value),
            Value::Integer(number, _) => Metadata::Number(*number as f64),
            // What is not a number to Rust is told as it is written.
            Value::Fraction(text) => text.parse().map_or_else(|_| Metadata::Text(text.clone()), Metadata::Number),
            Value::Text(text) => Metadata::Text(text.clone()),
            Value::List(items) => Metadata::List(items.iter().map(Metadata::of).collect()),
            Value::Table(entries) => {
                Metadata::Table(entries.iter().map(|entry| (entry.key.clone(), Metadata::of(&entry.value))).collect())
            }
        }
    }
}
