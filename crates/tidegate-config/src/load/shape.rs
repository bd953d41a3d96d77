//! Overrides and tiers without their attribute, shown with the shape that they
//! should have: `overrides = { acme = "500/min" }` does not say whose value acme is.

use std::collections::HashMap;

use super::{DEFAULT, Format, entries};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::Source;
use crate::tree::{Node, Value};

/// The attribute that a rule's overrides are shown by if its key names none.
const USUAL: &str = "user";
/// The attribute that tiers are shown by.
const PLAN: &str = "plan";
/// Longer texts are not shown.
const MAX_SHOWN: usize = 100;

/// Tells of settings that stand where a table for an attribute belongs, and takes
/// them out.
pub(super) fn take_out_bare_settings(tree: &mut Node, format: Format, source: &Source, diagnostics: &mut Collector) {
    let mut shape = Shape { format, source, diagnostics };
    // The keys of rules whose overrides stand apart.
    let apart = tree.entry("overrides").is_some();
    let rules = entries(tree.at(&["rules"])).iter().chain(tree.entry(DEFAULT)).filter(|_| apart);
    let keys: HashMap<String, String> = rules.map(|rule| (rule.key.clone(), key_of(&rule.value))).collect();
    for part in tree.entries_mut() {
        match part.key.as_str() {
            "rules" => part.value.entries_mut().iter_mut().for_each(|rule| shape.rule(&mut rule.value)),
            DEFAULT => shape.rule(&mut part.value),
            "overrides" => {
                for rule in part.value.entries_mut() {
                    let key = keys.get(&rule.key).map_or(USUAL, String::as_str);
                    shape.take_out(&mut rule.value, &["overrides", &rule.key, key]);
                }
            }
            _ => {}
        }
    }
}

/// The first attribute of a rule's key.
fn key_of(rule: &Node) -> String {
    let part = rule.at(&["key"]).and_then(|key| key.items().first());
    let named = part.map(|part| {
        let first = || part.at(&["first"])?.items().first();
        part.at(&["attribute"]).or_else(first).unwrap_or(part)
    });
    match named.map(|node| &node.value) {
        Some(Value::Text(name)) => name.clone(),
        _ => USUAL.to_owned(),
    }
}

struct Shape<'s, 'm> {
    format: Format,
    source: &'s Source,
    diagnostics: &'m mut Collector,
}

impl Shape<'_, '_> {
    fn rule(&mut self, rule: &mut Node) {
        let key = key_of(rule);
        for field in rule.entries_mut() {
            match field.key.as_str() {
                "overrides" => self.take_out(&mut field.value, &["overrides", &key]),
                "tiers" => self.take_out(&mut field.value, &["tiers", PLAN]),
                _ => {}
            }
        }
    }

    /// `path` is what should lead to the values, the attribute last.
    fn take_out(&mut self, table: &mut Node, path: &[&str]) {
        let Value::Table(entries) = &mut table.value else { return };
        entries.retain(|entry| {
            let Value::Text(setting) = &entry.value.value else { return true };
            self.diagnostics.add(|| {
                let problem =
                    Problem::Unexpected { expected: "a table for each attribute".into(), found: "text".into() };
                let is_attribute = path.last() == Some(&entry.key.as_str());
                let value = if is_attribute || entry.key.len() > MAX_SHOWN { "acme" } else { &entry.key };
                let setting = if setting.len() > MAX_SHOWN { "500/min" } else { setting };
                let help = format!("name the attribute: {}", self.format.nested(path, value, setting));
                Diagnostic::at(self.source, &entry.value.span, problem).help_with(help)
            });
            false
        });
    }
}

impl Format {
    /// A table of one text, as this format writes it.
    pub(super) fn table(self, name: &str, text: &str) -> String {
        match self {
            Format::Toml => format!("{{ {} = {text:?} }}", bare(name)),
            Format::Yaml => format!("{{ {}: {text:?} }}", bare(name)),
        }
    }

    /// The same below a path.
    fn nested(self, path: &[&str], name: &str, text: &str) -> String {
        let path: Vec<String> = path.iter().map(|name| bare(name)).collect();
        let table = self.table(name, text);
        match self {
            Format::Toml => format!("{} = {table}", path.join(".")),
            Format::Yaml => format!("{}: {table}{}", path.join(": { "), " }".repeat(path.len().saturating_sub(1))),
        }
    }
}

/// A name as it is written: in quotes where it needs them.
fn bare(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { format!("{name:?}") }
}
