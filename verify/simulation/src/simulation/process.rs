//! Processes, and what their callers do.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Algorithm, Clock, Decision, FailureMode, Limiter, MemoryStore, Micros, Request};
use tidegate_redis::{BreakerSettings, RedisFailure, RedisStore, RefusalCache, Servers};
use tidegate_testkit::Random;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use super::defect::{PlantedDefect, is_planted};
use super::network::Dialer;
use super::scenario::{LEASED, PREFIX};
use super::world::World;

/// All processes of a story.
#[derive(Clone)]
pub(super) struct Processes(Arc<Inner>);

struct Inner {
    world: Arc<World>,
    end: Instant,
    list: Mutex<Vec<Process>>,
}

/// One life of a process.
struct Process {
    limiter: Limiter<Watched>,
    callers: Vec<JoinHandle<()>>,
    /// Ends the callers, also those that are waited for already.
    ends: Vec<AbortHandle>,
}

/// A hundred times what any story needs.
const NO_DEADLINE: Duration = Duration::from_secs(3_600);

impl Processes {
    pub(super) fn start(world: &Arc<World>, end: Instant) -> Processes {
        let inner = Inner { world: Arc::clone(world), end, list: Mutex::default() };
        let processes = Processes(Arc::new(inner));
        for number in 0..world.scenario.processes {
            let process = processes.0.born(number, number as u64);
            processes.0.list().push(process);
        }
        processes
    }

    pub(super) fn limiters(&self) -> Vec<Limiter<Watched>> {
        self.0.list().iter().map(|process| process.limiter.clone()).collect()
    }

    /// Waits until every caller has done what it wanted to.
    pub(super) async fn end(&self) {
        loop {
            let callers: Vec<JoinHandle<()>> =
                self.0.list().iter_mut().flat_map(|process| process.callers.drain(..)).collect();
            if callers.is_empty() {
                return;
            }
            for caller in callers {
                if let Err(error) = caller.await
                    && error.is_panic()
                {
                    self.0.world.lock().judge.breaks(format!("a caller panics: {error}"));
                }
            }
        }
    }

    /// Ends a process, and starts it again.
    pub(super) async fn restart(&self, number: usize, gracefully: bool) {
        let Inner { world, list, .. } = &*self.0;
        let former = {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            let former = &mut list[number];
            former.ends.iter().for_each(AbortHandle::abort);
            former.limiter.clone()
        };
        if gracefully {
            former.store().close().await;
        }
        let life = world.lock().random.number();
        let mut process = self.0.born(number, life);
        let mut list = self.0.list();
        process.callers.append(&mut list[number].callers);
        list[number] = process;
    }
}

impl Inner {
    fn list(&self) -> MutexGuard<'_, Vec<Process>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn born(&self, number: usize, life: u64) -> Process {
        let Inner { world, end, .. } = self;
        let scenario = &world.scenario;
        let limiter = limiter(world, number);
        let numbers = 0..scenario.callers;
        let callers: Vec<JoinHandle<()>> = numbers
            .map(|caller| {
                let random = Random::new(scenario.seed ^ life.wrapping_mul(31) ^ (caller as u64) << 32);
                let caller = Caller {
                    world: Arc::clone(world),
                    limiter: limiter.clone(),
                    process: number,
                    life,
                    name: format!("{number}.{life:x}.{caller}"),
                    random,
                };
                tokio::spawn(caller.live(*end))
            })
            .collect();
        let ends = callers.iter().map(JoinHandle::abort_handle).collect();
        Process { callers, ends, limiter }
    }
}

fn limiter(world: &Arc<World>, process: usize) -> Limiter<Watched> {
    let scenario = &world.scenario;
    let dialer = Dialer { world: Arc::clone(world), process };
    let deadline = if is_planted(PlantedDefect::HasNoDeadline) { NO_DEADLINE } else { scenario.deadline };
    let mut builder = RedisStore::builder(Servers::simulated(dialer));
    builder = builder.prefix(PREFIX).deadline(deadline).simulated(world.clock());
    builder = builder.breaker(scenario.breaker);
    if let Some(lease) = scenario.lease {
        builder = builder.lease(LEASED, lease);
    }
    if scenario.is_strict {
        builder = builder.strict();
    }
    if scenario.remembers_refusals {
        builder = builder.remember_refusals(RefusalCache::default());
    }
    if is_planted(PlantedDefect::NeverLooksAgain) {
        builder = builder.breaker(BreakerSettings {
            first_pause: NO_DEADLINE,
            longest_pause: NO_DEADLINE,
            ..scenario.breaker
        });
    }
    let store = Watched { store: builder.build().expect("valid settings"), world: Arc::clone(world) };
    let local = MemoryStore::builder().max_keys(16).clock(world.clock()).build().expect("valid settings");
    let builder = Limiter::builder(scenario.policy()).store(store).local_store(local);
    let builder = match scenario.on_failure {
        Some(mode) => builder.on_failure(mode),
        None => builder,
    };
    builder.build().expect("a valid policy")
}

/// The store, with the judge looking on.
pub(super) struct Watched {
    store: RedisStore,
    world: Arc<World>,
}

impl Watched {
    pub(super) async fn close(&self) {
        self.store.close().await;
    }

    fn failed(&self, failure: Option<&RedisFailure>, checks: &[Check<'_>]) {
        let judge = &mut self.world.lock().judge;
        if let Some(RedisFailure::Away { .. }) = failure {
            judge.not_sent(checks);
        }
        if let Some(failure @ (RedisFailure::Disagreement | RedisFailure::Garbled { .. })) = failure {
            judge.breaks(failure.to_string());
        }
    }

    fn is_leased(&self, check: &Check<'_>) -> bool {
        let meter = check.meter();
        let is_leaky = meter.limit().is_some_and(|limit| limit.algorithm() == Algorithm::LeakyBucket);
        self.world.scenario.lease.is_some() && meter.name().as_str() == LEASED && !is_leaky
    }
}

impl Store for Watched {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.world.lock().judge.asked(checks, |check| self.is_leased(check));
        let decided = self.store.decide(checks, verdicts).await;
        let charges = checks.iter().all(|check| check.verb() == Verb::Charge);
        match &decided {
            Ok(at) if charges && verdicts.iter().all(|verdict| verdict.allowed) => {
                let mut state = self.world.lock();
                state.tally.admitted += 1;
                let now = state.now();
                state.judge.admitted(checks, *at, now);
            }
            Err(StoreError::Failed { .. }) if charges && is_planted(PlantedDefect::RefundsUponFailure) => {
                // In the background: the caller has waited for a deadline already.
                for check in checks {
                    let (store, meter, cost) = (self.store.clone(), check.meter().clone(), check.cost());
                    let key = check.key().clone().into_owned();
                    tokio::spawn(async move {
                        let refund = Check::new(&meter, &key, Verb::Refund, cost).expect("the same cost");
                        let _ = store.decide(&[refund], &mut [Verdict::default()]).await;
                    });
                }
            }
            Err(StoreError::Failed { source }) => self.failed(source.downcast_ref(), checks),
            Ok(_) | Err(_) => {}
        }
        decided
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

/// A caller that asks, and rests, and asks again.
struct Caller {
    world: Arc<World>,
    limiter: Limiter<Watched>,
    process: usize,
    life: u64,
    name: String,
    random: Random,
}

/// What a caller asks for.
#[derive(Clone, Copy)]
struct Wish {
    key: &'static str,
    cost: u64,
}

impl Wish {
    fn request(self) -> Request<'static> {
        Request::new(self.key).cost(self.cost)
    }
}

impl Caller {
    async fn live(mut self, end: Instant) {
        let keys: Vec<&'static str> = self.world.scenario.keys().collect();
        let rest = self.world.scenario.longest_rest_ms;
        let dearest = self.world.scenario.largest_cost();
        let mut number = 0;
        loop {
            sleep(Duration::from_millis(self.random.within(1..=rest))).await;
            if Instant::now() >= end {
                return;
            }
            number += 1;
            let wish = Wish { key: self.random.choose(&keys), cost: self.random.magnitude(1..=dearest) };
            match self.random.within(0..=19) {
                0..=11 => self.check(wish).await,
                12..=14 => self.check_by_id(wish, number).await,
                15 => self.peek(wish).await,
                16 | 17 => self.wait(wish).await,
                _ => self.give_up(wish).await,
            }
        }
    }

    /// The longest that a decision may take.
    fn longest(&self) -> Duration {
        self.world.scenario.longest_decision()
    }

    async fn check(&mut self, wish: Wish) {
        let decision = self.charge("check", wish, self.longest(), self.limiter.check_async(wish.request())).await;
        let is_admitted = decision.is_some_and(|decision| decision.is_allowed() && !decision.is_degraded());
        // What a process has on lease is given back by itself: refunds of
        // callers beside them could not be told apart.
        if is_admitted && self.world.scenario.lease.is_none() && self.random.percent(15) {
            self.timed("refund", self.longest(), self.limiter.decide_async(Verb::Refund, wish.request())).await;
        }
    }

    /// Sends a request again until it is answered.
    async fn check_by_id(&mut self, wish: Wish, number: u64) {
        let id = format!("{}.{number}", self.name);
        let mut has_passed = false;
        for _ in 0..4 {
            let asked = self.limiter.check_async(wish.request().id(&id));
            let decision = self.charge("check by id", wish, self.longest(), asked).await;
            if decision.as_ref().is_some_and(|decision| !decision.is_degraded()) {
                return;
            }
            if decision.as_ref().is_some_and(tidegate::Decision::is_repeated) && !has_passed {
                self.world.lock().judge.breaks(format!("{id} is answered as before, and never was"));
            }
            has_passed |= decision.as_ref().is_some_and(tidegate::Decision::is_allowed);
            sleep(Duration::from_millis(self.random.within(1..=100))).await;
        }
    }

    async fn peek(&self, wish: Wish) {
        self.timed("peek", self.longest(), self.limiter.peek_async(wish.request())).await;
    }

    async fn wait(&mut self, wish: Wish) {
        let max_wait = Duration::from_millis(self.random.magnitude(1..=2_000));
        let asked = self.limiter.acquire_async(wish.request(), max_wait);
        self.charge("acquire", wish, max_wait + self.longest(), asked).await;
    }

    /// Asks, and goes away before there is an answer.
    async fn give_up(&mut self, wish: Wish) {
        let max_wait = Duration::from_millis(self.random.within(0..=20));
        let asked = self.charge("check in passing", wish, self.longest(), self.limiter.check_async(wish.request()));
        let _ = timeout(max_wait, asked).await;
    }

    /// A call that charges. What a failure mode lets pass, it has to answer for,
    /// once for each id.
    async fn charge<E: fmt::Debug>(
        &self,
        what: &str,
        Wish { key, cost }: Wish,
        longest: Duration,
        call: impl Future<Output = Result<Decision, E>>,
    ) -> Option<Decision> {
        let decision = self.timed(what, longest, call).await?;
        if !decision.is_degraded() || !decision.is_allowed() || decision.is_repeated() {
            return Some(decision);
        }
        let mut state = self.world.lock();
        match self.world.scenario.on_failure {
            Some(FailureMode::Open) => {}
            Some(FailureMode::Local { processes }) => {
                let now = state.local_now();
                for limit in &self.world.scenario.limits {
                    state.judge.stood_in(self.life, key, limit.share(processes), (now, cost));
                }
            }
            Some(FailureMode::Closed) | None => {
                state.judge.breaks(format!("{} passes while the servers are away", self.name));
            }
        }
        Some(decision)
    }

    /// Whatever becomes of a call, it does so in time.
    async fn timed<E: fmt::Debug>(
        &self,
        what: &str,
        longest: Duration,
        call: impl Future<Output = Result<Decision, E>>,
    ) -> Option<Decision> {
        let began = Instant::now();
        let decision = call.await;
        let took = began.elapsed();
        let mut state = self.world.lock();
        state.tally.requests += 1;
        let shown = decision.as_ref().map(|told| (told.is_allowed(), told.remaining(), told.is_degraded()));
        state.note(format_args!("{} {what}: {shown:?} after {took:?}", self.name));
        if took > longest {
            state.judge.breaks(format!("{what} of {} takes {took:?}, not {longest:?}", self.process));
        }
        decision.ok()
    }
}
