//! Which limits of a former policy a limit succeeds.
//!
//! A limit stands in some place of a rule: its own, that of a tier, that of
//! an override. Whatever stood in the same place before is its predecessor,
//! until nothing that was charged to it matters any more. A place that is new
//! succeeds what applied to its keys before, unless that applies to them still;
//! what stood in a place that is gone is succeeded by what applies then.

use std::collections::{HashMap, HashSet};

use super::Policy;
use super::glob;
use super::rule::{Override, Rule, RuleKey, Setting, Standard, Value};
use crate::limit::ConfigError;
use crate::name::Name;
use crate::store::{MOST_PREDECESSORS, Meter, Predecessor};
use crate::time::Micros;

/// The limits that were in force, as long as they matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    past: HashMap<RuleId, HashMap<Place, Vec<Past>>>,
    /// Rules that go by their limit's words cannot be told by their names.
    unnamed: Vec<(Name, u32)>,
    /// How many of those there have been.
    serials: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RuleId {
    Named(Name),
    Unnamed(u32),
}

/// What the limits of a rule succeed. An override of a part of the key has keys
/// of its own: nobody looks there for what others used. All other places may
/// have the same keys, and if they have the same limit, also the same states.
#[derive(Default)]
pub(super) struct Inheritance {
    by_place: HashMap<Place, Vec<Predecessor>>,
    by_meaning: HashMap<String, Vec<Predecessor>>,
}

impl Inheritance {
    /// What the limit in a place succeeds that has keys of its own.
    pub(super) fn of_place(&self, place: &Place) -> Option<&[Predecessor]> {
        self.by_place.get(place).filter(|past| !past.is_empty()).map(Vec::as_slice)
    }

    /// What a limit succeeds in all other places.
    pub(super) fn of_meaning(&self, meaning: &str) -> &[Predecessor] {
        self.by_meaning.get(meaning).map_or(&[], Vec::as_slice)
    }
}

/// A limit that was in force.
#[derive(Clone, Debug)]
struct Past {
    key: RuleKey,
    meter: Meter,
    until: Micros,
}

/// Where in a rule a limit stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Standard,
    Override { attribute: String, value: Value },
    Tier { attribute: String, value: Value },
}

impl Lineage {
    /// The lineage when a limiter begins.
    pub(crate) fn new(policy: &Policy) -> Lineage {
        let mut lineage = Lineage::default();
        lineage.unnamed = lineage.number(policy);
        lineage
    }

    /// The lineage after `new` has taken the place of `old`.
    pub(crate) fn changed(&self, old: &Policy, new: &Policy, now: Micros) -> Result<Lineage, ConfigError> {
        let mut next = self.clone();
        next.past.retain(|_, places| {
            places.retain(|_, past| {
                past.retain(|past| past.until > now);
                !past.is_empty()
            });
            !places.is_empty()
        });
        next.unnamed = next.number(new);
        let rules: HashMap<RuleId, &Rule> = new.rules().map(|rule| (next.id_of(rule), rule)).collect();
        let mut returning = rules.clone();
        for rule in old.rules() {
            let id = self.id_of(rule);
            returning.remove(&id);
            match rules.get(&id) {
                Some(successor) if rule == *successor => {}
                Some(successor) => next.succeed(id, (rule, places(rule)), successor, now)?,
                None => {
                    for (place, meter) in places(rule) {
                        next.retire(id, place, rule, meter, now)?;
                    }
                }
            }
        }
        for (id, rule) in returning {
            next.come_back(id, rule, now)?;
        }
        Ok(next)
    }

    /// What the limits of a rule succeed.
    pub(super) fn inheritance(&self, rule: &Rule) -> Inheritance {
        let mut inheritance = Inheritance::default();
        let Some(past) = self.past.get(&self.id_of(rule)) else { return inheritance };
        let places = places(rule);
        let in_force: HashSet<&str> = places.iter().filter_map(|(_, meter)| Some(meter.as_ref()?.meaning())).collect();
        for (place, meter) in &places {
            let (Some(past), Some(meter)) = (past.get(place), meter) else { continue };
            let is_apart = place.is_apart(&rule.key);
            let all = match place {
                Place::Override { .. } if !is_apart => inheritance.by_place.entry(place.clone()).or_default(),
                Place::Override { .. } | Place::Tier { .. } | Place::Standard => {
                    inheritance.by_meaning.entry(meter.meaning().to_owned()).or_default()
                }
            };
            for past in past.iter().filter(|past| past.key == rule.key) {
                let is_known = all.iter().any(|known| known.meter().is_same_as(&past.meter));
                let is_in_force = past.meter.name() == rule.name && in_force.contains(past.meter.meaning());
                let is_kept = past.meter.is_same_as(meter) || is_apart && is_in_force;
                if !is_known && !is_kept {
                    all.push(Predecessor::new(past.meter.clone(), past.until));
                }
            }
        }
        inheritance
    }

    /// One rule takes the place of another, which had limits in these places.
    fn succeed(
        &mut self,
        id: RuleId,
        (old, before): (&Rule, Vec<Limited>),
        new: &Rule,
        now: Micros,
    ) -> Result<(), ConfigError> {
        let after = places(new);
        // Of a place that is there twice, the first counts.
        let was: HashMap<&Place, &Limited> = before.iter().rev().map(|limited| (&limited.0, limited)).collect();
        let kept: HashSet<&Place> = after.iter().map(|(place, _)| place).collect();
        let past = self.past.get(&id).into_iter().flatten().map(|(place, _)| (place.clone(), None));
        let is_gone = |(place, _): &Limited| !kept.contains(place);
        let gone: Vec<Limited> = past.chain(before.iter().cloned()).filter(is_gone).collect();
        let mut inherited: Vec<(&Limited, &Limited)> = Vec::new();
        let (general_before, general_after) = (general(&before), general(&after));
        for heir in &after {
            let same = was.get(&heir.0);
            let origins = same.map_or_else(|| origins(&general_before, &heir.0, &new.key), |same| vec![*same]);
            inherited.extend(origins.into_iter().map(|origin| (origin, heir)));
        }
        for gone in &gone {
            inherited.extend(applied(&general_after, &gone.0).into_iter().map(|heir| (gone, heir)));
        }
        can_be_inherited(old, &inherited)?;
        for (origin, heir) in inherited {
            self.branch(id, &origin.0, &heir.0);
            self.retire(id, heir.0.clone(), old, left_behind(origin, heir).cloned(), now)?;
        }
        let past = self.past.entry(id).or_default();
        gone.iter().for_each(|(gone, _)| drop(past.remove(gone)));
        match past.values().any(|past| past.len() > MOST_PREDECESSORS) {
            true => Err(ConfigError::TooManyChanges { rule: new.name.as_str(), bound: MOST_PREDECESSORS }),
            false => Ok(()),
        }
    }

    /// A rule is there again: all that it had is past.
    fn come_back(&mut self, id: RuleId, rule: &Rule, now: Micros) -> Result<(), ConfigError> {
        let Some(past) = self.past.get(&id) else { return Ok(()) };
        // Which of its patterns came first is not known any more. With the rule's own
        // before them all that may have applied count.
        let others = past.keys().filter(|place| **place != Place::Standard).cloned();
        let before = [Place::Standard].into_iter().chain(others).map(|place| (place, None)).collect();
        self.succeed(id, (rule, before), rule, now)
    }

    /// A place succeeds all that another one does.
    fn branch(&mut self, id: RuleId, origin: &Place, place: &Place) {
        let places = self.past.entry(id).or_default();
        let Some(inherited) = places.get(origin).filter(|_| origin != place).cloned() else { return };
        let past = places.entry(place.clone()).or_default();
        for inherited in inherited {
            match past.iter_mut().find(|known| known.meter.is_same_as(&inherited.meter)) {
                Some(known) => known.until = known.until.max(inherited.until),
                None => past.push(inherited),
            }
        }
    }

    /// Remembers a limit, for as long as anything charged to it matters.
    fn retire(
        &mut self,
        id: RuleId,
        place: Place,
        rule: &Rule,
        meter: Option<Meter>,
        now: Micros,
    ) -> Result<(), ConfigError> {
        let Some(meter) = meter else { return Ok(()) };
        let until = now.saturating_add(meter.horizon());
        let past = self.past.entry(id).or_default().entry(place).or_default();
        if let Some(known) = past.iter_mut().find(|past| past.meter.is_same_as(&meter)) {
            known.until = known.until.max(until);
            return Ok(());
        }
        if past.len() >= MOST_PREDECESSORS {
            return Err(ConfigError::TooManyChanges { rule: rule.name.as_str(), bound: MOST_PREDECESSORS });
        }
        past.push(Past { key: rule.key.clone(), meter, until });
        Ok(())
    }

    /// Numbers rules without names: one of the same words is the same rule,
    /// the others follow those that are gone, in their order.
    fn number(&mut self, policy: &Policy) -> Vec<(Name, u32)> {
        let unnamed: Vec<Name> = policy.rules().filter(|rule| is_unnamed(rule)).map(|rule| rule.name).collect();
        let gone = self.unnamed.iter().filter(|(name, _)| !unnamed.contains(name)).map(|(_, serial)| *serial);
        let mut free: Vec<u32> = gone.collect();
        let mut numbered = Vec::with_capacity(unnamed.len());
        for name in unnamed {
            let known = self.unnamed.iter().find(|(known, _)| *known == name).map(|(_, serial)| *serial);
            let serial = known.unwrap_or_else(|| {
                if free.is_empty() {
                    self.serials += 1;
                    self.serials
                } else {
                    free.remove(0)
                }
            });
            numbered.push((name, serial));
        }
        numbered
    }

    fn id_of(&self, rule: &Rule) -> RuleId {
        match self.unnamed.iter().find(|(name, _)| *name == rule.name) {
            Some((_, serial)) => RuleId::Unnamed(*serial),
            None => RuleId::Named(rule.name),
        }
    }
}

/// A place, and its limit if it has one.
type Limited = (Place, Option<Meter>);

impl Place {
    pub(super) fn of_override(Override { attribute, value, .. }: &Override) -> Place {
        Place::Override { attribute: attribute.clone(), value: value.clone() }
    }

    pub(super) fn of_tier(Override { attribute, value, .. }: &Override) -> Place {
        Place::Tier { attribute: attribute.clone(), value: value.clone() }
    }

    /// Whether a limit in this place applied to those of the other one before
    /// they had one of their own.
    fn would_apply_to(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Standard, _) => true,
            (
                Place::Override { attribute, value: Value::Matching(pattern) },
                Place::Override { attribute: same, value: Value::Exactly(value) },
            ) => attribute == same && glob::matches(pattern, value),
            (Place::Tier { .. }, Place::Override { .. }) => true,
            (Place::Override { .. } | Place::Tier { .. }, _) => false,
        }
    }

    /// Whether this is an override of what is no part of the key: other requests
    /// of the same keys are charged to other places, and a limit that is still in
    /// force there keeps what it counted.
    fn is_apart(&self, key: &RuleKey) -> bool {
        match (self, key) {
            (Place::Override { attribute, .. }, RuleKey::Attributes(key)) => {
                // Where there is a choice of attributes, only the first is always part of the key.
                !key.iter().any(|part| part.names.first() == Some(attribute))
            }
            (Place::Override { .. } | Place::Tier { .. } | Place::Standard, _) => false,
        }
    }
}

/// The places that could apply to those of others. An override of one value
/// never does: there may be very many of them, and nobody goes through them.
fn general(places: &[Limited]) -> Vec<&Limited> {
    let is_of_one = |place: &Place| matches!(place, Place::Override { value: Value::Exactly(_), .. });
    places.iter().filter(|(place, _)| !is_of_one(place)).collect()
}

/// The places whose limits apply to those of another one that is not there: a
/// pattern to all of them; otherwise some tier, or the rule's own.
fn applied<'p>(general: &[&'p Limited], other: &Place) -> Vec<&'p Limited> {
    let mut applied: Vec<_> = general.iter().copied().filter(|(place, _)| place.would_apply_to(other)).collect();
    if matches!(applied.first(), Some((Place::Override { .. }, _))) {
        applied.truncate(1);
    }
    // There are hardly as many tiers; some of many are better than no change at all.
    applied.drain(..applied.len().saturating_sub(MOST_PREDECESSORS));
    applied
}

/// The limit of one place that another one succeeds, unless it has the same.
fn left_behind<'p>((_, was): &'p Limited, (_, is): &Limited) -> Option<&'p Meter> {
    was.as_ref().filter(|was| !is.as_ref().is_some_and(|is| is.is_same_as(was)))
}

/// Whether no place would succeed more limits by this change alone than it can:
/// that would be so whenever it is made.
fn can_be_inherited(rule: &Rule, inherited: &[(&Limited, &Limited)]) -> Result<(), ConfigError> {
    let left_behind = || inherited.iter().filter_map(|(origin, heir)| Some((&heir.0, left_behind(origin, heir)?)));
    let mut by_heir: HashMap<&Place, HashSet<&str>> = HashMap::new();
    for (heir, meter) in left_behind() {
        by_heir.entry(heir).or_default().insert(meter.meaning());
    }
    match by_heir.values().map(HashSet::len).max() {
        Some(count) if count > MOST_PREDECESSORS => Err(ConfigError::TooManyAtOnce {
            rule: rule.name.as_str(),
            count,
            bound: MOST_PREDECESSORS,
            forgotten_after: left_behind().map(|(_, meter)| meter.horizon()).max().unwrap_or_default().to_duration(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// What a place that is new succeeds.
fn origins<'p>(before: &[&'p Limited], place: &Place, key: &RuleKey) -> Vec<&'p Limited> {
    if place.is_apart(key) { Vec::new() } else { applied(before, place) }
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

/// The limits of a rule, by their places; the rule's own comes last, so that
/// it is found where nothing more special is.
fn places(rule: &Rule) -> Vec<Limited> {
    let meter = |setting: &Setting| match setting {
        Setting::Limit(limit) => Some(rule.made_ready(Meter::new(rule.name, *limit))),
        Setting::Unlimited | Setting::Blocked => None,
    };
    let mut places = Vec::with_capacity(1 + rule.overrides.len() + rule.tiers.len());
    places.extend(rule.overrides.iter().map(|special| (Place::of_override(special), meter(&special.setting))));
    places.extend(rule.tiers.iter().map(|tier| (Place::of_tier(tier), meter(&tier.setting))));
    let standard = match &rule.standard {
        Standard::Setting(setting) => meter(setting),
        Standard::Meter(meter) => Some(rule.made_ready(meter.clone())),
    };
    places.push((Place::Standard, standard));
    places
}
