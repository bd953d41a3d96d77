//! The schema takes what the reader takes, and refuses what it refuses.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_config::{Format, PolicyFile, schema};

/// As much of JSON Schema as the schema uses; anything else fails.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(words) = schema else { return schema != &json!(false) };
    words.iter().all(|(word, wanted)| {
        let fitting = |schemas: &Value| {
            schemas.as_array().expect("schemas").iter().filter(|one| accepts(root, one, value)).count()
        };
        match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "examples" | "format" => true,
            "$ref" => {
                let pointer = wanted.as_str().and_then(|path| path.strip_prefix('#')).expect("a reference");
                accepts(root, root.pointer(pointer).expect("it leads somewhere"), value)
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|one| is(value, one.as_str().expect("a type"))),
                one => is(value, one.as_str().expect("a type")),
            },
            "anyOf" => fitting(wanted) > 0,
            "oneOf" => fitting(wanted) == 1,
            "const" => value == wanted,
            "enum" => wanted.as_array().expect("values").contains(value),
            "required" => value.as_object().is_none_or(|object| {
                wanted.as_array().expect("names").iter().all(|name| object.contains_key(name.as_str().expect("one")))
            }),
            "properties" => value.as_object().is_none_or(|object| {
                object.iter().all(|(name, value)| wanted.get(name).is_none_or(|one| accepts(root, one, value)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = |name: &String| words.get("properties").is_some_and(|known| known.get(name).is_some());
                object.iter().all(|(name, value)| known(name) || accepts(root, wanted, value))
            }),
            "minProperties" => {
                value.as_object().is_none_or(|object| object.len() as u64 >= wanted.as_u64().expect("one"))
            }
            "maxProperties" => {
                value.as_object().is_none_or(|object| object.len() as u64 <= wanted.as_u64().expect("one"))
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().expect("one")),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().expect("one")),
            "uniqueItems" => value.as_array().is_none_or(|items| {
                let mut seen: Vec<&Value> = Vec::new();
                items.iter().all(|item| {
                    !seen.contains(&item) && {
                        seen.push(item);
                        true
                    }
                })
            }),
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(root, wanted, item))),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().expect("one")),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().expect("one")),
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    })
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("the schema has the type {other}, which this test does not know"),
    }
}

fn the_schema() -> Value {
    serde_json::from_str(schema()).expect("the schema is JSON")
}

#[test]
fn the_examples_fit_the_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for name in ["policy.toml", "policy.yaml"] {
        let text = fs::read_to_string(folder.join(name)).expect("an example");
        let format = Format::of(Path::new(name)).expect("a format");
        let file = PolicyFile::parse(&text, format, Path::new(name)).unwrap_or_else(|report| panic!("{report}"));
        let value = serde_json::to_value(file).expect("it can be written");
        assert!(accepts(&the_schema(), &the_schema(), &value), "{name}");
    }
}

#[test]
fn schema_and_reader_agree() {
    for (value, right) in [
        (json!({}), true),
        (json!({ "rules": { "a": { "limit": "1/s" } } }), true),
        (json!({ "rules": { "a": {} } }), false),
        (json!({ "rules": { "a": { "limit": 1 } } }), false),
        (json!({ "rules": { "a": { "limit": "1/s", "colour": "red" } } }), false),
        (json!({ "default": { "limit": "1/s", "match": { "a": "b", "c": { "cidr": "10.0.0.0/8" } } } }), true),
        (json!({ "default": { "limit": "1/s", "match": { "a": { "cidr": "::/0", "glob": "*" } } } }), false),
        (json!({ "default": { "limit": "1/s", "match": { "a": { "regex": "x" } } } }), false),
        (json!({ "default": { "limit": "1/s", "key": ["a", { "attribute": "b", "ipv4": 24 }] } }), true),
        (json!({ "default": { "limit": "1/s", "key": [{ "attribute": "b", "ipv4": 33 }] } }), false),
        (json!({ "default": { "limit": "1/s", "key": [{ "ipv4": 3 }] } }), false),
        (json!({ "default": { "limit": "1/s", "key": [{ "first": ["user", "ip"], "ipv4": 24 }] } }), true),
        (json!({ "default": { "limit": "1/s", "key": [{ "first": ["user"], "attribute": "ip" }] } }), false),
        (json!({ "default": { "limit": "1/s", "key": [{ "first": [] }] } }), false),
        (json!({ "default": { "limit": "1/s", "key": [{ "first": "user" }] } }), false),
        (json!({ "default": { "limit": "1/s", "key": [{}] } }), false),
        (json!({ "default": { "limit": "1/s", "on_failure": "open" } }), true),
        (json!({ "default": { "limit": "1/s", "on_failure": { "local": 4 } } }), true),
        (json!({ "default": { "limit": "1/s", "on_failure": { "local": 0 } } }), false),
        (json!({ "default": { "limit": "1/s", "on_failure": "local" } }), false),
        (json!({ "default": { "limit": "1/s", "cost": { "times": 2 } } }), true),
        (json!({ "default": { "limit": "1/s", "cost": 2 } }), false),
        (json!({ "default": { "limit": "1/s", "unit": "tokens", "default_amount": 5, "estimate": "clamp" } }), true),
        (json!({ "default": { "limit": "1/s", "unit": "tokens", "estimate": "error" } }), true),
        (json!({ "default": { "limit": "1/s", "unit": "tokens", "estimate": "cut" } }), false),
        (json!({ "default": { "limit": "1/s", "unit": "tokens", "default_amount": -5 } }), false),
        (json!({ "default": { "limit": "1/s", "unit": 5 } }), false),
        (json!({ "default": { "limit": "1/s", "missing": "skip", "shadow": true, "candidate": "2/s" } }), true),
        (json!({ "default": { "limit": "1/s", "notify": ["50%", "100%"] } }), true),
        (json!({ "default": { "limit": "1/s", "notify": "50%" } }), false),
        (json!({ "default": { "limit": "1/s", "notify": [50] } }), false),
        (json!({ "default": { "limit": "1/s", "missing": "error" } }), true),
        (json!({ "default": { "limit": "1/s", "missing": "shared" } }), true),
        (json!({ "default": { "limit": "1/s", "missing": "ignore" } }), false),
        (json!({ "default": { "limit": "1/s", "overrides": { "acme": "500/min" } } }), false),
        (json!({ "default": { "limit": "1/s", "tiers": { "plan": { "pro": "unlimited" } } } }), true),
        (json!({ "lists": { "deny": [{ "user": "x" }] } }), true),
        (json!({ "lists": { "deny": [{ "user": "x", "ip": "y" }] } }), false),
        (json!({ "lists": { "deny": [{}] } }), false),
        (json!({ "overrides": { "a": { "tenant": { "b": "1/s" } } }, "include": ["x.toml"] }), true),
        (json!({ "include": "x.toml" }), false),
    ] {
        let read = PolicyFile::parse(&value.to_string(), Format::Yaml, Path::new("x.json"));
        assert_eq!(read.is_ok(), right, "the reader: {value}");
        assert_eq!(accepts(&the_schema(), &the_schema(), &value), right, "the schema: {value}");
    }
}
