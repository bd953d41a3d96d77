//! Values that no request can have, refused where they stand: what is not an address
//! where an address is compared, patterns of another language, keys of attributes
//! that have to be absent, and amounts of no unit.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use tidegate::{ConfigError, Name, Network, Policy, Rule, Setting};

use super::{Part, entries};
use crate::file::{Cost, KeyPart, Match, RuleFile, WhenMissing};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::Span;
use crate::tree::{Entry, Node};

/// The longest name of a unit, in bytes.
pub const MAX_UNIT_LENGTH: usize = 64;

pub(super) fn check(parts: &[Part], diagnostics: &mut Collector) {
    // Which attributes are addresses, the library knows.
    let rules = parts.iter().flat_map(Part::rules).filter_map(|(rule, _)| rule.key.as_ref());
    let policy = rules.fold(Policy::new(), |policy, key| {
        policy.rule(Rule::with_setting(Name::literal("rule"), Setting::Unlimited).key(key))
    });
    let addresses: HashSet<&str> = policy.addresses().collect();
    for part in parts {
        let mut check = Check { part, addresses: &addresses, diagnostics };
        for (rule, entry) in part.rules() {
            check.rule(rule, &entry.value);
        }
        for (_, entry) in part.overrides() {
            check.overrides(&entry.value);
        }
        for (listed, entry) in part.lists() {
            check.condition(&listed.attribute, &listed.wanted, &entry.value);
        }
    }
}

/// The attributes and values of overrides or tiers.
pub(super) fn by_value(settings: Option<&Node>) -> impl Iterator<Item = (&str, &Entry)> {
    let attributes = entries(settings).iter();
    attributes.flat_map(|Entry { key, value, .. }| entries(Some(value)).iter().map(move |value| (key.as_str(), value)))
}

struct Check<'p, 'm> {
    part: &'p Part,
    addresses: &'p HashSet<&'p str>,
    diagnostics: &'m mut Collector,
}

impl Check<'_, '_> {
    fn rule(&mut self, rule: &RuleFile, node: &Node) {
        for ((attribute, wanted), entry) in rule.r#match.0.iter().zip(entries(node.at(&["match"]))) {
            self.condition(attribute, wanted, &entry.value);
        }
        if let Some(overrides) = node.at(&["overrides"]) {
            self.overrides(overrides);
        }
        for (attribute, tier) in by_value(node.at(&["tiers"])) {
            self.setting(attribute, tier);
        }
        self.key(rule, node);
        self.unit(rule, node);
    }

    /// A unit has a name, and a rule counts either the unit or a fixed cost.
    fn unit(&mut self, rule: &RuleFile, node: &Node) {
        let mut refuse = |field: &str, message: String, help: &str| {
            let span = &node.at(&[field]).unwrap_or(node).span;
            self.refuse(span, Problem::Invalid { message }, Some(help.to_owned()));
        };
        let Some(unit) = &rule.unit else {
            if rule.default_amount.is_some() {
                let message = "default_amount needs a unit: it is how much a request takes of the unit".to_owned();
                refuse("default_amount", message, "add unit, such as \"tokens\"");
            }
            return;
        };
        if unit.is_empty() || unit.len() > MAX_UNIT_LENGTH {
            let message = format!("the name of a unit has 1 to {MAX_UNIT_LENGTH} bytes, not {}", unit.len());
            refuse("unit", message, "requests name the same unit, such as \"tokens\"");
        }
        if matches!(rule.cost, Some(Cost::Always(_))) {
            let message = format!("a rule cannot count the unit {unit:?} and always charge the same");
            refuse("cost", message, "leave out unit, or give a factor for its amounts: cost = { times = 2 }");
        }
    }

    fn condition(&mut self, attribute: &str, wanted: &Match, node: &Node) {
        let place = |word: &str| &node.at(&[word]).unwrap_or(node).span;
        match wanted {
            Match::Equals(text) => {
                let help = self.instead_of_equals(text);
                self.exact(attribute, text, place("equals"), help);
            }
            Match::Prefix(prefix) => self.address_like(attribute, prefix, place("prefix")),
            Match::Glob(pattern) => self.pattern(attribute, pattern, place("glob")),
            Match::Cidr(_) | Match::Present(_) => {}
        }
    }

    fn overrides(&mut self, overrides: &Node) {
        for (attribute, entry) in by_value(Some(overrides)) {
            match entry.key.contains(['*', '?']) {
                true => self.pattern(attribute, &entry.key, &entry.key_span),
                false => self.setting(attribute, entry),
            }
        }
    }

    /// An override or a tier of one value.
    fn setting(&mut self, attribute: &str, entry: &Entry) {
        let is_network = entry.key.parse::<Network>().is_ok();
        let help = is_network.then(|| "for a network, write a rule that matches it by cidr".to_owned());
        self.exact(attribute, &entry.key, &entry.key_span, help);
    }

    /// A value that the attribute is to be equal to.
    fn exact(&mut self, attribute: &str, text: &str, span: &Span, help: Option<String>) {
        if self.addresses.contains(attribute) && text.parse::<IpAddr>().is_err() {
            let error = ConfigError::NotAnAddress { attribute: attribute.into(), text: text.into() };
            self.refuse(span, Problem::Policy(error), help);
        }
    }

    /// What a text that is not an address may have been meant for.
    fn instead_of_equals(&self, text: &str) -> Option<String> {
        let write = |word: &str| Some(format!("write {}", self.part.format.table(word, text)));
        match () {
            () if text.parse::<Network>().is_ok() => write("cidr"),
            () if text.contains(['*', '?']) => write("glob"),
            () => text.parse::<SocketAddr>().ok().map(|address| format!("leave out the port: {}", address.ip())),
        }
    }

    fn pattern(&mut self, attribute: &str, pattern: &str, span: &Span) {
        if pattern.contains('[') {
            let message = "a pattern cannot have a [: it knows only * and ?".to_owned();
            let help = "* stands for any characters or none, ? for exactly one; a choice is one pattern for each";
            return self.refuse(span, Problem::Invalid { message }, Some(help.to_owned()));
        }
        self.address_like(attribute, pattern, span);
    }

    /// The beginning of an address, or a pattern: of what addresses are written with.
    fn address_like(&mut self, attribute: &str, text: &str, span: &Span) {
        let foreign = text.chars().find(|letter| !"0123456789abcdef.:*?".contains(*letter));
        if let (true, Some(letter)) = (self.addresses.contains(attribute), foreign) {
            let message = format!("no address is written with {letter:?}, so attribute {attribute:?} never matches");
            let help = "addresses look like 192.0.2.1 and 2001:db8::1, in lower case; a network is matched by cidr";
            self.refuse(span, Problem::Invalid { message }, Some(help.to_owned()));
        }
    }

    /// No request has a key that is made of what has to be absent.
    fn key(&mut self, rule: &RuleFile, node: &Node) {
        let conditions = rule.r#match.0.iter().zip(entries(node.at(&["match"])));
        let absent = conditions.filter(|((_, wanted), _)| *wanted == Match::Present(false));
        let absent: HashMap<&str, &Span> = absent.map(|(_, entry)| (entry.key.as_str(), &entry.key_span)).collect();
        let parts = rule.key.iter().flatten().zip(node.at(&["key"]).map(Node::items).unwrap_or_default());
        for (part, place) in parts.filter(|_| rule.missing == WhenMissing::Error) {
            let names: Vec<&str> = match part {
                KeyPart::Attribute(name) => vec![name],
                KeyPart::Coarser(part) => part.names().collect(),
            };
            let asked: Option<Vec<&Span>> = names.iter().map(|name| absent.get(name).copied()).collect();
            let Some(asked) = asked else { continue };
            self.diagnostics.add(|| {
                let (source, names) = (&self.part.source, names.join(" or "));
                let message =
                    format!("key attribute {names:?} is never there: the rule matches only requests without it");
                let diagnostic = Diagnostic::at(source, &place.span, Problem::Invalid { message })
                    .help_with("set missing to \"shared\" for one limit on all of them, or count by another attribute");
                match asked.first() {
                    Some(span) => diagnostic.see(source.place(span), "has to be absent"),
                    None => diagnostic,
                }
            });
        }
    }

    fn refuse(&mut self, span: &Span, problem: Problem, help: Option<String>) {
        self.diagnostics.add(|| {
            let diagnostic = Diagnostic::at(&self.part.source, span, problem);
            match help {
                Some(help) => diagnostic.help_with(help),
                None => diagnostic,
            }
        });
    }
}
