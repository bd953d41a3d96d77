//! Which rules may apply to a request: found by its values, so that a policy
//! of thousands of rules costs about as much as the few that matter.
//!
//! Every rule stands in one place: under the value that one of its conditions
//! asks for, or under a prefix, or under an attribute that must be present; or
//! among those that have to be tried on every request.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::compiled_rule::CompiledRule;
use super::condition::Condition;
use super::glob;
use super::values::Values;

#[derive(Default)]
pub(super) struct Index {
    /// By the numbers of attributes.
    by_attribute: Vec<Places>,
    always: Vec<usize>,
}

#[derive(Default)]
struct Places {
    equal: HashMap<Box<[u8]>, Vec<usize>, RandomState>,
    prefixed: HashMap<Box<[u8]>, Vec<usize>, RandomState>,
    /// The lengths of those prefixes.
    lengths: Vec<usize>,
    present: Vec<usize>,
}

/// Candidates that need no allocation.
const FEW: usize = 8;

impl Index {
    pub(super) fn new(rules: &[CompiledRule]) -> Index {
        let mut index = Index::default();
        for (number, rule) in rules.iter().enumerate() {
            let best = rule.conditions.iter().max_by_key(|(_, condition)| selectivity(condition));
            match best.filter(|(_, condition)| selectivity(condition) > 0) {
                None => index.always.push(number),
                Some((attribute, condition)) => {
                    let attribute = usize::from(*attribute);
                    if index.by_attribute.len() <= attribute {
                        index.by_attribute.resize_with(attribute + 1, Places::default);
                    }
                    index.by_attribute[attribute].put(condition, number);
                }
            }
        }
        index
    }

    /// Calls `try_rule` for each rule that may apply, in the policy's order.
    pub(super) fn candidates(&self, values: &Values<'_>, mut try_rule: impl FnMut(usize)) {
        let mut few = [0; FEW];
        let mut count = 0;
        let mut many = Vec::new();
        let mut found = |rules: &[usize]| {
            for rule in rules {
                match few.get_mut(count) {
                    Some(place) => *place = *rule,
                    None => many.push(*rule),
                }
                count += 1;
            }
        };
        found(&self.always);
        for (attribute, value) in values.iter() {
            let Some(places) = self.by_attribute.get(usize::from(attribute)) else { continue };
            found(&places.present);
            value.with_bytes(|bytes| {
                if let Some(rules) = places.equal.get(bytes) {
                    found(rules);
                }
                for length in &places.lengths {
                    if let Some(rules) = bytes.get(..*length).and_then(|prefix| places.prefixed.get(prefix)) {
                        found(rules);
                    }
                }
            });
        }
        let few = &mut few[..count.min(FEW)];
        if many.is_empty() {
            few.sort_unstable();
            few.iter().copied().for_each(try_rule);
        } else {
            many.extend_from_slice(few);
            many.sort_unstable();
            many.into_iter().for_each(&mut try_rule);
        }
    }
}

/// How few requests a condition lets through, roughly; none that must be
/// tried on every request.
fn selectivity(condition: &Condition) -> usize {
    match condition {
        Condition::Equals(_) => usize::MAX,
        Condition::StartsWith(prefix) => 2 + prefix.len(),
        Condition::Matches(pattern) => 2 + glob::literal_prefix(pattern).len(),
        Condition::Within(_) => 2,
        Condition::Present => 1,
        Condition::Absent => 0,
    }
}

impl Places {
    fn put(&mut self, condition: &Condition, rule: usize) {
        let prefix = match condition {
            Condition::Equals(value) => {
                self.equal.entry(value.as_bytes().into()).or_default().push(rule);
                return;
            }
            Condition::StartsWith(prefix) => prefix,
            Condition::Matches(pattern) => glob::literal_prefix(pattern),
            Condition::Within(_) | Condition::Present | Condition::Absent => "",
        };
        if prefix.is_empty() {
            self.present.push(rule);
            return;
        }
        self.prefixed.entry(prefix.as_bytes().into()).or_default().push(rule);
        if !self.lengths.contains(&prefix.len()) {
            self.lengths.push(prefix.len());
        }
    }
}
