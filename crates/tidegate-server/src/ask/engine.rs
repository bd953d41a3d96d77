//! What decides: the limiter of the policy, limits that come with requests, descriptor files, shares of limits.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::store::{Meter, StoreError};
use tidegate::{ConfigError, Key, Limit, Limiter, Micros, Policy, Setting};
use tidegate_config::envoy::{EnvoyConfig, EnvoyLimiter};
use tidegate_config::{Format, Loaded, Report, Validation};
use tracing::warn;

use super::inline::{Caps, Counted, Inline, InlineError, InlineLimits, Observe};
use super::inline_store::InlineStore;
use super::policy::{Change, CurrentPolicy, PolicyError, PolicyText};
use super::store::AnyStore;
use crate::quota::{Quotas, Sharing};
use crate::settings::Settings;

/// What a policy is called that came by the admin API.
const PUT: &str = "policy";

/// What decides in one server.
pub struct Engine {
    /// Decides by the server's policy.
    pub limiter: Limiter<AnyStore>,
    pub(crate) policy: CurrentPolicy,
    /// The descriptor files, ready to decide.
    pub(crate) envoy: EnvoyLimiter<AnyStore>,
    /// The shares of limits that clients enforce by themselves.
    pub(crate) quotas: Arc<Quotas<AnyStore>>,
    max_log_entries: u64,
    has_envoy_files: bool,
    has_failure_mode: bool,
    caps: Caps,
    inline: InlineLimits,
    inline_store: InlineStore,
}

impl Engine {
    pub(crate) fn new(
        settings: &Settings,
        (text, policy): (CurrentPolicy, Policy),
        envoy: EnvoyConfig,
        (store, inline_store): (AnyStore, InlineStore),
        observe: Box<Observe>,
    ) -> Result<Engine, ConfigError> {
        let on_failure = settings.on_failure();
        let mut builder = Limiter::builder(policy)
            .store(store.clone())
            .max_log_entries(settings.max_log_entries)
            .max_waiters(settings.max_waiters);
        if let Some(mode) = on_failure {
            builder = builder.on_failure(mode);
        }
        let limiter = observe(builder, None).build()?;
        let quotas = Arc::new(new_quotas(settings, store.clone()));
        let mut envoy = EnvoyLimiter::new(envoy, store);
        if let Some(mode) = on_failure {
            envoy = envoy.on_failure(mode);
        }
        if settings.envoy_quota {
            envoy = envoy.all_quotas();
        }
        let caps = Caps::of(settings);
        let inline = InlineLimits::new(caps, inline_store.store.clone(), limiter.clone(), on_failure, observe);
        Ok(Engine {
            limiter,
            policy: text,
            envoy,
            quotas,
            max_log_entries: settings.max_log_entries,
            has_envoy_files: !settings.descriptor_files().is_empty(),
            has_failure_mode: on_failure.is_some(),
            caps,
            inline,
            inline_store,
        })
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
        let validation = Validation::new().max_log_entries(self.max_log_entries);
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
        let read = self.read_policy(&text, format).map_err(|report| PolicyError::Errors(Box::new(report)))?;
        let Loaded { policy, warnings, .. } = read;
        let change = self.policy.replace(&self.limiter, policy, PolicyText { file: None, format, text }, by)?;
        warnings.iter().for_each(|warning| warn!("the policy: {warning}"));
        Ok(change)
    }

    /// Whether requests of Envoy that no descriptor file is about have no limit:
    /// there are such files, and no policy was given that could be meant.
    pub(crate) fn only_files_limit_envoy(&self) -> bool {
        self.has_envoy_files && self.policy.is_built_in()
    }

    /// Whether any request is answered while the store is unreachable: by the failure mode of the
    /// server, or by that of a rule.
    pub(crate) fn has_failure_mode(&self) -> bool {
        self.has_failure_mode || self.limiter.policy().rules().any(|rule| rule.failure_mode().is_some())
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
