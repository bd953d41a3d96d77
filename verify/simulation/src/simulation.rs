//! Many processes, their servers and the network between them, in virtual time
//! and from a seed.
//!
//! What decides is the real thing: the limiter with its failure modes, the
//! store with its links, leases, breaker and remembered refusals, the client
//! that speaks RESP, and the scripts, which run in Lua. What is simulated is
//! around it: time, which leaps to whatever happens next; the network, which
//! delays, cuts, swallows and hangs; and the servers, which pause, restart, lose
//! what they knew, fail over to replicas that lag, and have their clocks set.
//!
//! Everything that chance decides comes from the seed, so a seed is the whole
//! story: the same events, to the last byte of the log. While it is told, a
//! [`Judge`](judge::Judge) keeps the books; at the end, every promise must have
//! been kept, and once the faults are over everything must work again.
//!
//! `cargo xtask verify simulation 100000` tells so many stories, and
//! `cargo xtask verify simulation 1 --seed N` tells one of them aloud.

mod connection;
mod defect;
mod execution;
mod fault;
mod faults;
mod judge;
mod network;
mod process;
mod scenario;
mod server;
mod tests;
mod wire;
mod world;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::defect::PlantedDefect;
use self::process::Processes;
use self::scenario::Scenario;
use self::world::World;

/// What a story was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Of all that happened, in its order.
    hash: u64,
    events: u64,
    /// Requests that were decided, and those of them that a server let pass.
    requests: u64,
    admitted: u64,
    /// Times that a server lost states or was replaced.
    losses: u64,
    faults: u64,
    virtual_micros: u64,
}

/// A promise that was not kept.
#[derive(Debug)]
struct Broken {
    seed: u64,
    scenario: String,
    promise: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario)?;
        writeln!(f, "seed {}: {}", self.seed, self.promise)?;
        write!(f, "to replay it: cargo xtask verify simulation 1 --seed {}", self.seed)
    }
}

/// Whether the events are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Aloud,
    Silently,
}

/// The longest that anything may take once it should have ended, in virtual time.
const GRACE_TIME: Duration = Duration::from_secs(60);

/// How long everything may take to work again when the faults are over: the
/// breaker's longest pause a few times, because the connection that it tries
/// first may be one that was lost without a word.
const RECOVERY: Duration = Duration::from_secs(15);

/// Tells the story of a seed, and judges it.
fn simulate(seed: u64, defect: Option<PlantedDefect>, telling: Telling) -> Result<Tally, Box<Broken>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let _planted = defect::plant(defect);
    let scenario = Scenario::drawn(seed);
    let shown = format!("{scenario:#?}");
    let told = runtime.expect("a runtime").block_on(async {
        let world = World::new(scenario, seed, telling);
        live(&world).await;
        world.lock().end()
    });
    told.map_err(|promise| Box::new(Broken { seed, scenario: shown, promise }))
}

/// From the first request until everything works again.
async fn live(world: &Arc<World>) {
    let end = Instant::now() + world.scenario.length;
    let processes = Processes::start(world, end);
    tokio::spawn(faults::happen(Arc::clone(world), processes.clone()));
    if timeout(world.scenario.length + GRACE_TIME, processes.end()).await.is_err() {
        world.lock().judge.breaks("a call waits for ever".into());
        return;
    }
    recover(world, &processes).await;
}

async fn recover(world: &Arc<World>, processes: &Processes) {
    let by = Instant::now() + RECOVERY;
    for limiter in processes.limiters() {
        while !limiter.peek_async("a stranger").await.is_ok_and(|decision| !decision.is_degraded()) {
            if Instant::now() > by {
                world.lock().judge.breaks(format!("the servers are back for {RECOVERY:?} and get no calls"));
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    // A charge heals a state from a clock that was wrong, if neither a lease nor
    // another limit answers in its place: the second one does. Then all that was
    // used comes back as time passes.
    let keys = world.scenario.keys();
    for _ in 0..2 {
        sleep(world.scenario.lease.map_or(Duration::ZERO, |lease| 2 * lease.ttl)).await;
        for (key, limiter) in keys.clone().zip(processes.limiters().iter().cycle()) {
            let _ = limiter.check_async(key).await;
        }
        sleep(4 * world.scenario.horizon() + Duration::from_secs(5)).await;
    }
    for limiter in processes.limiters() {
        limiter.store().close().await;
    }
    for limiter in processes.limiters() {
        for key in keys.clone() {
            let whole = |decision: &tidegate::Decision| {
                decision.is_allowed() && !decision.is_degraded() && decision.remaining() == decision.capacity()
            };
            let decision = limiter.peek_async(key).await;
            if !decision.as_ref().is_ok_and(whole) {
                world.lock().judge.breaks(format!("{key} never gets back what it used: {decision:?}"));
            }
        }
    }
}
