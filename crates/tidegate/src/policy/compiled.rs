//! A policy made ready: which rules apply to a request, found without trying
//! all of them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::compiled_rule::{CompiledRule, Effect, Lack};
use super::condition::Condition;
use super::history::FormerRule;
use super::index::Index;
use super::rule::{Missing, Mode, RuleCost};
use super::values::{Attribute, AttributeNames, Values};
use crate::kernel::Verb;
use crate::name::Name;
use crate::request::{Extent, Key, Part, Request};
use crate::store::{Check, CheckError, Former, Meter};
use crate::time::Micros;

/// Copies share everything.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(super) attributes: Arc<AttributeNames>,
    pub(super) rules: Arc<[CompiledRule]>,
    pub(super) meters: Arc<[Meter]>,
    /// What each rule limited before; empty once nothing of it matters.
    pub(super) former: Arc<[Option<Box<FormerRule>>]>,
    pub(super) index: Arc<Index>,
    /// The first of the rules for requests that no other rule applies to.
    pub(super) fallback: usize,
    pub(super) by_name: Arc<HashMap<Name, usize, RandomState>>,
    pub(super) denied: Arc<[(Attribute, Condition)]>,
    pub(super) allowed: Arc<[(Attribute, Condition)]>,
}

/// What a policy makes of a request.
#[derive(Default)]
pub(crate) struct Resolution<'p, 'r> {
    /// The limits to be passed, all or none.
    pub(crate) enforced: SmallVec<[Applied<'p, 'r>; 4]>,
    /// The limits that only watch.
    pub(crate) shadows: Vec<Applied<'p, 'r>>,
    /// The rule that lets nothing pass, if there is one.
    pub(crate) blocked_by: Option<Name>,
    /// What it blocks, unless a list does.
    blocked: Option<Key<'r>>,
    /// Why there is no answer.
    pub(crate) problem: Option<Box<CheckError>>,
    /// Rules that lack an attribute of their key, and the attribute.
    pub(crate) lacking: Vec<(Name, String)>,
}

impl<'r> Resolution<'_, 'r> {
    /// Whether the limits are all that there is to say.
    pub(crate) fn is_only_limits(&self) -> bool {
        let Resolution { enforced: _, shadows, blocked_by, blocked: _, problem, lacking } = self;
        shadows.is_empty() && blocked_by.is_none() && problem.is_none() && lacking.is_empty()
    }

    /// Whose limit a rule's is, if it is to be passed or lets nothing pass.
    pub(crate) fn key_of(&self, rule: &Name) -> Option<&Key<'r>> {
        if self.blocked_by.as_ref() == Some(rule) {
            return self.blocked.as_ref();
        }
        self.applied(rule).map(|applied| &applied.key)
    }

    fn applied(&self, rule: &Name) -> Option<&Applied<'_, 'r>> {
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
    /// Whether the request says what of this limit it takes, or took.
    pub(crate) names_amount: bool,
    /// Whether an estimate above the limit's largest is taken for that.
    clamps: bool,
}

impl Applied<'_, '_> {
    /// The check of a request that is alone.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if the limit could never admit the cost.
    #[inline(always)]
    pub(crate) fn check(&self, verb: Verb) -> Result<Check<'_>, CheckError> {
        let cost = self.cost_by(self.meter, verb);
        Ok(Check::new(self.meter, &self.key, verb, cost)?.with_former(&self.former))
    }

    /// What it asks for by a meter of the same states: of an estimate that is clamped, no more than
    /// that admits.
    #[inline(always)]
    pub(crate) fn cost_by(&self, meter: &Meter, verb: Verb) -> u64 {
        let clamps = self.clamps && matches!(verb, Verb::Charge | Verb::Peek);
        if clamps { self.cost.min(meter.largest_cost()) } else { self.cost }
    }

    /// The check of a request that is alone. One that settles corrects the limits of which it
    /// says what was taken, and gives permits back; one that renews renews those.
    pub(crate) fn check_alone(&self, verb: Verb) -> Check<'_> {
        match verb {
            Verb::Settle(_) | Verb::Renew(_) if self.meter.is_in_flight() => self.check_of(verb, 0),
            Verb::Settle(_) if self.names_amount => self.check_of(verb, self.cost),
            Verb::Settle(_) | Verb::Renew(_) => self.check_of(Verb::Peek, 0),
            Verb::Charge | Verb::Peek | Verb::Report | Verb::Refund | Verb::Reset => self.check_of(verb, self.cost),
        }
    }

    /// A check of this cost, or of as much as the limit could ever admit.
    fn check_of(&self, verb: Verb, cost: u64) -> Check<'_> {
        self.check_by(self.meter, verb, cost)
    }

    /// The same by a meter of the same states.
    pub(crate) fn check_by<'c>(&'c self, meter: &'c Meter, verb: Verb, cost: u64) -> Check<'c> {
        Check::capped(meter, &self.key, verb, cost).with_former(&self.former)
    }
}

/// Limits that apply to every request, each by a key that is there as it is.
pub(crate) struct Direct {
    limits: Box<[DirectLimit]>,
    has_attributes: bool,
    has_former: bool,
}

struct DirectLimit {
    meter: Meter,
    /// The attribute that is the key, or none for the key of the request.
    attribute: Option<Box<str>>,
    former: Box<[(Meter, Micros)]>,
}

impl Direct {
    /// The one limit, if that is all there is, and the attribute that is its key if it
    /// is not the key of the request.
    pub(crate) fn only(&self) -> Option<(&Meter, Option<&str>)> {
        match &*self.limits {
            [DirectLimit { meter, attribute, former }] if former.is_empty() => Some((meter, attribute.as_deref())),
            _ => None,
        }
    }

    /// The limits, if all there are, at most so many, go by the key of the request.
    pub(crate) fn by_key(&self, most: usize) -> Option<Box<[Meter]>> {
        let is_all = self.limits.len() <= most && !self.has_attributes && !self.has_former;
        is_all.then(|| self.limits.iter().map(|limit| limit.meter.clone()).collect())
    }

    /// Finds the keys of a request that are attributes; not if one is missing, or an
    /// address, which is taken by its network. And the former limits.
    #[inline]
    pub(crate) fn find<'p, 'r>(
        &'p self,
        request: &'r Request<'_>,
        keys: &mut SmallVec<[Key<'r>; 4]>,
        former: &mut SmallVec<[Former<'p>; 4]>,
    ) -> Option<()> {
        if request.rule.is_some() || (request.without.key && self.limits.iter().any(|limit| limit.attribute.is_none()))
        {
            return None;
        }
        if self.has_former {
            let limits = self.limits.iter().flat_map(|limit| &limit.former);
            former.extend(limits.map(|(meter, until)| Former { meter, until: *until }));
        }
        if self.has_attributes {
            for attribute in self.limits.iter().filter_map(|limit| limit.attribute.as_deref()) {
                keys.push(request.key_by(attribute)?);
            }
        }
        Some(())
    }

    /// The checks of a request with these keys and former limits.
    ///
    /// # Errors
    /// [`CheckError::Unsatisfiable`] if a limit could never admit the cost.
    #[inline]
    pub(crate) fn checks<'c>(
        &'c self,
        verb: Verb,
        request: &'c Request<'_>,
        keys: &'c [Key<'c>],
        mut former: &'c [Former<'c>],
        mut add: impl FnMut(Check<'c>),
    ) -> Result<(), CheckError> {
        let mut keys = keys.iter();
        for limit in &self.limits {
            let own = if limit.attribute.is_some() { keys.next() } else { None };
            let check = Check::new(&limit.meter, own.unwrap_or(&request.key), verb, request.cost)?;
            let (mine, rest) = former.split_at_checked(limit.former.len()).unwrap_or((&[], former));
            former = rest;
            add(check.with_former(mine));
        }
        Ok(())
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

    /// The limits that apply to every request, if there are no others, and nothing but
    /// the key of each is to be looked at.
    pub(crate) fn direct(&self) -> Option<Direct> {
        let no_lists = self.denied.is_empty() && self.allowed.is_empty();
        let is_all = no_lists && self.fallback == self.rules.len();
        let direct = |(number, rule): (usize, &CompiledRule)| {
            let is_plain = rule.conditions.is_empty() && rule.cost == RuleCost::Times(1) && !rule.clamps;
            let simple = rule.simple.filter(|simple| is_plain && !self.meters[simple.meter].is_in_flight())?;
            let attribute = match simple.key {
                None => None,
                Some(attribute) if self.attributes.is_address(attribute) => return None,
                Some(attribute) => Some(self.attributes.name(attribute).into()),
            };
            let meter = &self.meters[simple.meter];
            let former = match self.former.get(number).and_then(Option::as_deref) {
                None => Box::default(),
                Some(former) => former.of_every_request(meter)?,
            };
            Some(DirectLimit { meter: meter.clone(), attribute, former })
        };
        let limits = is_all.then(|| self.rules.iter().enumerate().map(direct).collect::<Option<Box<[_]>>>());
        let limits = limits.flatten()?;
        let has_attributes = limits.iter().any(|limit| limit.attribute.is_some());
        let has_former = limits.iter().any(|limit| !limit.former.is_empty());
        Some(Direct { limits, has_attributes, has_former })
    }

    /// Whether a rule keeps something back from some classes of requests.
    pub(crate) fn has_classes(&self) -> bool {
        self.rules.iter().any(|rule| rule.classes.is_some())
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
    pub(super) fn values<'r>(&self, request: &'r Request<'_>) -> Result<Values<'r>, CheckError> {
        let mut values = Values::new(self.attributes.len());
        self.read_values(request, &mut values)?;
        Ok(values)
    }

    #[inline]
    fn read_values<'r>(&self, request: &'r Request<'_>, values: &mut Values<'r>) -> Result<(), CheckError> {
        if let Some(rule) = request.rule.filter(|rule| !self.has_rule(rule)) {
            return Err(CheckError::UnknownRule { rule: rule.into() });
        }
        for (name, value) in request.attributes.iter() {
            if let Some(attribute) = self.attributes.number(name) {
                // What is used as it is is copied as a whole: the processor waits for a value that it
                // reads in other pieces than it wrote.
                values.set(attribute, value);
                if self.attributes.is_address(attribute) || matches!(value, Part::Address(_)) {
                    values.set(attribute, self.attributes.address(attribute, value)?);
                }
            }
        }
        Ok(())
    }

    /// What applies to a request.
    pub(crate) fn resolve<'p, 'r>(&'p self, request: &'r Request<'_>) -> Resolution<'p, 'r> {
        let mut resolution = Resolution::default();
        self.resolve_into(request, &mut resolution);
        resolution
    }

    /// [`resolve`](Compiled::resolve) where the answer is to be: it is large.
    pub(crate) fn resolve_into<'p, 'r>(&'p self, request: &'r Request<'_>, resolution: &mut Resolution<'p, 'r>) {
        let mut values = Values::new(self.attributes.len());
        if let Err(problem) = self.read_values(request, &mut values) {
            resolution.problem = Some(Box::new(problem));
            return;
        }
        if self.denied.iter().any(|(attribute, condition)| condition.holds(values.get(*attribute))) {
            resolution.blocked_by = Some(DENIED);
            return;
        }
        if self.allowed.iter().any(|(attribute, condition)| condition.holds(values.get(*attribute))) {
            return;
        }
        if let Some(name) = request.rule {
            let first = self.number_of(name).unwrap_or(self.rules.len());
            for number in (first..self.rules.len()).take_while(|number| self.rules[*number].is_asked_as(name)) {
                self.apply(number, request, &values, resolution);
            }
            return;
        }
        // Whether the fallback applies is asked only if there is one.
        let mut any = self.fallback == self.rules.len();
        self.index.candidates(&values, |number| {
            let rule = &self.rules[number];
            if rule.matches_if_found(&values) {
                any = any || (rule.mode == Mode::Enforced && !rule.is_skipped(request, &values));
                self.apply(number, request, &values, resolution);
            }
        });
        let fallback = if any { self.rules.len() } else { self.fallback };
        for number in (fallback..self.rules.len()).filter(|number| self.rules[*number].matches(&values)) {
            self.apply(number, request, &values, resolution);
        }
    }

    /// A limit of a rule, as it applies to a request.
    #[inline(always)]
    fn applied<'p, 'r>(
        &'p self,
        number: usize,
        meter: usize,
        request: &Request<'_>,
        key: Key<'r>,
        values: &Values<'r>,
    ) -> Applied<'p, 'r> {
        let rule = &self.rules[number];
        let limited = match &rule.classes {
            None => &self.meters[meter],
            Some(classes) => &self.meters[classes.meter_of(meter, values)],
        };
        let (cost, names_amount) = match &rule.cost {
            _ if request.extent == Extent::Nothing => (0, true),
            // One permit for each request, which it has already if this is in addition.
            RuleCost::Times(times) if limited.is_in_flight() => {
                (if request.is_in_addition() { 0 } else { request.cost.min(1) * times }, false)
            }
            RuleCost::Times(times) => (request.cost.saturating_mul(*times), request.extent != Extent::Named),
            RuleCost::Always(_) if request.is_in_addition() => (0, false),
            RuleCost::Always(cost) => (*cost, false),
            RuleCost::Of { unit, times, otherwise } => {
                let told = request.amounts.get(unit);
                let otherwise = if request.is_in_addition() { 0 } else { *otherwise };
                (told.unwrap_or(otherwise).saturating_mul(*times), told.is_some())
            }
        };
        let clamps = rule.clamps;
        let former = match self.former.get(number) {
            Some(Some(former)) => former.limits(rule, &self.meters, meter, values),
            Some(None) | None => Vec::new(),
        };
        Applied { meter: limited, former, key, cost, names_amount, clamps }
    }

    pub(super) fn apply<'p, 'r>(
        &'p self,
        number: usize,
        request: &'r Request<'_>,
        values: &Values<'r>,
        resolution: &mut Resolution<'p, 'r>,
    ) {
        let rule = &self.rules[number];
        let simple = rule.simple.and_then(|simple| simple.key_of(request, values).map(|key| (simple.meter, key)));
        if let Some((meter, key)) = simple {
            resolution.enforced.push(self.applied(number, meter, request, key, values));
            return;
        }
        let lacks = rule.lacks(request, values);
        if let Some(Lack { attribute, missing }) = &lacks {
            if !request.without.skips {
                resolution.lacking.push((rule.name.clone(), attribute.clone()));
            }
            if *missing == Missing::Skip {
                return;
            }
        }
        let meter = match rule.effect(values) {
            Effect::Unlimited => return,
            Effect::Blocked => {
                if rule.mode == Mode::Enforced && resolution.blocked_by.is_none() {
                    resolution.blocked_by = Some(rule.name.clone());
                    resolution.blocked = Some(rule.key_of(request, values));
                }
                return;
            }
            Effect::Meter(meter) => meter,
        };
        if let Some(Lack { attribute, missing: Missing::Error }) = lacks {
            let (rule, attribute) = (rule.name.clone(), attribute.into());
            resolution.problem.get_or_insert_with(|| CheckError::MissingAttribute { rule, attribute }.into());
            return;
        }
        let applied = self.applied(number, meter, request, rule.key_of(request, values), values);
        match rule.mode {
            Mode::Enforced => resolution.enforced.push(applied),
            Mode::Shadow => resolution.shadows.push(applied),
        }
    }
}

/// The rule that a denied request is told of.
pub(super) const DENIED: Name = Name::literal("denied");

#[cfg(test)]
mod tests {
    use tidegate_testkit::Random;

    use super::*;
    use crate::policy::History;
    use crate::{Floor, Limit, Policy, PriorityClasses, Rule};

    fn compiled(policy: &Policy) -> Compiled {
        Compiled::new(policy, &History::new(policy)).expect("a valid policy")
    }

    /// One limit by the key of the request, two by attributes.
    fn direct_policy(count: u64) -> Policy {
        let by = |name: &'static str| Rule::new(name, Limit::per_hour(count)).key([name]);
        Policy::new().limit("all", Limit::per_hour(count)).rule(by("user")).rule(by("tenant"))
    }

    /// The rule, the key and the former limits of each check, if the limits are found directly.
    fn checks_of(direct: &Direct, request: &Request<'_>) -> Option<Vec<(String, String, Vec<String>)>> {
        let (mut keys, mut former, mut checks) = (SmallVec::new(), SmallVec::new(), Vec::new());
        direct.find(request, &mut keys, &mut former)?;
        let add = |check: Check<'_>| {
            let former = check.former().iter().map(|former| former.meter.meaning().to_owned());
            checks.push((check.meter().name().to_string(), check.key().to_string(), former.collect()));
        };
        direct.checks(Verb::Charge, request, &keys, &former, add).expect("a small cost");
        Some(checks)
    }

    #[test]
    fn limits_on_every_request_are_found_directly_each_with_its_own_key() {
        let policy = direct_policy(5);
        let direct = compiled(&policy).direct().expect("no rule has a condition");
        let request = || Request::new("key").with("user", "alice").with("tenant", "acme");
        let expected = [("all", "key"), ("user", "alice"), ("tenant", "acme")];
        let expected = expected.map(|(rule, key)| (rule.to_owned(), key.to_owned(), Vec::new()));
        assert_eq!(checks_of(&direct, &request()).as_deref(), Some(&expected[..]));
        let without_key = Request::without_key().with("user", "alice").with("tenant", "acme");
        for other in [request().rule("user"), without_key, Request::new("key").with("user", "alice")] {
            assert_eq!(checks_of(&direct, &other), None, "{other:?}");
        }
        // After a change each limit has its own former ones.
        let (changed, now) = (direct_policy(9), Micros::new(1));
        let history = History::new(&policy).changed(&policy, &changed, now).expect("few changes");
        let direct = Compiled::new(&changed, &history).expect("a valid policy").direct().expect("still all of them");
        let expected = expected.map(|(rule, key, _)| {
            let by = if rule == "all" { String::new() } else { format!(" by {rule}") };
            (rule, key, vec![format!("5/h{by}")])
        });
        assert_eq!(checks_of(&direct, &request()).as_deref(), Some(&expected[..]));
    }

    #[test]
    fn a_request_that_only_limits_apply_to_has_nothing_else_to_be_told() {
        let policy = direct_policy(5).rule(Rule::new("watch", Limit::per_hour(1)).shadow().key(["watched"]));
        let compiled = compiled(&policy);
        let request = || Request::new("key").with("user", "alice").with("tenant", "acme").partial();
        assert!(compiled.resolve(&request()).is_only_limits());
        assert!(!compiled.resolve(&request().with("watched", "yes")).is_only_limits());
    }

    #[test]
    fn only_what_a_request_says_that_it_took_is_settled() {
        let classes = PriorityClasses::by("class").class("low", Floor::Percent(10));
        let rule = Rule::new("fixed", Limit::per_hour(9)).fixed_cost(2);
        let compiled = [rule.clone(), rule.priority(classes)].map(|rule| compiled(&Policy::new().rule(rule)));
        assert_eq!(compiled.each_ref().map(Compiled::has_classes), [false, true]);
        for (request, cost) in [(Request::new("key"), 2), (Request::new("key").in_addition(), 0)] {
            let resolution = compiled[0].resolve(&request);
            let [applied] = &resolution.enforced[..] else { panic!("one rule") };
            assert_eq!((applied.cost, applied.check_alone(Verb::SETTLE).verb()), (cost, Verb::Peek));
        }
    }

    #[test]
    fn a_rule_that_limits_all_of_its_requests_alike_finds_its_key_at_once() {
        let compiled = compiled(&direct_policy(5));
        let keys_of = |request: &Request<'_>| {
            let values = compiled.values(request).expect("attributes of any kind");
            let key = |rule: &CompiledRule| Some(rule.simple?.key_of(request, &values)?.to_string());
            compiled.rules().iter().map(key).collect::<Vec<Option<String>>>()
        };
        let known = |key: &str| Some(key.to_owned());
        let request = Request::new("key").with("user", "alice").with("tenant", "acme");
        assert_eq!(keys_of(&request), [known("key"), known("alice"), known("acme")]);
        let address = Request::without_key().with("user", std::net::IpAddr::from([192, 0, 2, 1]));
        assert_eq!(keys_of(&address), [None, None, None]);
    }

    const ATTRIBUTES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    const VALUES: [&str; 6] = ["", "a", "b", "ab", "aba", "10.0.0.1"];

    fn condition(random: &mut Random) -> Condition {
        match random.within(1..=9) {
            1..=4 => Condition::Equals(random.choose(&VALUES).into()),
            5 => Condition::StartsWith(random.choose(&VALUES).into()),
            6 => Condition::Matches(random.choose(&["*", "a*", "*b", "?b*", "ab?", "a"]).into()),
            7 => {
                let network = random.choose(&["10.0.0.0/8", "0.0.0.0/0", "10.0.0.2"]);
                Condition::Within(network.parse().expect("a network"))
            }
            8 => Condition::Present,
            _ => Condition::Absent,
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many cases, and no unsafe code in sight")]
    fn the_index_finds_what_trying_every_rule_finds() {
        for seed in 0..256 {
            let random = &mut Random::new(seed);
            let mut policy = Policy::new();
            for number in 0..random.within(1..=59) {
                let mut rule = Rule::new(Name::from(&format!("rule{number}")), Limit::per_second(1));
                for _ in 0..random.within(0..=3) {
                    rule = rule.when(random.choose(&ATTRIBUTES), condition(random));
                }
                policy = policy.rule(rule);
            }
            let compiled = compiled(&policy);
            let mut request = Request::new("");
            for name in ATTRIBUTES {
                if random.percent(50) {
                    request = request.with(name, random.choose(&VALUES));
                }
            }
            let enforced = compiled.resolve(&request).enforced;
            let found: Vec<Name> = enforced.iter().map(|applied| applied.meter.name().clone()).collect();
            let pending = compiled.pending_explanations(&request).expect("attributes of any kind");
            let tried: Vec<Name> =
                pending.into_iter().filter(|rule| rule.finding.is_ok()).map(|rule| rule.rule).collect();
            assert_eq!(found, tried, "seed {seed}");
        }
    }
}
