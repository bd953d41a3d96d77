//! Makes a policy ready: names become numbers, settings become meters.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Policy;
use super::compiled::Compiled;
use super::compiled_rule::{ByValue, CompiledKey, CompiledRule, Effect, Effects, Patterns};
use super::condition::Condition;
use super::history::{FormerRule, Formers, History, Place};
use super::index::{Index, undecided};
use super::priority::Classes;
use super::rule::{Mode, Override, Rule, RuleKey, Setting, Standard, Value};
use super::values::{Attribute, AttributeNames};
use crate::error::ConfigError;
use crate::name::Name;
use crate::store::Meter;

impl Compiled {
    /// A policy, with what its rules limited before.
    pub(crate) fn new(policy: &Policy, history: &History) -> Result<Compiled, ConfigError> {
        if policy.rules.is_empty() && policy.fallback.is_none() {
            return Err(ConfigError::EmptyPolicy);
        }
        let mut maker = Maker::new(history, policy.addresses().collect());
        let mut rules = Vec::with_capacity(policy.rules.len());
        for rule in &policy.rules {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (index, fallback) = (Index::new(rules.iter().map(|rule| &*rule.conditions)), rules.len());
        if let Some(rule) = &policy.fallback {
            rules.extend(maker.with_candidate(rule)?);
        }
        let (denied, allowed) = (maker.list(&policy.denied)?, maker.list(&policy.allowed)?);
        maker.attributes.mark_addresses(&maker.addresses);
        let by_name = rules.iter().enumerate().map(|(number, rule)| (rule.name.clone(), number)).collect();
        let Maker { attributes, meters, former, .. } = maker;
        let (attributes, index, by_name) = (Arc::new(attributes), Arc::new(index), Arc::new(by_name));
        let (rules, meters, former) = (rules.into(), meters.into(), former.into());
        Ok(Compiled { attributes, rules, meters, former, index, fallback, by_name, denied, allowed })
    }
}

/// Numbers attributes and meters as they come up.
struct Maker<'l> {
    history: &'l History,
    /// The attributes that are addresses.
    addresses: Vec<&'l str>,
    attributes: AttributeNames,
    meters: Vec<Meter>,
    /// What each rule limited before.
    former: Vec<Option<Box<FormerRule>>>,
    /// The number of each meter, by its name and meaning.
    numbers: HashMap<(Name, Box<str>), usize, RandomState>,
    names: HashMap<Name, (), RandomState>,
}

impl<'l> Maker<'l> {
    fn new(history: &'l History, addresses: Vec<&'l str>) -> Maker<'l> {
        let (attributes, meters, former) = (AttributeNames::default(), Vec::new(), Vec::new());
        let (numbers, names) = (HashMap::default(), HashMap::default());
        Maker { history, addresses, attributes, meters, former, numbers, names }
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
            let name = Name::from(format!("{} (candidate)", rule.name));
            let twin = Rule { name, standard: Standard::Setting(limit.into()), mode: Mode::Shadow, ..rule.clone() };
            let twin = self.rule(&Rule { overrides: Vec::new(), tiers: Vec::new(), ..twin })?;
            rules.push(CompiledRule { candidate_of: Some(rule.name.clone()), ..twin });
        }
        Ok(rules)
    }

    fn rule(&mut self, rule: &Rule) -> Result<CompiledRule, ConfigError> {
        if self.names.insert(rule.name.clone(), ()).is_some() {
            return Err(ConfigError::DuplicateRule { name: rule.name.clone() });
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
        let standard = match &rule.standard {
            Standard::Setting(setting) => self.effect(rule, *setting),
            Standard::Meter(meter) => self.meter(rule, Meter::clone(meter)),
        };
        let mut patterns = Vec::new();
        for special in &rule.overrides {
            if let Value::Matching(pattern) = &special.value {
                let effect = self.effect(rule, special.setting);
                let pattern = Condition::Matches(pattern.clone());
                patterns.push(((self.attribute(&special.attribute)?, pattern), effect));
            }
        }
        let compiled = CompiledRule {
            name: rule.name.clone(),
            candidate_of: None,
            undecided: undecided(&conditions).into(),
            conditions,
            key,
            missing: rule.missing,
            standard,
            exact: self.table(rule, &rule.overrides)?,
            patterns: (!patterns.is_empty()).then(|| Box::new(Patterns::new(patterns))),
            tiers: self.table(rule, &rule.tiers)?,
            cost: rule.cost.clone(),
            clamps: rule.clamps,
            mode: rule.mode,
            classes: None,
            simple: None,
        };
        let compiled = CompiledRule { classes: self.classes(rule, &compiled)?, ..compiled };
        let compiled = CompiledRule { simple: compiled.simplified(), ..compiled };
        let former = self.former(rule, &compiled)?;
        self.former.push(former);
        Ok(compiled)
    }

    /// The classes of a rule, with a meter for each and every limit.
    fn classes(&mut self, rule: &Rule, compiled: &CompiledRule) -> Result<Option<Box<Classes>>, ConfigError> {
        let Some(priority) = &rule.priority else { return Ok(None) };
        let mut classes = Classes::new(priority, self.attribute(&priority.attribute)?);
        for limit in compiled.effects().filter_map(Effect::meter) {
            if !classes.knows(limit) {
                let meters = priority.meters(&self.meters[limit])?;
                classes.add(limit, self.meters.len(), &meters);
                self.meters.extend(meters);
            }
        }
        Ok(Some(Box::new(classes)))
    }

    /// What the rule limited before, if anything of it matters.
    fn former(&mut self, rule: &Rule, compiled: &CompiledRule) -> Result<Option<Box<FormerRule>>, ConfigError> {
        let places = self.history.places(rule);
        if places.is_empty() {
            return Ok(None);
        }
        let meters = compiled.effects().filter_map(Effect::meter).map(|number| &self.meters[number]);
        let in_force: HashSet<u64> = meters.map(Meter::identity).collect();
        let mut former = FormerRule::default();
        for (place, past) in places {
            let formers = Formers::new(past, rule);
            let (attribute, value, is_override) = match place {
                Place::Standard => {
                    former.add_standard(formers);
                    continue;
                }
                Place::Override { attribute, value } => (attribute, value, true),
                Place::Tier { attribute, value } => (attribute, value, false),
            };
            let number = self.attribute(attribute)?;
            let value = match value {
                Value::Exactly(value) => Value::Exactly(self.exactly(attribute, value)?),
                Value::Matching(_) => value.clone(),
            };
            if is_override && compiled.is_apart(number) {
                if let Effect::Meter(meter) = compiled.effect_of_value(number, &value, self.attributes.len()) {
                    former.add_shared(meter, formers, &in_force);
                }
                continue;
            }
            match value {
                Value::Exactly(value) => former.add_value(number, value, formers),
                Value::Matching(pattern) => former.add_pattern(number, pattern, formers),
            }
        }
        Ok(Some(Box::new(former)))
    }

    fn table(&mut self, rule: &Rule, specials: &[Override]) -> Result<Effects, ConfigError> {
        let mut table: Vec<(Attribute, ByValue)> = Vec::new();
        for special in specials {
            if let Value::Exactly(value) = &special.value {
                let attribute = self.attribute(&special.attribute)?;
                let effect = self.effect(rule, special.setting);
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

    fn effect(&mut self, rule: &Rule, setting: Setting) -> Effect {
        match setting {
            Setting::Unlimited => Effect::Unlimited,
            Setting::Blocked => Effect::Blocked,
            Setting::Limit(limit) => self.meter(rule, Meter::new(&rule.name, limit)),
        }
    }

    /// The number of a meter of this rule; the same limit twice is one.
    fn meter(&mut self, rule: &Rule, meter: Meter) -> Effect {
        let meter = rule.made_ready(meter);
        let next = self.meters.len();
        let number = *self.numbers.entry((meter.name().clone(), meter.meaning().into())).or_insert(next);
        if number == next {
            self.meters.push(meter);
        }
        Effect::Meter(number)
    }
}
