//! Limits that come with the request: made ready once, remembered within a
//! bound.
//!
//! All of them go by one name, so no caller can make the process remember
//! names. A state belongs to the name and the limit's words, so the same key
//! under the same limit is one state, whichever protocol asks.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidegate::{ConfigError, FailureMode, Limit, Limiter, Meter, Name, Policy};

use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::store::AnyStore;

/// The rule that decisions by an inline limit speak of.
pub const INLINE_RULE: Name = Name::literal("inline");

/// Limits that are kept ready. States live in the store, so when there are
/// more, all are let go and nothing is lost but the time to make them.
const MOST_LIMITS: usize = 10_000;

/// A limit that came with a request, ready to be asked in two ways.
pub struct Inline {
    /// For those who ask the store themselves, many at a time.
    pub meter: Meter,
    /// For everyone else: all verbs, failure mode, metrics.
    pub limiter: Limiter<AnyStore>,
}

pub(crate) struct InlineLimits {
    known: RwLock<HashMap<Limit, Arc<Inline>>>,
    store: AnyStore,
    on_failure: Option<FailureMode>,
    metrics: Arc<Metrics>,
    refused: Arc<Refused>,
}

impl InlineLimits {
    pub(crate) fn new(
        store: AnyStore,
        on_failure: Option<FailureMode>,
        metrics: Arc<Metrics>,
        refused: Arc<Refused>,
    ) -> InlineLimits {
        InlineLimits { known: RwLock::default(), store, on_failure, metrics, refused }
    }

    pub(crate) fn get(&self, limit: Limit) -> Result<Arc<Inline>, ConfigError> {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&limit) {
            return Ok(Arc::clone(known));
        }
        let meter = Meter::new(INLINE_RULE, limit);
        let mut builder = Limiter::builder(Policy::from(meter.clone())).store(self.store.clone());
        if let Some(mode) = self.on_failure {
            builder = builder.on_failure(mode);
        }
        let limiter =
            builder.observer(Arc::clone(&self.metrics)).observer(Arc::clone(&self.refused).by(limit)).build()?;
        let inline = Arc::new(Inline { meter, limiter });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_LIMITS {
            known.clear();
        }
        known.insert(limit, Arc::clone(&inline));
        Ok(inline)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tidegate::MemoryStore;

    use super::*;

    #[test]
    fn more_limits_than_the_bound_are_forgotten_and_their_states_are_not() {
        let store = AnyStore::from(MemoryStore::default());
        let limits = InlineLimits::new(store, None, Arc::default(), Arc::default());
        let first = Limit::per_hour(1);
        let ask = |limit| {
            let inline = limits.get(limit).unwrap();
            let AnyStore::Memory(store) = inline.limiter.store() else { unreachable!("made above") };
            Limiter::with_store(Policy::from(inline.meter.clone()), Arc::clone(store)).unwrap().is_allowed("alice")
        };
        assert!(ask(first));
        for count in 2..=(MOST_LIMITS as u64 + 2) {
            limits.get(Limit::token_bucket(count, Duration::from_secs(60))).unwrap();
        }
        assert!(limits.known.read().unwrap().len() <= MOST_LIMITS);
        assert!(!limits.known.read().unwrap().contains_key(&first));
        assert!(!ask(first));
    }
}
