//! Limits that come with the request: checked against the server's caps, made
//! ready once, remembered within a bound.
//!
//! All of them go by one name, so no caller can make the process remember
//! names. A state belongs to the name and the limit's words, so the same key
//! under the same limit is one state, whichever protocol asks. Only Envoy's
//! count by their period, whatever their number. States are [kept
//! apart](crate::ask::inline_store) from those of the policy.

mod caps;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use tidegate::layer::DEFAULT_LOCAL_KEYS;
use tidegate::store::Meter;
use tidegate::{FailureMode, Limit, Limiter, LimiterBuilder, MemoryStore, Name, Policy};

pub(crate) use self::caps::Caps;
pub use self::caps::InlineError;
use crate::ask::store::AnyStore;

/// The rule that decisions by an inline limit speak of.
pub const INLINE_RULE: Name = Name::literal("inline");

/// Limits that are kept ready. States live in the store, or in one that stands
/// in for it, so when there are more, all are let go and nothing is lost but the
/// time to make them.
const MAX_LIMITS: usize = 10_000;

/// Words that are remembered: longer ones are read each time.
const MAX_TEXT_BYTES: usize = 64;

/// A limit that came with a request, ready to be asked in two ways.
pub struct Inline {
    /// What came.
    pub limit: Limit,
    /// For callers that ask the store directly, many checks at a time.
    pub meter: Meter,
    /// For all other callers: all verbs, failure mode, metrics.
    pub limiter: Limiter<AnyStore>,
}

/// Adds observers to a limiter: to that of the policy, or to that of a limit that came with a request.
pub(crate) type Observe = dyn Fn(LimiterBuilder<AnyStore>, Option<Limit>) -> LimiterBuilder<AnyStore> + Send + Sync;

pub(crate) struct InlineLimits {
    known: RwLock<HashMap<(Limit, Counted), Arc<Inline>>>,
    /// The same by the words that they came in, which need not be read again.
    by_words: RwLock<HashMap<Box<str>, Arc<Inline>>>,
    caps: Caps,
    store: AnyStore,
    /// The limiter of the policy, whose bounds they share.
    beside: Limiter<AnyStore>,
    on_failure: Option<FailureMode>,
    /// The fallback store of all limiters; it outlives them.
    local_store: Option<Arc<MemoryStore>>,
    observe: Box<Observe>,
}

/// What limits share a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// The same ones.
    ByLimit,
    /// Fixed windows of one period.
    ByPeriod,
}

impl InlineLimits {
    pub(crate) fn new(
        caps: Caps,
        store: AnyStore,
        beside: Limiter<AnyStore>,
        on_failure: Option<FailureMode>,
        observe: Box<Observe>,
    ) -> InlineLimits {
        let (known, by_words) = (RwLock::default(), RwLock::default());
        let local_store = matches!(on_failure, Some(FailureMode::Local { .. }))
            .then(|| Arc::new(MemoryStore::builder().max_keys(DEFAULT_LOCAL_KEYS).build().unwrap_or_default()));
        InlineLimits { known, by_words, caps, store, beside, on_failure, local_store, observe }
    }

    /// The limit that these words are.
    pub(crate) fn read(&self, words: &str) -> Result<Arc<Inline>, InlineError> {
        if let Some(known) = self.by_words.read().unwrap_or_else(PoisonError::into_inner).get(words) {
            return Ok(Arc::clone(known));
        }
        let inline = self.get(words.parse::<Limit>()?, Counted::ByLimit)?;
        if words.len() <= MAX_TEXT_BYTES {
            remember(&self.by_words, words.into(), &inline);
        }
        Ok(inline)
    }

    pub(crate) fn get(&self, limit: Limit, counted: Counted) -> Result<Arc<Inline>, InlineError> {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&(limit, counted)) {
            return Ok(Arc::clone(known));
        }
        // Envoy's have caps of their own.
        if counted == Counted::ByLimit {
            self.caps.check(limit)?;
        }
        let meter = match counted {
            Counted::ByLimit => Meter::new(INLINE_RULE, limit),
            Counted::ByPeriod => Meter::new(INLINE_RULE, limit).by_period(),
        };
        let mut builder =
            Limiter::builder(Policy::from(meter.clone())).store(self.store.clone()).within_bounds_of(&self.beside);
        if let Some(mode) = self.on_failure {
            builder = builder.on_failure(mode);
        }
        if let Some(store) = &self.local_store {
            builder = builder.local_store(Arc::clone(store));
        }
        let limiter = (self.observe)(builder, Some(limit)).build()?;
        let inline = Arc::new(Inline { limit, meter, limiter });
        remember(&self.known, (limit, counted), &inline);
        Ok(inline)
    }
}

fn remember<K: Eq + Hash>(known: &RwLock<HashMap<K, Arc<Inline>>>, name: K, inline: &Arc<Inline>) {
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_LIMITS {
        known.clear();
    }
    known.insert(name, Arc::clone(inline));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tidegate::ConfigError;

    use super::*;

    fn inline_limits() -> InlineLimits {
        let store = AnyStore::from(MemoryStore::default());
        let beside = Limiter::builder(Limit::per_hour(1)).store(store.clone()).max_log_entries(5).build().unwrap();
        InlineLimits::new(Caps::default(), store, beside, None, Box::new(|builder, _| builder))
    }

    #[test]
    fn a_log_beyond_the_bound_is_refused() {
        assert!(inline_limits().read("sliding-log 5/h").is_ok());
        let refused = inline_limits().read("sliding-log 6/h").err().unwrap();
        assert!(
            matches!(refused, InlineError::Config(ConfigError::TooManyLogEntries { entries: 6, bound: 5, .. })),
            "{refused}"
        );
    }

    #[test]
    fn more_limits_than_the_bound_are_forgotten_and_their_states_are_not() {
        let limits = inline_limits();
        let first = Limit::per_hour(1);
        let ask = |limit| {
            let inline = limits.get(limit, Counted::ByLimit).unwrap();
            let AnyStore::Memory(store) = inline.limiter.store() else { unreachable!("made above") };
            Limiter::with_store(Policy::from(inline.meter.clone()), Arc::clone(store)).unwrap().allow("alice")
        };
        assert!(ask(first));
        for count in 2..=(MAX_LIMITS as u64 + 2) {
            limits.get(Limit::token_bucket(count, Duration::from_secs(60)), Counted::ByLimit).unwrap();
        }
        assert!(limits.known.read().unwrap().len() <= MAX_LIMITS);
        assert!(!limits.known.read().unwrap().contains_key(&(first, Counted::ByLimit)));
        assert!(!ask(first));
    }

    #[test]
    fn words_are_read_once_and_bounded_as_well() {
        let limits = inline_limits();
        let first = limits.read("5/min").unwrap();
        assert_eq!(first.limit, "5/min".parse().unwrap());
        assert!(Arc::ptr_eq(&first, &limits.read("5/min").unwrap()));
        assert!(Arc::ptr_eq(&first, &limits.read(" 5/min ").unwrap()), "the same limit in other words");
        assert!(limits.read("five a minute").is_err());
        let many = " ".repeat(MAX_TEXT_BYTES) + "5/min";
        assert!(Arc::ptr_eq(&first, &limits.read(&many).unwrap()));
        assert!(!limits.by_words.read().unwrap().contains_key(&*many), "who pads words fills no memory");
        for count in 0..=MAX_LIMITS {
            limits.read(&format!("5/min{:1$}", "", count % 50)).unwrap();
            limits.read(&format!("{}/min", count + 1)).unwrap();
        }
        assert!(limits.by_words.read().unwrap().len() <= MAX_LIMITS);
    }
}
