//! Makes a policy ready: names become numbers, settings become meters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Policy;
use super::compiled::{Attribute, Attributes, ByValue, Compiled, CompiledKey, CompiledRule, Effect, Effects};
use super::condition::Condition;
use super::index::Index;
use super::rule::{Mode, Override, Rule, RuleKey, Setting, Standard, Value};
use super::succession::{Inheritance, Lineage, Place};
use crate::limit::ConfigError;
use crate::name::Name;
use crate::store::Meter;

impl Compiled {
    /// A policy, whose limits succeed those that were in force before.
    pub(crate) fn new(policy: &Policy, lineage: &Lineage) -> Result<Compiled, ConfigError> {
        if policy.rules.is_empty() && policy.fallback.is_none() {
            return Err(ConfigError::EmptyPolicy);
        }
        let mut maker = Maker::new(lineage, policy.addresses().collect());
        let mut rules = Vec::with_capacity(policy.rules.len());
        for rule in &policy.rules {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (index, fallback) = (Index::new(&rules), rules.len());
        if let Some(rule) = &policy.fallback {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (denied, allowed) = (maker.list(&policy.denied)?, maker.list(&policy.allowed)?);
        maker.attributes.mark_addresses(&maker.addresses);
        let by_name = rules.iter().enumerate().map(|(number, rule)| (rule.name.as_str(), number)).collect();
        let Maker { attributes, meters, .. } = maker;
        let (attributes, index, by_name) = (Arc::new(attributes), Arc::new(index), Arc::new(by_name));
        let (rules, meters) = (rules.into(), meters.into());
        Ok(Compiled { attributes, rules, meters, index, fallback, by_name, denied, allowed })
    }
}

/// Numbers attributes and meters as they come up.
struct Maker<'l> {
    lineage: &'l Lineage,
    /// The attributes that are addresses.
    addresses: Vec<&'l str>,
    attributes: Attributes,
    meters: Vec<Meter>,
    /// The number of each meter, by its name and meaning.
    numbers: HashMap<(Name, Box<str>), usize, RandomState>,
    names: HashMap<Name, (), RandomState>,
}

/// A rule that is made ready, and what its limits succeed.
struct Making<'r> {
    rule: &'r Rule,
    past: Inheritance,
}

impl<'l> Maker<'l> {
    fn new(lineage: &'l Lineage, addresses: Vec<&'l str>) -> Maker<'l> {
        let (attributes, meters) = (Attributes::default(), Vec::new());
        Maker { lineage, addresses, attributes, meters, numbers: HashMap::default(), names: HashMap::default() }
    }

    fn attribute(&mut self, name: &str) -> Result<Attribute, ConfigError> {
        let next = self.attributes.len();
        if let Some(known) = self.attributes.number(name) {
            return Ok(known);
        }
        let number =
            Attribute::try_from(next).map_err(|_| ConfigError::TooManyAttributes { bound: Attribute::MAX.into() })?;
        self.attributes.add(name, number);
        Ok(number)
    }

    fn list(&mut self, conditions: &[(String, Condition)]) -> Result<Arc<[(Attribute, Condition)]>, ConfigError> {
        let mut list = Vec::with_capacity(conditions.len());
        for (attribute, condition) in conditions {
            let condition = match condition {
                Condition::Equals(value) => Condition::Equals(self.exactly(attribute, value)?),
                other => other.clone(),
            };
            list.push((self.attribute(attribute)?, condition));
        }
        Ok(list.into())
    }

    /// A value as [`Compiled::values`] shows it: an address has one spelling.
    fn exactly(&self, attribute: &str, value: &str) -> Result<String, ConfigError> {
        if !self.addresses.contains(&attribute) {
            return Ok(value.to_owned());
        }
        let address: IpAddr =
            value.parse().map_err(|_| ConfigError::NotAnAddress { attribute: attribute.into(), text: value.into() })?;
        Ok(address.to_canonical().to_string())
    }

    /// The rule, and the shadow that watches in its place if it has one.
    fn with_candidate(&mut self, rule: &Rule) -> Result<Vec<CompiledRule>, ConfigError> {
        let mut rules = vec![self.rule(rule)?];
        if let Some(limit) = rule.candidate {
            let name = Name::configured(&format!("{} (candidate)", rule.name))?;
            let twin = Rule { name, standard: Standard::Setting(limit.into()), mode: Mode::Shadow, ..rule.clone() };
            let twin = self.rule(&Rule { overrides: Vec::new(), tiers: Vec::new(), ..twin })?;
            rules.push(CompiledRule { candidate_of: Some(rule.name), ..twin });
        }
        Ok(rules)
    }

    fn rule(&mut self, rule: &Rule) -> Result<CompiledRule, ConfigError> {
        if self.names.insert(rule.name, ()).is_some() {
            return Err(ConfigError::DuplicateRule { name: rule.name.as_str() });
        }
        let conditions = self.list(&rule.conditions)?;
        let key = match &rule.key {
            RuleKey::Request => None,
            RuleKey::Attributes(attributes) => {
                let mut key = Vec::with_capacity(attributes.len());
                for attribute in attributes {
                    let names = attribute.names.iter().map(|name| self.attribute(name));
                    key.push(CompiledKey { first_of: names.collect::<Result<_, _>>()?, how: attribute.clone() });
                }
                Some(key.into_boxed_slice())
            }
        };
        let making = Making { rule, past: self.lineage.inheritance(rule) };
        let standard = match &rule.standard {
            Standard::Setting(setting) => self.effect(&making, &Place::Standard, *setting),
            Standard::Meter(meter) => self.meter(&making, &Place::Standard, meter.clone()),
        };
        let mut patterns = Vec::new();
        for special in &rule.overrides {
            if let Value::Matching(pattern) = &special.value {
                let effect = self.effect(&making, &Place::of_override(special), special.setting);
                patterns.push((self.attribute(&special.attribute)?, pattern.clone(), effect));
            }
        }
        Ok(CompiledRule {
            name: rule.name,
            candidate_of: None,
            conditions,
            key,
            missing: rule.missing,
            standard,
            exact: self.table(&making, &rule.overrides, Place::of_override)?,
            patterns: patterns.into(),
            tiers: self.table(&making, &rule.tiers, Place::of_tier)?,
            cost: rule.cost,
            mode: rule.mode,
        })
    }

    fn table(
        &mut self,
        making: &Making<'_>,
        specials: &[Override],
        place: impl Fn(&Override) -> Place,
    ) -> Result<Effects, ConfigError> {
        let mut table: Vec<(Attribute, ByValue)> = Vec::new();
        for special in specials {
            if let Value::Exactly(value) = &special.value {
                let attribute = self.attribute(&special.attribute)?;
                let effect = self.effect(making, &place(special), special.setting);
                let place = table.iter().position(|(known, _)| *known == attribute).unwrap_or_else(|| {
                    table.push((attribute, ByValue::default()));
                    table.len() - 1
                });
                let value = self.exactly(&special.attribute, value)?;
                table[place].1.entry(value.into_bytes().into()).or_insert(effect);
            }
        }
        Ok(table.into())
    }

    fn effect(&mut self, making: &Making<'_>, place: &Place, setting: Setting) -> Effect {
        match setting {
            Setting::Unlimited => Effect::Unlimited,
            Setting::Blocked => Effect::Blocked,
            Setting::Limit(limit) => self.meter(making, place, Meter::new(making.rule.name, limit)),
        }
    }

    /// The number of a meter of this rule; the same limit twice is one, unless
    /// it succeeds others in one of its places.
    fn meter(&mut self, Making { rule, past }: &Making<'_>, place: &Place, meter: Meter) -> Effect {
        let meter = rule.made_ready(meter);
        let next = self.meters.len();
        if let Some(past) = past.of_place(place) {
            self.meters.push(meter.succeeding(past.to_vec()));
            return Effect::Meter(next);
        }
        let number = *self.numbers.entry((meter.name(), meter.meaning().into())).or_insert(next);
        if number == next {
            let past = past.of_meaning(meter.meaning()).to_vec();
            self.meters.push(if past.is_empty() { meter } else { meter.succeeding(past) });
        }
        Effect::Meter(number)
    }
}
