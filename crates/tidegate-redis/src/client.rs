//! One call of the script: sent to the server that has the slot, within the
//! deadline, if the breaker lets it.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::breaker::{Breaker, BreakerSettings};
use crate::counters::Statistics;
use crate::failure::{RedisFailure, Remedy};
use crate::link::Link;
use crate::nodes::Nodes;
use crate::script::{Call, Named, Outcome, Reply};
use crate::servers::Servers;

/// Sends calls to the servers.
pub(crate) struct Client {
    nodes: Arc<Nodes>,
    deadline: Duration,
    /// One for all, or one for each [`SLOTS_PER_BREAKER`] slots of a cluster.
    breakers: Box<[Breaker]>,
    /// What was counted here; the layers above count for themselves.
    counted: Mutex<Statistics>,
    /// When a failure was last logged, by its kind.
    told: Mutex<HashMap<Discriminant<RedisFailure>, Instant>>,
}

/// How long calls may take, and when they are not made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    pub(crate) deadline: Duration,
    /// How long opening a connection may take.
    pub(crate) connect_timeout: Duration,
    pub(crate) breaker: BreakerSettings,
}

/// A node that is away should not keep callers from the others; slots of one
/// node are mostly next to each other.
const SLOTS_PER_BREAKER: u16 = 256;

/// Between two lines in the log about failures of one kind.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// Pauses before a server that was not ready is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// The last word of a server counts no more when nothing came after it for this part of the
/// deadline: the call was sent again, and the server hangs.
const SILENT: u32 = 2;

impl Client {
    pub(crate) fn new(servers: Servers, settings: CallSettings, runtime: &Handle) -> Client {
        let nodes = Nodes::new(servers.0, settings.connect_timeout, runtime.clone());
        let breakers = nodes.slots().div_ceil(SLOTS_PER_BREAKER);
        Client {
            nodes,
            deadline: settings.deadline,
            breakers: (0..breakers).map(|_| Breaker::new(settings.breaker, Instant::now())).collect(),
            counted: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// Waits for the first connection, until the deadline at most.
    pub(crate) async fn open(&self) {
        let opening = async { self.nodes.master(0).await.ok().flatten()?.connection().await.ok() };
        let _ = timeout(self.deadline, opening).await;
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// All servers, as far as they are known.
    pub(crate) async fn links(&self) -> Vec<Arc<Link>> {
        // The nodes that the URL names are known even if they say nothing of the rest.
        let _ = timeout(self.deadline, self.nodes.look()).await;
        self.nodes.links()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let away = self.breakers.iter().filter(|breaker| breaker.is_open()).count();
        Statistics { away, ..*self.counted() }
    }

    fn counted(&self) -> MutexGuard<'_, Statistics> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of the script: within the deadline, if the breaker lets it.
    pub(crate) async fn ask(&self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let slot = call.steps.first().map_or(0, |step| self.nodes.slot(&step.key));
        let breaker = &self.breakers[usize::from(slot / SLOTS_PER_BREAKER)];
        let pass = breaker.enter(Instant::now()).inspect_err(|_| self.counted().calls_skipped += 1)?;
        let mut attempt = Attempt { client: self, slot, used: None, last_word: None };
        let attempted = async {
            if pass.is_probe() {
                // The map of the slots, before a node sends the call elsewhere: in part of the time.
                let _ = timeout(self.deadline / 2, self.nodes.look()).await;
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
            self.nodes.doubt();
            // It was told to try again, and again.
            if in_force.is_some() {
                self.counted().refuse();
            }
            let last_word = last_word.map_or_else(|| "nothing".into(), |word| word.text);
            Err(RedisFailure::Deadline { deadline: self.deadline, last_word })
        });
        if let Err(failure) = &outcome {
            self.tell_of(failure);
        }
        match &outcome {
            Err(failure) if failure.is_outage() => {
                self.counted().failures += 1;
                if let Some(pause) = pass.failed(Instant::now()) {
                    self.counted().outages += 1;
                    tracing::warn!(%failure, ?pause, "the servers are away: limits go by their failure modes");
                }
            }
            Ok(_) | Err(_) => {
                if pass.succeeded(Instant::now()) {
                    tracing::info!("the servers are back");
                }
                match &outcome {
                    Ok(_) => self.counted().refusing = false,
                    Err(RedisFailure::Refused { .. }) => self.counted().refuse(),
                    // What is wrong with a request says nothing of the next one.
                    Err(_) => {}
                }
            }
        }
        outcome
    }

    /// Tells the operator why a call failed, though not each time.
    fn tell_of(&self, failure: &RedisFailure) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, last) = (Instant::now(), told.get(&discriminant(failure)));
        if failure.is_told() && last.is_none_or(|last| now.duration_since(*last) >= BETWEEN_WARNINGS) {
            tracing::warn!(%failure, "a call of the store failed: limits go by their failure modes");
            told.insert(discriminant(failure), now);
        }
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
        let (nodes, slot) = (&self.client.nodes, self.slot);
        let (mut named, mut believed) = (Named::ByDigest, call.believed);
        let mut pause = FIRST_PAUSE;
        // The node to ask next, if not the master; and whether the slot is still on its way there.
        let mut next: Option<(Arc<Link>, bool)> = None;
        loop {
            let (link, asking) = match next.take() {
                Some(next) => next,
                None => match nodes.master(slot).await? {
                    Some(master) => (master, false),
                    None => {
                        self.last_word = Some(Word::now("no node has the slot".into()));
                        nodes.doubt();
                        pause = self.rest(pause).await;
                        continue;
                    }
                },
            };
            let (mut connection, generation) = match link.connection().await {
                Ok(opened) => opened,
                // Nothing was sent.
                Err(failure) if nodes.has_moved(slot, &link).await => {
                    self.last_word = Some(Word::now(failure.to_string()));
                    pause = self.rest(pause).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.used = Some((Arc::clone(&link), generation));
            self.client.counted().round_trips += 1;
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
                Remedy::Follow(redirect) => match nodes.follow(slot, &link, &redirect) {
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
                        nodes.doubt();
                    }
                    return Err(failure);
                }
            }
            nodes.doubt();
            pause = self.rest(pause).await;
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
