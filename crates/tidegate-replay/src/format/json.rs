//! An object of JSON on each line. What is wanted is borrowed from the line
//! as far as it can be; what is not wanted is passed over.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::RandomState;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::batch::Batch;
use crate::draft::{Draft, Fault};
use crate::mapping::{Plan, Slot};

#[derive(Default)]
pub(crate) struct Json {
    root: Node,
}

/// What is wanted of a value: itself, or what is in it.
#[derive(Default)]
struct Node {
    wanted: Vec<(Slot, u8)>,
    children: HashMap<Box<str>, Node, RandomState>,
}

impl Json {
    pub(super) fn new(plan: &Plan) -> Json {
        let mut root = Node::default();
        for (name, slot, rank) in plan.fields() {
            root.child(name).wanted.push((slot, rank));
            if name.contains('.') {
                name.split('.').fold(&mut root, |node, name| node.child(name)).wanted.push((slot, rank));
            }
        }
        Json { root }
    }

    pub(super) fn offer(&self, line: &[u8], draft: &mut Draft, batch: &mut Batch) -> Result<(), Fault> {
        let mut line = serde_json::Deserializer::from_slice(line);
        let walk = Walk { node: &self.root, is_root: true, draft, batch };
        let found = walk.deserialize(&mut line).and_then(|()| line.end());
        found.map_err(|error| Fault::Json { reason: error.to_string() })
    }
}

impl Node {
    fn child(&mut self, name: &str) -> &mut Node {
        self.children.entry(name.into()).or_default()
    }
}

/// A value that is being read.
struct Walk<'w> {
    node: &'w Node,
    is_root: bool,
    draft: &'w mut Draft,
    batch: &'w mut Batch,
}

impl Walk<'_> {
    fn offer<E: Error>(self, value: &[u8]) -> Result<(), E> {
        if self.is_root {
            return Err(E::custom("it is another value"));
        }
        for wanted in &self.node.wanted {
            self.draft.offer(self.batch, *wanted, value);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The child that a name means: asked as text, whether or not it had to be
/// freed of escapes.
struct Name<'w>(&'w Node);

impl<'de, 'w> DeserializeSeed<'de> for Name<'w> {
    type Value = Option<&'w Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'w> Visitor<'_> for Name<'w> {
    type Value = Option<&'w Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.get(name))
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { node, draft, batch, .. } = self;
        while let Some(child) = map.next_key_seed(Name(node))? {
            if let Some(node) = child {
                map.next_value_seed(Walk { node, is_root: false, draft: &mut *draft, batch: &mut *batch })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_root {
            return Err(A::Error::custom("it is a list"));
        }
        // Several values are ambiguous, and count as none.
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.offer(value.as_bytes())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.offer(if value { b"true" } else { b"false" })
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.offer(itoa::Buffer::new().format(value).as_bytes())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.offer(itoa::Buffer::new().format(value).as_bytes())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        // The shortest text that means the number: that of the log, if it was
        // not written with more digits than a number has.
        self.offer(value.to_string().as_bytes())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.offer(b"")
    }
}
