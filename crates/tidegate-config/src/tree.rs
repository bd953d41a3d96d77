//! A file as a tree whose every part knows its place: what TOML and YAML have
//! in common.

mod read;
mod toml;
mod yaml;

pub(crate) use read::{Texts, read};
pub(crate) use toml::parse as parse_toml;
pub(crate) use yaml::parse as parse_yaml;

use crate::source::Span;

/// How deep values may nest.
pub(crate) const DEEPEST: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Nothing,
    Bool(bool),
    /// The number, and how it is written.
    Integer(i128, String),
    /// How it is written: no field is a fraction.
    Fraction(String),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; no key is there twice.
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// The part under these keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| Some(&node.entry(key)?.value))
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub(crate) fn entries_mut(&mut self) -> &mut [Entry] {
        match &mut self.value {
            Value::Table(entries) => entries,
            _ => &mut [],
        }
    }

    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Takes out the part at these positions, if there is one below this node.
    /// Answers with the span of the table or list that it was in, and its key there.
    pub(super) fn take_out(&mut self, path: &[usize]) -> Option<(Span, Option<String>)> {
        let (last, above) = path.split_last()?;
        let mut node = self;
        for position in above {
            node = match &mut node.value {
                Value::List(items) => items.get_mut(*position)?,
                Value::Table(entries) => &mut entries.get_mut(*position)?.value,
                _ => return None,
            };
        }
        let span = node.span.clone();
        match &mut node.value {
            Value::List(items) if *last < items.len() => {
                items.remove(*last);
                Some((span, None))
            }
            Value::Table(entries) if *last < entries.len() => Some((span, Some(entries.remove(*last).key))),
            _ => None,
        }
    }
}
