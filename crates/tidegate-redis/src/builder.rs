//! Settings of a store, and how it is put together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::SeedableRandomState;
use tidegate::{Clock, SystemClock};

use crate::breaker::BreakerSettings;
use crate::client::{CallSettings, Client};
use crate::layer::{Lease, Leased, Leases, RefusalCache, RefusalSettings, Refusals};
use crate::remote::{Remote, Settings};
use crate::runtime::Runtime;
use crate::servers::{ConnectError, Servers};
use crate::store::RedisStore;

/// Settings of a [`RedisStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    servers: Servers,
    calls: CallSettings,
    settings: Settings,
    refusals: Option<RefusalSettings>,
    hasher: SeedableRandomState,
    leases: HashMap<String, Lease>,
}

impl RedisStore {
    /// A store on the servers that the URL names, with the default settings.
    /// See [`Servers::parse`] for the kinds of URL.
    ///
    /// It waits for the first connection, but not for long: a store works as
    /// soon as its servers do.
    ///
    /// # Errors
    /// If the URL cannot be used. That the servers are away is no error.
    pub async fn connect(url: &str) -> Result<RedisStore, ConnectError> {
        let store = RedisStore::builder(Servers::parse(url)?).build()?;
        store.open().await;
        Ok(store)
    }

    /// Begins a store with other settings than the default ones.
    pub fn builder(servers: impl Into<Servers>) -> Builder {
        let calls = CallSettings {
            // Longer than a healthy server is silent while it forks or its machine is busy.
            deadline: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(1),
            breaker: BreakerSettings::default(),
        };
        let settings = Settings {
            prefix: "tidegate".into(),
            clock: Arc::new(SystemClock::new()),
            clock_decides: false,
            strict: false,
            ids_for: Duration::from_secs(300),
            given_back: None,
        };
        Builder {
            servers: servers.into(),
            calls,
            settings,
            refusals: None,
            hasher: SeedableRandomState::default(),
            leases: HashMap::new(),
        }
    }
}

impl Builder {
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
        self.calls.deadline = deadline;
        self
    }

    /// How long opening a connection may take, in the background: 1 s unless set.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Builder {
        self.calls.connect_timeout = connect_timeout;
        self
    }

    /// When to take servers to be away, and for how long to leave them alone.
    pub fn breaker(mut self, breaker: BreakerSettings) -> Builder {
        self.calls.breaker = breaker;
        self
    }

    /// Decides by this clock in place of the server's: for tests. All stores
    /// that share a prefix must have the same one.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.settings.clock = Arc::new(clock);
        self.settings.clock_decides = true;
        self
    }

    /// Waits by this clock, lets the servers decide by theirs, and hashes in the
    /// same way every time; no stability promise.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn simulated(mut self, clock: impl Clock) -> Builder {
        self.settings.clock = Arc::new(clock);
        self.hasher = SeedableRandomState::fixed();
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
    /// [`max_age`](RefusalSettings::max_age) has passed. Requests with ids, and those that meet
    /// a rule with a [lease](Builder::lease), are always asked about.
    pub fn remember_refusals(mut self, cache: RefusalSettings) -> Builder {
        self.refusals = Some(cache);
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
    /// kernels, windows [by their period](tidegate::store::Meter::by_period) and requests with ids
    /// are always decided by the servers.
    pub fn lease(mut self, rule: impl Into<String>, lease: Lease) -> Builder {
        self.leases.insert(rule.into(), lease);
        self
    }

    /// Makes the store; connections are opened when they are needed. They live
    /// on the tokio runtime that this is called in, which the store must not
    /// outlive; outside of one, the store brings a thread of its own.
    ///
    /// # Errors
    /// If a setting makes no sense. That the servers are away is no error.
    pub fn build(self) -> Result<RedisStore, ConnectError> {
        let Builder { servers, calls, mut settings, refusals, hasher, leases } = self;
        if settings.prefix.contains(['{', '}']) {
            return Err(ConnectError::Prefix { prefix: settings.prefix });
        }
        if calls.deadline.is_zero() || calls.connect_timeout.is_zero() {
            return Err(ConnectError::NoTime);
        }
        for (rule, lease) in &leases {
            if lease.chunk == 0 || lease.ttl.is_zero() {
                return Err(ConnectError::EmptyLease { rule: rule.clone() });
            }
        }
        let runtime = Runtime::find().map_err(ConnectError::NoThread)?;
        let handle = runtime.handle().clone();
        let leases = Arc::new(Leases::new(leases, calls.deadline).hashed(hasher));
        let refusals = refusals.map(|settings| Refusals::new(settings, Arc::clone(&leases)));
        settings.given_back = refusals.as_ref().map(Refusals::given_back);
        let remote = Remote::new(Client::new(servers, calls, &handle), runtime, settings);
        Ok(RedisStore::over(RefusalCache::new(Leased::new(remote, leases, handle), refusals)))
    }
}
