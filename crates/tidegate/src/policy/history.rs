//! What rules limited before the policy was changed.
//!
//! When a limit is replaced, what its keys used of it counts on. The limit is
//! kept under its place in the rule (the rule's own limit, an override, a tier)
//! until nothing charged to it matters any more. Which former limits concern a
//! request is found as the limit in force is: by the values of the request.
//!
//! A place that matches may never have applied to the key: then nothing was
//! charged there, and nothing counts. The exception are overrides of an
//! attribute that is not part of the key. Requests of one key are charged to
//! several such places, so their former limits go with the limit that is in
//! force in the same place now.

use std::collections::{HashMap, HashSet};

use super::Policy;
use super::compiled_rule::{CompiledRule, Effect};
use super::glob;
use super::rule::{Override, Rule, RuleKey, Setting, Standard, Value};
use super::values::{Attribute, Values};
use crate::error::ConfigError;
use crate::name::Name;
use crate::store::{Former, Meter};
use crate::time::Micros;

/// Former limits of one place that may matter at a time.
pub(crate) const MAX_FORMER: usize = 32;

/// The former limits of all rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    rules: HashMap<RuleId, HashMap<Place, Past>>,
    /// The rules without names, and the numbers by which they are known.
    unnamed: Vec<(Name, u32)>,
    serials: u32,
}

/// Which rule of a former policy a rule is. One without a name is called by
/// its limit's words, which change with the limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RuleId {
    Named(Name),
    Unnamed(u32),
}

/// Where in a rule a limit stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    Standard,
    Override { attribute: String, value: Value },
    Tier { attribute: String, value: Value },
}

/// What is remembered of a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    limits: Vec<Limited>,
    /// Until when it matters that the place is new: before, its keys were
    /// charged to other places of the rule.
    new_until: Micros,
}

/// A limit that was in force for keys made of these attributes.
#[derive(Clone, Debug)]
struct Limited {
    key: RuleKey,
    meter: Meter,
    until: Micros,
}

impl History {
    /// The history of a policy that replaced no other.
    pub(crate) fn new(policy: &Policy) -> History {
        let mut history = History::default();
        history.unnamed = history.number(policy);
        history
    }

    /// The history after `new` has replaced `old`.
    ///
    /// # Errors
    /// [`ConfigError::TooManyChanges`] if a place has too many former limits.
    pub(crate) fn changed(&self, old: &Policy, new: &Policy, now: Micros) -> Result<History, ConfigError> {
        let mut next = self.clone();
        next.rules.retain(|_, places| {
            places.retain(|_, past| {
                past.limits.retain(|limit| limit.until > now);
                past.until() > now
            });
            !places.is_empty()
        });
        next.unnamed = next.number(new);
        let rules: HashMap<RuleId, &Rule> = new.rules().map(|rule| (next.id_of(rule), rule)).collect();
        for rule in old.rules() {
            let id = self.id_of(rule);
            match rules.get(&id) {
                Some(successor) if rule == *successor => {}
                successor => next.replace(id, rule, successor.copied(), now)?,
            }
        }
        Ok(next)
    }

    /// Until when any of it matters.
    pub(crate) fn until(&self) -> Option<Micros> {
        self.rules.values().flat_map(HashMap::values).map(Past::until).max()
    }

    fn replace(&mut self, id: RuleId, old: &Rule, new: Option<&Rule>, now: Micros) -> Result<(), ConfigError> {
        let (before, after) = (places(old), new.map(places).unwrap_or_default());
        let past = self.rules.entry(id).or_default();
        let stays = |place: &Place, meter: &Meter| {
            after.get(place).is_some_and(|meter_now| meter_now.as_ref().is_some_and(|now| now.is_same_as(meter)))
        };
        for (place, meter) in &before {
            if let Some(meter) = meter.as_ref().filter(|meter| !stays(place, meter)) {
                past.entry(place.clone()).or_default().add(old, meter, now)?;
            }
        }
        let of_many = before.iter().filter(|(place, _)| !place.is_of_one_value());
        let horizon = of_many.filter_map(|(_, meter)| Some(meter.as_ref()?.horizon())).max().unwrap_or_default();
        for place in after.keys().filter(|place| !before.contains_key(place)) {
            past.entry(place.clone()).or_default().new_until = now.saturating_add(horizon);
        }
        Ok(())
    }

    /// Numbers rules without names: one of the same words is the same rule,
    /// the others follow those that are gone, in their order.
    fn number(&mut self, policy: &Policy) -> Vec<(Name, u32)> {
        let unnamed: Vec<Name> = policy.rules().filter(|rule| is_unnamed(rule)).map(|rule| rule.name.clone()).collect();
        let gone = self.unnamed.iter().filter(|(name, _)| !unnamed.contains(name)).map(|(_, serial)| *serial);
        let mut free = gone.collect::<Vec<u32>>().into_iter();
        let mut numbered = Vec::with_capacity(unnamed.len());
        for name in unnamed {
            let known = self.unnamed.iter().find(|(known, _)| *known == name).map(|(_, serial)| *serial);
            let serial = known.or_else(|| free.next()).unwrap_or_else(|| {
                self.serials += 1;
                self.serials
            });
            numbered.push((name, serial));
        }
        numbered
    }

    fn id_of(&self, rule: &Rule) -> RuleId {
        match self.unnamed.iter().find(|(name, _)| *name == rule.name) {
            Some((_, serial)) => RuleId::Unnamed(*serial),
            None => RuleId::Named(rule.name.clone()),
        }
    }

    /// What is remembered of a rule's places, in an order that is the same in
    /// every process.
    pub(super) fn places(&self, rule: &Rule) -> Vec<(&Place, &Past)> {
        let mut places: Vec<_> = self.rules.get(&self.id_of(rule)).into_iter().flatten().collect();
        places.sort_by_key(|(place, _)| *place);
        places
    }
}

impl Past {
    fn add(&mut self, rule: &Rule, meter: &Meter, now: Micros) -> Result<(), ConfigError> {
        let until = now.saturating_add(meter.horizon());
        let is_known = |known: &&mut Limited| known.meter.is_same_as(meter) && known.key == rule.key;
        if let Some(known) = self.limits.iter_mut().find(is_known) {
            known.until = known.until.max(until);
            return Ok(());
        }
        if self.limits.len() >= MAX_FORMER {
            return Err(ConfigError::TooManyChanges { rule: rule.name.clone(), bound: MAX_FORMER });
        }
        self.limits.push(Limited { key: rule.key.clone(), meter: meter.clone(), until });
        Ok(())
    }

    fn until(&self) -> Micros {
        self.limits.iter().map(|limit| limit.until).fold(self.new_until, Micros::max)
    }
}

impl Place {
    /// Whether it is an override of one value. There may be very many of them.
    fn is_of_one_value(&self) -> bool {
        matches!(self, Place::Override { value: Value::Exactly(_), .. })
    }
}

/// The places of a rule, and their limits if they have one. Of a place that is
/// there twice, the first counts.
fn places(rule: &Rule) -> HashMap<Place, Option<Meter>> {
    let meter = |setting: &Setting| match setting {
        Setting::Limit(limit) => Some(rule.made_ready(Meter::new(&rule.name, *limit))),
        Setting::Unlimited | Setting::Blocked => None,
    };
    let standard = match &rule.standard {
        Standard::Setting(setting) => meter(setting),
        Standard::Meter(meter) => Some(rule.made_ready(Meter::clone(meter))),
    };
    let mut places = HashMap::with_capacity(1 + rule.overrides.len() + rule.tiers.len());
    places.insert(Place::Standard, standard);
    for Override { attribute, value, setting } in &rule.overrides {
        let place = Place::Override { attribute: attribute.clone(), value: value.clone() };
        places.entry(place).or_insert_with(|| meter(setting));
    }
    for Override { attribute, value, setting } in &rule.tiers {
        let place = Place::Tier { attribute: attribute.clone(), value: value.clone() };
        places.entry(place).or_insert_with(|| meter(setting));
    }
    places
}

/// Whether the rule is called by its limit's words.
fn is_unnamed(rule: &Rule) -> bool {
    let limit = match &rule.standard {
        Standard::Setting(Setting::Limit(limit)) => Some(*limit),
        Standard::Setting(Setting::Unlimited | Setting::Blocked) => None,
        Standard::Meter(meter) => meter.nominal_limit(),
    };
    limit.is_some_and(|limit| limit.to_string() == rule.name.as_str())
}

/// The former limits of a rule, to be found by the values of a request.
#[derive(Default)]
pub(super) struct FormerRule {
    standard: Formers,
    /// Of overrides and tiers.
    by_value: HashMap<(Attribute, Box<[u8]>), Formers>,
    patterns: Vec<(Attribute, String, Formers)>,
    /// Of overrides of an attribute that is not part of the key, by the number
    /// of the meter that is in force there now.
    shared: HashMap<usize, Vec<(Meter, Micros)>>,
}

/// The former limits of a place.
#[derive(Default)]
pub(super) struct Formers {
    limits: Vec<(Meter, Micros)>,
    new_until: Micros,
}

impl Formers {
    pub(super) fn new(past: &Past, rule: &Rule) -> Formers {
        let limits = past.limits.iter().filter(|limit| limit.key == rule.key);
        Formers { limits: limits.map(|limit| (limit.meter.clone(), limit.until)).collect(), new_until: past.new_until }
    }
}

impl FormerRule {
    pub(super) fn add_standard(&mut self, formers: Formers) {
        self.standard = formers;
    }

    pub(super) fn add_value(&mut self, attribute: Attribute, value: String, formers: Formers) {
        let known = self.by_value.entry((attribute, value.into_bytes().into())).or_default();
        known.limits.extend(formers.limits);
        known.new_until = known.new_until.max(formers.new_until);
    }

    pub(super) fn add_pattern(&mut self, attribute: Attribute, pattern: String, formers: Formers) {
        self.patterns.push((attribute, pattern, formers));
    }

    /// Adds an override of an attribute that is not part of the key. A limit
    /// that is in force in any place of the rule keeps what it counted.
    pub(super) fn add_shared(&mut self, number: usize, formers: Formers, in_force: &HashSet<u64>) {
        let gone = formers.limits.into_iter().filter(|(former, _)| !in_force.contains(&former.identity()));
        self.shared.entry(number).or_default().extend(gone);
    }

    /// The former limits of a rule that limits all requests alike, by a meter, if they
    /// do not depend on the values of a request.
    pub(super) fn of_every_request(&self, meter: &Meter) -> Option<Box<[(Meter, Micros)]>> {
        let FormerRule { standard, by_value, patterns, shared } = self;
        let is_alike = by_value.is_empty() && patterns.is_empty() && shared.is_empty();
        (is_alike && standard.new_until == Micros::ZERO)
            .then(|| standard.limits.iter().filter(|(former, _)| !former.is_same_as(meter)).cloned().collect())
    }

    /// The former limits of a request that is charged to the meter `number`.
    pub(super) fn limits<'p>(
        &'p self,
        rule: &CompiledRule,
        meters: &'p [Meter],
        number: usize,
        values: &Values<'_>,
    ) -> Vec<Former<'p>> {
        let mut found = Found { own: &meters[number], limits: Vec::new() };
        self.shared.get(&number).into_iter().flatten().for_each(|(meter, until)| found.add(meter, *until));
        if rule.effects_of_key(values).next() != Some(Effect::Meter(number)) {
            return found.limits;
        }
        let mut new_until = Micros::ZERO;
        self.for_each_match(values, |formers| {
            formers.limits.iter().for_each(|(meter, until)| found.add(meter, *until));
            new_until = new_until.max(formers.new_until);
        });
        if new_until > Micros::ZERO {
            rule.effects_of_key(values)
                .filter_map(Effect::meter)
                .for_each(|other| found.add(&meters[other], new_until));
        }
        found.limits
    }

    fn for_each_match<'p>(&'p self, values: &Values<'_>, mut found: impl FnMut(&'p Formers)) {
        for (attribute, value) in values.iter().filter(|_| !self.by_value.is_empty()) {
            let key = (attribute, value.with_bytes(|bytes| Box::from(bytes)));
            self.by_value.get(&key).into_iter().for_each(&mut found);
        }
        for (attribute, pattern, formers) in &self.patterns {
            if values.get(*attribute).is_some_and(|value| value.with_bytes(|bytes| glob::matches_bytes(pattern, bytes)))
            {
                found(formers);
            }
        }
        found(&self.standard);
    }
}

/// Each former limit once, for as long as any of its places says.
struct Found<'p> {
    own: &'p Meter,
    limits: Vec<Former<'p>>,
}

impl<'p> Found<'p> {
    fn add(&mut self, meter: &'p Meter, until: Micros) {
        if meter.is_same_as(self.own) {
            return;
        }
        match self.limits.iter_mut().find(|known| known.meter.is_same_as(meter)) {
            Some(known) => known.until = known.until.max(until),
            None => self.limits.push(Former { meter, until }),
        }
    }
}
