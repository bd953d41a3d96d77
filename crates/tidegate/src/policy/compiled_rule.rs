//! A rule made ready: whether it applies to a request, by which limit, and to which key.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::condition::{Condition, address};
use super::index::Index;
use super::network::first_bits;
use super::priority::Classes;
use super::rule::{KeyAttribute, Missing, Mode, RuleCost, Value};
use super::values::{Attribute, Values};
use crate::name::Name;
use crate::request::{Key, KeyPart, Part, Request};

pub(super) struct CompiledRule {
    pub(super) name: Name,
    /// The rule before this one, if it watches in that one's place.
    pub(super) candidate_of: Option<Name>,
    pub(super) conditions: Arc<[(Attribute, Condition)]>,
    /// Those of them that do not hold already because the index has found the rule.
    pub(super) undecided: Box<[(Attribute, Condition)]>,
    pub(super) key: Option<Box<[CompiledKey]>>,
    pub(super) missing: Missing,
    pub(super) standard: Effect,
    pub(super) exact: Effects,
    pub(super) patterns: Option<Box<Patterns>>,
    pub(super) tiers: Effects,
    pub(super) cost: RuleCost,
    pub(super) clamps: bool,
    pub(super) mode: Mode,
    pub(super) classes: Option<Box<Classes>>,
    /// The limit of every request that has the key, if nothing else is to be looked at.
    pub(super) simple: Option<Simple>,
}

/// A rule that limits all of its requests alike.
#[derive(Clone, Copy)]
pub(super) struct Simple {
    pub(super) meter: usize,
    /// The attribute that is the key, or none for the key of the request.
    pub(super) key: Option<Attribute>,
}

impl Simple {
    /// Whose limit it is; none if the request lacks it, or it is an address, which is
    /// taken by its network.
    #[inline]
    pub(super) fn key_of<'r>(&self, request: &'r Request<'_>, values: &Values<'r>) -> Option<Key<'r>> {
        match self.key {
            None if request.without.key => None,
            None => Some(Key::from(&request.key)),
            Some(attribute) => match values.find(attribute)? {
                Part::Bytes(bytes) => Some(Key::borrowed(bytes)),
                Part::Address(_) => None,
                part => Some(Key::part((*part).into())),
            },
        }
    }
}

/// An attribute in the key of a rule.
pub(super) struct CompiledKey {
    /// The first of these that the request has.
    pub(super) first_of: Box<[Attribute]>,
    pub(super) how: KeyAttribute,
}

impl CompiledKey {
    /// The name of the attribute that the request has, and its value.
    fn find<'r>(&self, values: &Values<'r>) -> Option<(&str, Part<'r>)> {
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

/// Effects by patterns, the first that matches before all others.
pub(super) struct Patterns {
    patterns: Box<[(Attribute, Condition)]>,
    effects: Box<[Effect]>,
    index: Index,
}

impl Patterns {
    pub(super) fn new(patterns: Vec<((Attribute, Condition), Effect)>) -> Patterns {
        let (patterns, effects): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
        Patterns { index: Index::new(patterns.chunks(1)), patterns: patterns.into(), effects: effects.into() }
    }

    fn effect_of(&self, attribute: Attribute, pattern: &str) -> Option<Effect> {
        let is_same = |(other, condition): &(Attribute, Condition)| {
            *other == attribute && matches!(condition, Condition::Matches(known) if known == pattern)
        };
        self.patterns.iter().position(is_same).map(|number| self.effects[number])
    }

    fn matching<'s>(&'s self, values: &'s Values<'_>) -> impl Iterator<Item = Special> + 's {
        let mut candidates: SmallVec<[usize; 4]> = SmallVec::new();
        self.index.candidates(values, |number| candidates.push(number));
        candidates.into_iter().filter_map(|number| {
            let (attribute, pattern) = &self.patterns[number];
            let special = Special { attribute: *attribute, effect: self.effects[number], kind: Kind::Override };
            pattern.holds(values.get(*attribute)).then_some(special)
        })
    }
}

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

/// What a request lacks of a rule's key.
pub(super) struct Lack {
    /// The attribute, or all of which one would do.
    pub(super) attribute: String,
    /// What follows.
    pub(super) missing: Missing,
}

/// What the key of a request is called where it is missing.
const KEY: &str = "key";

impl CompiledRule {
    /// What there is to know of the rule, if it is that simple.
    pub(super) fn simplified(&self) -> Option<Simple> {
        let meter = self.standard.meter().filter(|_| !self.has_specials() && self.mode == Mode::Enforced)?;
        if self.classes.is_some() {
            return None;
        }
        let key = match self.key.as_deref() {
            None => None,
            Some([CompiledKey { first_of, how }]) if !how.ignores_case && !how.is_address => match **first_of {
                [attribute] => Some(attribute),
                _ => return None,
            },
            Some(_) => return None,
        };
        Some(Simple { meter, key })
    }

    fn has_specials(&self) -> bool {
        !self.exact.is_empty() || self.patterns.is_some() || !self.tiers.is_empty()
    }

    /// Whether a request that asks a rule of this name asks this one.
    pub(super) fn is_asked_as(&self, name: &str) -> bool {
        self.name.as_str() == name || self.candidate_of.as_ref().is_some_and(|rule| rule == name)
    }

    pub(super) fn matches(&self, values: &Values<'_>) -> bool {
        self.conditions.iter().all(|(attribute, condition)| condition.holds(values.get(*attribute)))
    }

    /// [`matches`](CompiledRule::matches) for a rule that the index has found.
    pub(super) fn matches_if_found(&self, values: &Values<'_>) -> bool {
        self.undecided.iter().all(|(attribute, condition)| condition.holds(values.get(*attribute)))
    }

    pub(super) fn effect(&self, values: &Values<'_>) -> Effect {
        self.special(values).map_or(self.standard, |special| special.effect)
    }

    /// The class of a request, and its floor, in words.
    pub(super) fn class_of(&self, values: &Values<'_>) -> Option<String> {
        let (classes, limit) = (self.classes.as_ref()?, self.effect(values).meter()?);
        classes.of(limit, values).map(|(class, _)| classes.words(class))
    }

    /// What applies in place of the rule's own setting.
    pub(super) fn special(&self, values: &Values<'_>) -> Option<Special> {
        if self.has_specials() { self.specials(values).next() } else { None }
    }

    /// All that could: exact values before patterns, before tiers.
    fn specials<'s>(&'s self, values: &'s Values<'_>) -> impl Iterator<Item = Special> + 's {
        let named = |table: &'s Effects, kind| {
            table.iter().filter_map(move |(attribute, effects)| {
                let effect = values.get(*attribute)?.with_bytes(|bytes| effects.get(bytes).copied())?;
                Some(Special { attribute: *attribute, effect, kind })
            })
        };
        let matching = self.patterns.iter().flat_map(|patterns| patterns.matching(values));
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
        let (text, same) = match value {
            Value::Exactly(text) => (text, None),
            Value::Matching(text) => (text, self.patterns.as_ref().and_then(|known| known.effect_of(attribute, text))),
        };
        same.unwrap_or_else(|| {
            let mut values = Values::new(known);
            values.set(attribute, Part::Bytes(text.as_bytes()));
            self.effect(&values)
        })
    }

    /// Every setting of the rule.
    pub(super) fn effects(&self) -> impl Iterator<Item = Effect> {
        let named = self.exact.iter().chain(&self.tiers).flat_map(|(_, effects)| effects.values().copied());
        named.chain(self.patterns.iter().flat_map(|patterns| patterns.effects.iter().copied())).chain([self.standard])
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
    pub(super) fn key_of<'r>(&self, request: &'r Request<'_>, values: &Values<'r>) -> Key<'r> {
        let Some(attributes) = &self.key else { return Key::from(&request.key) };
        if let [CompiledKey { first_of, how }] = &**attributes {
            let only = if let [attribute] = **first_of { values.get(attribute) } else { None };
            if let Some(value) = only {
                return Key::part(part(how, value));
            }
        }
        let mut parts: Vec<KeyPart<'_>> = Vec::with_capacity(2 * attributes.len() + 1);
        let mut missing = Vec::new();
        for CompiledKey { how, .. } in attributes.iter().filter(|key| key.is_missing(values)) {
            missing.push(format!("no {}", how.shown()));
        }
        // Where something is missing, the first part says what, and an empty one at
        // the end stands for it: no list of values is as long.
        if !missing.is_empty() {
            parts.push(format!("({})", missing.join(", ")).into());
        }
        for key in attributes {
            let Some((name, value)) = key.find(values) else { continue };
            // Where it could have been another attribute, the name says which it was.
            if key.first_of.len() > 1 {
                parts.push(name.into());
            }
            parts.push(part(&key.how, value));
        }
        for key in attributes.iter().filter(|key| key.is_missing(values)) {
            parts.extend(key.first_of.iter().take(2).map(|_| KeyPart::from("")));
        }
        Key::of(parts)
    }
}

/// A value as it stands in a key.
fn part<'r>(how: &KeyAttribute, value: Part<'r>) -> KeyPart<'r> {
    let is_address = matches!(value, Part::Address(_)) || how.is_address;
    if let Some(address) = is_address.then(|| address(value)).flatten() {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { how.ipv4_bits } else { how.ipv6_bits };
        return first_bits(address, bits).into();
    }
    if how.ignores_case {
        let folded = value.with_bytes(|bytes| std::str::from_utf8(bytes).map(str::to_lowercase));
        if let Ok(folded) = folded {
            return folded.into();
        }
    }
    value.into()
}
