//! Makes a policy ready: names become numbers, settings become meters.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Policy;
use super::compiled::{Attribute, Attributes, ByValue, Compiled, CompiledRule, Effect, Effects};
use super::condition::Condition;
use super::index::Index;
use super::rule::{Mode, Override, Rule, RuleKey, Setting, Standard, Value};
use crate::limit::ConfigError;
use crate::name::Name;
use crate::store::Meter;

impl Compiled {
    pub(crate) fn new(policy: &Policy) -> Result<Compiled, ConfigError> {
        if policy.rules.is_empty() && policy.fallback.is_none() {
            return Err(ConfigError::EmptyPolicy);
        }
        let mut maker = Maker::default();
        let mut rules = Vec::with_capacity(policy.rules.len());
        for rule in &policy.rules {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (index, fallback) = (Index::new(&rules), rules.len());
        if let Some(rule) = &policy.fallback {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (denied, allowed) = (maker.list(&policy.denied)?, maker.list(&policy.allowed)?);
        let by_name = rules.iter().enumerate().map(|(number, rule)| (rule.name, number)).collect();
        let Maker { attributes, meters, .. } = maker;
        let (attributes, index, by_name) = (Arc::new(attributes), Arc::new(index), Arc::new(by_name));
        let (rules, meters) = (rules.into(), meters.into());
        Ok(Compiled { attributes, rules, meters, index, fallback, by_name, denied, allowed })
    }
}

/// Numbers attributes and meters as they come up.
#[derive(Default)]
struct Maker {
    attributes: Attributes,
    meters: Vec<Meter>,
    /// The number of each meter, by its name and meaning.
    numbers: HashMap<(Name, Box<str>), usize, RandomState>,
    names: HashMap<Name, (), RandomState>,
}

impl Maker {
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
        conditions.iter().map(|(attribute, condition)| Ok((self.attribute(attribute)?, condition.clone()))).collect()
    }

    /// The rule, and the shadow that watches in its place if it has one.
    fn with_candidate(&mut self, rule: &Rule) -> Result<Vec<CompiledRule>, ConfigError> {
        let mut rules = vec![self.rule(rule)?];
        if let Some(limit) = rule.candidate {
            let name = Name::configured(&format!("{} (candidate)", rule.name))?;
            let twin = Rule { name, standard: Standard::Setting(limit.into()), mode: Mode::Shadow, ..rule.clone() };
            rules.push(self.rule(&Rule { overrides: Vec::new(), tiers: Vec::new(), ..twin })?);
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
                    key.push((self.attribute(&attribute.name)?, attribute.clone()));
                }
                Some(key.into_boxed_slice())
            }
        };
        let standard = match &rule.standard {
            Standard::Setting(setting) => self.effect(rule, *setting),
            Standard::Meter(meter) => self.meter(rule, meter.clone()),
        };
        let mut patterns = Vec::new();
        for Override { attribute, value, setting } in &rule.overrides {
            if let Value::Matching(pattern) = value {
                patterns.push((self.attribute(attribute)?, pattern.clone(), self.effect(rule, *setting)));
            }
        }
        Ok(CompiledRule {
            name: rule.name,
            conditions,
            key,
            missing: rule.missing,
            standard,
            exact: self.table(rule, &rule.overrides)?,
            patterns: patterns.into(),
            tiers: self.table(rule, &rule.tiers)?,
            cost: rule.cost,
            mode: rule.mode,
        })
    }

    fn table(&mut self, rule: &Rule, overrides: &[Override]) -> Result<Effects, ConfigError> {
        let mut table: Vec<(Attribute, ByValue)> = Vec::new();
        for Override { attribute, value, setting } in overrides {
            if let Value::Exactly(value) = value {
                let (attribute, effect) = (self.attribute(attribute)?, self.effect(rule, *setting));
                let place = table.iter().position(|(known, _)| *known == attribute).unwrap_or_else(|| {
                    table.push((attribute, ByValue::default()));
                    table.len() - 1
                });
                table[place].1.entry(value.as_bytes().into()).or_insert(effect);
            }
        }
        Ok(table.into())
    }

    fn effect(&mut self, rule: &Rule, setting: Setting) -> Effect {
        match setting {
            Setting::Unlimited => Effect::Unlimited,
            Setting::Blocked => Effect::Blocked,
            Setting::Limit(limit) => self.meter(rule, Meter::new(rule.name, limit)),
        }
    }

    /// The number of a meter of this rule; the same limit twice is one.
    fn meter(&mut self, rule: &Rule, meter: Meter) -> Effect {
        let meter = rule.made_ready(meter);
        let next = self.meters.len();
        let number = *self.numbers.entry((meter.name(), meter.meaning().into())).or_insert(next);
        if number == next {
            self.meters.push(meter);
        }
        Effect::Meter(number)
    }
}
