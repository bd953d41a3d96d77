//! What is valid and probably not meant, each at its place.
//!
//! A warning costs attention at every start: there is one only where a policy that
//! is meant would hardly be written so.

use std::collections::{BTreeMap, HashSet};

use super::values::by_value;
use super::{Format, Part, entries};
use crate::file::{KeyPart, Match, RuleFile};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::{Source, Span};
use crate::suggest;
use crate::tree::{Entry, Node};

/// Attributes that requests usually have.
const WELL_KNOWN: [&str; 10] =
    ["user", "ip", "path", "method", "tenant", "endpoint", "query", "agent", "domain", "key"];
/// The names of a larger policy are compared with the well-known ones only.
const MAX_COMPARED: usize = 200;
/// Patterns without literal text that need no warning: each is tried on every request.
const MAX_TRIED: usize = 100;
/// The pattern that every value matches.
const ANY: &str = "*";

pub(super) fn of(parts: &[Part]) -> Vec<Diagnostic> {
    let mut warnings = Collector::default();
    slips(parts, &mut warnings);
    tried_patterns(parts, &mut warnings);
    for part in parts {
        let mut warn = |span: &Span, message: String, help: &str| {
            warnings.add(|| Diagnostic::at(&part.source, span, Problem::Doubtful { message }).help_with(help));
        };
        for (rule, entry) in part.rules() {
            let node = &entry.value;
            if let (Some([]), false, Some(key)) = (rule.key.as_deref(), rule.shadow, node.at(&["key"])) {
                let help = "one caller can use it up for all others: name attributes to count by, \
                            or leave out key to count by the key of the request";
                warn(&key.span, "an empty key is one limit for all requests".into(), help);
            }
            unreachable_patterns(node.at(&["overrides"]), &mut warn);
            unreachable_tiers(rule, node, &mut warn);
            for ((_, wanted), entry) in rule.r#match.0.iter().zip(entries(node.at(&["match"]))) {
                pattern_as_text(wanted, &entry.value, part.format, &mut warn);
            }
        }
        for (_, entry) in part.overrides() {
            unreachable_patterns(Some(&entry.value), &mut warn);
        }
        for (listed, entry) in part.lists() {
            pattern_as_text(&listed.wanted, &entry.value, part.format, &mut warn);
        }
    }
    warnings.into_diagnostics()
}

/// Many patterns of nothing but `*` and `?`, which no index can find.
fn tried_patterns(parts: &[Part], warnings: &mut Collector) {
    let mut tried = Vec::new();
    for part in parts {
        for (rule, entry) in part.rules() {
            for ((_, wanted), entry) in rule.r#match.0.iter().zip(entries(entry.value.at(&["match"]))) {
                if matches!(wanted, Match::Glob(pattern) if is_without_text(pattern)) {
                    tried.push((&part.source, &entry.value.span));
                }
            }
        }
    }
    if let Some((source, span)) = tried.get(MAX_TRIED) {
        let count = tried.len();
        let message = format!("{count} patterns have no text besides * and ?: each of them is tried on every request");
        let help = "a pattern with text is tried only where its text occurs: add text, or match another attribute";
        warnings.add(|| Diagnostic::at(source, span, Problem::Doubtful { message }).help_with(help));
    }
}

fn is_without_text(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.chars().all(|letter| matches!(letter, '*' | '?'))
}

/// Key attributes that nothing else names and that look like another.
fn slips(parts: &[Part], warnings: &mut Collector) {
    let mentions: Vec<Mention<'_>> = parts.iter().flat_map(mentions).collect();
    let mut uses: BTreeMap<&str, Uses> = BTreeMap::new();
    for (index, Mention { name, in_key }) in mentions.iter().enumerate() {
        let uses = uses.entry(name).or_insert(Uses { times: 0, first: index, beside_keys: false });
        uses.times += 1;
        uses.beside_keys |= in_key.is_none();
    }
    for (index, Mention { name, in_key }) in mentions.iter().enumerate() {
        let Some((source, span)) = in_key.filter(|_| !WELL_KNOWN.contains(name) && !warnings.is_full()) else {
            continue;
        };
        if uses.get(name).is_none_or(|uses| uses.times > 1) {
            continue;
        }
        // Of two that one key each names, the first is taken for the right one.
        let others = uses.iter().filter(|(_, uses)| uses.times > 1 || uses.beside_keys || uses.first < index);
        let others = others.filter(|_| uses.len() <= MAX_COMPARED).map(|(name, _)| *name);
        if let Some(meant) = suggest::slip(name, WELL_KNOWN.into_iter().chain(others)) {
            let message = format!("key attribute {name:?} is named nowhere else");
            let help = format!("did you mean {meant:?}?");
            warnings.add(|| Diagnostic::at(source, span, Problem::Doubtful { message }).help_with(help));
        }
    }
}

/// An attribute that a file names, and where if it is in a key.
struct Mention<'p> {
    name: &'p str,
    in_key: Option<(&'p Source, &'p Span)>,
}

/// How a policy uses a name: how often, where first, and whether not only in keys.
struct Uses {
    times: usize,
    first: usize,
    beside_keys: bool,
}

fn mentions(part: &Part) -> Vec<Mention<'_>> {
    let mut all: Vec<Mention<'_>> = Vec::new();
    fn elsewhere(name: &str) -> Mention<'_> {
        Mention { name, in_key: None }
    }
    fn in_key<'p>(name: &'p str, node: &'p Node, source: &'p Source) -> Mention<'p> {
        Mention { name, in_key: Some((source, &node.span)) }
    }
    for (rule, entry) in part.rules() {
        let items = entry.value.at(&["key"]).map(Node::items).unwrap_or_default();
        for (key, node) in rule.key.iter().flatten().zip(items) {
            match key {
                KeyPart::Attribute(name) => all.push(in_key(name, node, &part.source)),
                KeyPart::Coarser(key) => {
                    let first = node.at(&["first"]).map(Node::items).unwrap_or_default();
                    let places = node.at(&["attribute"]).into_iter().chain(first);
                    all.extend(key.names().zip(places).map(|(name, node)| in_key(name, node, &part.source)));
                }
            }
        }
        all.extend(rule.r#match.into_iter().map(|(name, _)| elsewhere(name)));
        all.extend(rule.priority.iter().map(|priority| elsewhere(&priority.attribute)));
        all.extend(rule.overrides.into_iter().chain(&rule.tiers).map(|(name, _)| elsewhere(name)));
    }
    all.extend(part.overrides().flat_map(|(overrides, _)| overrides).map(|(name, _)| elsewhere(name)));
    all.extend(part.lists().map(|(listed, _)| elsewhere(&listed.attribute)));
    all
}

/// Patterns after one that every value matches: the first that matches applies.
fn unreachable_patterns(overrides: Option<&Node>, warn: &mut impl FnMut(&Span, String, &str)) {
    for values in entries(overrides) {
        let after = entries(Some(&values.value)).iter().skip_while(|value| value.key != ANY).skip(1);
        for Entry { key, key_span, .. } in after.filter(|value| value.key.contains(['*', '?'])) {
            let message =
                format!("the pattern {key:?} never applies: {ANY:?} stands before it and matches every value");
            warn(key_span, message, "the first pattern that matches applies: put \"*\" last");
        }
    }
}

/// Tiers of values that have an override, which comes before, and tiers that look
/// like patterns.
fn unreachable_tiers(rule: &RuleFile, node: &Node, warn: &mut impl FnMut(&Span, String, &str)) {
    let overridden = by_value(node.at(&["overrides"])).map(|(attribute, value)| (attribute, value.key.as_str()));
    let overridden: HashSet<(&str, &str)> = overridden.filter(|_| !rule.tiers.0.is_empty()).collect();
    for (attribute, Entry { key, key_span, .. }) in by_value(node.at(&["tiers"])) {
        if [key.as_str(), ANY].into_iter().any(|value| overridden.contains(&(attribute, value))) {
            let message = format!("the tier {key:?} never applies: an override by {attribute:?} comes before it");
            warn(key_span, message, "overrides come before tiers: remove one of them");
        } else if key.contains('*') {
            let message = format!("the tier {key:?} is one value, not a pattern");
            warn(key_span, message, "for a pattern, write an override");
        }
    }
}

/// A text with a star that is compared as it is.
fn pattern_as_text(wanted: &Match, node: &Node, format: Format, warn: &mut impl FnMut(&Span, String, &str)) {
    if let Match::Equals(text) = wanted
        && text.contains('*')
        && node.at(&["equals"]).is_none()
    {
        let message = format!("{text:?} is compared as it is, not as a pattern");
        let [glob, equals] = ["glob", "equals"].map(|word| format.table(word, text));
        warn(&node.span, message, &format!("for a pattern, write {glob}; for this very text, {equals}"));
    }
}
