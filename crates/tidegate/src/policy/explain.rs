//! Why a request is decided as it is: every rule, and what it says.

use std::fmt;
use std::time::Duration;

use super::compiled::{Applied, Compiled, DENIED, Resolution};
use super::compiled_rule::{CompiledRule, Effect, Kind, Lack, Special};
use super::rule::{Missing, Mode};
use super::values::Values;
use crate::decision::Decision;
use crate::name::Name;
use crate::request::{Part, Request};
use crate::store::CheckError;
use crate::time::Micros;

/// What every rule of a policy says of a request, without charging anything.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let explanation = Limiter::new(Limit::per_hour(10)).explain("alice")?;
/// assert!(explanation.decision.is_allowed());
/// assert_eq!(explanation.rules[0].rule.as_str(), "10/h");
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct Explanation {
    /// What the request would be answered now. One that a check answers by an
    /// error, for its cost or for want of an attribute, is refused for good.
    pub decision: Decision,
    /// The rules, in the policy's order.
    pub rules: Vec<RuleExplanation>,
}

/// What one rule says of a request.
///
/// ```
/// use tidegate::{Limit, Limiter, Rule};
///
/// let explanation = Limiter::new(Rule::new("api", Limit::per_hour(10)).shadow()).explain("alice")?;
/// assert!(explanation.rules[0].shadow && !explanation.rules[0].binds);
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleExplanation {
    /// The rule.
    pub rule: Name,
    /// Whether it applies, and what follows.
    pub finding: RuleFinding,
    /// Which tier or override chose the limit, in words such as
    /// `by plan = "pro"; tiers count apart`. None if it is the rule's own.
    pub chosen_by: Option<String>,
    /// The class of the request and its floor, in words such as `low (50%)`. None if the rule
    /// has no [classes](crate::PriorityClasses).
    pub class: Option<String>,
    /// Whether only the floor of its class refuses the request: the whole limit would admit it.
    pub below_floor: bool,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether it is the rule that the decision speaks of.
    pub binds: bool,
}

/// What a rule says of a request.
///
/// ```
/// use tidegate::explain::RuleFinding;
/// use tidegate::{Limit, Limiter};
///
/// let explanation = Limiter::new(Limit::per_hour(10)).explain("alice")?;
/// assert!(matches!(explanation.rules[0].finding, RuleFinding::Answers { cost: 1, .. }));
/// # Ok::<(), tidegate::CheckError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RuleFinding {
    /// A condition does not hold.
    DoesNotMatch {
        /// The attribute.
        attribute: String,
        /// What is asked of it.
        condition: String,
        /// What it is, if it is there.
        found: Option<String>,
    },
    /// An attribute of its key is missing, and the rule does not apply then.
    NoKey {
        /// The attribute.
        attribute: String,
    },
    /// An attribute of its key is missing, which is an error.
    MissingAttribute {
        /// The attribute.
        attribute: String,
    },
    /// Others came before: a list, a rule asked for by name, or rules that match.
    NotAsked,
    /// It sets no limit for this request.
    Unlimited,
    /// It lets nothing pass.
    Blocked,
    /// The cost is above what its limit can ever let pass.
    Unsatisfiable {
        /// What the rule would charge.
        cost: u64,
        /// The limit, in words.
        limit: String,
    },
    /// Its limit was asked.
    Answers {
        /// Whose limit.
        key: String,
        /// What the rule charges.
        cost: u64,
        /// The limit, in words.
        limit: String,
        /// The answer of this rule alone.
        answer: Box<Decision>,
        /// How long it takes to pay what was [reported](crate::Limiter::report) beyond
        /// the limit, if anything was: until then nothing passes.
        debt: Option<Duration>,
        /// When its period is over, of a limit [by the calendar](crate::Limit::resets_on).
        resets_on: Option<String>,
    },
}

/// The explanation of a rule whose limit is still to be asked.
pub(crate) struct PendingExplanation<'p, 'r> {
    pub(crate) rule: Name,
    pub(crate) shadow: bool,
    pub(crate) finding: Result<Applied<'p, 'r>, RuleFinding>,
    pub(crate) chosen_by: Option<String>,
    pub(crate) class: Option<String>,
}

impl Compiled {
    /// Goes through all rules, one after the other: the obvious way, which the
    /// index has to agree with.
    pub(crate) fn pending_explanations<'p, 'r>(
        &'p self,
        request: &'r Request<'_>,
    ) -> Result<Vec<PendingExplanation<'p, 'r>>, CheckError> {
        let values = self.values(request)?;
        let listed = self.is_listed(&values);
        let mut any = false;
        let mut pending = Vec::with_capacity(self.rules().len());
        for (number, rule) in self.rules().iter().enumerate() {
            let asked = match (request.rule, self.is_fallback(number)) {
                _ if listed => false,
                (Some(name), _) => rule.is_asked_as(name),
                (None, true) => !any,
                (None, false) => true,
            };
            let fails = rule.conditions.iter().find(|(attribute, condition)| !condition.holds(values.get(*attribute)));
            let finding = match fails.filter(|_| request.rule.is_none()) {
                _ if !asked => Err(RuleFinding::NotAsked),
                Some((attribute, condition)) => Err(RuleFinding::DoesNotMatch {
                    attribute: self.name_of(*attribute).to_owned(),
                    condition: condition.to_string(),
                    found: values.get(*attribute).map(text),
                }),
                None => {
                    let applies = rule.mode == Mode::Enforced && !rule.is_skipped(request, &values);
                    any |= applies && !self.is_fallback(number);
                    self.finding(number, request, &values)
                }
            };
            let is_chosen = matches!(finding, Ok(_) | Err(RuleFinding::Unlimited | RuleFinding::Blocked));
            let chosen_by = if is_chosen { self.chosen_by(rule, &values) } else { None };
            let class = finding.as_ref().ok().and_then(|_| rule.class_of(&values));
            pending.push(PendingExplanation {
                rule: rule.name.clone(),
                shadow: rule.mode == Mode::Shadow,
                finding,
                chosen_by,
                class,
            });
        }
        Ok(pending)
    }

    fn finding<'p, 'r>(
        &'p self,
        number: usize,
        request: &'r Request<'_>,
        values: &Values<'r>,
    ) -> Result<Applied<'p, 'r>, RuleFinding> {
        let rule = &self.rules[number];
        let lack = rule.lacks(request, values);
        match (rule.effect(values), lack) {
            (_, Some(Lack { attribute, missing: Missing::Skip })) => Err(RuleFinding::NoKey { attribute }),
            (Effect::Unlimited, _) => Err(RuleFinding::Unlimited),
            (Effect::Blocked, _) => Err(RuleFinding::Blocked),
            (Effect::Meter(_), Some(Lack { attribute, missing: Missing::Error })) => {
                Err(RuleFinding::MissingAttribute { attribute })
            }
            (Effect::Meter(_), _) => {
                let mut resolution = Resolution::default();
                self.apply(number, request, values, &mut resolution);
                let applied = resolution.enforced.pop().or(resolution.shadows.pop());
                applied.ok_or(RuleFinding::NotAsked)
            }
        }
    }

    /// Which tier or override chose what applies.
    fn chosen_by(&self, rule: &CompiledRule, values: &Values<'_>) -> Option<String> {
        let Special { attribute, effect, kind } = rule.special(values)?;
        let mut words = format!("by {} = \"{}\"", self.name_of(attribute), values.get(attribute).map(text)?);
        // Another limit is another state: what was used of the rule's own does not count.
        if matches!(effect, Effect::Meter(_)) && effect != rule.standard {
            words += match kind {
                Kind::Override => "; overrides count apart",
                Kind::Tier => "; tiers count apart",
            };
        }
        Some(words)
    }
}

fn text(value: Part<'_>) -> String {
    value.with_bytes(|bytes| bytes.escape_ascii().to_string())
}

impl Applied<'_, '_> {
    pub(crate) fn answers(&self, answer: Decision, debt: Option<Duration>, at: Micros) -> RuleFinding {
        let (key, limit) = (self.key.to_string(), self.meter.meaning().to_owned());
        let resets_on = self.meter.limit().and_then(|limit| limit.resets_on(at));
        RuleFinding::Answers { key, cost: self.cost, limit, answer: Box::new(answer), debt, resets_on }
    }

    pub(crate) fn unsatisfiable(&self) -> RuleFinding {
        RuleFinding::Unsatisfiable { cost: self.cost, limit: self.meter.meaning().to_owned() }
    }
}

impl Explanation {
    /// What the rules say together.
    pub(crate) fn new(blocked_by: Option<Name>, rules: Vec<RuleExplanation>) -> Explanation {
        let answers = rules.iter().filter(|rule| !rule.shadow).filter_map(|rule| match &rule.finding {
            RuleFinding::Answers { answer, .. } => Some((**answer).clone()),
            _ => None,
        });
        // No wait helps a request that is an error.
        let never = |rule: &&RuleExplanation| !rule.shadow && rule.finding.is_error();
        let decision = match blocked_by.or_else(|| Some(rules.iter().find(never)?.rule.clone())) {
            Some(rule) => Decision::blocked(rule),
            None => answers.reduce(Decision::and).unwrap_or_else(Decision::unlimited),
        };
        let mut explanation = Explanation { decision, rules };
        for rule in &mut explanation.rules {
            let speaks =
                matches!(rule.finding, RuleFinding::Answers { .. } | RuleFinding::Blocked) || rule.finding.is_error();
            rule.binds = speaks && !rule.shadow && rule.rule == *explanation.decision.rule();
        }
        explanation
    }
}

impl RuleExplanation {
    /// The floor below which it was refused, in words.
    fn refused_below(&self) -> Option<String> {
        self.class.as_ref().filter(|_| self.below_floor).map(|class| format!("below the floor of {class}"))
    }
}

impl RuleFinding {
    /// Whether a check says this by an error.
    fn is_error(&self) -> bool {
        matches!(self, RuleFinding::Unsatisfiable { .. } | RuleFinding::MissingAttribute { .. })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = &self.decision;
        let error = self.rules.iter().find(|rule| rule.binds && rule.finding.is_error());
        match (decision.is_allowed(), decision.is_blocked()) {
            (true, _) => match decision.remaining() {
                None => writeln!(f, "allowed: no rule limits it")?,
                Some(remaining) => writeln!(f, "allowed: {remaining} left by {:?}", decision.rule())?,
            },
            (false, true) if *decision.rule() == DENIED => writeln!(f, "refused: it is denied, before every rule")?,
            (false, true) => match error {
                Some(RuleExplanation { rule, finding, .. }) => writeln!(f, "error by {rule:?}: {finding}")?,
                None => writeln!(f, "refused for good by {:?}", decision.rule())?,
            },
            (false, false) => {
                let below = self.rules.iter().find(|rule| rule.binds).and_then(RuleExplanation::refused_below);
                let (by, wait) = (decision.rule(), decision.wait().to_duration());
                match below {
                    Some(floor) => writeln!(f, "refused: {floor} by {by:?}, retry after {wait:?}")?,
                    None => writeln!(f, "refused by {by:?}: retry after {wait:?}")?,
                }
            }
        }
        for explained in &self.rules {
            let RuleExplanation { rule, finding, chosen_by, class, shadow, binds, .. } = explained;
            let shadow = if *shadow { " (shadow)" } else { "" };
            write!(f, "  {rule}{shadow}: ")?;
            match (explained.refused_below(), class) {
                (Some(floor), _) => write!(f, "refused: {floor}; {finding}")?,
                (None, Some(class)) => write!(f, "{finding} (class {class})")?,
                (None, None) => write!(f, "{finding}")?,
            }
            if let Some(words) = chosen_by {
                write!(f, " ({words})")?;
            }
            writeln!(f, "{}", if *binds { "  <- binds" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for RuleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleFinding::DoesNotMatch { attribute, condition, found: Some(found) } => {
                write!(f, "does not apply: {attribute} is \"{found}\", and the rule asks that it {condition}")
            }
            RuleFinding::DoesNotMatch { attribute, condition, found: None } => {
                write!(f, "does not apply: there is no {attribute}, and the rule asks that it {condition}")
            }
            RuleFinding::NoKey { attribute } => write!(f, "skipped: key attribute {attribute:?} is missing"),
            RuleFinding::MissingAttribute { attribute } => {
                write!(f, "key attribute {attribute:?} is missing from the request")
            }
            RuleFinding::NotAsked => f.write_str("was not asked"),
            RuleFinding::Unlimited => f.write_str("sets no limit here"),
            RuleFinding::Blocked => f.write_str("lets nothing pass"),
            RuleFinding::Unsatisfiable { cost, limit } => write!(f, "{limit} can never let a cost of {cost} pass"),
            RuleFinding::Answers { key, cost, limit, answer, debt, resets_on } => {
                let wait = answer.wait().to_duration();
                match answer.is_allowed() {
                    true => {
                        write!(f, "{limit} for {key:?} allows a cost of {cost}, {} left", answer.verdict().remaining)
                    }
                    false => write!(f, "{limit} for {key:?} refuses a cost of {cost}, retry after {wait:?}"),
                }?;
                if let Some(debt) = debt.filter(|_| !answer.is_allowed()) {
                    write!(f, "; in debt, which is paid in {debt:?}")?;
                }
                resets_on.as_ref().map_or(Ok(()), |instant| write!(f, "; resets on {instant}"))
            }
        }
    }
}
