//! Decisions as JSON: exact to the microsecond, null where there is no number.

use std::borrow::Cow;

use http::StatusCode;
use serde::{Serialize, Serializer};
use tidegate::explain::{RuleExplanation, RuleFinding};
use tidegate::{Decision, Explanation, Name};

use super::problem::{Document, Problem};
use super::reply::{Fields, PROBLEM_JSON, Reply};
use crate::ask::call::Call;
use crate::ask::outcome::Outcome;
use crate::wire::json::micros;

/// The name of a rule, as text.
#[derive(Clone, Debug)]
struct RuleName(Name);

impl Serialize for RuleName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// A decision on the wire.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    allowed: bool,
    rule: RuleName,
    /// Null if nothing limits the request.
    limit: Option<u64>,
    remaining: Option<u64>,
    /// Null if no waiting helps.
    retry_after_us: Option<u64>,
    reset_after_us: Option<u64>,
    delay_us: u64,
    degraded: bool,
    /// Only of a report or a settlement that does not fit below the bound of debt.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrecorded: Option<u64>,
}

impl From<&Decision> for Answer {
    fn from(decision: &Decision) -> Answer {
        Answer {
            allowed: decision.is_allowed(),
            rule: RuleName(decision.rule().clone()),
            limit: decision.capacity(),
            remaining: decision.remaining(),
            retry_after_us: decision.retry_after().map(micros),
            reset_after_us: decision.reset_after().map(micros),
            delay_us: micros(decision.delay()),
            degraded: decision.is_degraded(),
            unrecorded: Some(decision.unrecorded()).filter(|units| *units > 0),
        }
    }
}

impl Answer {
    /// What serde makes of it, for less: names of its own need no second look.
    fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(ROOM);
        json.extend_from_slice(if self.allowed {
            br#"{"allowed":true,"rule":"#
        } else {
            br#"{"allowed":false,"rule":"#
        });
        // Text can always be written to memory.
        let _ = serde_json::to_writer(&mut json, &self.rule);
        let numbers: [(&str, Option<u64>); 5] = [
            (r#","limit":"#, self.limit),
            (r#","remaining":"#, self.remaining),
            (r#","retry_after_us":"#, self.retry_after_us),
            (r#","reset_after_us":"#, self.reset_after_us),
            (r#","delay_us":"#, Some(self.delay_us)),
        ];
        for (name, number) in numbers {
            json.extend_from_slice(name.as_bytes());
            match number {
                Some(number) => json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
                None => json.extend_from_slice(b"null"),
            }
        }
        json.extend_from_slice(if self.degraded { br#","degraded":true"# } else { br#","degraded":false"# });
        if let Some(unrecorded) = self.unrecorded {
            json.extend_from_slice(br#","unrecorded":"#);
            json.extend_from_slice(itoa::Buffer::new().format(unrecorded).as_bytes());
        }
        json.push(b'}');
        json
    }
}

/// Enough for most answers.
const ROOM: usize = 256;

/// A refusal: a problem and the decision in one.
#[derive(Serialize)]
pub(super) struct Refusal {
    r#type: Cow<'static, str>,
    title: &'static str,
    status: u16,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated_policies: Option<[RuleName; 1]>,
    #[serde(flatten)]
    answer: Answer,
}

impl Refusal {
    /// What a call that can be refused says of a refusal: 429 if a limit refused it; 403 if the policy denies it, for
    /// which no wait helps; 409 if there is nothing left to renew.
    fn of(call: Call, decision: &Decision) -> Option<(StatusCode, Refusal)> {
        if decision.is_allowed() || !call.verb().can_refuse() {
            return None;
        }
        let answer = Answer::from(decision);
        let (outcome, violated_policies) = if decision.is_blocked() {
            (Outcome::Blocked, None)
        } else if call == Call::Renew {
            (Outcome::Expired, None)
        } else {
            (Outcome::Refused, Some([answer.rule.clone()]))
        };
        let (kind, title, status) = (outcome.problem_type(), outcome.title().unwrap_or_default(), outcome.status());
        Some((status, Refusal { r#type: kind, title, status: status.as_u16(), violated_policies, answer }))
    }
}

/// One of a batch: what the request would be answered alone.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Item {
    Answer(Answer),
    Refusal(Refusal),
    Problem(Document),
}

impl Item {
    pub(super) fn of(call: Call, answered: Result<Decision, Problem>) -> Item {
        match answered {
            Ok(decision) => match Refusal::of(call, &decision) {
                Some((_, refusal)) => Item::Refusal(refusal),
                None => Item::Answer(Answer::from(&decision)),
            },
            Err(problem) => Item::Problem(problem.document()),
        }
    }
}

/// The answer to one request: 200, or how its call is refused.
pub(super) fn reply(call: Call, decision: &Decision, fields: Fields) -> Reply {
    match Refusal::of(call, decision) {
        None => Reply { fields, ..Reply::written(Answer::from(decision).to_json()) },
        Some((status, refusal)) => {
            // What has expired cannot be renewed later.
            let is_told = |(name, _): &(&str, String)| status != StatusCode::CONFLICT || *name != "retry-after";
            let fields = fields.into_iter().filter(is_told).collect();
            Reply { status, kind: PROBLEM_JSON, fields, ..Reply::json(&refusal) }
        }
    }
}

/// What every rule says, for programs and, as `text`, for people.
#[derive(Serialize)]
struct Explained {
    decision: Answer,
    text: String,
    rules: Vec<ExplainedRule>,
}

#[derive(Serialize)]
struct ExplainedRule {
    rule: RuleName,
    shadow: bool,
    binds: bool,
    says: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
    /// How long it takes to pay what was reported beyond the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    debt_us: Option<u64>,
    /// When the period of a calendar limit is over, in its time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_on: Option<String>,
}

pub(super) fn explanation(explanation: &Explanation) -> Reply {
    let rules = explanation.rules.iter().map(explained).collect();
    Reply::json(&Explained { decision: Answer::from(&explanation.decision), text: explanation.to_string(), rules })
}

fn explained(explanation: &RuleExplanation) -> ExplainedRule {
    let RuleExplanation { rule, finding, shadow, binds, .. } = explanation;
    let (mut key, mut cost, mut limit, mut answer, mut debt_us) = (None, None, None, None, None);
    let mut resets_on = None;
    let says = match finding {
        RuleFinding::DoesNotMatch { .. } => "does-not-match",
        RuleFinding::NoKey { .. } => "no-key",
        RuleFinding::MissingAttribute { .. } => "missing-attribute",
        RuleFinding::NotAsked => "not-asked",
        RuleFinding::Unlimited => "unlimited",
        RuleFinding::Blocked => "blocked",
        RuleFinding::Unsatisfiable { cost: asked, limit: words } => {
            (cost, limit) = (Some(*asked), Some(words.clone()));
            "unsatisfiable"
        }
        RuleFinding::Answers { key: whose, cost: asked, limit: words, answer: decision, debt, resets_on: on } => {
            (key, cost, limit) = (Some(whose.clone()), Some(*asked), Some(words.clone()));
            (answer, debt_us) = (Some(Answer::from(&**decision)), debt.map(micros));
            resets_on = on.clone();
            if decision.is_allowed() { "allows" } else { "refuses" }
        }
        // The library may learn to say more.
        _ => "other",
    };
    ExplainedRule {
        rule: RuleName(rule.clone()),
        shadow: *shadow,
        binds: *binds,
        says,
        key,
        cost,
        limit,
        answer,
        debt_us,
        resets_on,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_written_as_serde_writes_it() {
        let numbers = [None, Some(0), Some(7), Some(1 << 53), Some(u64::MAX)];
        let rules = ["inline", "", "a \"quoted\" \\ rule", "ü\u{1}\n", "\u{1f600}"];
        for (index, rule) in rules.into_iter().enumerate() {
            for (allowed, degraded) in [(true, false), (false, true)] {
                let number = |at: usize| numbers[(index + at) % numbers.len()];
                let answer = Answer {
                    allowed,
                    rule: RuleName(rule.into()),
                    limit: number(0),
                    remaining: number(1),
                    retry_after_us: number(2),
                    reset_after_us: number(3),
                    delay_us: number(4).unwrap_or(0),
                    degraded,
                    unrecorded: number(5),
                };
                let written = String::from_utf8(answer.to_json()).unwrap();
                assert_eq!(written, serde_json::to_string(&answer).unwrap());
            }
        }
    }
}
