//! What is different between two policies, rule by rule, in words.

use std::collections::HashMap;

use tidegate::{Name, Policy, Rule};

/// Rules that are told of one by one; of more, only how many.
const MAX_TOLD: usize = 100;

/// A line for each rule that was added, removed or changed, in the order of the new policy.
pub(crate) fn changes(before: &Policy, after: &Policy) -> Vec<String> {
    let [known, kept] = [before, after].map(|policy| policy.rules().map(|rule| (rule.name(), rule)).collect());
    let (known, kept): (HashMap<&Name, &Rule>, HashMap<&Name, &Rule>) = (known, kept);
    let mut told: Vec<String> =
        after.rules().filter_map(|rule| change(known.get(rule.name()).copied(), rule)).collect();
    let removed = before.rules().filter(|rule| !kept.contains_key(rule.name()));
    told.extend(removed.map(|rule| format!("rule {:?}: removed", rule.name().as_str())));
    if told.is_empty() && before != after {
        let same = before.rules().eq(after.rules());
        told.push(if same { "lists changed".to_owned() } else { "the order of the rules changed".to_owned() });
    }
    if told.len() > MAX_TOLD {
        let more = told.len() - MAX_TOLD;
        told.truncate(MAX_TOLD);
        told.push(format!("and {more} more"));
    }
    told
}

fn change(before: Option<&Rule>, after: &Rule) -> Option<String> {
    let name = after.name().as_str();
    let Some(before) = before else { return Some(format!("rule {name:?}: added, {}", after.in_words())) };
    if before == after {
        return None;
    }
    let (was, is) = (before.in_words(), after.in_words());
    let mut parts = Vec::new();
    if was != is {
        parts.push(format!("{was} -> {is}"));
    }
    if before.is_shadow() != after.is_shadow() {
        parts.push(if after.is_shadow() { "now a shadow rule" } else { "enforced now" }.to_owned());
    }
    if before.key_attributes() != after.key_attributes() {
        parts.push("another key".to_owned());
    }
    let candidates =
        [before, after].map(|rule| rule.candidate_limit().map_or("none".into(), |limit| limit.to_string()));
    if let [was, is] = &candidates
        && was != is
    {
        parts.push(format!("candidate {was} -> {is}"));
    }
    if parts.is_empty() {
        parts.push("match, tiers, overrides or another setting changed".to_owned());
    }
    Some(format!("rule {name:?}: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use tidegate::{Condition, Limit};

    use super::*;

    fn rule(name: &'static str, count: u64) -> Rule {
        Rule::new(name, Limit::per_second(count))
    }

    #[test]
    fn each_rule_that_differs_is_told() {
        let before = Policy::new().rule(rule("orders", 10)).rule(rule("old", 1)).rule(rule("same", 5));
        let after = Policy::new()
            .rule(rule("orders", 20).shadow().key(["user"]).candidate(Limit::per_second(5)))
            .rule(rule("same", 5))
            .rule(rule("new", 3));
        let told = changes(&before, &after);
        let orders = "rule \"orders\": 10/s -> 20/s, now a shadow rule, another key, candidate none -> 5/s";
        assert_eq!(told, [orders, "rule \"new\": added, 3/s", "rule \"old\": removed"]);
        assert!(changes(&after, &after).is_empty());
    }

    #[test]
    fn what_is_no_limit_is_told_too() {
        let (one, two) = (rule("one", 1), rule("two", 2));
        let before = Policy::new().rule(one.clone()).rule(two.clone());
        let matched = rule("one", 1).when("path", Condition::Equals("/a".into()));
        let after = Policy::new().rule(matched).rule(two.clone());
        assert_eq!(changes(&before, &after), ["rule \"one\": match, tiers, overrides or another setting changed"]);
        let turned = Policy::new().rule(two).rule(one);
        assert_eq!(changes(&before, &turned), ["the order of the rules changed"]);
        let lists = before.clone().deny("user", Condition::Equals("mallory".into()));
        assert_eq!(changes(&before, &lists), ["lists changed"]);
    }

    #[test]
    fn the_list_has_a_bound() {
        let many = |count| (0..150).fold(Policy::new(), |policy, at| policy.rule(Rule::new(format!("r{at}"), count)));
        let told = changes(&many(Limit::per_second(1)), &many(Limit::per_second(2)));
        assert_eq!((told.len(), told[100].as_str()), (101, "and 50 more"));
    }
}
