//! What every protocol needs.

use std::path::Path;
use std::sync::Arc;

use tidegate::{ConfigError, Key, Limit, Limiter, Meter, Policy, Setting, StoreError};
use tidegate_config::envoy::EnvoyConfig;
use tidegate_config::{Format, Loaded};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::connections::{Connections, Drain};
use crate::grpc::{self, EnvoyRules};
use crate::http::MOST_PLAYERS;
use crate::inline::{Caps, Counted, Inline, InlineError, InlineLimits};
use crate::inline_store::InlineStore;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::policy::{CurrentPolicy, PolicyError, PolicyText};
use crate::refused::Refused;
use crate::settings::Settings;
use crate::store::AnyStore;
use crate::workers::Workers;

/// One server's limiter and all that belongs to it, shared by its protocols.
pub struct App {
    /// Decides by the server's policy.
    pub limiter: Limiter<AnyStore>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Says when the server leaves.
    pub drain: Drain,
    /// Who is connected.
    pub connections: Connections,
    /// Who is refused most.
    pub refused: Arc<Refused>,
    /// As the server was started.
    pub settings: Settings,
    pub(crate) policy: CurrentPolicy,
    pub(crate) live: Live,
    /// Room for simulations of the playground.
    pub(crate) players: Arc<Semaphore>,
    pub(crate) envoy: EnvoyRules,
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
        (store, inline_store): (AnyStore, InlineStore),
        workers: Workers,
    ) -> Result<App, ConfigError> {
        let metrics = Arc::new(Metrics::new(store.clone(), inline_store.clone()));
        let refused = Arc::<Refused>::default();
        let on_failure = settings.on_failure();
        let mut builder = Limiter::builder(policy).store(store.clone());
        if let Some(mode) = on_failure {
            builder = builder.on_failure(mode);
        }
        let mut envoy = EnvoyRules::new(envoy, store)?;
        if let Some(mode) = on_failure {
            envoy = envoy.on_failure(mode);
        }
        if settings.envoy_spend_the_rest {
            envoy = envoy.spending_the_rest();
        }
        let (caps, inline) = (Caps::of(&settings), inline_store.store.clone());
        let limiter = builder.observer(Arc::clone(&metrics)).observer(Arc::clone(&refused)).build()?;
        Ok(App {
            limiter,
            envoy,
            has_envoy_files: !grpc::files(&settings).is_empty(),
            caps,
            inline: InlineLimits::new(caps, inline, on_failure, Arc::clone(&metrics), Arc::clone(&refused)),
            inline_store,
            policy: text,
            live: Live::default(),
            players: Arc::new(Semaphore::new(MOST_PLAYERS)),
            refused,
            metrics,
            drain: Drain::default(),
            connections: Connections::new(settings.max_connections, workers),
            settings,
        })
    }

    /// The limiter of a limit that came with the request; all go by the name
    /// [`INLINE_RULE`](crate::INLINE_RULE).
    ///
    /// # Errors
    /// If it is beyond the caps of the server.
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
    /// If they are none, or beyond the caps of the server.
    pub fn inline_words(&self, words: &str) -> Result<Arc<Inline>, InlineError> {
        self.inline.read(words)
    }

    /// Puts a policy in the place of the one that applies: whole, or not at all.
    pub(crate) fn put_policy(&self, text: String, format: Format) -> Result<(), PolicyError> {
        let put = tidegate_config::parse_with_warnings(&text, format, Path::new("policy"))
            .map_err(|report| PolicyError::Mistakes(Box::new(report)))
            .and_then(|Loaded { policy, warnings, .. }| {
                self.policy.replace(&self.limiter, policy, PolicyText { file: None, format, text })?;
                warnings.iter().for_each(|warning| warn!("the policy: {warning}"));
                Ok(())
            });
        self.metrics.policy_given(put.is_ok());
        put
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

    /// The store, for those who ask it themselves.
    pub fn store(&self) -> &AnyStore {
        self.limiter.store()
    }

    /// The same, for limits that come with requests.
    pub fn inline_store(&self) -> &AnyStore {
        &self.inline_store.store
    }
}
