//! The store: checks become calls of the script, one for each slot.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tidegate::kernel::Verdict;
use tidegate::{Check, Clock, Micros, Store, StoreError, SystemClock};
use tokio::time::{Instant, sleep, timeout};

use crate::breaker::Breaker;
use crate::builder::{Builder, Settings};
use crate::cluster::{Address, Cluster};
use crate::counters::{Counters, Statistics};
use crate::failure::{KINDS, Redirect, RedisFailure, Remedy};
use crate::key::{SLOTS, genesis_key, slot, state_key};
use crate::lease::Leases;
use crate::ledger::Lease;
use crate::link::Link;
use crate::refusals::Refusals;
use crate::runtime::Runtime;
use crate::script::{Call, Named, Once, Reply, Turn, USUALLY_KEPT_LONGER_MS};
use crate::servers::{ConnectError, Servers, Topology};

/// Keeps the states of every key on Redis or Valkey, where all processes that
/// use the same servers and prefix share them. Cheap to clone; clones are one
/// store.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    home: Home,
    runtime: Runtime,
    settings: Settings,
    /// What callers wait by, when the servers' own clock decides.
    waiting: SystemClock,
    /// One for all, or one for each [`SLOTS_A_BREAKER`] slots of a cluster.
    breakers: Box<[Breaker]>,
    refusals: Option<Refusals>,
    leases: Option<Leases>,
    /// Where strict mode keeps the history of a slot, by slot: found by trying.
    genesis: Box<[OnceLock<Vec<u8>>]>,
    counters: Counters,
    /// When it was last told that calls fail, in microseconds, by the kind of failure.
    told: [AtomicU64; KINDS],
}

/// Where the states are.
enum Home {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// A node that is away should not keep callers from the others; slots of one
/// node are mostly next to each other.
const SLOTS_A_BREAKER: u16 = 256;

/// How long a state is kept after it has become that of a fresh key where the
/// time is not the server's, and may stand still.
const KEPT_LONGER_BY_FOREIGN_CLOCK_MS: u64 = 86_400_000;

/// Microseconds between two lines in the log about failures of one kind.
const BETWEEN_WARNINGS: u64 = 10_000_000;

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
        let inner = &*store.inner;
        let opening = async {
            match &inner.home {
                Home::One(link) => link.connection().await.err(),
                Home::Cluster(cluster) => cluster.look().await.err(),
            }
        };
        let _ = inner.runtime.run(timeout(inner.settings.deadline, opening)).await;
        Ok(store)
    }

    /// Begins a store with other settings than the default ones.
    pub fn builder(servers: impl Into<Servers>) -> Builder {
        Builder::new(servers.into())
    }

    pub(crate) fn new(servers: Servers, mut settings: Settings) -> Result<RedisStore, ConnectError> {
        let runtime = Runtime::find().map_err(ConnectError::NoThread)?;
        let (patience, handle) = (settings.patience, runtime.handle().clone());
        let (home, breakers) = match servers.into_topology() {
            Topology::One(origin) => (Home::One(Link::new(origin, patience, handle)), 1),
            Topology::Cluster(nodes) => {
                (Home::Cluster(Cluster::new(&nodes, patience, handle)), SLOTS / SLOTS_A_BREAKER)
            }
        };
        let breakers = (0..breakers).map(|_| Breaker::new(settings.breaker, Instant::now())).collect();
        let refusals = settings.refusals.map(|cache| Refusals::new(cache, settings.hashing.clone()));
        let leases = Leases::new(std::mem::take(&mut settings.leases));
        let (waiting, counters) = (SystemClock::new(), Counters::default());
        let is_cluster = matches!(home, Home::Cluster(_));
        let slots = if settings.strict { if is_cluster { SLOTS } else { 1 } } else { 0 };
        let genesis = (0..slots).map(|_| OnceLock::new()).collect();
        let told = Default::default();
        let inner = Inner { home, runtime, settings, waiting, breakers, refusals, leases, genesis, counters, told };
        let inner = Arc::new(inner);
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

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
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
        let slot = self.slot_of(call);
        let breaker = &self.breakers[usize::from(slot / SLOTS_A_BREAKER)];
        let pass = breaker.enter(Instant::now()).inspect_err(|_| self.counters.turned_away())?;
        let mut attempt = Attempt { inner: self, slot, used: None, last_word: None, is_on_the_way: false };
        let attempted = async {
            if pass.is_probe() {
                attempt.look_around().await;
            }
            attempt.carry_out(call).await
        };
        let outcome = timeout(self.settings.deadline, attempted).await.unwrap_or_else(|_| {
            if attempt.is_on_the_way {
                return Err(RedisFailure::OnTheWay);
            }
            if let Some((link, generation)) = &attempt.used {
                link.suspect(*generation);
            }
            self.home.doubt();
            let last_word = attempt.last_word.take();
            // It was told to try again, and again.
            if last_word.is_some() {
                self.counters.heard(true);
            }
            let last_word = last_word.unwrap_or_else(|| "nothing".into());
            Err(RedisFailure::Deadline { deadline: self.settings.deadline, last_word })
        });
        if let Err(failure) = &outcome {
            self.tell_of(failure);
        }
        match &outcome {
            Err(failure) if failure.is_outage() => {
                self.counters.failed();
                if let Some(pause) = pass.failed(Instant::now()) {
                    self.counters.opened();
                    tracing::warn!(%failure, ?pause, "the servers are away: limits go by their failure modes");
                }
            }
            Ok(_) | Err(_) => {
                if pass.succeeded(Instant::now()) {
                    tracing::info!("the servers are back");
                }
                match &outcome {
                    Ok(_) => self.counters.heard(false),
                    Err(RedisFailure::Refused { .. }) => self.counters.heard(true),
                    // What is wrong with a request says nothing of the next one.
                    Err(_) => {}
                }
            }
        }
        outcome
    }

    /// Tells the operator why a call failed, though not each time.
    fn tell_of(&self, failure: &RedisFailure) {
        let Some(last) = failure.kind().map(|kind| &self.told[kind]) else { return };
        let (now, told) = (self.waiting.now().get(), last.load(Ordering::Relaxed));
        let is_due = told == 0 || now.saturating_sub(told) >= BETWEEN_WARNINGS;
        if is_due && last.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!(%failure, "a call of the store failed: limits go by their failure modes");
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// All servers, as far as they are known.
    pub(crate) async fn links(&self) -> Vec<Arc<Link>> {
        match &self.home {
            Home::One(link) => vec![Arc::clone(link)],
            Home::Cluster(cluster) => {
                // Those that were named are known even if they say nothing of the rest.
                let _ = timeout(self.settings.deadline, cluster.look()).await;
                cluster.links()
            }
        }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.settings.deadline
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }

    pub(crate) fn refusals(&self) -> Option<&Refusals> {
        self.refusals.as_ref()
    }

    /// The time by which this process keeps its own promises.
    pub(crate) fn local_now(&self) -> Micros {
        match &self.settings.clock {
            Some(clock) => clock.now(),
            None => self.waiting.now(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.home, Home::Cluster(_))
    }

    /// The slot of a call's keys; outside of a cluster there is only one.
    fn slot_of(&self, call: &Call<'_>) -> u16 {
        call.turns.first().filter(|_| self.is_cluster()).map_or(0, |turn| slot(&turn.key))
    }

    pub(crate) fn call<'a>(&self, turns: Vec<Turn<'a>>) -> Call<'a> {
        let now = self.settings.clock_decides.then(|| self.local_now().min(Micros::LATEST));
        let kept_longer_ms = if now.is_some() { KEPT_LONGER_BY_FOREIGN_CLOCK_MS } else { USUALLY_KEPT_LONGER_MS };
        let genesis = turns.first().filter(|_| self.settings.strict).map(|turn| {
            let slot = if self.is_cluster() { slot(&turn.key) } else { 0 };
            self.genesis[usize::from(slot)].get_or_init(|| genesis_key(&self.settings.prefix, slot)).clone()
        });
        Call::new(turns, now, kept_longer_ms, genesis)
    }

    /// The id under which a slice is carried out once, if it has one.
    pub(crate) fn once(&self, checks: &[Check<'_>]) -> Option<Once> {
        Once::of(checks, &self.settings.prefix, self.settings.ids_for)
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

impl Home {
    /// Has it found out soon who has which slot.
    fn doubt(&self) {
        match self {
            Home::One(_) => {}
            Home::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Who has the slot, if anybody has.
    async fn master(&self, slot: u16) -> Result<Option<Arc<Link>>, RedisFailure> {
        match self {
            Home::One(link) => Ok(Some(Arc::clone(link))),
            Home::Cluster(cluster) => cluster.master(slot).await,
        }
    }

    /// Who a node says has the slot; nobody but a cluster can say so.
    fn follow(&self, slot: u16, said_by: &Link, redirect: &Redirect) -> Option<Arc<Link>> {
        let Home::Cluster(cluster) = self else { return None };
        let host = if redirect.host.is_empty() { said_by.host()? } else { &redirect.host };
        let node = cluster.node(&Address { host: host.to_owned(), port: redirect.port });
        if !redirect.asking {
            cluster.moved(slot, &node);
        }
        Some(node)
    }

    /// Whether the slot is elsewhere, by the map as it is now.
    async fn has_moved(&self, slot: u16, from: &Arc<Link>) -> bool {
        let Home::Cluster(cluster) = self else { return false };
        if cluster.look().await.is_err() {
            return false;
        }
        cluster.master(slot).await.is_ok_and(|master| master.is_some_and(|master| !Arc::ptr_eq(&master, from)))
    }
}

/// One call on its way, perhaps by several nodes.
struct Attempt<'s> {
    inner: &'s Inner,
    slot: u16,
    /// The connection that was used last.
    used: Option<(Arc<Link>, u64)>,
    last_word: Option<String>,
    /// Whether the last word was that the keys are in two places.
    is_on_the_way: bool,
}

impl Attempt<'_> {
    /// Sends the call until it is carried out, or may have been: only those
    /// errors are tried again that say that nothing was done.
    async fn carry_out(&mut self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let (home, slot) = (&self.inner.home, self.slot);
        let mut named = Named::ByDigest;
        let mut pause = FIRST_PAUSE;
        // Whom to ask next, if not the master; and whether the slot is still on its way there.
        let mut next: Option<(Arc<Link>, bool)> = None;
        loop {
            let (link, asking) = match next.take() {
                Some(next) => next,
                None => match home.master(slot).await? {
                    Some(master) => (master, false),
                    None => {
                        self.last_word = Some("no node has the slot".into());
                        home.doubt();
                        pause = self.rest(pause).await;
                        continue;
                    }
                },
            };
            let (mut connection, generation) = match link.connection().await {
                Ok(opened) => opened,
                // Nothing was sent.
                Err(failure) if home.has_moved(slot, &link).await => {
                    self.last_word = Some(failure.to_string());
                    pause = self.rest(pause).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.used = Some((Arc::clone(&link), generation));
            self.inner.counters.sent();
            let error = match send(&mut connection, call.command(named), asking).await {
                Ok(value) => return Reply::read(&value),
                Err(error) => error,
            };
            self.last_word = Some(error.to_string());
            let remedy = Remedy::of(&error);
            self.is_on_the_way = matches!(remedy, Remedy::Part);
            match remedy {
                Remedy::SendScript => {
                    named = Named::InFull;
                    next = Some((link, asking));
                    continue;
                }
                Remedy::Follow(redirect) => match home.follow(slot, &link, &redirect) {
                    Some(node) => {
                        next = Some((node, redirect.asking));
                        continue;
                    }
                    None => return Err(RedisFailure::Refused { source: Arc::new(error) }),
                },
                Remedy::Part if call.can_part => return Err(RedisFailure::OnTheWay),
                Remedy::Part | Remedy::TryAgain => {}
                Remedy::FindMaster => link.lost(generation),
                Remedy::GiveUp(failure) => {
                    if failure.is_outage() {
                        link.lost(generation);
                        home.doubt();
                    }
                    return Err(failure);
                }
            }
            home.doubt();
            pause = self.rest(pause).await;
        }
    }

    /// Finds out who has which slot before it is found out the hard way, in
    /// part of the time.
    async fn look_around(&self) {
        if let Home::Cluster(cluster) = &self.inner.home {
            let _ = timeout(self.inner.settings.deadline / 2, cluster.look()).await;
        }
    }

    async fn rest(&self, pause: Duration) -> Duration {
        sleep(pause).await;
        (pause * 2).min(LONGEST_PAUSE)
    }
}

/// Sends a command, on purpose to a node that does not have the slot yet if
/// `asking`: that must be said just before, with nothing of others in between.
async fn send(connection: &mut MultiplexedConnection, command: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return command.query_async(connection).await;
    }
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command);
    let replies = connection.req_packed_commands(&both, 0, 2).await?;
    replies.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
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
        let _given_back = inner.refusals.as_ref().and_then(|refusals| refusals.given_back_by(checks, &keys));
        if let Some(leases) = &inner.leases
            && checks.iter().any(|check| !check.former().is_empty())
        {
            inner.runtime.run(inner.give_back_former(leases, checks, &keys)).await;
        }
        if let Some(id) = checks.first().and_then(Check::id) {
            return match inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await {
                Err(RedisFailure::IdReused) => Err(StoreError::IdReused { id: id.text.to_owned() }),
                decided => Ok(decided?),
            };
        }
        if let Some(leases) = &inner.leases {
            if let Some(now) = leases.answer(checks, &keys, verdicts, inner.local_now()) {
                inner.counters.leased();
                return Ok(now);
            }
            if leases.concern(checks) {
                return Ok(inner.runtime.run(self.inner.decide_leased_in_time(leases, checks, keys, verdicts)).await?);
            }
        }
        let Some(refusals) = &inner.refusals else {
            return Ok(inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await?);
        };
        let Some(question) = refusals.question(checks, &keys, inner.local_now()) else {
            return Ok(inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await?);
        };
        if let Some(at) = refusals.answer(&question, verdicts) {
            inner.counters.repeated();
            return Ok(at);
        }
        let at = inner.runtime.run(inner.decide_by_slot(checks, keys, verdicts)).await?;
        refusals.remember(question, verdicts, at, inner.local_now());
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
