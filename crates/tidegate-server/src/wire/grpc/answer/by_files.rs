//! Requests that a descriptor file decides.

use std::time::{Duration, Instant};

use tidegate::store::{Meter, Store};
use tidegate::{Micros, Setting};
use tidegate_config::envoy::{Descriptor, EnvoyDecision, Hits, Status};

use super::{Asked, failed, key};
use crate::ask::inline::INLINE_RULE;
use crate::tell::refused::Refusal;
use crate::tell::trace::Decided;
use crate::wire::app::App;
use crate::wire::grpc::outcome::{EnvoyOutcome, Line, shown};
use crate::wire::grpc::problem::Problem;

/// What a request comes to, if a file is about its domain.
pub(super) async fn decide(app: &App, domain: &str, asked: &[Asked<'_>]) -> Result<Option<EnvoyOutcome>, Problem> {
    let descriptors: Vec<Descriptor<'_>> = asked
        .iter()
        .map(|asked| {
            let descriptor = Descriptor::new(&asked.entries).hits(asked.hits);
            match asked.limit {
                Some((unit, requests)) => descriptor.limit(unit, requests),
                None => descriptor,
            }
        })
        .collect();
    if !app.engine.envoy.config().has_domain(domain) {
        return Ok(None);
    }
    for asked in asked {
        admit(app, domain, asked)?;
    }
    let began = Instant::now();
    let answer = app.engine.envoy.decide_async(domain, &descriptors).await;
    let Some(answer) = answer.map_err(|error| failed(app, error.into()))? else { return Ok(None) };
    count(app, asked, &answer, began.elapsed());
    if app.records.metrics.tracer.is_on() {
        trace(app, domain, asked, &answer);
    }
    Ok(Some(EnvoyOutcome { allowed: answer.allowed, lines: answer.statuses.into_iter().map(line).collect() }))
}

/// A limit that a descriptor brings shares the counter of the file's limit, and so its store: within a budget.
fn admit(app: &App, domain: &str, asked: &Asked<'_>) -> Result<(), Problem> {
    if let (Some((unit, requests)), Hits::Charge(_) | Hits::Report(_)) = (asked.limit, asked.hits)
        && let Setting::Limit(limit) = unit.setting(requests)
    {
        let meter = Meter::new(INLINE_RULE, limit).by_period();
        app.engine.admit_inline(&meter, &key(domain, &asked.entries)).map_err(|full| failed(app, full.into()))?;
    }
    Ok(())
}

/// Counts charges: those that passed, or the limits that refused.
fn count(app: &App, asked: &[Asked<'_>], answer: &EnvoyDecision, took: Duration) {
    for (asked, status) in asked.iter().zip(&answer.statuses) {
        let Some(rule) = &status.rule else { continue };
        let counters = app.records.metrics.rule(rule);
        let cost = match asked.hits {
            Hits::Charge(cost) => cost,
            Hits::Report(hits) if !status.shadow => {
                counters.reported(hits, status.unrecorded);
                continue;
            }
            Hits::Report(_) | Hits::Peek | Hits::Refund(_) => continue,
        };
        if status.shadow {
            counters.shadowed(status.shadow_refuses);
        } else {
            // A quota that is over lets a request pass by another one.
            counters.decided((answer.allowed && status.allowed).into(), (!status.allowed).into());
            counters.took(took, 1);
            if let Some(key) = &status.refused_key {
                let limit = status.setting.and_then(|setting| shown(setting, status.unit, None, None));
                app.records.refused.count(&Refusal {
                    rule,
                    key,
                    request: None,
                    cost,
                    capacity: limit.map_or(0, |limit| limit.capacity),
                    limit: None,
                    inline: None,
                    retry_after: status.retry_after.map(Micros::from_duration),
                    at: app.engine.store().clock().now(),
                });
            }
        }
        counters.degraded(status.degraded.into());
    }
}

/// Tells of decisions as a limiter tells its observers.
fn trace(app: &App, domain: &str, asked: &[Asked<'_>], answer: &EnvoyDecision) {
    for (asked, status) in asked.iter().zip(&answer.statuses).filter(|(_, status)| !status.shadow) {
        let Some(rule) = status.rule.clone() else { continue };
        let (verb, cost) = asked.hits.asks();
        let capacity = status.setting.and_then(|setting| shown(setting, status.unit, None, None));
        let decided = Decided {
            verb,
            cost,
            allowed: status.allowed,
            rule,
            capacity: capacity.as_ref().map(|limit| limit.capacity),
            remaining: capacity.is_some().then_some(status.remaining),
            reset_after: capacity.is_some().then_some(status.reset_after),
            retry_after: status.retry_after,
            degraded: status.degraded,
            repeated: false,
        };
        app.records.metrics.tracer.decided(decided, &key(domain, &asked.entries));
    }
}

fn line(status: Status) -> Line {
    let limit = status.setting.and_then(|setting| shown(setting, status.unit, status.rule, status.name));
    let known = limit.is_some() || status.setting == Some(Setting::Unlimited);
    Line {
        allowed: status.allowed,
        quota: status.quota,
        reset_after: limit.is_some().then_some(status.reset_after),
        limit,
        remaining: if known { status.remaining } else { 0 },
        retry_after: status.retry_after,
        metadata: status.metadata,
    }
}
