//! A policy made ready: which rules apply to a request, found without trying
//! all of them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::condition::{Condition, address};
use super::glob;
use super::history::FormerRule;
use super::index::Index;
use super::network::first_bits;
use super::rule::{KeyAttribute, Missing, Mode, RuleCost, Value};
use crate::kernel::Verb;
use crate::limit::Limit;
use crate::name::Name;
use crate::request::{Key, KeyPart, Request};
use crate::store::{Check, CheckError, Former, Meter};

/// The attributes that a policy knows, by number.
pub(super) type Attribute = u16;

/// Copies share everything.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(super) attributes: Arc<Attributes>,
    pub(super) rules: Arc<[CompiledRule]>,
    pub(super) meters: Arc<[Meter]>,
    /// What each rule limited before; empty once nothing of it matters.
    pub(super) former: Arc<[Option<Box<FormerRule>>]>,
    pub(super) index: Arc<Index>,
    /// The first of the rules for those whom no other applies to.
    pub(super) fallback: usize,
    pub(super) by_name: Arc<HashMap<&'static str, usize, RandomState>>,
    pub(super) denied: Arc<[(Attribute, Condition)]>,
    pub(super) allowed: Arc<[(Attribute, Condition)]>,
}

/// The names of attributes, and their numbers.
#[derive(Default)]
pub(super) struct Attributes {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, Attribute, RandomState>,
    /// Those that are addresses.
    addresses: Vec<Attribute>,
}

/// Names that are found sooner by trying each than by a hash.
const FEW_NAMES: usize = 8;

impl Attributes {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn add(&mut self, name: &str, number: Attribute) {
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
    }

    pub(super) fn mark_addresses(&mut self, names: &[&str]) {
        self.addresses = names.iter().filter_map(|name| self.number(name)).collect();
    }

    /// A value as the policy uses it.
    fn normalised<'r>(&self, attribute: Attribute, value: KeyPart<'r>) -> Result<KeyPart<'r>, CheckError> {
        if !self.addresses.contains(&attribute) {
            return Ok(value.canonical());
        }
        let error = || CheckError::NotAnAddress {
            attribute: self.name(attribute).into(),
            value: value.with_bytes(|bytes| String::from_utf8_lossy(bytes).into()),
        };
        Ok(KeyPart::Address(address(value).ok_or_else(error)?.to_canonical()))
    }

    pub(super) fn name(&self, number: Attribute) -> &str {
        self.names.get(usize::from(number)).map_or("", |name| name)
    }

    pub(super) fn number(&self, name: &str) -> Option<Attribute> {
        if self.names.len() > FEW_NAMES {
            return self.numbers.get(name).copied();
        }
        self.names.iter().position(|known| **known == *name).map(|number| number as Attribute)
    }
}

pub(super) struct CompiledRule {
    pub(super) name: Name,
    /// The rule before this one, if it watches in that one's place.
    pub(super) candidate_of: Option<Name>,
    pub(super) conditions: Arc<[(Attribute, Condition)]>,
    pub(super) key: Option<Box<[CompiledKey]>>,
    pub(super) missing: Missing,
    pub(super) standard: Effect,
    pub(super) exact: Effects,
    pub(super) patterns: Box<[(Attribute, String, Effect)]>,
    pub(super) tiers: Effects,
    pub(super) cost: RuleCost,
    pub(super) mode: Mode,
}

/// An attribute in the key of a rule.
pub(super) struct CompiledKey {
    /// The first of these that the request has.
    pub(super) first_of: Box<[Attribute]>,
    pub(super) how: KeyAttribute,
}

impl CompiledKey {
    /// The name of the attribute that the request has, and its value.
    fn find<'r>(&self, values: &Values<'r>) -> Option<(&str, KeyPart<'r>)> {
        let mut names = self.first_of.iter().zip(&self.how.names);
        names.find_map(|(attribute, name)| Some((name.as_str(), values.get(*attribute)?)))
    }

    fn is_missing(&self, values: &Values<'_>) -> bool {
        self.first_of.iter().all(|attribute| values.get(*attribute).is_none())
    }
}

/// Effects by attribute, in the rule's order, and by value.
pub(super) type Effects = Box<[(Attribute, ByValue)]>;
pub(super) type ByValue = HashMap<Box<[u8]>, Effect, RandomState>;

/// A setting, with its meter made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Meter(usize),
    Unlimited,
    Blocked,
}

impl Effect {
    pub(super) fn meter(self) -> Option<usize> {
        match self {
            Effect::Meter(number) => Some(number),
            Effect::Unlimited | Effect::Blocked => None,
        }
    }
}

/// An override or a tier that applies to a request.
pub(super) struct Special {
    /// Whose value chose it.
    pub(super) attribute: Attribute,
    pub(super) effect: Effect,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Override,
    Tier,
}

/// What a policy makes of a request.
#[derive(Default)]
pub(crate) struct Resolution<'p, 'r> {
    /// The limits to be passed, all or none.
    pub(crate) enforced: Vec<Applied<'p, 'r>>,
    /// The limits that only watch.
    pub(crate) shadows: Vec<Applied<'p, 'r>>,
    /// The rule that lets nothing pass, if there is one.
    pub(crate) blocked_by: Option<Name>,
    /// Whom it blocks, unless a list does.
    blocked: Option<Key<'r>>,
    /// Why there is no answer.
    pub(crate) problem: Option<Box<CheckError>>,
    /// Rules that lack an attribute of their key, and the attribute.
    pub(crate) lacking: Vec<(Name, String)>,
}

impl<'r> Resolution<'_, 'r> {
    /// Whose limit a rule's is, if it is to be passed or lets nothing pass.
    pub(crate) fn key_of(&self, rule: Name) -> Option<&Key<'r>> {
        if self.blocked_by == Some(rule) {
            return self.blocked.as_ref();
        }
        self.applied(rule).map(|applied| &applied.key)
    }

    /// A rule's limit, if it is to be passed.
    pub(crate) fn limit_of(&self, rule: Name) -> Option<Limit> {
        self.applied(rule).filter(|_| self.blocked_by != Some(rule)).and_then(|applied| applied.meter.limit())
    }

    fn applied(&self, rule: Name) -> Option<&Applied<'_, 'r>> {
        self.enforced.iter().find(|applied| applied.meter.name() == rule)
    }
}

/// A limit that applies to a request.
pub(crate) struct Applied<'p, 'r> {
    pub(crate) meter: &'p Meter,
    /// What the rule limited before.
    pub(crate) former: Vec<Former<'p>>,
    pub(crate) key: Key<'r>,
    pub(crate) cost: u64,
}

impl Applied<'_, '_> {
    /// The check of a request that is alone.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the limit could never admit the cost.
    pub(crate) fn check(&self, verb: Verb) -> Result<Check<'_>, CheckError> {
        Ok(Check::new(self.meter, &self.key, verb, self.cost)?.with_former(&self.former))
    }

    /// A check of this cost, or of as much as the limit could ever admit.
    pub(crate) fn check_of(&self, verb: Verb, cost: u64) -> Check<'_> {
        Check::capped(self.meter, &self.key, verb, cost).with_former(&self.former)
    }
}

/// The values of a request, by the numbers of their attributes.
pub(super) struct Values<'r> {
    values: [Option<KeyPart<'r>>; INLINE],
    more: Vec<Option<KeyPart<'r>>>,
}

/// Attributes of a policy that need no allocation.
const INLINE: usize = 8;

impl<'r> Values<'r> {
    fn new(known: usize) -> Values<'r> {
        Values { values: [None; INLINE], more: vec![None; known.saturating_sub(INLINE)] }
    }

    fn set(&mut self, attribute: Attribute, value: KeyPart<'r>) {
        let number = usize::from(attribute);
        match number.checked_sub(INLINE) {
            None => self.values[number] = Some(value),
            Some(number) => self.more[number] = Some(value),
        }
    }

    pub(super) fn get(&self, attribute: Attribute) -> Option<KeyPart<'r>> {
        let number = usize::from(attribute);
        match number.checked_sub(INLINE) {
            None => self.values[number],
            Some(number) => self.more[number],
        }
    }

    /// Those that are there.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Attribute, KeyPart<'r>)> {
        let all = self.values.iter().chain(&self.more).enumerate();
        all.filter_map(|(number, value)| Some((number as Attribute, (*value)?)))
    }
}

impl Compiled {
    /// Every limit of the policy, by number.
    pub(crate) fn meters(&self) -> &[Meter] {
        &self.meters
    }

    /// The same policy without what its rules limited before.
    pub(crate) fn without_former(&self) -> Compiled {
        Compiled { former: Arc::default(), ..self.clone() }
    }

    /// The one limit that every request is asked about by its own key, if that
    /// is all there is.
    pub(crate) fn only_meter(&self) -> Option<&Meter> {
        let no_lists = self.denied.is_empty() && self.allowed.is_empty();
        let nothing_else = no_lists && self.fallback == self.rules.len() && !self.former.iter().any(Option::is_some);
        match (&*self.rules, &*self.meters) {
            ([rule], [meter]) if nothing_else && rule.is_plain() => Some(meter),
            _ => None,
        }
    }

    /// Whether there is a rule of this name.
    pub(crate) fn has_rule(&self, name: &str) -> bool {
        self.number_of(name).is_some()
    }

    fn number_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    pub(super) fn is_fallback(&self, number: usize) -> bool {
        number >= self.fallback
    }

    /// Whether a list decides before any rule does.
    pub(super) fn is_listed(&self, values: &Values<'_>) -> bool {
        let mut lists = self.denied.iter().chain(&*self.allowed);
        lists.any(|(attribute, condition)| condition.holds(values.get(*attribute)))
    }

    pub(super) fn name_of(&self, attribute: Attribute) -> &str {
        self.attributes.name(attribute)
    }

    /// The attributes of a request that this policy knows.
    pub(super) fn values<'r>(&self, request: &Request<'r>) -> Result<Values<'r>, CheckError> {
        if let Some(rule) = request.rule.filter(|rule| !self.has_rule(rule)) {
            return Err(CheckError::UnknownRule { rule: rule.into() });
        }
        let mut values = Values::new(self.attributes.len());
        for (name, value) in request.attributes.iter() {
            if let Some(attribute) = self.attributes.number(name) {
                values.set(attribute, self.attributes.normalised(attribute, *value)?);
            }
        }
        Ok(values)
    }

    /// What applies to a request.
    pub(crate) fn resolve<'p, 'r>(&'p self, request: &Request<'r>) -> Resolution<'p, 'r> {
        let mut resolution = Resolution::default();
        let values = match self.values(request) {
            Ok(values) => values,
            Err(problem) => return Resolution { problem: Some(Box::new(problem)), ..resolution },
        };
        if self.denied.iter().any(|(attribute, condition)| condition.holds(values.get(*attribute))) {
            resolution.blocked_by = Some(DENIED);
            return resolution;
        }
        if self.allowed.iter().any(|(attribute, condition)| condition.holds(values.get(*attribute))) {
            return resolution;
        }
        if let Some(name) = request.rule {
            let first = self.number_of(name).unwrap_or(self.rules.len());
            for number in (first..self.rules.len()).take_while(|number| self.rules[*number].is_asked_as(name)) {
                self.apply(number, request, &values, &mut resolution);
            }
            return resolution;
        }
        let mut any = false;
        self.index.candidates(&values, |number| {
            let rule = &self.rules[number];
            if rule.matches(&values) {
                any |= rule.mode == Mode::Enforced && !rule.is_skipped(request, &values);
                self.apply(number, request, &values, &mut resolution);
            }
        });
        let fallback = if any { self.rules.len() } else { self.fallback };
        for number in (fallback..self.rules.len()).filter(|number| self.rules[*number].matches(&values)) {
            self.apply(number, request, &values, &mut resolution);
        }
        resolution
    }

    pub(super) fn apply<'p, 'r>(
        &'p self,
        number: usize,
        request: &Request<'r>,
        values: &Values<'r>,
        resolution: &mut Resolution<'p, 'r>,
    ) {
        let rule = &self.rules[number];
        let lacks = rule.lacks(request, values);
        if let Some(Lack { attribute, missing }) = &lacks {
            if !request.without.skips {
                resolution.lacking.push((rule.name, attribute.clone()));
            }
            if *missing == Missing::Skip {
                return;
            }
        }
        let meter = match rule.effect(values) {
            Effect::Unlimited => return,
            Effect::Blocked => {
                if rule.mode == Mode::Enforced && resolution.blocked_by.is_none() {
                    resolution.blocked_by = Some(rule.name);
                    resolution.blocked = Some(rule.key_of(request, values));
                }
                return;
            }
            Effect::Meter(meter) => meter,
        };
        if let Some(Lack { attribute, missing: Missing::Error }) = lacks {
            let (rule, attribute) = (rule.name, attribute.into());
            resolution.problem.get_or_insert_with(|| CheckError::MissingAttribute { rule, attribute }.into());
            return;
        }
        let key = rule.key_of(request, values);
        let cost = match rule.cost {
            RuleCost::Times(times) => request.cost.saturating_mul(times),
            RuleCost::Always(_) if request.in_addition => 0,
            RuleCost::Always(cost) => cost,
        };
        let former = self.former.get(number).and_then(Option::as_deref);
        let former = former.map_or_else(Vec::new, |former| former.limits(rule, &self.meters, meter, values));
        let applied = Applied { meter: &self.meters[meter], former, key, cost };
        match rule.mode {
            Mode::Enforced => resolution.enforced.push(applied),
            Mode::Shadow => resolution.shadows.push(applied),
        }
    }
}

/// What a request lacks of a rule's key.
pub(super) struct Lack {
    /// The attribute, or all of which one would do.
    pub(super) attribute: String,
    /// What follows.
    pub(super) missing: Missing,
}

/// What the key of a request is called where it is missing.
const KEY: &str = "key";

/// The rule that a denied request is told of.
pub(super) const DENIED: Name = Name::literal("denied");

impl CompiledRule {
    fn is_plain(&self) -> bool {
        let special = !self.exact.is_empty() || !self.patterns.is_empty() || !self.tiers.is_empty();
        let usual = self.cost == RuleCost::Times(1) && self.mode == Mode::Enforced && self.key.is_none();
        self.conditions.is_empty() && !special && usual && matches!(self.standard, Effect::Meter(_))
    }

    /// Whether a request that asks a rule of this name asks this one.
    pub(super) fn is_asked_as(&self, name: &str) -> bool {
        self.name.as_str() == name || self.candidate_of.is_some_and(|rule| rule.as_str() == name)
    }

    pub(super) fn matches(&self, values: &Values<'_>) -> bool {
        self.conditions.iter().all(|(attribute, condition)| condition.holds(values.get(*attribute)))
    }

    pub(super) fn effect(&self, values: &Values<'_>) -> Effect {
        self.special(values).map_or(self.standard, |special| special.effect)
    }

    /// What applies in place of the rule's own setting.
    pub(super) fn special(&self, values: &Values<'_>) -> Option<Special> {
        self.specials(values).next()
    }

    /// All that could: exact values before patterns, before tiers.
    fn specials<'s>(&'s self, values: &'s Values<'_>) -> impl Iterator<Item = Special> + 's {
        let named = |table: &'s Effects, kind| {
            table.iter().filter_map(move |(attribute, effects)| {
                let effect = values.get(*attribute)?.with_bytes(|bytes| effects.get(bytes).copied())?;
                Some(Special { attribute: *attribute, effect, kind })
            })
        };
        let matching = self.patterns.iter().filter_map(|(attribute, pattern, effect)| {
            let matches = values.get(*attribute)?.with_bytes(|bytes| glob::matches_bytes(pattern, bytes));
            matches.then_some(Special { attribute: *attribute, effect: *effect, kind: Kind::Override })
        });
        named(&self.exact, Kind::Override).chain(matching).chain(named(&self.tiers, Kind::Tier))
    }

    /// Whether an override of the attribute applies to some requests of a key
    /// and not to others. Where there is a choice of attributes, only the first
    /// is always part of the key.
    pub(super) fn is_apart(&self, attribute: Attribute) -> bool {
        self.key.as_ref().is_some_and(|key| !key.iter().any(|part| part.first_of.first() == Some(&attribute)))
    }

    /// All that could apply to a key, whatever else its requests say, the
    /// rule's own setting last.
    pub(super) fn effects_of_key<'s>(&'s self, values: &'s Values<'_>) -> impl Iterator<Item = Effect> + 's {
        let of_key = |special: &Special| special.kind == Kind::Tier || !self.is_apart(special.attribute);
        self.specials(values).filter(of_key).map(|special| special.effect).chain([self.standard])
    }

    /// What applies to requests with this value, among `known` attributes.
    pub(super) fn effect_of_value(&self, attribute: Attribute, value: &Value, known: usize) -> Effect {
        let text = match value {
            Value::Exactly(text) | Value::Matching(text) => text,
        };
        let is_same = |(other, pattern, _): &&(Attribute, String, Effect)| *other == attribute && pattern == text;
        let same = self.patterns.iter().find(is_same).filter(|_| matches!(value, Value::Matching(_)));
        same.map(|(_, _, effect)| *effect).unwrap_or_else(|| {
            let mut values = Values::new(known);
            values.set(attribute, KeyPart::Bytes(text.as_bytes()));
            self.effect(&values)
        })
    }

    /// Every setting of the rule.
    pub(super) fn effects(&self) -> impl Iterator<Item = Effect> {
        let named = self.exact.iter().chain(&self.tiers).flat_map(|(_, effects)| effects.values().copied());
        named.chain(self.patterns.iter().map(|(_, _, effect)| *effect)).chain([self.standard])
    }

    /// The first attribute of its key that a request lacks, if it does. Only a rule
    /// that is enforced, and a request that should be whole, make that an error.
    pub(super) fn lacks(&self, request: &Request<'_>, values: &Values<'_>) -> Option<Lack> {
        let attribute = match &self.key {
            None if request.without.key => KEY.to_owned(),
            None => return None,
            Some(key) => key.iter().find(|key| key.is_missing(values))?.how.shown(),
        };
        let missing = match self.missing {
            Missing::Error if self.mode == Mode::Shadow || request.without.skips => Missing::Skip,
            missing => missing,
        };
        Some(Lack { attribute, missing })
    }

    pub(super) fn is_skipped(&self, request: &Request<'_>, values: &Values<'_>) -> bool {
        self.lacks(request, values).is_some_and(|lack| lack.missing == Missing::Skip)
    }

    /// Whose limit it is.
    fn key_of<'r>(&self, request: &Request<'r>, values: &Values<'r>) -> Key<'r> {
        let Some(attributes) = &self.key else { return request.key.clone() };
        if let [CompiledKey { first_of, how }] = &**attributes
            && let [attribute] = **first_of
            && let Some(value) = values.get(attribute)
        {
            return match part(how, value) {
                Part::AsIs(value) => Key::part(value),
                Part::Text(text) => Key::from(text),
            };
        }
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(2 * attributes.len() + 1);
        let mut missing = Vec::new();
        for CompiledKey { how, .. } in attributes.iter().filter(|key| key.is_missing(values)) {
            missing.push(format!("no {}", how.shown()));
        }
        // Where something is missing, the first part says what, and an empty one at
        // the end stands for it: no list of values is as long.
        if !missing.is_empty() {
            parts.push(Part::Text(format!("({})", missing.join(", "))));
        }
        for key in attributes {
            let Some((name, value)) = key.find(values) else { continue };
            // Where it could have been another attribute, the name says which it was.
            if key.first_of.len() > 1 {
                parts.push(Part::Text(name.to_owned()));
            }
            parts.push(part(&key.how, value));
        }
        for key in attributes.iter().filter(|key| key.is_missing(values)) {
            parts.extend(key.first_of.iter().take(2).map(|_| Part::AsIs(KeyPart::Bytes(b""))));
        }
        Key::of(parts.iter().map(Part::as_key_part))
    }
}

/// A value as it stands in a key.
enum Part<'r> {
    AsIs(KeyPart<'r>),
    Text(String),
}

impl Part<'_> {
    fn as_key_part(&self) -> KeyPart<'_> {
        match self {
            Part::AsIs(part) => *part,
            Part::Text(text) => KeyPart::Bytes(text.as_bytes()),
        }
    }
}

fn part<'r>(how: &KeyAttribute, value: KeyPart<'r>) -> Part<'r> {
    let is_address = matches!(value, KeyPart::Address(_)) || how.is_address;
    if let Some(address) = is_address.then(|| address(value)).flatten() {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { how.ipv4_bits } else { how.ipv6_bits };
        return Part::AsIs(KeyPart::Address(first_bits(address, bits)));
    }
    if how.ignores_case {
        let folded = value.with_bytes(|bytes| std::str::from_utf8(bytes).map(str::to_lowercase));
        if let Ok(folded) = folded {
            return Part::Text(folded);
        }
    }
    Part::AsIs(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::History;
    use crate::{Limit, Policy, Rule};

    fn condition() -> impl Strategy<Value = Condition> {
        let text = || prop::sample::select(vec!["", "a", "b", "ab", "aba", "10.0.0.1"]);
        let pattern = prop::sample::select(vec!["*", "a*", "*b", "?b*", "ab?", "a"]);
        let network = prop::sample::select(vec!["10.0.0.0/8", "0.0.0.0/0", "10.0.0.2"]);
        prop_oneof![
            4 => text().prop_map(|text| Condition::Equals(text.into())),
            1 => text().prop_map(|text| Condition::StartsWith(text.into())),
            1 => pattern.prop_map(|text| Condition::Matches(text.into())),
            1 => network.prop_map(|text| Condition::Within(text.parse().expect("a network"))),
            1 => Just(Condition::Present),
            1 => Just(Condition::Absent),
        ]
    }

    fn rules() -> impl Strategy<Value = Vec<Vec<(usize, Condition)>>> {
        prop::collection::vec(prop::collection::vec((0..ATTRIBUTES.len(), condition()), 0..4), 1..60)
    }

    const ATTRIBUTES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "many cases, and no unsafe code in sight")]
        fn the_index_finds_what_trying_every_rule_finds(
            rules in rules(),
            values in prop::collection::vec(prop::option::of(0..6usize), ATTRIBUTES.len()),
        ) {
            let texts = ["", "a", "b", "ab", "aba", "10.0.0.1"];
            let mut policy = Policy::new();
            for (number, conditions) in rules.into_iter().enumerate() {
                let name = Name::configured(&format!("rule{number}")).expect("not too many");
                let mut rule = Rule::new(name, Limit::per_second(1));
                for (attribute, condition) in conditions {
                    rule = rule.when(ATTRIBUTES[attribute], condition);
                }
                policy = policy.rule(rule);
            }
            let compiled = Compiled::new(&policy, &History::new(&policy)).expect("a valid policy");
            let mut request = Request::new("");
            for (name, value) in ATTRIBUTES.into_iter().zip(&values) {
                if let Some(value) = value {
                    request = request.with(name, texts[*value]);
                }
            }
            let found: Vec<Name> = compiled.resolve(&request).enforced.iter().map(|applied| applied.meter.name()).collect();
            let tried: Vec<Name> =
                compiled.drafts(&request).expect("attributes of any kind").into_iter().filter(|draft| draft.say.is_ok()).map(|draft| draft.rule).collect();
            prop_assert_eq!(found, tried);
        }
    }
}
