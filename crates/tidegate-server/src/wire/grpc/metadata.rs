//! What Envoy's other filters are told of a decision, in the shape that the
//! reference service gives it: the domain, the descriptors, the hits, and what
//! the files say of those that passed.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tidegate_config::envoy::Metadata;

use super::messages::{RateLimitDescriptor, RateLimitRequest};
use super::outcome::EnvoyOutcome;

pub(super) fn of(request: &RateLimitRequest, outcome: &EnvoyOutcome) -> Struct {
    let mut fields = BTreeMap::new();
    fields.insert("domain".to_owned(), text(request.domain.clone()));
    fields.insert("descriptors".to_owned(), list(request.descriptors.iter().map(descriptor)));
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), value(Kind::NumberValue(request.hits_addend.into())));
    }
    let mut passed = BTreeMap::new();
    for line in outcome.lines.iter().filter(|line| line.allowed && line.limit.is_some()) {
        if let Some(Metadata::Table(entries)) = line.metadata.as_deref() {
            merge(&mut passed, entries);
        }
    }
    if !passed.is_empty() {
        fields.insert("metadata".to_owned(), value(Kind::StructValue(Struct { fields: passed })));
    }
    Struct { fields }
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter().map(|entry| text(format!("{}={}", entry.key, entry.value)));
    let mut fields = BTreeMap::from([("entries".to_owned(), list(entries))]);
    if let Some(limit) = &descriptor.limit {
        let (requests, unit) = (limit.requests_per_unit, limit.unit().as_str_name());
        fields.insert("limit".to_owned(), text(format!("requests_per_unit:{requests} unit:{unit}")));
    }
    if let Some(hits) = descriptor.hits_addend {
        fields.insert("hitsAddend".to_owned(), value(Kind::NumberValue(hits as f64)));
    }
    value(Kind::StructValue(Struct { fields }))
}

/// Adds what is not there yet: of two values the first stays, and of two tables
/// both, by the same rule.
fn merge(into: &mut BTreeMap<String, Value>, entries: &[(String, Metadata)]) {
    for (name, value) in entries {
        match (into.get_mut(name).map(|known| &mut known.kind), value) {
            (None, value) => drop(into.insert(name.clone(), convert(value))),
            (Some(Some(Kind::StructValue(known))), Metadata::Table(entries)) => merge(&mut known.fields, entries),
            (Some(_), _) => {}
        }
    }
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
