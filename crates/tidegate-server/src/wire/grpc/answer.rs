//! From Envoy's request to its response.

mod by_files;
mod by_policy;
pub(super) mod whole;

use std::sync::Arc;

use http::Extensions;
use tidegate::store::StoreError;
use tidegate::{CheckError, Key, KeyPart, Request};
use tidegate_config::envoy::{Hits, Unit};

use super::headers;
use super::messages::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};
use super::metadata;
use super::outcome::{EnvoyOutcome, Line, code};
use super::problem::Problem;
use crate::access::Identity;
use crate::access::audit::{Action, AuditOutcome, Entry};
use crate::ask::store::AnyStore;
use crate::run::peer::Peer;
use crate::settings::rights::Right;
use crate::tell::trace::Origin;
use crate::wire::app::App;
use crate::wire::http::identity_of;

/// Descriptors that one request may have: each is a lock held, or a key sent.
const MAX_DESCRIPTORS: usize = 100;

/// The entry by which a descriptor says that its hits are spent already. Envoy's protocol
/// does not tell a call of `apply_on_stream_done` from any other. It is no part of the key.
const REPORT: (&str, &str) = ("tidegate", "report");

/// What is wanted of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To charge it if it may pass.
    Decide,
    /// To know whether it would pass.
    Check,
    /// To charge what is spent already.
    Report,
}

/// Who asks.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) peer: Peer,
    pub(super) identity: Identity,
}

impl Client {
    /// As the connection and the guard have noted it.
    pub(super) fn of(extensions: &Extensions) -> Client {
        Client { peer: Peer::of(extensions), identity: identity_of(extensions) }
    }
}

/// Decides a request to the end, even if the client disconnects meanwhile: what was
/// charged for some of several descriptors must still be given back, and what was given back is in the audit log.
pub(super) async fn answer_to_the_end(
    app: &Arc<App>,
    client: &Client,
    request: RateLimitRequest,
    purpose: Purpose,
) -> Result<RateLimitResponse, Problem> {
    let gives_back = request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits);
    if gives_back {
        client.identity.may(Right::Manage).map_err(Problem::Denied)?;
    }
    // The memory store answers at once.
    if (request.descriptors.len() < 2 && !gives_back) || matches!(app.engine.store(), AnyStore::Memory(_)) {
        return answer(app, client, &request, purpose).await;
    }
    let (connections, app, client) = (&app.guards.connections, Arc::clone(app), client.clone());
    let answer = async move { answer(&app, &client, &request, purpose).await };
    let answered = connections.spawn(Origin::current().scope(answer)).await;
    answered.unwrap_or_else(|error| Err(Problem::Check(StoreError::Failed { source: error.into() }.into())))
}

/// What a request comes to.
pub(super) async fn answer(
    app: &App,
    client: &Client,
    request: &RateLimitRequest,
    purpose: Purpose,
) -> Result<RateLimitResponse, Problem> {
    Origin::set_namespace(&request.domain);
    let is_whole = app.settings.limitador_limits.is_some() && !app.engine.envoy.config().has_domain(&request.domain);
    let mut outcome = match is_whole {
        true => whole::decide(app, request, purpose).await?,
        false => {
            let asked = read(request, purpose)?;
            let decided = decide_each(app, &request.domain, &asked).await;
            audit(app, client, &asked, decided.is_ok());
            decided?
        }
    };
    // Each status says what it would come to.
    outcome.allowed |= app.settings.envoy_shadow;
    let mut response = RateLimitResponse {
        overall_code: code(outcome.allowed).into(),
        // A request that is decided whole has one line.
        statuses: outcome.lines.iter().map(Line::status).cycle().take(request.descriptors.len()).collect(),
        ..RateLimitResponse::default()
    };
    headers::add(&app.settings, &outcome, &mut response);
    if app.settings.envoy_metadata {
        response.dynamic_metadata = Some(metadata::of(request, &outcome));
    }
    Ok(response)
}

/// Keeps a record of each descriptor that gives back.
fn audit(app: &App, client: &Client, asked: &[Asked<'_>], is_done: bool) {
    let (peer, identity, outcome) = (Some(client.peer), client.identity.name(), AuditOutcome::of(is_done));
    for _ in asked.iter().filter(|asked| matches!(asked.hits, Hits::Refund(_))) {
        app.guards.audit.record(Entry { peer, identity, action: Action::Refund, outcome, policy: None, reason: None });
    }
}

/// Decides the descriptors of a request, each by itself.
async fn decide_each(app: &App, domain: &str, asked: &[Asked<'_>]) -> Result<EnvoyOutcome, Problem> {
    for (unit, requests) in asked.iter().filter_map(|asked| asked.limit) {
        app.engine.check_override(unit.setting(requests)).map_err(Problem::Limit)?;
    }
    match by_files::decide(app, domain, asked).await? {
        Some(outcome) => Ok(outcome),
        None if app.engine.only_files_limit_envoy() => Ok(EnvoyOutcome::unlimited(asked.len())),
        None => by_policy::decide(app, domain, asked).await,
    }
}

/// A descriptor, with what is wanted of it.
pub(super) struct Asked<'r> {
    entries: Vec<(&'r str, &'r str)>,
    hits: Hits,
    /// The limit that it brings: so many requests per unit.
    limit: Option<(Unit, u32)>,
}

/// The descriptors of a request, if it is one that can be answered.
fn read(request: &RateLimitRequest, purpose: Purpose) -> Result<Vec<Asked<'_>>, Problem> {
    if request.domain.is_empty() {
        return Err(Problem::NoDomain);
    }
    let (count, bound) = (request.descriptors.len(), MAX_DESCRIPTORS);
    match count {
        0 => return Err(Problem::NoDescriptors),
        _ if count > bound => return Err(Problem::TooManyDescriptors { count, bound }),
        _ => {}
    }
    let descriptors = request.descriptors.iter().enumerate();
    descriptors.map(|(place, descriptor)| read_one(request, descriptor, place, purpose)).collect()
}

fn read_one<'r>(
    request: &RateLimitRequest,
    descriptor: &'r RateLimitDescriptor,
    place: usize,
    purpose: Purpose,
) -> Result<Asked<'r>, Problem> {
    let mut entries: Vec<(&str, &str)> =
        descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect();
    let is_report = entries.contains(&REPORT);
    entries.retain(|entry| *entry != REPORT);
    // On the wire of a request, none cannot be told from zero.
    let hits = match (descriptor.hits_addend, request.hits_addend) {
        (Some(hits), _) => hits,
        (None, 0) => 1,
        (None, hits) => hits.into(),
    };
    let hits = match (hits, descriptor.is_negative_hits) {
        _ if purpose == Purpose::Check => Hits::Peek,
        (hits, false) if is_report || purpose == Purpose::Report => Hits::Report(hits),
        (0, _) => Hits::Peek,
        (hits, false) => Hits::Charge(hits),
        (hits, true) => Hits::Refund(hits),
    };
    let unit = |unit: i32| match RateLimitUnit::try_from(unit) {
        Ok(RateLimitUnit::Second) => Ok(Unit::Second),
        Ok(RateLimitUnit::Minute) => Ok(Unit::Minute),
        Ok(RateLimitUnit::Hour) => Ok(Unit::Hour),
        Ok(RateLimitUnit::Day) => Ok(Unit::Day),
        Ok(RateLimitUnit::Month) => Ok(Unit::Month),
        Ok(RateLimitUnit::Year) => Ok(Unit::Year),
        Ok(RateLimitUnit::Unknown) | Err(_) => Err(Problem::NoUnit { place, unit }),
    };
    let limit = match &descriptor.limit {
        None => None,
        Some(limit) => Some((unit(limit.unit)?, limit.requests_per_unit)),
    };
    Ok(Asked { entries, hits, limit })
}

/// The request that attributes make.
pub(super) fn request_of<'r>(domain: &'r str, entries: impl Iterator<Item = (&'r str, &'r str)>) -> Request<'r> {
    let entries: Vec<(&str, &str)> = entries.collect();
    let mut request = Request::new(key(domain, &entries));
    for (name, value) in &entries {
        request = request.with(name, *value);
    }
    // Last, so that no entry is taken for it.
    request.with("domain", domain).partial()
}

/// The key of a descriptor. What is said last comes first: the first part chooses the slot of a cluster.
fn key(domain: &str, entries: &[(&str, &str)]) -> Key<'static> {
    let parts = entries.iter().rev().flat_map(|(name, value)| [*value, *name]).chain([domain]);
    Key::of(parts.map(KeyPart::from))
}

/// There is no answer, and that is counted.
fn failed(app: &App, error: CheckError) -> Problem {
    app.records.metrics.failed(&error);
    Problem::Check(error)
}
