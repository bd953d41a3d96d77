//! Settings of a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Clock;

use crate::breaker::BreakerSettings;
use crate::ledger::Lease;
use crate::refusals::{Hashing, RefusalCache};
use crate::servers::{ConnectError, Servers};
use crate::store::RedisStore;

/// Settings of a [`RedisStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    servers: Servers,
    settings: Settings,
}

pub(crate) struct Settings {
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    /// How long opening a connection may take.
    pub(crate) patience: Duration,
    pub(crate) breaker: BreakerSettings,
    /// The time of this process, if it is not the system's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// Whether that time also decides, in place of the servers' own.
    pub(crate) clock_decides: bool,
    pub(crate) strict: bool,
    pub(crate) refusals: Option<RefusalCache>,
    pub(crate) hashing: Hashing,
    pub(crate) leases: HashMap<String, Lease>,
    pub(crate) ids_for: Duration,
}

impl Builder {
    pub(crate) fn new(servers: Servers) -> Builder {
        let settings = Settings {
            prefix: "tidegate".into(),
            // Longer than a healthy server is silent while it forks or its machine is busy.
            deadline: Duration::from_millis(100),
            patience: Duration::from_secs(1),
            breaker: BreakerSettings::default(),
            clock: None,
            clock_decides: false,
            strict: false,
            refusals: None,
            hashing: Hashing::default(),
            leases: HashMap::new(),
            ids_for: Duration::from_secs(300),
        };
        Builder { servers, settings }
    }

    /// What the name of every key begins with: `tidegate` unless set. Stores
    /// with different prefixes know nothing of each other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.settings.prefix = prefix.into();
        self
    }

    /// How long one call may take: 100 ms unless set. A check is one call, but for
    /// limits in several slots of a cluster, warm-ups and kernels of your own, a
    /// key's first charge after its limit was changed, and rules that only watch.
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.settings.deadline = deadline;
        self
    }

    /// How long opening a connection may take, in the background: 1 s unless set.
    pub fn connection_patience(mut self, patience: Duration) -> Builder {
        self.settings.patience = patience;
        self
    }

    /// When to take servers to be away, and for how long to leave them alone.
    pub fn breaker(mut self, breaker: BreakerSettings) -> Builder {
        self.settings.breaker = breaker;
        self
    }

    /// Decides by this clock in place of the server's: for tests. All stores
    /// that share a prefix must have the same one.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.settings.clock = Some(Arc::new(clock));
        self.settings.clock_decides = true;
        self
    }

    /// Waits by this clock, lets the servers decide by theirs, and hashes in the
    /// same way every time; no stability promise.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn simulated(mut self, clock: impl Clock) -> Builder {
        self.settings.clock = Some(Arc::new(clock));
        self.settings.hashing = Hashing::Fixed;
        self
    }

    /// Trusts no state that could have lost charges: after a start, a restart
    /// or a failover of a server, every key there is taken to be used up, and
    /// recovers as its limit allows.
    pub fn strict(mut self) -> Builder {
        self.settings.strict = true;
        self
    }

    /// Remembers refusals, and repeats them without asking until the refused
    /// could pass. What a repeated refusal says of `remaining` was true when it
    /// was first given. A refund or reset by another process takes effect once
    /// [`RefusalCache::longest`] has passed. Requests with ids, and those that meet
    /// a rule with a [lease](Builder::lease), are always asked about.
    pub fn remember_refusals(mut self, cache: RefusalCache) -> Builder {
        self.settings.refusals = Some(cache);
        self
    }

    /// For how long the [ids](tidegate::Request::id) of requests are remembered:
    /// five minutes unless set.
    pub fn remember_ids_for(mut self, time: Duration) -> Builder {
        self.settings.ids_for = time;
        self
    }

    /// Lets this process borrow units of the limits under a rule's name, and
    /// answer by itself while they last; see [`Lease`] for what that costs in
    /// exactness. A refund goes to the servers; a reset forgets what this
    /// process has borrowed, not what others have. Leaky buckets, warm-ups, custom
    /// kernels and requests with ids are always decided by the servers.
    pub fn lease(mut self, rule: impl Into<String>, lease: Lease) -> Builder {
        self.settings.leases.insert(rule.into(), lease);
        self
    }

    /// Makes the store; connections are opened when they are needed. They live
    /// on the tokio runtime that this is called in, which the store must not
    /// outlive; outside of one, the store brings a thread of its own.
    ///
    /// # Errors
    /// If a setting makes no sense. That the servers are away is no error.
    pub fn build(self) -> Result<RedisStore, ConnectError> {
        let Builder { servers, settings } = self;
        if settings.prefix.contains(['{', '}']) {
            return Err(ConnectError::Prefix { prefix: settings.prefix });
        }
        if settings.deadline.is_zero() || settings.patience.is_zero() {
            return Err(ConnectError::NoTime);
        }
        for (rule, lease) in &settings.leases {
            if lease.chunk == 0 || lease.ttl.is_zero() {
                return Err(ConnectError::EmptyLease { rule: rule.clone() });
            }
        }
        RedisStore::new(servers, settings)
    }
}
