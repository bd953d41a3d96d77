//! One call of the script: sent to the server that has the slot, within the
//! deadline, if the breaker lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tidegate::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::breaker::{Breaker, BreakerSettings};
use crate::cluster::{Address, Cluster};
use crate::counters::{Counters, Statistics};
use crate::failure::{KINDS, Redirect, RedisFailure, Remedy};
use crate::key::{SLOTS, slot};
use crate::link::Link;
use crate::script::{Call, Named, Outcome, Reply};
use crate::servers::{Servers, Topology};

/// Sends calls to the servers.
pub(crate) struct Client {
    home: Home,
    deadline: Duration,
    /// One for all, or one for each [`SLOTS_PER_BREAKER`] slots of a cluster.
    breakers: Box<[Breaker]>,
    counters: Counters,
    clock: SystemClock,
    /// When a failure was last logged, in microseconds, by its kind.
    told: [AtomicU64; KINDS],
}

/// How long calls may take, and when they are not made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    pub(crate) deadline: Duration,
    /// How long opening a connection may take.
    pub(crate) connect_timeout: Duration,
    pub(crate) breaker: BreakerSettings,
}

/// Where the states are.
enum Home {
    One(Arc<Link>),
    Cluster(Arc<Cluster>),
}

/// A node that is away should not keep callers from the others; slots of one
/// node are mostly next to each other.
const SLOTS_PER_BREAKER: u16 = 256;

/// Microseconds between two lines in the log about failures of one kind.
const BETWEEN_WARNINGS: u64 = 10_000_000;

/// Pauses before a server that was not ready is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// The last word of a server counts no more when nothing came after it for this part of the
/// deadline: the call was sent again, and the server hangs.
const SILENT: u32 = 2;

impl Client {
    pub(crate) fn new(servers: Servers, settings: CallSettings, runtime: &Handle) -> Client {
        let (connect_timeout, runtime) = (settings.connect_timeout, runtime.clone());
        let (home, breakers) = match servers.into_topology() {
            Topology::One(origin) => (Home::One(Link::new(origin, connect_timeout, runtime)), 1),
            Topology::Cluster(nodes) => {
                (Home::Cluster(Cluster::new(&nodes, connect_timeout, runtime)), SLOTS / SLOTS_PER_BREAKER)
            }
        };
        Client {
            home,
            deadline: settings.deadline,
            breakers: (0..breakers).map(|_| Breaker::new(settings.breaker, Instant::now())).collect(),
            counters: Counters::default(),
            clock: SystemClock::new(),
            told: Default::default(),
        }
    }

    /// Waits for the first connection, until the deadline at most.
    pub(crate) async fn open(&self) {
        let opening = async {
            match &self.home {
                Home::One(link) => link.connection().await.err(),
                Home::Cluster(cluster) => cluster.look().await.err(),
            }
        };
        let _ = timeout(self.deadline, opening).await;
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// How many slots there are; outside of a cluster there is only one.
    pub(crate) fn slots(&self) -> u16 {
        match self.home {
            Home::One(_) => 1,
            Home::Cluster(_) => SLOTS,
        }
    }

    /// The slot of a state.
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        match self.home {
            Home::One(_) => 0,
            Home::Cluster(_) => slot(key),
        }
    }

    /// All servers, as far as they are known.
    pub(crate) async fn links(&self) -> Vec<Arc<Link>> {
        match &self.home {
            Home::One(link) => vec![Arc::clone(link)],
            Home::Cluster(cluster) => {
                // The nodes that the URL names are known even if they say nothing of the rest.
                let _ = timeout(self.deadline, cluster.look()).await;
                cluster.links()
            }
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.counters.read(self.breakers.iter().filter(|breaker| breaker.is_open()).count())
    }

    /// One call of the script: within the deadline, if the breaker lets it.
    pub(crate) async fn ask(&self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let slot = call.steps.first().map_or(0, |step| self.slot(&step.key));
        let breaker = &self.breakers[usize::from(slot / SLOTS_PER_BREAKER)];
        let pass = breaker.enter(Instant::now()).inspect_err(|_| self.counters.call_skipped())?;
        let mut attempt = Attempt { client: self, slot, used: None, last_word: None };
        let attempted = async {
            if pass.is_probe() {
                attempt.look_around().await;
            }
            attempt.carry_out(call).await
        };
        let outcome = timeout(self.deadline, attempted).await.unwrap_or_else(|_| {
            let last_word = attempt.last_word.take();
            let in_force = last_word.as_ref().filter(|word| word.at.elapsed() <= self.deadline / SILENT);
            if in_force.is_some_and(|word| word.is_on_the_way) {
                return Err(RedisFailure::OnTheWay);
            }
            if let Some((link, generation)) = &attempt.used {
                link.suspect(*generation);
            }
            self.home.doubt();
            // It was told to try again, and again.
            if in_force.is_some() {
                self.counters.heard(true);
            }
            let last_word = last_word.map_or_else(|| "nothing".into(), |word| word.text);
            Err(RedisFailure::Deadline { deadline: self.deadline, last_word })
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
        let (now, told) = (self.clock.now().get(), last.load(Ordering::Relaxed));
        let is_due = told == 0 || now.saturating_sub(told) >= BETWEEN_WARNINGS;
        if is_due && last.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!(%failure, "a call of the store failed: limits go by their failure modes");
        }
    }
}

impl Home {
    /// Has the map of the slots looked at again soon.
    fn doubt(&self) {
        match self {
            Home::One(_) => {}
            Home::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// The master of the slot, if there is one.
    async fn master(&self, slot: u16) -> Result<Option<Arc<Link>>, RedisFailure> {
        match self {
            Home::One(link) => Ok(Some(Arc::clone(link))),
            Home::Cluster(cluster) => cluster.master(slot).await,
        }
    }

    /// The node that has the slot, by the word of another; only in a cluster.
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
    client: &'s Client,
    slot: u16,
    /// The connection that was used last.
    used: Option<(Arc<Link>, u64)>,
    last_word: Option<Word>,
}

/// Why a call has to be sent again.
struct Word {
    text: String,
    at: Instant,
    /// Whether it says that the keys are in two places.
    is_on_the_way: bool,
}

impl Word {
    fn now(text: String) -> Word {
        Word { text, at: Instant::now(), is_on_the_way: false }
    }
}

impl Attempt<'_> {
    /// Sends the call until it is carried out, or may have been: only those
    /// errors are tried again that say that nothing was done.
    async fn carry_out(&mut self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let (home, slot) = (&self.client.home, self.slot);
        let (mut named, mut believed) = (Named::ByDigest, call.believed);
        let mut pause = FIRST_PAUSE;
        // The node to ask next, if not the master; and whether the slot is still on its way there.
        let mut next: Option<(Arc<Link>, bool)> = None;
        loop {
            let (link, asking) = match next.take() {
                Some(next) => next,
                None => match home.master(slot).await? {
                    Some(master) => (master, false),
                    None => {
                        self.last_word = Some(Word::now("no node has the slot".into()));
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
                    self.last_word = Some(Word::now(failure.to_string()));
                    pause = self.rest(pause).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.used = Some((Arc::clone(&link), generation));
            self.client.counters.sent();
            let error = match send(&mut connection, call.command(named, believed), asking).await {
                Ok(value) => match Reply::read(&value)? {
                    Reply { outcome: Outcome::OtherPeriod, now, .. } => {
                        (believed, next) = (now, Some((link, asking)));
                        continue;
                    }
                    reply => return Ok(reply),
                },
                Err(error) => error,
            };
            let remedy = Remedy::of(&error);
            let is_on_the_way = matches!(remedy, Remedy::Part);
            self.last_word = Some(Word { is_on_the_way, ..Word::now(error.to_string()) });
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

    /// Looks at the map of the slots before a node sends the call elsewhere, in
    /// part of the time.
    async fn look_around(&self) {
        if let Home::Cluster(cluster) = &self.client.home {
            let _ = timeout(self.client.deadline / 2, cluster.look()).await;
        }
    }

    async fn rest(&self, pause: Duration) -> Duration {
        sleep(pause).await;
        (pause * 2).min(MAX_PAUSE)
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
