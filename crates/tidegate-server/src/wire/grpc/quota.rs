//! Envoy's rate limit quota service: a stream for each client.
//!
//! A client reports what it let pass of its buckets, and is told what it may let pass from now on. The
//! attributes of a bucket are those of a request, and the policy's rules apply to it as they do to a
//! descriptor of the rate limit service. What was let pass is reported to the limits, so that all who
//! ask otherwise see it. [`quota`](crate::quota) says what a client may have.

use std::collections::{BTreeMap, HashMap};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, stream};
use http::header::AUTHORIZATION;
use prost_types::Duration as WireDuration;
use tidegate::Request;
use tidegate::kernel::Verb;
use tidegate::store::StoreError;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};
use tracing::debug;

use super::answer::request_of;
use super::messages::rate_limit_quota_response::BucketAction;
use super::messages::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Wire, QuotaAssignmentAction,
};
use super::messages::rate_limit_quota_service_server::RateLimitQuotaService;
use super::messages::rate_limit_quota_usage_reports::BucketQuotaUsage;
use super::messages::rate_limit_strategy::{BlanketRule, Strategy};
use super::messages::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, RateLimitStrategy, TokenBucket};
use crate::access::StreamCaller;
use crate::ask::outcome::Outcome;
use crate::ask::store::AnyStore;
use crate::quota::{Action, Lease, Limited};
use crate::run::admission::TURN;
use crate::run::buffered::Held;
use crate::run::causes::for_clients;
use crate::run::peer::Link;
use crate::run::protocol::Protocol;
use crate::run::shares::{Full, Share};
use crate::settings::rights::Right;
use crate::wire::app::App;

/// The longest message of reports.
pub(super) const MAX_REPORTS: usize = 64 * 1024;

/// Buckets of one stream.
const MAX_BUCKETS: usize = 256;

/// Bytes of all names and values of one bucket.
const MAX_BUCKET_BYTES: usize = 1024;

/// A stream that sends nothing for so long is closed.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a stream looks whether there is something to say.
const TICK: Duration = Duration::from_millis(250);

/// Messages that wait for a client to read them.
const UNREAD: usize = 1;

pub(super) struct Quota(pub(super) Arc<App>);

/// The names and values of a bucket's attributes, sorted.
type Entries = Vec<(String, String)>;

type Response = Result<RateLimitQuotaResponse, Status>;

#[tonic::async_trait]
impl RateLimitQuotaService for Quota {
    type StreamRateLimitQuotasStream = Pin<Box<dyn Stream<Item = Response> + Send>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: tonic::Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<tonic::Response<Self::StreamRateLimitQuotasStream>, Status> {
        let authorization = request.metadata().get(AUTHORIZATION.as_str()).map(MetadataValue::as_bytes);
        let caller = StreamCaller::new(Protocol::Grpc, Link::of(request.extensions()), authorization);
        let streams = &self.0.guards.quota_streams;
        let place = streams.take(caller.address(), 1).map_err(|full| {
            Status::resource_exhausted(match full {
                Full::Total => format!("{} streams of quotas are open already: retry later", streams.total()),
                Full::Address => format!("this address has {} streams of quotas open: close one", streams.each()),
            })
        })?;
        let held = request.extensions().get::<Arc<Held>>().cloned();
        let (sender, receiver) = mpsc::channel(UNREAD);
        let (app, domain, buckets) = (Arc::clone(&self.0), String::new(), HashMap::new());
        let client = Client { app, caller, domain, buckets, sender, held };
        let reports = request.into_inner();
        self.0.guards.connections.spawn(async move {
            let _place = place;
            client.serve(reports).await;
        });
        let responses = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        Ok(tonic::Response::new(Box::pin(responses)))
    }
}

/// One stream.
struct Client {
    app: Arc<App>,
    caller: StreamCaller,
    domain: String,
    buckets: HashMap<Entries, Bucket>,
    sender: mpsc::Sender<Response>,
    /// What its messages count for while they are read.
    held: Option<Arc<Held>>,
}

struct Bucket {
    lease: Lease<AnyStore>,
    _place: Share,
}

impl Client {
    async fn serve(mut self, mut reports: Streaming<RateLimitQuotaUsageReports>) {
        let metrics = self.app.records.metrics.quotas.clone();
        metrics.streams.inc();
        let (drain, sender) = (self.app.guards.drain.clone(), self.sender.clone());
        let mut closing = pin!(drain.closing());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let ended = loop {
            let message = tokio::select! {
                biased;
                () = &mut closing => break Some(Status::unavailable("server is shutting down; retry on another instance")),
                () = sender.closed() => break None,
                message = reports.message() => match message {
                    Ok(Some(message)) => Some(message),
                    Ok(None) => break None,
                    Err(status) => break Some(status),
                },
                _ = ticks.tick() => None,
            };
            if let Err(denied) = self.caller.may(Right::Check, &self.app.guards.access) {
                break Some(Status::new(Outcome::from(&denied).code(), denied.to_string()));
            }
            if let Some(message) = message {
                heard = Instant::now();
                if let Err(status) = self.take(message).await {
                    break Some(status);
                }
                if let Some(held) = &self.held {
                    held.shrink_to(0);
                }
            }
            if heard.elapsed() > SILENCE {
                break Some(Status::deadline_exceeded(format!("no report came within {SILENCE:?}")));
            }
            self.step().await;
        };
        if let Some(status) = ended {
            debug!(%status, "a stream of quotas has ended");
            // A client that reads nothing is not told.
            let _ = sender.try_send(Err(status));
        }
        metrics.buckets.dec_by(self.buckets.len() as i64);
        metrics.streams.dec();
    }

    /// Takes the reports of a message.
    async fn take(&mut self, message: RateLimitQuotaUsageReports) -> Result<(), Status> {
        match (self.domain.is_empty(), message.domain) {
            (true, domain) if domain.is_empty() => {
                return Err(Status::invalid_argument("the domain is empty: set it in Envoy's rate limit quota filter"));
            }
            (true, domain) => self.domain = domain,
            (false, domain) if domain.is_empty() || domain == self.domain => {}
            (false, _) => {
                return Err(Status::invalid_argument("the domain differs from the first one: open a stream for each"));
            }
        }
        // All are understood before any is taken, those of one bucket together.
        let (mut counts, mut new) = (BTreeMap::<Entries, (u64, u64)>::new(), 0);
        for (place, usage) in message.bucket_quota_usages.into_iter().enumerate() {
            if place % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            let BucketQuotaUsage { bucket_id, num_requests_allowed, num_requests_denied, .. } = usage;
            let (entries, metrics) = (entries_of(bucket_id)?, &self.app.records.metrics.quotas);
            metrics.reports.inc();
            if !counts.contains_key(&entries) && !self.buckets.contains_key(&entries) {
                if self.buckets.len() + new >= MAX_BUCKETS {
                    metrics.refused.inc();
                    continue;
                }
                new += 1;
            }
            let (allowed, denied) = counts.entry(entries).or_default();
            *allowed = allowed.saturating_add(num_requests_allowed);
            *denied = denied.saturating_add(num_requests_denied);
        }
        let mut passed = Vec::new();
        for (place, (entries, (allowed, denied))) in counts.into_iter().enumerate() {
            if place % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            if self.take_one(&entries, allowed, denied) && allowed > 0 {
                passed.push((entries, allowed));
            }
        }
        // What cannot be told is counted as an error, and changes nothing for the client.
        let reports = passed.iter().map(async |(entries, allowed)| {
            let _ = self.app.decide(Verb::Report, self.request(entries).cost(*allowed), None).await;
        });
        in_turns(self.app.engine.store(), reports).await;
        Ok(())
    }

    fn request<'r>(&'r self, entries: &'r Entries) -> Request<'r> {
        request_of(&self.domain, entries.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// Takes what a bucket let pass and denied; says whether it has limits.
    fn take_one(&mut self, entries: &Entries, allowed: u64, denied: u64) -> bool {
        let app = &self.app;
        let metrics = &app.records.metrics.quotas;
        let limited = match app.engine.only_files_limit_envoy() {
            true => Limited::Unlimited,
            false => match app.engine.limiter.limits_of(self.request(entries)) {
                Ok(limits) => app.engine.quotas.limited(limits.as_deref()),
                Err(error) => {
                    app.records.metrics.failed(&error);
                    debug!(error = for_clients(&error), "a bucket has no limits for want of a valid attribute");
                    return false;
                }
            },
        };
        let has_limits = matches!(limited, Limited::By { .. });
        if !self.buckets.contains_key(entries) {
            let Ok(place) = app.guards.quota_buckets.take(self.caller.address(), 1) else {
                metrics.refused.inc();
                return false;
            };
            let lease = Lease::new(Arc::clone(&app.engine.quotas), limited.clone());
            self.buckets.insert(entries.clone(), Bucket { lease, _place: place });
            metrics.buckets.inc();
        }
        if let Some(bucket) = self.buckets.get_mut(entries) {
            bucket.lease.limit(limited);
            bucket.lease.report(allowed, denied);
        }
        has_limits
    }

    /// Says what there is to say, to a client that reads.
    async fn step(&mut self) {
        let Ok(permit) = self.sender.try_reserve() else { return };
        let (metrics, quotas) = (&self.app.records.metrics.quotas, &self.app.engine.quotas);
        let began = quotas.now();
        let steps = self.buckets.iter_mut().map(async |(entries, bucket)| {
            let action = bucket.lease.step().await?;
            Ok::<_, StoreError>(action.map(|action| (entries.clone(), action)))
        });
        let mut actions = Vec::new();
        for step in in_turns(self.app.engine.store(), steps).await {
            match step {
                Ok(None) => {}
                Ok(Some((entries, action))) => {
                    metrics.assigned(action);
                    if action == Action::Abandon {
                        self.buckets.remove(&entries);
                        metrics.buckets.dec();
                    }
                    actions.push(wire(entries, action, self.app.settings.rlqs_ttl_seconds));
                }
                Err(error) => self.app.records.metrics.failed(&error.into()),
            }
        }
        // What is late counts as lost: the client goes by what it has until that runs out.
        if !actions.is_empty() && !quotas.is_late(began) {
            permit.send(Ok(RateLimitQuotaResponse { bucket_action: actions }));
        }
    }
}

/// Does all of this: in turns where the store answers at once, so that other connections of the thread have theirs in
/// between, and side by side where it is far away.
async fn in_turns<T>(store: &AnyStore, work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let at_once = match store {
        AnyStore::Memory(_) => TURN,
        AnyStore::Redis(_) | AnyStore::Bounded(_) => MAX_BUCKETS,
    };
    let (mut work, mut done) = (work.fuse(), Vec::new());
    loop {
        let turn = join_all(work.by_ref().take(at_once)).await;
        let is_last = turn.len() < at_once;
        done.extend(turn);
        if is_last {
            return done;
        }
        tokio::task::yield_now().await;
    }
}

/// The attributes of a bucket.
fn entries_of(bucket: Option<BucketId>) -> Result<Entries, Status> {
    let mut entries: Entries = bucket.unwrap_or_default().bucket.into_iter().collect();
    entries.sort_unstable();
    let bytes: usize = entries.iter().map(|(name, value)| name.len() + value.len()).sum();
    if entries.is_empty() || bytes > MAX_BUCKET_BYTES {
        let words = format!("a bucket id has {bytes} bytes in {} entries: ", entries.len());
        return Err(Status::invalid_argument(
            words + &format!("send one entry at least, and {MAX_BUCKET_BYTES} bytes at most"),
        ));
    }
    Ok(entries)
}

/// An action as Envoy reads it.
fn wire(entries: Entries, action: Action, ttl: u64) -> BucketAction {
    let seconds =
        |seconds: u64, nanos: i32| Some(WireDuration { seconds: seconds.try_into().unwrap_or(i64::MAX), nanos });
    let assign = |strategy: Strategy| {
        Wire::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: seconds(ttl, 0),
            rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
        })
    };
    let action = match action {
        Action::AllowAll => assign(Strategy::BlanketRule(BlanketRule::AllowAll.into())),
        Action::DenyAll => assign(Strategy::BlanketRule(BlanketRule::DenyAll.into())),
        Action::Assign(grant) => assign(Strategy::TokenBucket(TokenBucket {
            max_tokens: grant.max_tokens,
            tokens_per_fill: Some(grant.tokens_per_fill),
            // Envoy takes the seconds for the interval, and the nanoseconds alone to tell two intervals apart.
            fill_interval: seconds(grant.fill_interval, grant.fill_interval.try_into().unwrap_or_default()),
        })),
        Action::Abandon => Wire::AbandonAction(AbandonAction {}),
    };
    BucketAction { bucket_id: Some(BucketId { bucket: entries.into_iter().collect() }), bucket_action: Some(action) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
