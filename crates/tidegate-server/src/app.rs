//! What every protocol needs.

use std::path::Path;
use std::sync::Arc;

use tidegate::{ConfigError, Limit, Limiter, Policy};
use tidegate_config::envoy::EnvoyConfig;
use tidegate_config::{Format, Loaded, Report, Validation};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::admission::Admission;
use crate::buffered::Buffered;
use crate::connections::{Connections, Drain};
use crate::grpc::{self, EnvoyRules};
use crate::http::MOST_PLAYERS;
use crate::inline::{Counted, Inline, InlineLimits};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::policy::{CurrentPolicy, PolicyError, PolicyText};
use crate::refused::Refused;
use crate::settings::Settings;
use crate::store::AnyStore;

/// What a policy is called that came by the admin API.
const PUT: &str = "policy";

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
    /// The bytes that clients make the server hold.
    pub(crate) buffered: Arc<Buffered>,
    /// The work that is in flight.
    pub(crate) admission: Admission,
    pub(crate) policy: CurrentPolicy,
    pub(crate) live: Live,
    /// Room for simulations of the playground.
    pub(crate) players: Arc<Semaphore>,
    pub(crate) envoy: EnvoyRules,
    has_envoy_files: bool,
    inline: InlineLimits,
}

impl App {
    pub(crate) fn new(
        settings: Settings,
        (text, policy): (CurrentPolicy, Policy),
        envoy: EnvoyConfig,
        store: impl Into<AnyStore>,
        connections: Connections,
    ) -> Result<App, ConfigError> {
        let store = store.into();
        let metrics = Arc::new(Metrics::new(store.clone()));
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
        let mut envoy = EnvoyRules::new(envoy, store.clone())?;
        if let Some(mode) = on_failure {
            envoy = envoy.on_failure(mode);
        }
        if settings.envoy_spend_the_rest {
            envoy = envoy.spending_the_rest();
        }
        let limiter = builder.observer(Arc::clone(&metrics)).observer(Arc::clone(&refused)).build()?;
        let beside = limiter.clone();
        let inline = InlineLimits::new(store, beside, on_failure, Arc::clone(&metrics), Arc::clone(&refused));
        Ok(App {
            limiter,
            inline,
            envoy,
            has_envoy_files: !grpc::files(&settings).is_empty(),
            policy: text,
            live: Live::default(),
            players: Arc::new(Semaphore::new(MOST_PLAYERS)),
            refused,
            drain: Drain::default(),
            admission: Admission::new(settings.max_batch, Arc::clone(&buffered), metrics.shed("in-flight")),
            buffered,
            connections,
            metrics,
            settings,
        })
    }

    /// The limiter of a limit that came with the request; all go by the name
    /// [`INLINE_RULE`](crate::INLINE_RULE).
    ///
    /// # Errors
    /// If it is a sliding log of more than `max_log_entries`.
    pub fn inline(&self, limit: Limit) -> Result<Arc<Inline>, ConfigError> {
        self.inline.get(limit, Counted::ByLimit)
    }

    /// The same for Envoy, whose limits of one unit count together.
    pub(crate) fn inline_by_period(&self, limit: Limit) -> Result<Arc<Inline>, ConfigError> {
        self.inline.get(limit, Counted::ByPeriod)
    }

    /// The same, for a limit in words.
    ///
    /// # Errors
    /// If they are none, or a sliding log of more than `max_log_entries`.
    pub fn inline_words(&self, words: &str) -> Result<Arc<Inline>, ConfigError> {
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

    /// Puts a policy in the place of the one that applies: whole, or not at all.
    pub(crate) fn put_policy(&self, text: String, format: Format) -> Result<(), PolicyError> {
        let put = self
            .validate(&text, format)
            .and_then(|()| tidegate_config::parse_with_warnings(&text, format, Path::new(PUT)))
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
}
