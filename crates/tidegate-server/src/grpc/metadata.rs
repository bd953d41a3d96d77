//! What Envoy's other filters are told of a decision, in the shape that the
//! reference service gives it: the domain, the descriptors, the hits, and what
//! the files say of those that passed.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tidegate_config::envoy::Metadata;

use super::answer::Outcome;
use super::messages::{RateLimitDescriptor, RateLimitRequest};

pub(super) fn of(request: &RateLimitRequest, outcome: &Outcome) -> Struct {
    let mut fields = BTreeMap::new();
    fields.insert("domain".to_owned(), text(request.domain.clone()));
    fields.insert("descriptors".to_owned(), list(request.descriptors.iter().map(descriptor)));
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), value(Kind::NumberValue(request.hits_addend.into())));
    }
    let mut passed = BTreeMap::new();
    for line in outcome.lines.iter().filter(|line| line.allowed) {
        if let Some(Metadata::Table(entries)) = line.metadata.as_deref() {
            passed.extend(entries.iter().map(|(name, value)| (name.clone(), convert(value))));
        }
    }
    if !passed.is_empty() {
        fields.insert("metadata".to_owned(), value(Kind::StructValue(Struct { fields: passed })));
    }
    Struct { fields }
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter().map(|entry| text(format!("{}={}", entry.key, entry.value)));
    let fields = BTreeMap::from([("entries".to_owned(), list(entries))]);
    value(Kind::StructValue(Struct { fields }))
}

fn convert(metadata: &Metadata) -> Value {
    value(match metadata {
        Metadata::Nothing => Kind::NullValue(0),
        Metadata::Bool(value) => Kind::BoolValue(*value),
        Metadata::Number(number) => Kind::NumberValue(*number),
        Metadata::Text(text) => Kind::StringValue(text.clone()),
        Metadata::List(items) => Kind::ListValue(ListValue { values: items.iter().map(convert).collect() }),
        Metadata::Table(entries) => {
            let fields = entries.iter().map(|(name, value)| (name.clone(), convert(value))).collect();
            Kind::StructValue(Struct { fields })
        }
    })
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: String) -> Value {
    value(Kind::StringValue(text))
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    value(Kind::ListValue(ListValue { values: values.collect() }))
}
