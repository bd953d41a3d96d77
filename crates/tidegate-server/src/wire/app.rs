//! What every protocol needs.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryFutureExt;
use tidegate::kernel::Verb;
use tidegate::store::{Check, Meter, StoreError};
use tidegate::{
    CheckError, ConfigError, Decision, Explanation, Key, Limit, Limiter, Micros, Observer, Policy, Request, Setting,
};
use tidegate_config::envoy::{EnvoyConfig, EnvoyLimiter};
use tidegate_config::{Format, Loaded, Report, Validation};
use tidegate_tower::ClientIp;
use tracing::warn;

use crate::access::audit::{Action, Audit, Entry, Outcome};
use crate::access::{Access, Caller, Denied, Identity, TokensFile};
use crate::ask::inline::{Caps, Counted, Inline, InlineError, InlineLimits};
use crate::ask::inline_store::InlineStore;
use crate::ask::policy::{Change, CurrentPolicy, PolicyError, PolicyText};
use crate::ask::store::AnyStore;
use crate::quota::{Quotas, Sharing};
use crate::run::admission::Admission;
use crate::run::buffered::Buffered;
use crate::run::connections::{Connections, Drain};
use crate::run::shares::Shares;
use crate::settings::Settings;
use crate::settings::rights::Right;
use crate::tell::metrics::Metrics;
use crate::tell::refused::Refused;

/// What a policy is called that came by the admin API.
const PUT: &str = "policy";

/// Streams of quotas that may be open at a time: of all addresses, and of one.
const MAX_QUOTA_STREAMS: usize = 1_024;
const MAX_QUOTA_STREAMS_PER_ADDRESS: usize = 256;

/// Clients that may watch health over gRPC at a time: of all addresses, and of one.
const MAX_HEALTH_WATCHES: usize = 256;
const MAX_HEALTH_WATCHES_PER_ADDRESS: usize = 32;

/// Streams of gRPC reflection that may be open at a time: of all addresses, and of one.
const MAX_REFLECTIONS: usize = 16;
const MAX_REFLECTIONS_PER_ADDRESS: usize = 4;

/// Buckets that clients of quotas may have: of all addresses, and of one.
const MAX_QUOTA_BUCKETS: usize = 65_536;
const MAX_QUOTA_BUCKETS_PER_ADDRESS: usize = 16_384;

/// One server's limiter and all that belongs to it, shared by its protocols.
pub struct App {
    /// Decides by the server's policy.
    pub limiter: Limiter<AnyStore>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Says when the server leaves.
    pub drain: Drain,
    /// Who is connected.
    pub connections: Arc<Connections>,
    /// Who is refused most.
    pub refused: Arc<Refused>,
    /// As the server was started.
    pub settings: Settings,
    /// The bytes that clients make the server hold.
    pub(crate) buffered: Arc<Buffered>,
    /// The work that is in flight.
    pub(crate) admission: Admission,
    /// Who may do what.
    pub(crate) access: Access,
    /// The proxies that are believed, and what their clients' addresses are.
    pub(crate) proxies: ClientIp,
    pub(crate) audit: Audit,
    pub(crate) policy: CurrentPolicy,
    pub(crate) started: Instant,
    /// The descriptor files, ready to decide.
    pub(crate) envoy: EnvoyLimiter<AnyStore>,
    /// The shares of limits that clients enforce by themselves.
    pub(crate) quotas: Arc<Quotas<AnyStore>>,
    pub(crate) quota_streams: Arc<Shares>,
    pub(crate) quota_buckets: Arc<Shares>,
    /// Streams of gRPC beside those of quotas, over all listeners.
    pub(crate) health_watches: Arc<Shares>,
    pub(crate) reflections: Arc<Shares>,
    has_envoy_files: bool,
    caps: Caps,
    inline: InlineLimits,
    inline_store: InlineStore,
}

impl App {
    pub(crate) fn new(
        settings: Settings,
        (text, policy): (CurrentPolicy, Policy),
        envoy: EnvoyConfig,
        (tokens, audit): (TokensFile, Audit),
        (store, inline_store): (AnyStore, InlineStore),
        connections: Connections,
        observer: Option<impl Observer>,
    ) -> Result<App, ConfigError> {
        let metrics =
            Arc::new(Metrics::new(store.clone(), inline_store.clone(), audit.lost.clone(), &connections.counts));
        let buffered = Buffered::new(settings.max_buffered, metrics.buffered(), metrics.shed("buffered"));
        let refused = Arc::<Refused>::default();
        let on_failure = settings.on_failure();
        let mut builder = Limiter::builder(policy)
            .store(store.clone())
            .max_log_entries(settings.max_log_entries)
            .max_waiters(settings.max_waiters);
        if let Some(mode) = on_failure {
            builder = builder.on_failure(mode);
        }
        let quotas = Arc::new(new_quotas(&settings, store.clone()));
        let mut envoy = EnvoyLimiter::new(envoy, store);
        if let Some(mode) = on_failure {
            envoy = envoy.on_failure(mode);
        }
        if settings.envoy_quota {
            envoy = envoy.all_quotas();
        }
        let (caps, inline) = (Caps::of(&settings), inline_store.store.clone());
        builder = builder.observer(Arc::clone(&metrics)).observer(Arc::clone(&refused));
        if let Some(observer) = observer {
            builder = builder.observer(observer);
        }
        let limiter = builder.build()?;
        let beside = limiter.clone();
        let inline = InlineLimits::new(caps, inline, beside, on_failure, Arc::clone(&metrics), Arc::clone(&refused));
        Ok(App {
            limiter,
            inline,
            envoy,
            quotas,
            quota_streams: Shares::new(MAX_QUOTA_STREAMS, MAX_QUOTA_STREAMS_PER_ADDRESS),
            quota_buckets: Shares::new(MAX_QUOTA_BUCKETS, MAX_QUOTA_BUCKETS_PER_ADDRESS),
            health_watches: Shares::new(MAX_HEALTH_WATCHES, MAX_HEALTH_WATCHES_PER_ADDRESS),
            reflections: Shares::new(MAX_REFLECTIONS, MAX_REFLECTIONS_PER_ADDRESS),
            has_envoy_files: !settings.descriptor_files().is_empty(),
            caps,
            inline_store,
            access: Access::new(&settings, tokens),
            proxies: ClientIp::behind_any_of(settings.trusted_proxy.iter().copied()),
            audit,
            policy: text,
            started: Instant::now(),
            refused,
            drain: connections.drain.clone(),
            admission: Admission::new(settings.max_batch, Arc::clone(&buffered), metrics.shed("in-flight")),
            buffered,
            connections: Arc::new(connections),
            metrics,
            settings,
        })
    }

    /// Decides a request by the limit that came with it, or else by the policy.
    ///
    /// Not an `async fn`: its future would hold a second copy of the request, which is large, for each connection.
    ///
    /// # Errors
    /// If there is no decision, which is counted.
    pub(crate) fn decide<'a>(
        &'a self,
        verb: Verb,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
    ) -> impl Future<Output = Result<Decision, CheckError>> {
        self.decide_with_limits(verb, request, inline, |_, _| {})
    }

    /// The same, and the limits that made the decision.
    pub(crate) fn decide_with_limits<'a>(
        &'a self,
        verb: Verb,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
        tell: impl FnMut(&Decision, &[Check<'_>]) + Send,
    ) -> impl Future<Output = Result<Decision, CheckError>> {
        let began = Instant::now();
        let decided = self.limiter_for(inline).decide_with_limits_async(verb, request, tell);
        let timed = decided.inspect_ok(move |decision| self.decided(verb, decision, began));
        timed.inspect_err(|error| self.metrics.failed(error))
    }

    /// Decides several requests, all or nothing.
    ///
    /// # Errors
    /// As [`decide`](App::decide); what is wrong with a request is its own answer.
    pub(crate) async fn decide_all(
        &self,
        requests: &[(Verb, Request<'_>)],
        inline: Option<&Inline>,
    ) -> Result<Vec<Result<Decision, CheckError>>, CheckError> {
        let began = Instant::now();
        let decided = self.limiter_for(inline).decide_all_async(requests).await;
        let decided = decided.inspect_err(|error| self.metrics.failed(error))?;
        for ((verb, _), decided) in requests.iter().zip(&decided) {
            match decided {
                Ok(decision) => self.decided(*verb, decision, began),
                Err(error) => self.metrics.failed(error),
            }
        }
        Ok(decided)
    }

    /// Counts how long a charge took to be decided.
    fn decided(&self, verb: Verb, decision: &Decision, began: Instant) {
        if verb == Verb::Charge {
            self.metrics.decided(decision.rule(), began.elapsed());
        }
    }

    /// Says what every rule makes of a request, without a charge.
    ///
    /// # Errors
    /// As [`decide`](App::decide).
    pub(crate) fn explain<'a>(
        &'a self,
        request: impl Into<Request<'a>>,
        inline: Option<&'a Inline>,
    ) -> impl Future<Output = Result<Explanation, CheckError>> {
        let explained = self.limiter_for(inline).explain_async(request);
        explained.inspect_err(|error| self.metrics.failed(error))
    }

    /// The limiter that decides.
    pub(crate) fn limiter_for<'a>(&'a self, inline: Option<&'a Inline>) -> &'a Limiter<AnyStore> {
        inline.map_or(&self.limiter, |inline| &inline.limiter)
    }

    /// The limiter of a limit that came with the request; all go by the name
    /// [`INLINE_RULE`](crate::INLINE_RULE).
    ///
    /// # Errors
    /// If it is beyond the caps of the server, or a sliding log of more than `max_log_entries`.
    pub fn inline(&self, limit: Limit) -> Result<Arc<Inline>, InlineError> {
        self.inline.get(limit, Counted::ByLimit)
    }

    /// The same for Envoy, whose limits of one unit count together.
    pub(crate) fn inline_by_period(&self, limit: Limit) -> Result<Arc<Inline>, InlineError> {
        self.inline.get(limit, Counted::ByPeriod)
    }

    /// Whether a limit that comes with a descriptor of Envoy's is within the caps. Its period is
    /// not capped: units up to a year are part of the protocol.
    pub(crate) fn check_override(&self, setting: Setting) -> Result<(), InlineError> {
        let count = match setting {
            Setting::Limit(limit) => limit.count(),
            Setting::Unlimited | Setting::Blocked => 0,
        };
        self.caps.check_count(count)
    }

    /// Lets a key of a limit that came with a request into the store of the policy, if there may be more of them.
    pub(crate) fn admit_inline(&self, meter: &Meter, key: &Key<'_>) -> Result<(), StoreError> {
        Ok(self.inline_store.budget.admit(meter, key)?)
    }

    /// The same, for a limit in words.
    ///
    /// # Errors
    /// If they are none, beyond the caps of the server, or a sliding log of more than `max_log_entries`.
    pub fn inline_words(&self, words: &str) -> Result<Arc<Inline>, InlineError> {
        self.inline.read(words)
    }

    /// Looks for errors in a policy, without making it: names that are only
    /// validated take none of those that a policy in force may have.
    ///
    /// # Errors
    /// A report of all that is wrong.
    pub(crate) fn validate(&self, text: &str, format: Format) -> Result<(), Report> {
        let validation = Validation::new().max_log_entries(self.settings.max_log_entries);
        validation.text(text, format, Path::new(PUT)).map(drop)
    }

    /// Makes a policy of its text.
    ///
    /// # Errors
    /// A report of all that is wrong.
    pub(crate) fn read_policy(&self, text: &str, format: Format) -> Result<Loaded, Report> {
        self.validate(text, format)?;
        tidegate_config::parse_with_warnings(text, format, Path::new(PUT))
    }

    /// Puts a policy in the place of the one that applies: whole, or not at all.
    pub(crate) fn put_policy(&self, text: String, format: Format, by: &str) -> Result<Option<Change>, PolicyError> {
        let put = self.read_policy(&text, format).map_err(|report| PolicyError::Errors(Box::new(report))).and_then(
            |Loaded { policy, warnings, .. }| {
                let change = self.policy.replace(&self.limiter, policy, PolicyText { file: None, format, text }, by)?;
                warnings.iter().for_each(|warning| warn!("the policy: {warning}"));
                Ok(change)
            },
        );
        self.metrics.policy_given(put.is_ok());
        put
    }

    /// Whether a caller may do it, and who it is. A wrong credential is counted.
    pub(crate) fn permit(&self, caller: &Caller<'_>, right: Right) -> Result<Identity, Denied> {
        self.access.decide(caller, right).map_err(|denied| self.note(denied, caller))
    }

    /// Who a caller is. A wrong credential is counted.
    pub(crate) fn identify(&self, caller: &Caller<'_>) -> Result<Identity, Denied> {
        self.access.identify(caller).map_err(|denied| self.note(denied, caller))
    }

    /// Counts a wrong credential, and keeps a record of it within the budget of its address.
    fn note(&self, denied: Denied, caller: &Caller<'_>) -> Denied {
        let denied = self.access.hold_against(denied, caller.link);
        if matches!(denied, Denied::WrongCredential | Denied::TooManyFailures { .. }) {
            self.metrics.authentication_failed(caller.protocol);
        }
        if matches!(denied, Denied::WrongCredential) {
            let (peer, identity) = (Some(caller.link.peer), "unknown");
            let (action, outcome) = (Action::Authenticate, Outcome::Refused);
            self.audit.record(Entry { peer, identity, action, outcome, policy: None, reason: None });
        }
        denied
    }

    /// Whether requests of Envoy that no descriptor file is about have no limit:
    /// there are such files, and no policy was given that could be meant.
    pub(crate) fn only_files_limit_envoy(&self) -> bool {
        self.has_envoy_files && self.policy.is_built_in()
    }

    /// Whether any request is answered while the store is unreachable: by the failure mode of the
    /// server, or by that of a rule.
    pub(crate) fn has_failure_mode(&self) -> bool {
        self.settings.on_failure().is_some() || self.limiter.policy().rules().any(|rule| rule.failure_mode().is_some())
    }

    /// The store, for callers that ask it directly.
    pub fn store(&self) -> &AnyStore {
        self.limiter.store()
    }

    /// The same, for limits that come with requests.
    pub fn inline_store(&self) -> &AnyStore {
        &self.inline_store.store
    }
}

/// Shares of limits in a store, whose permits have ids that no other server has.
fn new_quotas(settings: &Settings, store: AnyStore) -> Quotas<AnyStore> {
    let sharing = match &store {
        AnyStore::Memory(_) => Sharing::Alone,
        AnyStore::Redis(_) | AnyStore::Bounded(_) => Sharing::WithOthers,
    };
    let ttl = Micros::from_duration(Duration::from_secs(settings.rlqs_ttl_seconds));
    let name = [0, 1].map(|half: u64| format!("{:016x}", RandomState::new().hash_one(half))).concat();
    Quotas::new(store, ttl, sharing, name)
}
