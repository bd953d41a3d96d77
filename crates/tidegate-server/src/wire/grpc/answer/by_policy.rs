//! Requests that the server's own policy decides.
//!
//! All descriptors go to the limiter in one call, all or nothing. A descriptor
//! that brings a limit of its own is counted in another store. Where there are
//! such, all are asked before any is charged. Should one be refused then all the
//! same, because other requests came between, or have no answer, what was charged
//! before is given back: for a moment less may pass than could, and never more.

use std::sync::Arc;
use std::time::Duration;

use tidegate::kernel::Verb;
use tidegate::store::Store;
use tidegate::{CheckError, Decision, Request, Setting};
use tidegate_config::envoy::{Hits, Unit};

use super::{Asked, request_of};
use crate::ask::inline::{INLINE_RULE, Inline};
use crate::wire::app::App;
use crate::wire::grpc::outcome::{EnvoyOutcome, Line, ShownLimit, shown};
use crate::wire::grpc::problem::Problem;

pub(super) async fn decide(app: &App, domain: &str, asked: &[Asked<'_>]) -> Result<EnvoyOutcome, Problem> {
    let items: Vec<DescriptorRequest<'_>> =
        asked.iter().map(|asked| DescriptorRequest::new(app, domain, asked)).collect::<Result<_, _>>()?;
    let groups = groups(&items);
    let mut says: Vec<Say> = items.iter().map(|item| Say::Extreme(item.extreme())).collect();
    match &groups[..] {
        [group] if group.places.len() == items.len() => group.ask(app, Pass::All, &items, &mut says).await?,
        groups => one_after_the_other(app, groups, &items, &mut says).await?,
    }
    let allowed = all_pass(&says, &items);
    let lines = says.iter().zip(&items).map(|(say, item)| say.line(app, item)).collect();
    Ok(EnvoyOutcome { allowed, lines })
}

fn all_pass(says: &[Say], items: &[DescriptorRequest<'_>]) -> bool {
    says.iter().zip(items).all(|(say, item)| say.passes(item))
}

/// Asks limiters whose states are in several stores.
async fn one_after_the_other(
    app: &App,
    groups: &[Group<'_>],
    items: &[DescriptorRequest<'_>],
    says: &mut [Say],
) -> Result<(), Problem> {
    for group in groups {
        group.ask(app, Pass::Peek, items, says).await?;
    }
    let mut charged = Vec::with_capacity(groups.len());
    for group in groups {
        if !all_pass(says, items) {
            break;
        }
        let answered = group.ask(app, Pass::Charge, items, says).await;
        if answered.is_err() || !all_pass(says, items) {
            for group in charged {
                // If it cannot be given back, it was charged in vain: against the caller.
                let _ = Group::ask(group, app, Pass::GiveBack, items, says).await;
            }
            return answered;
        }
        charged.push(group);
    }
    if all_pass(says, items) {
        let only_refunds = items.iter().all(|item| item.hits.is_final());
        for group in groups {
            let is_degraded = group.places.iter().any(|place| says[*place].is_degraded());
            match group.ask(app, Pass::Refund, items, says).await {
                // A refund has no fallback, and the charges have theirs.
                Err(_) if is_degraded && !only_refunds => {}
                answered => answered?,
            }
        }
    }
    Ok(())
}

/// The descriptors that one limiter decides.
struct Group<'l> {
    inline: Option<&'l Arc<Inline>>,
    places: Vec<usize>,
}

fn groups<'l>(items: &'l [DescriptorRequest<'_>]) -> Vec<Group<'l>> {
    let mut groups: Vec<Group<'l>> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let inline = match &item.by {
            By::Policy => None,
            By::Inline(inline, _) => Some(inline),
            By::Extreme(..) => continue,
        };
        match groups.iter_mut().find(|group| group.inline.map(Arc::as_ptr) == inline.map(Arc::as_ptr)) {
            Some(group) => group.places.push(place),
            None => groups.push(Group { inline, places: vec![place] }),
        }
    }
    groups
}

/// What the descriptors of a group are asked.
#[derive(Clone, Copy)]
enum Pass {
    /// All that they ask for.
    All,
    /// What would come of it.
    Peek,
    /// Only what they charge.
    Charge,
    /// Only what they report or give back, which cannot be undone.
    Refund,
    /// What they have charged is given back.
    GiveBack,
}

impl Pass {
    fn of(self, hits: Hits) -> Option<(Verb, u64)> {
        let (verb, cost) = hits.asks();
        match self {
            Pass::All => Some((verb, cost)),
            // A report or a refund is never refused.
            Pass::Peek => Some((Verb::Peek, if hits.is_final() { 0 } else { cost })),
            Pass::Charge => (verb == Verb::Charge).then_some((verb, cost)),
            Pass::Refund => hits.is_final().then_some((verb, cost)),
            Pass::GiveBack => (verb == Verb::Charge).then_some((Verb::Refund, cost)),
        }
    }
}

impl Group<'_> {
    async fn ask(
        &self,
        app: &App,
        ask: Pass,
        items: &[DescriptorRequest<'_>],
        says: &mut [Say],
    ) -> Result<(), Problem> {
        // A fallback has charged nothing in the store.
        let is_asked = |place: &usize| !matches!(ask, Pass::GiveBack) || !says[*place].is_degraded();
        let asked = self.places.iter().copied().filter(is_asked);
        let asked = asked.filter_map(|place| Some((place, ask.of(items[place].hits)?)));
        let (places, requests): (Vec<usize>, Vec<(Verb, Request<'_>)>) =
            asked.map(|(place, (verb, cost))| (place, (verb, items[place].request.clone().cost(cost)))).unzip();
        let decided = app.decide_all(&requests, self.inline.map(|inline| &**inline)).await.map_err(Problem::Check)?;
        for (place, decided) in places.into_iter().zip(decided) {
            says[place] = match decided {
                Ok(decision) => Say::Decided(decision),
                Err(CheckError::Unsatisfiable { capacity, .. }) => Say::Never { capacity },
                Err(error) => return Err(Problem::Check(error)),
            };
        }
        Ok(())
    }
}

/// A descriptor as a request to a limiter.
struct DescriptorRequest<'r> {
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

impl<'r> DescriptorRequest<'r> {
    fn new(app: &App, domain: &'r str, asked: &Asked<'r>) -> Result<DescriptorRequest<'r>, Problem> {
        let request = request_of(domain, asked.entries.iter().copied());
        let by = match asked.limit.map(|(unit, requests)| (unit, unit.setting(requests))) {
            None => By::Policy,
            Some((unit, Setting::Limit(limit))) => {
                By::Inline(app.engine.inline_by_period(limit).map_err(Problem::Limit)?, unit)
            }
            Some((unit, extreme @ (Setting::Unlimited | Setting::Blocked))) => By::Extreme(extreme, unit),
        };
        Ok(DescriptorRequest { request, hits: asked.hits, by })
    }

    /// What it comes to if no limiter is asked.
    fn extreme(&self) -> Setting {
        match self.by {
            By::Extreme(setting, _) => setting,
            By::Policy | By::Inline(..) => Setting::Unlimited,
        }
    }

    /// The time that a limit counts for which came with the descriptor.
    fn unit(&self) -> Option<Unit> {
        match &self.by {
            By::Inline(_, unit) | By::Extreme(_, unit) => Some(*unit),
            By::Policy => None,
        }
    }
}

impl Say {
    fn passes(&self, item: &DescriptorRequest<'_>) -> bool {
        let is_admitted = match self {
            Say::Decided(decision) => decision.is_allowed(),
            Say::Never { .. } | Say::Extreme(Setting::Blocked) => false,
            Say::Extreme(Setting::Unlimited | Setting::Limit(_)) => true,
        };
        is_admitted || item.hits.is_final()
    }

    fn is_degraded(&self) -> bool {
        matches!(self, Say::Decided(decision) if decision.is_degraded())
    }

    fn line(&self, app: &App, item: &DescriptorRequest<'_>) -> Line {
        let (allowed, unit) = (self.passes(item), item.unit());
        let period = unit.map(Unit::period);
        let rest = unit.map(|unit| unit.rest(app.engine.store().clock().now()));
        match self {
            Say::Decided(decision) => line_of(decision, allowed, period),
            Say::Never { capacity } => Line {
                allowed,
                limit: Some(ShownLimit { rule: None, name: None, capacity: *capacity, period }),
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

/// What a decision says; `period` is that of the limit, where the decision does not know.
pub(super) fn line_of(decision: &Decision, allowed: bool, period: Option<Duration>) -> Line {
    let Some(capacity) = decision.capacity() else { return Line { allowed, ..Line::default() } };
    Line {
        allowed,
        quota: false,
        limit: Some(ShownLimit {
            rule: Some(decision.rule().clone()),
            name: Some(decision.rule().as_str().into()),
            capacity,
            period: decision.limit().map(|limit| limit.refill_time()).or(period),
        }),
        remaining: decision.remaining().unwrap_or_default(),
        retry_after: decision.retry_after().filter(|_| !allowed),
        reset_after: decision.reset_after(),
        metadata: None,
    }
}
