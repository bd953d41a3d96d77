//! A policy made of the files that were read, if they fit together.

use std::collections::{HashMap, HashSet};

use tidegate::store::Meter;
use tidegate::{ConfigError, FailureMode, Limit, Name, Policy, Rule, Setting};

use super::values::by_value;
use super::{DEFAULT, Overrides, Part, entries, values};
use crate::file::{Cost, Estimate, OnFailure, RuleFile, Words};
use crate::report::{Collector, Diagnostic, Problem};
use crate::source::{Source, Span};
use crate::suggest;
use crate::tree::{Entry, Node};

/// The library's name of the deny list.
const DENIED: &str = "denied";

/// Overrides that stand apart from their rules, by the names of those.
type Apart<'p> = HashMap<&'p str, Vec<&'p Overrides>>;

/// The policy, if nothing is wrong here nor was before.
pub(super) fn policy(parts: &[Part], diagnostics: &mut Collector) -> Option<Policy> {
    // Names are kept for ever: only those of a policy that is right.
    match assemble(parts, &check(parts, None, diagnostics)?) {
        Ok(policy) => Some(policy),
        Err(error) => {
            diagnostics.add(|| Diagnostic::somewhere(Problem::Policy(error)));
            None
        }
    }
}

/// Whether the files fit together; `None` if anything is wrong here or was before.
pub(super) fn check<'p>(
    parts: &'p [Part],
    max_log_entries: Option<u64>,
    diagnostics: &mut Collector,
) -> Option<Apart<'p>> {
    let (names, rules, more) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut builder = Builder { diagnostics, max_log_entries, names, rules, more };
    builder.collect_names(parts);
    builder.collect_overrides(parts);
    for part in parts {
        for (rule, entry) in part.rules() {
            builder.check_limits((&entry.key, rule), &entry.value, &part.source);
        }
        for (overrides, entry) in part.overrides() {
            if let Some(rule) = builder.rules.get(entry.key.as_str()).copied() {
                builder.check_settings((&entry.key, rule), overrides, (&entry.value, &part.source));
            }
        }
    }
    let Builder { diagnostics, names, more, .. } = builder;
    values::check(parts, diagnostics);
    if names.is_empty() && diagnostics.is_empty() {
        let source = &parts.first()?.source;
        diagnostics.add(|| Diagnostic::at(source, &(0..0), Problem::Policy(ConfigError::EmptyPolicy)));
    }
    diagnostics.is_empty().then_some(more)
}

/// The rules of a tree, in the order of the file's.
fn rules(tree: &Node) -> &[Entry] {
    entries(tree.at(&["rules"]))
}

struct Builder<'p, 'm> {
    diagnostics: &'m mut Collector,
    max_log_entries: Option<u64>,
    /// Where each name is that a rule has, or its candidate.
    names: HashMap<String, (&'p Source, &'p Span)>,
    /// The rules by their names, which overrides that stand apart go by.
    rules: HashMap<&'p str, &'p RuleFile>,
    more: Apart<'p>,
}

impl<'p> Builder<'p, '_> {
    fn collect_names(&mut self, parts: &'p [Part]) {
        for part in parts {
            for ((name, rule), entry) in part.file.rules.0.iter().zip(rules(&part.tree)) {
                let refusal = match name.as_str() {
                    "" => Some("a rule needs a name"),
                    DEFAULT => Some("a rule cannot be named \"default\": write [default] for the rule of all others"),
                    DENIED => Some("a rule cannot be named \"denied\": those on the list of lists.deny are"),
                    _ => None,
                };
                if let Some(message) = refusal {
                    let problem = Problem::Invalid { message: message.to_owned() };
                    self.diagnostics.add(|| Diagnostic::at(&part.source, &entry.key_span, problem));
                    continue;
                }
                self.rule(name, rule, (&part.source, &entry.key_span));
            }
            if let (Some(rule), Some(entry)) = (&part.file.default, part.tree.entry(DEFAULT)) {
                self.rule(DEFAULT, rule, (&part.source, &entry.key_span));
            }
        }
    }

    fn rule(&mut self, name: &'p str, rule: &'p RuleFile, place: (&'p Source, &'p Span)) {
        self.rules.insert(name, rule);
        self.name(name.to_owned(), place);
        if rule.candidate.is_some() {
            self.name(format!("{name} (candidate)"), place);
        }
    }

    fn name(&mut self, name: String, (source, span): (&'p Source, &'p Span)) {
        if let Some((first, place)) = self.names.insert(name.clone(), (source, span)) {
            let problem = Problem::Twice { what: "the rule", name };
            self.diagnostics.add(|| Diagnostic::at(source, span, problem).see(first.place(place), "first here"));
        }
    }

    fn collect_overrides(&mut self, parts: &'p [Part]) {
        // After an error, a rule may be missing only because it was not read.
        let all_read = self.diagnostics.is_empty();
        for part in parts {
            for (overrides, Entry { key: name, key_span, .. }) in part.overrides() {
                if all_read && !self.rules.contains_key(name.as_str()) {
                    self.diagnostics.add(|| {
                        let problem = Problem::Invalid { message: format!("there is no rule {name:?} to override") };
                        let diagnostic = Diagnostic::at(&part.source, key_span, problem);
                        let mut names: Vec<&str> = self.rules.keys().copied().collect();
                        names.sort_unstable();
                        match suggest::nearest(name, names) {
                            Some(meant) => diagnostic.help_with(format!("did you mean {meant:?}?")),
                            None => diagnostic,
                        }
                    });
                }
                self.more.entry(name).or_default().push(overrides);
            }
        }
        if !self.more.is_empty() {
            self.check_overrides(parts);
        }
    }

    /// No value is overridden in two places.
    fn check_overrides(&mut self, parts: &'p [Part]) {
        let mut seen: HashMap<(&str, &str, &str), (&'p Source, &'p Span)> = HashMap::new();
        let mut check = |rule: &'p str, overrides: Option<&'p Node>, source: &'p Source| {
            for attribute in entries(overrides) {
                for Entry { key, key_span, .. } in entries(Some(&attribute.value)) {
                    if let Some((first, place)) = seen.insert((rule, &attribute.key, key), (source, key_span)) {
                        let problem = Problem::Twice { what: "the override for", name: key.clone() };
                        self.diagnostics
                            .add(|| Diagnostic::at(source, key_span, problem).see(first.place(place), "first here"));
                    }
                }
            }
        };
        let apart: HashSet<&str> = self.more.keys().copied().collect();
        for part in parts {
            for entry in rules(&part.tree).iter().filter(|entry| apart.contains(entry.key.as_str())) {
                check(&entry.key, entry.value.at(&["overrides"]), &part.source);
            }
            if apart.contains(DEFAULT) {
                check(DEFAULT, part.tree.at(&[DEFAULT, "overrides"]), &part.source);
            }
            for entry in entries(part.tree.at(&["overrides"])) {
                check(&entry.key, Some(&entry.value), &part.source);
            }
        }
    }

    /// No limit is so small that not even the least request fits, and no log too
    /// long.
    fn check_limits(&mut self, (name, rule): (&str, &RuleFile), node: &Node, source: &Source) {
        let candidate = rule.candidate.map(|words| words.0);
        for (field, limit) in [("limit", limit_of(rule.limit)), ("candidate", candidate)] {
            if let (Some(limit), Some(node)) = (limit, node.at(&[field])) {
                self.check_limit((name, rule), limit, (node, source));
            }
        }
        for (field, settings) in [("tiers", &rule.tiers), ("overrides", &rule.overrides)] {
            if let Some(node) = node.at(&[field]) {
                self.check_settings((name, rule), settings, (node, source));
            }
        }
    }

    /// The same for those of some values.
    fn check_settings(&mut self, rule: (&str, &RuleFile), settings: &Overrides, (node, source): (&Node, &Source)) {
        let values = settings.into_iter().flat_map(|(_, values)| values);
        for ((_, setting), (_, entry)) in values.zip(by_value(Some(node))) {
            if let Some(limit) = limit_of(*setting) {
                self.check_limit(rule, limit, (&entry.value, source));
            }
        }
    }

    fn check_limit(&mut self, (name, rule): (&str, &RuleFile), limit: Limit, (node, source): (&Node, &Source)) {
        self.check_cost(rule, limit, (node, source));
        self.check_floors((name, rule), limit, (node, source));
        let Some(bound) = self.max_log_entries else { return };
        if let Err(error) = limit.check_log_entries(name, bound) {
            self.diagnostics.add(|| Diagnostic::at(source, &node.span, Problem::Policy(error)));
        }
    }

    fn check_cost(&mut self, rule: &RuleFile, limit: Limit, (node, source): (&Node, &Source)) {
        let (Some(cost), Estimate::Error) = (least_cost(rule), rule.estimate) else { return };
        let largest = meter_of(rule, Name::literal("limit"), limit).largest_cost();
        if cost <= largest {
            return;
        }
        let message = if largest < limit.capacity() {
            format!("a cost of {cost} can never pass: a new key gets {largest} at once by the warm-up")
        } else {
            format!("a cost of {cost} can never fit a limit of {largest}")
        };
        self.diagnostics.add(|| Diagnostic::at(source, &node.span, Problem::Invalid { message }));
    }

    /// Every class can take something of the limit, and the least request fits above its floor.
    fn check_floors(&mut self, (name, rule): (&str, &RuleFile), limit: Limit, (node, source): (&Node, &Source)) {
        let Some(priority) = &rule.priority else { return };
        let whole = meter_of(rule, Name::literal("limit"), limit);
        let cost = least_cost(rule).filter(|cost| rule.estimate == Estimate::Error && *cost <= whole.largest_cost());
        for (class, floor) in &priority.classes {
            let largest = whole.clone().with_floor(floor.0.of(whole.capacity())).largest_cost();
            let problem = if largest == 0 {
                let (rule, limit) = (name.into(), limit.to_string().into());
                let class = format!("{class} ({})", floor.0).into();
                Problem::Policy(ConfigError::FloorTooHigh { rule, limit, class })
            } else if cost.is_some_and(|cost| cost > largest) {
                let cost = cost.unwrap_or_default();
                let message =
                    format!("a cost of {cost} can never pass for class {class:?}, which may take {largest} at once");
                Problem::Invalid { message }
            } else {
                continue;
            };
            self.diagnostics.add(|| Diagnostic::at(source, &node.span, problem));
        }
    }
}

/// A limit as a rule has it.
fn meter_of(rule: &RuleFile, name: Name, limit: Limit) -> Meter {
    let meter = Meter::new(name, limit);
    match rule.warm_up {
        Some(warm_up) => meter.warming_up(warm_up.0),
        None => meter,
    }
}

/// What a rule charges for a request that says no more than it has to, if the file tells.
fn least_cost(rule: &RuleFile) -> Option<u64> {
    match (rule.cost, rule.default_amount) {
        (Some(Cost::Times(times)), Some(amount)) => Some(times.saturating_mul(amount)),
        (None, amount) => amount,
        (Some(Cost::Times(cost) | Cost::Always(cost)), _) => Some(cost),
    }
}

fn limit_of(words: Words<Setting>) -> Option<Limit> {
    match words.0 {
        Setting::Limit(limit) => Some(limit),
        Setting::Unlimited | Setting::Blocked => None,
    }
}

fn assemble(parts: &[Part], more: &Apart<'_>) -> Result<Policy, ConfigError> {
    let rule = |name: &str, file: &RuleFile| -> Result<Rule, ConfigError> {
        let apart = more.get(name).into_iter().flatten().copied();
        Ok(make_rule(Name::from(name), file, apart))
    };
    let mut policy = Policy::new();
    for part in parts {
        for (name, file) in &part.file.rules {
            policy = policy.rule(rule(name, file)?);
        }
        if let Some(file) = &part.file.default {
            policy = policy.otherwise(rule(DEFAULT, file)?);
        }
        for listed in &part.file.lists.deny {
            policy = policy.deny(&listed.attribute, (&listed.wanted).into());
        }
        for listed in &part.file.lists.allow {
            policy = policy.allow(&listed.attribute, (&listed.wanted).into());
        }
    }
    Ok(policy)
}

fn make_rule<'p>(name: Name, file: &'p RuleFile, more: impl Iterator<Item = &'p Overrides>) -> Rule {
    let mut rule = Rule::with_setting(name, file.limit.0).missing(file.missing.into());
    for (attribute, wanted) in &file.r#match {
        rule = rule.when(attribute, wanted.into());
    }
    if let Some(key) = &file.key {
        rule = rule.key(key);
    }
    for (attribute, values) in std::iter::once(&file.overrides).chain(more).flatten() {
        for (value, setting) in values {
            rule = match value.contains(['*', '?']) {
                true => rule.override_matching(attribute, value, setting.0),
                false => rule.override_exactly(attribute, value, setting.0),
            };
        }
    }
    for (attribute, values) in &file.tiers {
        for (tier, setting) in values {
            rule = rule.tier(attribute, tier, setting.0);
        }
    }
    rule = match file.cost {
        None => rule,
        Some(Cost::Times(times)) => rule.cost_multiplier(times),
        Some(Cost::Always(cost)) => rule.fixed_cost(cost),
    };
    if let Some(unit) = &file.unit {
        rule = rule.unit(unit.as_str());
    }
    if let Some(amount) = file.default_amount {
        rule = rule.default_amount(amount);
    }
    if file.estimate == Estimate::Clamp {
        rule = rule.clamp_estimate();
    }
    if file.shadow {
        rule = rule.shadow();
    }
    if let Some(candidate) = file.candidate {
        rule = rule.candidate(candidate.0);
    }
    if let Some(warm_up) = file.warm_up {
        rule = rule.warm_up(warm_up.0);
    }
    if let Some(priority) = &file.priority {
        rule = rule.priority(priority.into());
    }
    rule = rule.with_thresholds(file.notify.0.clone());
    match file.on_failure {
        None => rule,
        Some(OnFailure::Open) => rule.on_failure(FailureMode::Open),
        Some(OnFailure::Closed) => rule.on_failure(FailureMode::Closed),
        Some(OnFailure::Local(processes)) => rule.on_failure(FailureMode::Local { processes }),
    }
}
