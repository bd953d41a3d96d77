//! Which rules a request meets and by which limit, beside the obvious way to
//! find out: every rule in turn, every condition by its definition.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use tidegate::{Condition, Limit, Limiter, ManualClock, MemoryStore, Missing, Policy, Request, Rule};
use tidegate_testkit::Random;

const ATTRIBUTES: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 8] = ["", "x", "xy", "yx", "ÿ", "10.0.0.1", "10.1.0.1", "11.0.0.1"];
const PATTERNS: [&str; 7] = ["*", "x*", "*x", "?", "?y", "1?.*.1", "x"];
const NAMES: [&str; 6] = ["r0", "r1", "r2", "r3", "r4", "r5"];

/// Limits that tell by their size where they come from.
const DEFAULT: u64 = 1_000;
const TIER: u64 = 2_000;
const PATTERN: u64 = 3_000;
const EXACT: u64 = 4_000;

/// A rule as it is meant.
#[derive(Clone, Debug)]
struct Meant {
    conditions: Vec<(usize, Asked)>,
    key: Vec<usize>,
    skips: bool,
    tier: Option<(usize, usize)>,
    pattern: Option<(usize, usize)>,
    exact: Option<(usize, usize)>,
}

/// A condition as it is meant.
#[derive(Clone, Debug)]
enum Asked {
    Equals(usize),
    StartsWith(usize),
    Matches(usize),
    Within(u8),
    Present,
    Absent,
}

type Values = [Option<usize>; 3];

impl Asked {
    fn holds(&self, value: Option<usize>) -> bool {
        let Some(value) = value.map(|value| VALUES[value]) else { return matches!(self, Asked::Absent) };
        match self {
            Asked::Equals(wanted) => value == VALUES[*wanted],
            Asked::StartsWith(prefix) => {
                value.chars().zip(VALUES[*prefix].chars()).filter(|(a, b)| a == b).count()
                    == VALUES[*prefix].chars().count()
            }
            Asked::Matches(pattern) => matches(PATTERNS[*pattern], value),
            Asked::Within(bits) => value.parse::<Ipv4Addr>().is_ok_and(|address| {
                let beyond = 32 - u32::from(*bits);
                u64::from(address.to_bits()) >> beyond == u64::from(Ipv4Addr::new(10, 0, 0, 0).to_bits()) >> beyond
            }),
            Asked::Present => true,
            Asked::Absent => false,
        }
    }

    fn condition(&self) -> Condition {
        match self {
            Asked::Equals(value) => Condition::Equals(VALUES[*value].into()),
            Asked::StartsWith(value) => Condition::StartsWith(VALUES[*value].into()),
            Asked::Matches(pattern) => Condition::Matches(PATTERNS[*pattern].into()),
            Asked::Within(bits) => Condition::Within(format!("10.0.0.0/{bits}").parse().expect("a network")),
            Asked::Present => Condition::Present,
            Asked::Absent => Condition::Absent,
        }
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text.chars();
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches(&pattern[1..], &text[at..]))
        }
        Some('?') => rest.next().is_some() && matches(&pattern[1..], rest.as_str()),
        Some(wanted) => rest.next() == Some(wanted) && matches(&pattern[wanted.len_utf8()..], rest.as_str()),
    }
}

impl Meant {
    fn applies(&self, values: &Values) -> bool {
        self.conditions.iter().all(|(attribute, asked)| asked.holds(values[*attribute]))
    }

    /// Nothing if it is skipped.
    fn limit(&self, values: &Values) -> Option<u64> {
        if self.skips && self.key.iter().any(|attribute| values[*attribute].is_none()) {
            return None;
        }
        let is = |(attribute, value): (usize, usize)| values[attribute] == Some(value);
        let fits = |(attribute, pattern): (usize, usize)| Asked::Matches(pattern).holds(values[attribute]);
        Some(match self {
            rule if rule.exact.is_some_and(is) => EXACT,
            rule if rule.pattern.is_some_and(fits) => PATTERN,
            rule if rule.tier.is_some_and(is) => TIER,
            _ => DEFAULT,
        })
    }

    fn rule(&self, name: &'static str) -> Rule {
        let mut rule = Rule::new(name, Limit::per_hour(DEFAULT)).key(self.key.iter().map(|key| ATTRIBUTES[*key]));
        for (attribute, asked) in &self.conditions {
            rule = rule.when(ATTRIBUTES[*attribute], asked.condition());
        }
        if let Some((attribute, value)) = self.tier {
            rule = rule.tier(ATTRIBUTES[attribute], VALUES[value], Limit::per_hour(TIER));
        }
        if let Some((attribute, pattern)) = self.pattern {
            rule = rule.override_matching(ATTRIBUTES[attribute], PATTERNS[pattern], Limit::per_hour(PATTERN));
        }
        if let Some((attribute, value)) = self.exact {
            rule = rule.override_exactly(ATTRIBUTES[attribute], VALUES[value], Limit::per_hour(EXACT));
        }
        rule.missing(if self.skips { Missing::Skip } else { Missing::Shared })
    }
}

/// A number below `count`.
fn below(random: &mut Random, count: usize) -> usize {
    random.within(0..=count as u64 - 1) as usize
}

/// So many of them.
fn several<T>(random: &mut Random, count: RangeInclusive<u64>, one: impl Fn(&mut Random) -> T) -> Vec<T> {
    (0..random.within(count)).map(|_| one(random)).collect()
}

/// Nothing, half of the time.
fn maybe<T>(random: &mut Random, one: impl Fn(&mut Random) -> T) -> Option<T> {
    random.percent(50).then(|| one(random))
}

fn asked(random: &mut Random) -> Asked {
    match random.within(1..=10) {
        1..=3 => Asked::Equals(below(random, VALUES.len())),
        4..=5 => Asked::StartsWith(below(random, VALUES.len())),
        6..=7 => Asked::Matches(below(random, PATTERNS.len())),
        8 => Asked::Within(random.choose(&[0, 8, 16, 32])),
        9 => Asked::Present,
        _ => Asked::Absent,
    }
}

fn listed(random: &mut Random) -> (usize, Asked) {
    (below(random, ATTRIBUTES.len()), asked(random))
}

fn meant(random: &mut Random) -> Meant {
    let by =
        |random: &mut Random, count| maybe(random, |random| (below(random, ATTRIBUTES.len()), below(random, count)));
    let mut key = several(random, 0..=2, |random| below(random, ATTRIBUTES.len()));
    key.sort_unstable();
    key.dedup();
    Meant {
        conditions: several(random, 0..=2, listed),
        key,
        skips: random.percent(50),
        tier: by(random, VALUES.len()),
        pattern: by(random, PATTERNS.len()),
        exact: by(random, VALUES.len()),
    }
}

fn request(values: &Values) -> Request<'static> {
    let given = ATTRIBUTES.into_iter().zip(values).filter_map(|(name, value)| Some((name, VALUES[(*value)?])));
    given.fold(Request::new(()), |request, (name, value)| request.with(name, value))
}

#[test]
fn a_request_is_charged_to_the_rules_that_apply_and_to_no_other() {
    for seed in 0..1_000 {
        let random = &mut Random::new(seed);
        let rules = several(random, 1..=NAMES.len() as u64 - 1, meant);
        let others = meant(random);
        let (denied, allowed) = (maybe(random, listed), maybe(random, listed));
        let requests =
            several(random, 1..=7, |random| [(); 3].map(|()| maybe(random, |random| below(random, VALUES.len()))));
        let mut policy = Policy::new().otherwise(others.rule("others"));
        for (meant, name) in rules.iter().zip(NAMES) {
            policy = policy.rule(meant.rule(name));
        }
        if let Some((attribute, asked)) = &denied {
            policy = policy.deny(ATTRIBUTES[*attribute], asked.condition());
        }
        if let Some((attribute, asked)) = &allowed {
            policy = policy.allow(ATTRIBUTES[*attribute], asked.condition());
        }
        for values in requests {
            // Only it has been charged for anything.
            let limiter = limiter(policy.clone());
            let is_on = |list: &Option<(usize, Asked)>| {
                list.as_ref().is_some_and(|(attribute, asked)| asked.holds(values[*attribute]))
            };
            let decision = limiter.check(request(&values)).expect("an answer");
            let is_listed = is_on(&denied) || is_on(&allowed);
            assert_eq!(decision.is_blocked(), is_on(&denied), "seed {seed}");
            let any_applies = rules.iter().any(|meant| meant.applies(&values) && meant.limit(&values).is_some());
            let mut least = None;
            for (meant, name) in rules.iter().zip(NAMES).chain([(&others, "others")]) {
                let turn = name != "others" || !any_applies;
                let limit = meant.limit(&values).filter(|_| turn && !is_listed && meant.applies(&values));
                least = least.into_iter().chain(limit).min();
                if is_listed {
                    continue;
                }
                // A rule that is asked for by its name is asked whatever its conditions are.
                let asked = limiter.peek(request(&values).rule(name).cost(0)).expect("an answer");
                match meant.limit(&values) {
                    None => assert!(asked.is_unlimited(), "seed {seed}: {name} is skipped"),
                    Some(whole) => {
                        assert_eq!(asked.capacity(), Some(whole), "seed {seed}: {name}");
                        let left = whole - u64::from(limit.is_some());
                        assert_eq!(asked.remaining(), Some(left), "seed {seed}: {name}");
                    }
                }
            }
            if !is_on(&denied) {
                assert_eq!(decision.capacity(), least, "seed {seed}");
            }
        }
    }
}

/// Patterns whose pieces overlap: in each other, in values, and in the bytes of
/// characters.
fn pattern(random: &mut Random) -> String {
    let parts = ["*", "*", "*", "?", "?", "a", "a", "b", "ab", "aba", "é", "ê", "/"];
    several(random, 0..=7, |random| random.choose(&parts)).concat()
}

/// Text, and with the flag bytes that are none.
fn value(random: &mut Random) -> (String, bool) {
    let parts = ["a", "a", "b", "ab", "aba", "é", "ê", "/"];
    (several(random, 0..=9, |random| random.choose(&parts)).concat(), random.percent(5))
}

#[test]
fn patterns_of_any_shape_apply_to_what_they_match_and_to_nothing_else() {
    for seed in 0..2_000 {
        let random = &mut Random::new(seed);
        let mut rules =
            several(random, 1..=29, |random| several(random, 1..=2, |random| (below(random, 2), pattern(random))));
        rules.push(rules[below(random, rules.len())].clone());
        let values = several(random, 1..=5, |random| [(); 2].map(|()| random.percent(90).then(|| value(random))));
        let mut policy = Policy::new();
        let mut overridden = Rule::new("overridden", Limit::per_hour(DEFAULT)).when("c", Condition::Present).key(["c"]);
        for (number, conditions) in rules.iter().enumerate() {
            let mut rule =
                Rule::new(format!("r{number}"), Limit::per_hour(DEFAULT)).key(["c"]).missing(Missing::Shared);
            for (attribute, pattern) in conditions {
                rule = rule.when(ATTRIBUTES[*attribute], Condition::Matches(pattern.clone()));
            }
            policy = policy.rule(rule);
            let (attribute, pattern) = &conditions[0];
            let limit = Limit::per_hour(PATTERN + number as u64);
            overridden = overridden.override_matching(ATTRIBUTES[*attribute], pattern.clone(), limit);
        }
        policy = policy.rule(overridden);
        for values in values {
            let bytes = values.clone().map(|value| {
                value.map(|(text, is_spoilt)| {
                    let spoilt: &[u8] = if is_spoilt { b"\xff" } else { b"" };
                    [text.as_bytes(), spoilt].concat()
                })
            });
            let request = || {
                let given =
                    ATTRIBUTES.into_iter().zip(&bytes).filter_map(|(name, value)| Some((name, value.as_deref()?)));
                given.fold(Request::new(()), |request, (name, value)| request.with(name, value))
            };
            let fits = |(attribute, pattern): &(usize, String)| {
                values[*attribute].as_ref().is_some_and(|(text, is_spoilt)| !is_spoilt && matches(pattern, text))
            };
            let limiter = limiter(policy.clone());
            let decision = limiter.check(request()).expect("an answer");
            let mut first = None;
            for (number, conditions) in rules.iter().enumerate() {
                let name = format!("r{number}");
                let applies = conditions.iter().all(fits);
                first = first.or_else(|| applies.then(|| name.clone()));
                let left = limiter.peek(request().rule(&name).cost(0)).expect("an answer").remaining();
                assert_eq!(left, Some(DEFAULT - u64::from(applies)), "seed {seed}: {name} {conditions:?} {values:?}");
            }
            assert_eq!(first.is_none(), decision.is_unlimited(), "seed {seed}");
            assert!(first.is_none_or(|first| decision.rule() == first.as_str()), "seed {seed}: the first in order");
            let asked = limiter.peek(request().with("c", "x").rule("overridden")).expect("an answer");
            let of = rules.iter().position(|conditions| fits(&conditions[0]));
            assert_eq!(asked.capacity(), Some(of.map_or(DEFAULT, |number| PATTERN + number as u64)), "seed {seed}");
        }
    }
}

#[test]
fn long_values_with_many_pieces_find_each_rule_once() {
    let count = if cfg!(miri) { 10 } else { 300 };
    let rule = |number: usize| {
        let pattern = format!("*{}*", "a".repeat(number + 1));
        Rule::new(format!("r{number}"), Limit::per_hour(DEFAULT)).when("path", Condition::Matches(pattern))
    };
    let limiter = limiter((0..count).map(rule).fold(Policy::new(), Policy::rule));
    let path = "a".repeat(count / 2) + &"ba".repeat(10_000);
    let request = || Request::new("alice").with("path", &path);
    assert!(limiter.check(request()).is_ok_and(|decision| decision.rule() == "r0"));
    for number in 0..count {
        let left = limiter.peek(request().rule(&format!("r{number}")).cost(0)).expect("an answer").remaining();
        assert_eq!(left, Some(DEFAULT - u64::from(number < count / 2)), "{number}");
    }
}

fn limiter(policy: Policy) -> Limiter {
    let store = MemoryStore::builder().max_keys(64).clock(ManualClock::default()).build().expect("valid settings");
    Limiter::with_store(policy, store).expect("a valid policy")
}

#[test]
fn any_number_of_attributes_is_known() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let rule = |name: &'static str| Rule::new(name, Limit::per_hour(1)).when(name, Condition::Present).key([name]);
    for most in 7..=names.len() {
        let policy = names[..most].iter().fold(Policy::new(), |policy, name| policy.rule(rule(name)));
        let limiter = limiter(policy);
        for name in &names[..most] {
            let decision = limiter.check(Request::new("").with(name, "x")).expect("an answer");
            assert_eq!(decision.rule(), *name, "{most} attributes");
        }
    }
}

#[test]
fn prefixes_of_one_length_and_long_patterns_apply_once() {
    let rule = |name: &'static str, condition| Rule::new(name, Limit::per_hour(1)).when("path", condition);
    let limiter = limiter(
        Policy::new()
            .rule(rule("a", Condition::StartsWith("/a".into())))
            .rule(rule("b", Condition::StartsWith("/b".into())))
            .rule(rule("api", Condition::Matches("/api/*/orders".into())).key(["path"])),
    );
    let to = |path: &'static str| limiter.check(Request::new("alice").with("path", path)).expect("an answer");
    assert_eq!((to("/a").rule().as_str(), to("/b").rule().as_str()), ("a", "b"));
    assert!(to("/c").is_unlimited() && to("/api/v1/orders").rule() == "a");
}
