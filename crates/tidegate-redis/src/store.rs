//! The store: checks become calls of the script, one for each slot.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::Value;
use tidegate::kernel::{Verb, Verdict};
use tidegate::{Check, Clock, Micros, Store, StoreError, SystemClock};
use tokio::time::{sleep, timeout};

use crate::breaker::Breaker;
use crate::builder::{Builder, Settings};
use crate::counters::{Counters, Statistics};
use crate::failure::{RedisFailure, Remedy};
use crate::key::{genesis_key, slot, state_key};
use crate::lease::Leases;
use crate::ledger::Lease;
use crate::link::Link;
use crate::refusals::Refusals;
use crate::runtime::Runtime;
use crate::script::{Call, Named, Reply, Turn, USUALLY_KEPT_LONGER_MS};
use crate::servers::{ConnectError, Connection, Servers};

/// Keeps the states of every key on Redis or Valkey, where all processes that
/// use the same servers and prefix share them. Cheap to clone; clones are one
/// store.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    link: Arc<Link>,
    runtime: Runtime,
    settings: Settings,
    /// What callers wait by, when the servers' own clock decides.
    waiting: SystemClock,
    /// One for all, or one for each [`SLOTS_A_BREAKER`] slots of a cluster.
    breakers: Box<[Breaker]>,
    refusals: Option<Refusals>,
    leases: Option<Leases>,
    counters: Counters,
}

/// A node that is away should not keep callers from the others; slots of one
/// node are mostly next to each other.
const SLOTS_A_BREAKER: u16 = 256;

/// How long a state is kept after it has become that of a fresh key where the
/// time is not the server's, and may stand still.
const KEPT_LONGER_BY_FOREIGN_CLOCK_MS: u64 = 86_400_000;

/// Pauses before a server that was not ready is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

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
        let link = Arc::clone(&store.inner.link);
        let _ = store
            .inner
            .runtime
            .run(timeout(store.inner.settings.deadline, async { link.connection().await.err() }))
            .await;
        Ok(store)
    }

    /// Begins a store with other settings than the default ones.
    pub fn builder(servers: impl Into<Servers>) -> Builder {
        Builder::new(servers.into())
    }

    pub(crate) fn new(servers: Servers, mut settings: Settings) -> Result<RedisStore, ConnectError> {
        let runtime = Runtime::find().map_err(ConnectError::NoThread)?;
        let link = Link::new(servers.into_topology(), settings.patience, runtime.handle().clone());
        let breakers = if link.is_cluster() { crate::key::SLOTS / SLOTS_A_BREAKER } else { 1 };
        let breakers = (0..breakers).map(|_| Breaker::new(settings.breaker)).collect();
        let refusals = settings.refusals.map(Refusals::new);
        let leases = Leases::new(std::mem::take(&mut settings.leases));
        let (waiting, counters) = (SystemClock::new(), Counters::default());
        let inner = Arc::new(Inner { link, runtime, settings, waiting, breakers, refusals, leases, counters });
        if let Some(shortest) = inner.leases.as_ref().and_then(Leases::shortest) {
            inner.runtime.handle().spawn(give_back_in_time(Arc::downgrade(&inner), shortest));
        }
        Ok(RedisStore { inner })
    }

    /// The lease of a rule, if it has one: its [`excess`](Lease::excess) is
    /// what the bound of this store's decisions is exceeded by at most.
    #[must_use]
    pub fn lease(&self, rule: &str) -> Option<Lease> {
        self.inner.leases.as_ref()?.of_rule(rule)
    }

    /// Gives back all that is on lease: for the end of a process.
    pub async fn close(&self) {
        let inner = &*self.inner;
        inner.runtime.run(inner.give_back_expired(Micros::MAX)).await;
    }

    /// What has happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let open = self.inner.breakers.iter().filter(|breaker| breaker.is_open()).count();
        let units = self.inner.leases.as_ref().map_or(0, |leases| leases.ledger.units());
        self.inner.counters.read(open, units)
    }
}

impl Inner {
    /// One call of the script: within the deadline, if the breaker lets it.
    pub(crate) async fn ask(&self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let breaker = self.breaker_of(call);
        let pass = breaker.enter(Instant::now()).inspect_err(|_| self.counters.turned_away())?;
        let mut attempt = Attempt { inner: self, generation: None, last_word: None };
        let outcome = timeout(self.settings.deadline, attempt.carry_out(call)).await.unwrap_or_else(|_| {
            if let Some(generation) = attempt.generation {
                self.link.suspect(generation);
            }
            let last_word = attempt.last_word.take().unwrap_or_else(|| "nothing".into());
            Err(RedisFailure::Deadline { deadline: self.settings.deadline, last_word })
        });
        match &outcome {
            Err(failure) if failure.is_outage() => {
                self.counters.failed();
                if let Some(pause) = pass.failed(Instant::now()) {
                    self.counters.opened();
                    tracing::warn!(%failure, ?pause, "the servers are away: limits go by their failure modes");
                }
            }
            Ok(_) | Err(_) => {
                if pass.succeeded() {
                    tracing::info!("the servers are back");
                }
            }
        }
        outcome
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }

    /// The time by which this process keeps its own promises.
    pub(crate) fn local_now(&self) -> Micros {
        match &self.settings.clock {
            Some(clock) => clock.now(),
            None => self.waiting.now(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.link.is_cluster()
    }

    fn breaker_of(&self, call: &Call<'_>) -> &Breaker {
        let slot = call.turns.first().filter(|_| self.is_cluster()).map_or(0, |turn| slot(&turn.key));
        &self.breakers[usize::from(slot / SLOTS_A_BREAKER)]
    }

    pub(crate) fn call<'a>(&self, turns: Vec<Turn<'a>>) -> Call<'a> {
        let now = self.settings.clock.as_ref().map(|clock| clock.now().min(Micros::LATEST));
        let kept_longer_ms = if now.is_some() { KEPT_LONGER_BY_FOREIGN_CLOCK_MS } else { USUALLY_KEPT_LONGER_MS };
        let genesis = turns.first().filter(|_| self.settings.strict).map(|turn| {
            let slot = if self.link.is_cluster() { slot(&turn.key) } else { 0 };
            genesis_key(&self.settings.prefix, slot)
        });
        Call { turns, now, kept_longer_ms, genesis, undone: Micros::ZERO }
    }
}

/// Gives back leases that are over, until the store is no more.
async fn give_back_in_time(store: Weak<Inner>, shortest: Duration) {
    let pause = (shortest / 2).clamp(Duration::from_millis(1), Duration::from_secs(1));
    loop {
        sleep(pause).await;
        let Some(inner) = store.upgrade() else { return };
        inner.give_back_expired(inner.local_now()).await;
    }
}

/// One call on its way, perhaps by several nodes.
struct Attempt<'s> {
    inner: &'s Inner,
    generation: Option<u64>,
    last_word: Option<String>,
}

impl Attempt<'_> {
    /// Sends the call until it is carried out, or may have been: only those
    /// errors are tried again that say that nothing was done.
    async fn carry_out(&mut self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let mut named = Named::ByDigest;
        let mut pause = FIRST_PAUSE;
        let mut redirect = None;
        loop {
            let (mut connection, generation) = self.inner.link.connection().await?;
            self.generation = Some(generation);
            self.inner.counters.sent();
            let command = call.command(named);
            let sent: Result<Value, _> = match redirect.take() {
                None => connection.send(&command).await,
                Some(redirect) => connection.send_to(command, redirect).await,
            };
            let error = match sent {
                Ok(value) => return Reply::read(&value),
                Err(error) => error,
            };
            self.last_word = Some(error.to_string());
            match Remedy::of(error) {
                Remedy::SendScript => named = Named::InFull,
                Remedy::Follow(to) => match connection {
                    Connection::Cluster(_) => redirect = Some(to),
                    Connection::One(_) => pause = self.rest(pause).await,
                },
                Remedy::TryAgain => pause = self.rest(pause).await,
                Remedy::FindMaster => {
                    self.inner.link.lost(generation);
                    pause = self.rest(pause).await;
                }
                Remedy::GiveUp(failure) => {
                    if failure.is_outage() {
                        self.inner.link.lost(generation);
                    }
                    return Err(failure);
                }
            }
        }
    }

    async fn rest(&self, pause: Duration) -> Duration {
        sleep(pause).await;
        (pause * 2).min(LONGEST_PAUSE)
    }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let inner = &*self.inner;
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(checks.len());
        for check in checks {
            let key = state_key(&inner.settings.prefix, check);
            if keys.contains(&key) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name() });
            }
            keys.push(key);
        }
        if let Some(leases) = &inner.leases {
            if let Some(now) = leases.answer(checks, &keys, verdicts, inner.local_now()) {
                inner.counters.leased();
                return Ok(now);
            }
            if leases.concern(checks) {
                return Ok(inner.runtime.run(self.inner.decide_leased(leases, checks, keys, verdicts)).await?);
            }
        }
        let Some(refusals) = &inner.refusals else {
            return Ok(inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await?);
        };
        let question = refusals.question(checks, &keys, inner.local_now());
        let Some(question) = question else {
            let given_back = checks.iter().any(|check| matches!(check.verb(), Verb::Refund | Verb::Reset));
            let states = if given_back { keys.clone() } else { Vec::new() };
            let decided = inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await;
            refusals.forget(&states);
            return Ok(decided?);
        };
        if let Some(at) = refusals.answer(&question, verdicts) {
            inner.counters.repeated();
            return Ok(at);
        }
        let at = inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await?;
        refusals.remember(question, verdicts, at);
        Ok(at)
    }

    fn clock(&self) -> &dyn Clock {
        match &self.inner.settings.clock {
            Some(clock) => &**clock,
            None => &self.inner.waiting,
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.inner.settings.prefix).finish_non_exhaustive()
    }
}
