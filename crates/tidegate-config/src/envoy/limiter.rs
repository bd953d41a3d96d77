//! Descriptor files that decide, on any store.
//!
//! Every descriptor of a request becomes a check. The store gets all of them
//! in one slice, so either every descriptor is charged or none is: a request
//! that one limit refuses costs the others nothing. Three kinds stand apart.
//! Descriptors that only ask are asked first, since a store would not let them
//! hold back the others. So are those with `quota_mode`, of which one that
//! passes is enough: those that are over are left out. Shadow rules come last,
//! each alone, and refuse nothing.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tidegate::kernel::Verdict;
use tidegate::layer::Fallback;
use tidegate::store::{Check, Store, StoreError, refund_charges};
use tidegate::{FailureMode, MemoryStore};

use super::plan::{Account, Carry, Phase, Plan, Quotas};
use super::request::{Descriptor, EnvoyDecision};
use super::{EnvoyConfig, History};

/// Decides requests by descriptor files.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate_config::envoy::{self, Descriptor, EnvoyLimiter};
///
/// let config = envoy::parse(
///     "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: day, requests_per_unit: 1 }
/// ",
///     "edge.yaml".as_ref(),
/// )?;
/// let limiter = EnvoyLimiter::new(config, MemoryStore::default());
/// let request = [Descriptor::new(&[("remote_address", "50.0.0.1")])];
/// # tidegate_testkit::block_on(async {
/// let allowed = async || Ok::<_, tidegate::store::StoreError>(limiter.decide_async("edge", &request).await?.is_none_or(|a| a.allowed));
/// assert!(allowed().await? && !allowed().await?);
/// # Ok::<(), tidegate::store::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EnvoyLimiter<S = MemoryStore> {
    config: RwLock<Arc<EnvoyConfig>>,
    /// Former limits of descriptors. Held while the files change.
    history: Mutex<History>,
    quotas: Quotas,
    store: Fallback<S>,
}

impl<S: Store> EnvoyLimiter<S> {
    /// Makes a configuration ready to decide.
    pub fn new(mut config: EnvoyConfig, store: S) -> EnvoyLimiter<S> {
        config.make_meters(&History::new());
        let (config, history) = (RwLock::new(Arc::new(config)), Mutex::default());
        EnvoyLimiter { config, history, quotas: Quotas::default(), store: Fallback::new(store) }
    }

    /// Says what answers when the store cannot. Without this, the caller gets
    /// the error.
    #[must_use]
    pub fn on_failure(self, mode: FailureMode) -> EnvoyLimiter<S> {
        EnvoyLimiter { store: self.store.on_failure(mode), ..self }
    }

    /// Makes every limit refuse only together with all others of the request, as if it had
    /// `quota_mode`; a descriptor without a limit is one that passes.
    #[must_use]
    pub fn all_quotas(self) -> EnvoyLimiter<S> {
        EnvoyLimiter { quotas: Quotas::All, ..self }
    }

    /// What it decides by.
    #[must_use]
    pub fn config(&self) -> Arc<EnvoyConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides by other files from now on. What was used of a limit stays
    /// used where the same descriptor has another limit now, also if it had
    /// none for a while.
    pub fn set_config(&self, mut config: EnvoyConfig) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut next, now) = (history.clone(), self.store.clock().now());
        next.retain(|_, former| {
            former.retain(|(_, until)| *until > now);
            !former.is_empty()
        });
        self.config().add_to(&mut next, now);
        config.make_meters(&next);
        *history = next;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Charges every descriptor, or none if one of them refuses; nothing if no
    /// file is about the domain. Descriptors that no file knows let everything
    /// pass.
    ///
    /// More hits than a limit could ever hold are refused, without a time to
    /// wait: for Envoy an error would be a reason to let the request pass.
    ///
    /// # Errors
    /// Whatever kept the store from answering, if nothing stands in for it.
    pub async fn decide_async(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<Option<EnvoyDecision>, StoreError> {
        loop {
            let config = self.config();
            if !config.has_domain(domain) {
                return Ok(None);
            }
            let mut plan = Plan::new(&config, domain, descriptors, self.quotas);
            self.ask(&mut plan.accounts, Phase::Peek, Carry::Nothing).await?;
            self.ask(&mut plan.accounts, Phase::Quota, Carry::Nothing).await?;
            plan.leave_out_exhausted_quotas();
            let mut refused = plan.is_refused();
            self.ask(&mut plan.accounts, Phase::Together, Carry::unless(refused)).await?;
            refused |= plan.is_refused_together();
            if !refused && !Arc::ptr_eq(&config, &self.config()) && !plan.is_final() {
                // Charged to limits that are no longer in force: it is decided anew by the files in force now.
                refund_charges(&self.store, plan.charged()).await;
                continue;
            }
            for account in &mut plan.accounts {
                // A shadow rule that fails changes no decision.
                let _ = self.ask(std::slice::from_mut(account), Phase::Alone, Carry::unless(refused)).await;
            }
            let now = self.store.clock().now();
            let statuses = plan.lines.iter().map(|line| plan.status(line, now)).collect();
            return Ok(Some(EnvoyDecision { allowed: !refused, statuses }));
        }
    }

    /// Decides the accounts of this phase.
    async fn ask(&self, accounts: &mut [Account<'_>], phase: Phase, carry: Carry) -> Result<(), StoreError> {
        let mine = accounts.iter().enumerate().filter(|(_, account)| account.phase == phase);
        let (places, checks): (Vec<usize>, Vec<Check<'_>>) =
            mine.filter_map(|(place, account)| Some((place, account.check(carry)?))).unzip();
        if checks.is_empty() {
            return Ok(());
        }
        let mut verdicts = vec![Verdict::default(); checks.len()];
        self.store.decide(&checks, &mut verdicts).await?;
        for (place, verdict) in places.into_iter().zip(verdicts) {
            accounts[place].verdict = verdict;
        }
        Ok(())
    }
}
