//! What every protocol needs.

use std::path::Path;
use std::sync::Arc;

use tidegate::{ConfigError, Limit, Limiter, Policy};
use tidegate_config::envoy::EnvoyConfig;
use tidegate_config::{Format, Loaded};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::access::{Access, Caller, Denied, Identity, Right, TokensFile};
use crate::audit::{Action, Audit, Entry, Outcome, PolicyChange};
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
    /// Who may do what.
    pub(crate) access: Access,
    pub(crate) audit: Audit,
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
        (tokens, audit): (TokensFile, Audit),
        store: impl Into<AnyStore>,
        workers: Workers,
    ) -> Result<App, ConfigError> {
        let store = store.into();
        let metrics = Arc::new(Metrics::new(store.clone(), audit.lost.clone()));
        let refused = Arc::<Refused>::default();
        let on_failure = settings.on_failure();
        let mut builder = Limiter::builder(policy).store(store.clone());
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
        Ok(App {
            limiter,
            envoy,
            has_envoy_files: !grpc::files(&settings).is_empty(),
            inline: InlineLimits::new(store, on_failure, Arc::clone(&metrics), Arc::clone(&refused)),
            access: Access::new(&settings, tokens),
            audit,
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
    /// None that a limit that was made can cause.
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
    /// If they are none.
    pub fn inline_words(&self, words: &str) -> Result<Arc<Inline>, ConfigError> {
        self.inline.read(words)
    }

    /// Puts a policy in the place of the one that applies: whole, or not at all.
    pub(crate) fn put_policy(&self, text: String, format: Format) -> Result<Option<PolicyChange>, PolicyError> {
        let put = tidegate_config::parse_with_warnings(&text, format, Path::new("policy"))
            .map_err(|report| PolicyError::Mistakes(Box::new(report)))
            .and_then(|Loaded { policy, warnings, .. }| {
                let change = self.policy.replace(&self.limiter, policy, PolicyText { file: None, format, text })?;
                warnings.iter().for_each(|warning| warn!("the policy: {warning}"));
                Ok(change)
            });
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
            self.audit.record(Entry { peer, identity, action, outcome, policy: None });
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

    /// The store, for those who ask it themselves.
    pub fn store(&self) -> &AnyStore {
        self.limiter.store()
    }
}
