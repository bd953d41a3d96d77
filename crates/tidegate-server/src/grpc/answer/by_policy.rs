//! Requests that the server's own policy decides.
//!
//! Each descriptor is a request of its own to the limiter. Where there are
//! several, all are asked before any is charged. Should one be refused then
//! all the same, because others came between, or have no answer, those before
//! it are given back: for a moment less may pass than could, and never more.

use std::sync::Arc;

use tidegate::kernel::Verb;
use tidegate::{CheckError, Decision, Request, Setting, Store};
use tidegate_config::envoy::{Hits, Unit};

use super::{Asked, key};
use crate::admission::TURN;
use crate::app::App;
use crate::grpc::outcome::{Line, Outcome, Shown, shown};
use crate::grpc::problem::Problem;
use crate::inline::{INLINE_RULE, Inline};

pub(super) async fn decide(app: &App, domain: &str, asked: &[Asked<'_>]) -> Result<Outcome, Problem> {
    let questions: Vec<Question<'_>> =
        asked.iter().map(|asked| Question::new(app, domain, asked)).collect::<Result<_, _>>()?;
    if let [question] = &questions[..] {
        let say = question.ask(app, question.hits).await?;
        return Ok(Outcome { allowed: say.passes(question), lines: vec![say.line(app, question)] });
    }
    let mut says = Vec::with_capacity(questions.len());
    for question in &questions {
        says.push(question.ask(app, Hits::Peek).await?);
    }
    if questions.len() > TURN / 2 {
        // Others have their turn before anything is charged: from then on it goes on to the end.
        tokio::task::yield_now().await;
    }
    let mut charged = Vec::new();
    let answered = charge(app, &questions, &mut says, &mut charged).await;
    let allowed = all_pass(&says, &questions);
    if answered.is_err() || !allowed {
        for (place, hits) in charged {
            // If it cannot be given back, it was charged in vain: against the caller.
            if let Ok(say) = questions[place].ask(app, Hits::Refund(hits)).await {
                says[place] = say;
            }
        }
    }
    answered?;
    let only_refunds = questions.iter().all(Question::is_refund);
    for (place, question) in questions.iter().enumerate().filter(|(_, question)| allowed && question.is_refund()) {
        match question.ask(app, question.hits).await {
            Ok(say) => says[place] = say,
            // It has no stand-in, and those that are to pass have theirs.
            Err(_) if says[place].is_degraded() && !only_refunds => {}
            Err(problem) => return Err(problem),
        }
    }
    let lines = says.iter().zip(&questions).map(|(say, question)| say.line(app, question)).collect();
    Ok(Outcome { allowed, lines })
}

fn all_pass(says: &[Say], questions: &[Question<'_>]) -> bool {
    says.iter().zip(questions).all(|(say, question)| say.passes(question))
}

/// Charges one after the other, as long as all pass, and tells which were
/// charged. Those that would be refused come first and are asked in any case:
/// a refusal is counted where a charge is asked for, and by now there may be room.
async fn charge(
    app: &App,
    questions: &[Question<'_>],
    says: &mut [Say],
    charged: &mut Vec<(usize, u64)>,
) -> Result<(), Problem> {
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|place| says[*place].passes(&questions[*place]));
    for place in order {
        let question = &questions[place];
        let Hits::Charge(hits) = question.hits else { continue };
        let is_refused = matches!(&says[place], Say::Decided(decision) if !decision.is_allowed());
        if is_refused || all_pass(says, questions) {
            says[place] = question.ask(app, question.hits).await?;
            // Whoever stands in for the store has charged nothing there.
            if says[place].passes(question) && !says[place].is_degraded() {
                charged.push((place, hits));
            }
        }
    }
    Ok(())
}

/// A descriptor as a question to a limiter.
struct Question<'r> {
    request: Request<'r>,
    hits: Hits,
    by: By,
}

/// Who answers it.
enum By {
    Policy,
    /// The limit that it brings.
    Inline(Arc<Inline>, Unit),
    /// No limiter: it brings one of the two extremes.
    Extreme(Setting, Unit),
}

/// What a limiter says.
enum Say {
    Decided(Decision),
    /// More than the limit could ever hold.
    Never {
        capacity: u64,
    },
    /// It is not limited, or blocked.
    Extreme(Setting),
}

impl<'r> Question<'r> {
    fn new(app: &App, domain: &'r str, asked: &Asked<'r>) -> Result<Question<'r>, Problem> {
        let entries = &asked.entries;
        let mut request = Request::new(key(domain, entries));
        for (name, value) in entries {
            request = request.with(name, *value);
        }
        // Last, so that no entry is taken for it.
        request = request.with("domain", domain).partial();
        let by = match asked.limit.map(|(unit, requests)| (unit, unit.setting(requests))) {
            None => By::Policy,
            Some((unit, Setting::Limit(limit))) => {
                By::Inline(app.inline_by_period(limit).map_err(Problem::Limit)?, unit)
            }
            Some((unit, extreme @ (Setting::Unlimited | Setting::Blocked))) => By::Extreme(extreme, unit),
        };
        Ok(Question { request, hits: asked.hits, by })
    }

    fn is_refund(&self) -> bool {
        matches!(self.hits, Hits::Refund(_))
    }

    /// Asks for so many hits. A descriptor that is to be charged peeks with as many.
    async fn ask(&self, app: &App, hits: Hits) -> Result<Say, Problem> {
        let inline = match &self.by {
            By::Policy => None,
            By::Inline(inline, _) => Some(&**inline),
            By::Extreme(setting, _) => return Ok(Say::Extreme(*setting)),
        };
        let (verb, cost) = match (hits, self.hits) {
            (Hits::Charge(hits), _) => (Verb::Charge, hits),
            (Hits::Refund(hits), _) => (Verb::Refund, hits),
            (Hits::Peek, Hits::Charge(hits)) => (Verb::Peek, hits),
            (Hits::Peek, Hits::Peek) => (Verb::Peek, 1),
            // A refund is never refused.
            (Hits::Peek, Hits::Refund(_)) => (Verb::Peek, 0),
        };
        match app.decide(verb, self.request.clone().cost(cost), inline).await {
            Ok(decision) => Ok(Say::Decided(decision)),
            Err(CheckError::Unsatisfiable { capacity, .. }) => Ok(Say::Never { capacity }),
            Err(error) => Err(Problem::Check(error)),
        }
    }
}

impl Say {
    fn passes(&self, question: &Question<'_>) -> bool {
        match (self, question.hits) {
            (_, Hits::Refund(_)) => true,
            (Say::Decided(decision), _) => decision.is_allowed(),
            (Say::Never { .. } | Say::Extreme(Setting::Blocked), _) => false,
            (Say::Extreme(Setting::Unlimited | Setting::Limit(_)), _) => true,
        }
    }

    fn is_degraded(&self) -> bool {
        matches!(self, Say::Decided(decision) if decision.is_degraded())
    }

    fn line(&self, app: &App, question: &Question<'_>) -> Line {
        let (allowed, unit) = (self.passes(question), question.unit());
        let period = unit.map(Unit::period);
        let rest = unit.map(|unit| unit.rest(app.store().clock().now()));
        match self {
            Say::Decided(decision) if decision.is_unlimited() => Line { allowed, ..Line::default() },
            Say::Decided(decision) => Line {
                allowed,
                limit: Some(Shown {
                    rule: Some(decision.rule()),
                    name: Some(decision.rule().as_str().into()),
                    capacity: decision.limit(),
                    period,
                }),
                remaining: decision.remaining(),
                retry_after: (!allowed && !decision.is_blocked()).then(|| decision.retry_after()),
                reset_after: (allowed || !decision.is_blocked()).then(|| decision.reset_after()),
                metadata: None,
            },
            Say::Never { capacity } => Line {
                allowed,
                limit: Some(Shown { rule: None, name: None, capacity: *capacity, period }),
                reset_after: rest,
                ..Line::default()
            },
            Say::Extreme(setting) => Line {
                allowed,
                limit: shown(*setting, unit, Some(INLINE_RULE), None),
                remaining: if allowed { u64::MAX } else { 0 },
                reset_after: rest,
                ..Line::default()
            },
        }
    }
}

impl Question<'_> {
    /// The time that the limit counts for, which a decision does not say.
    fn unit(&self) -> Option<Unit> {
        match &self.by {
            By::Inline(_, unit) | By::Extreme(_, unit) => Some(*unit),
            By::Policy => None,
        }
    }
}
