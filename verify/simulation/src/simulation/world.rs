//! What all have in common: the time, chance, and the book of what happened.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tidegate::{Clock, Micros};
use tidegate_testkit::Random;
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::defect::{PlantedDefect, is_planted};
use super::fault::Condition;
use super::judge::Judge;
use super::scenario::Scenario;
use super::server::Server;
use super::{Tally, Telling};

/// Where the servers' time begins, in microseconds: some day in 2023.
pub(super) const START: u64 = 1_700_000_003_123_457;

/// Where the processes' own time begins: far enough behind that the two are
/// never defectn for each other, whatever is done to the servers' clocks.
const LOCAL_START: u64 = START - 86_400_000_000;

pub(super) struct World {
    pub(super) scenario: Scenario,
    began: Instant,
    state: Mutex<State>,
}

/// All that changes. It is never locked across an await.
pub(super) struct State {
    began: Instant,
    latest: u64,
    pub(super) random: Random,
    log: Log,
    pub(super) servers: Vec<Server>,
    pub(super) primary: usize,
    /// The loss since which a primary that was replaced answers, too.
    pub(super) two_answer: Option<usize>,
    /// What is wrong with the network, and for which process if not for all.
    pub(super) conditions: Vec<(usize, Condition)>,
    pub(super) connections: Vec<Arc<Connection>>,
    pub(super) judge: Judge,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(scenario: Scenario, seed: u64, telling: Telling) -> Arc<World> {
        let began = Instant::now();
        let state = State {
            began,
            latest: START,
            random: Random::new(seed ^ 0x5eed),
            log: Log { hash: 0xcbf2_9ce4_8422_2325, telling },
            servers: vec![Server::new(0)],
            primary: 0,
            two_answer: None,
            conditions: Vec::new(),
            connections: Vec::new(),
            judge: Judge::new(&scenario),
            tally: Tally::default(),
        };
        Arc::new(World { scenario, began, state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the processes.
    pub(super) fn clock(&self) -> VirtualClock {
        VirtualClock { began: self.began }
    }
}

impl State {
    /// An instant of its own for something that happens now: a microsecond of
    /// the current millisecond, later than all before.
    pub(super) fn instant(&mut self) -> u64 {
        let now = START + self.began.elapsed().as_micros() as u64 + self.random.within(0..=499);
        self.latest = now.max(self.latest + 1);
        self.latest
    }

    /// When the latest thing happened, or now.
    pub(super) fn now(&self) -> u64 {
        self.latest.max(START + self.began.elapsed().as_micros() as u64)
    }

    /// The same by the processes' clock.
    pub(super) fn local_now(&self) -> u64 {
        START + self.began.elapsed().as_micros() as u64
    }

    /// Notes what happened.
    pub(super) fn note(&mut self, event: fmt::Arguments<'_>) {
        let now = self.now() - START;
        self.tally.events += 1;
        self.log.write(now, event);
    }

    /// The judgement.
    pub(super) fn end(&mut self) -> Result<Tally, String> {
        self.tally.virtual_micros = self.now() - START;
        if is_planted(PlantedDefect::ReadsTheRealClock) {
            let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            self.note(format_args!("{:?}", real.map_or(0, |real| real.as_nanos())));
        }
        self.tally.hash = self.log.hash;
        self.judge.verdict().map(|()| self.tally)
    }
}

struct Log {
    hash: u64,
    telling: Telling,
}

impl Log {
    fn write(&mut self, at: u64, event: fmt::Arguments<'_>) {
        let _ = write!(Hashing(&mut self.hash), "{at} {event}");
        if self.telling == Telling::Aloud {
            println!("{:>4}.{:06} {event}", at / 1_000_000, at % 1_000_000);
        }
    }
}

/// FNV-1a of whatever is written.
struct Hashing<'h>(&'h mut u64);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// The time of the processes, which leaps with the runtime's.
#[derive(Clone)]
pub(super) struct VirtualClock {
    began: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> Micros {
        Micros::new(LOCAL_START + self.began.elapsed().as_micros() as u64)
    }

    fn wake_at(&self, at: Micros, waker: &Waker) {
        let (due, waker) = (self.began + Duration::from_micros(at.get().saturating_sub(LOCAL_START)), waker.clone());
        tokio::spawn(async move {
            sleep_until(due).await;
            waker.wake();
        });
    }
}
