//! A store like [`RedisStore`](tidegate_redis::RedisStore), with the script in this
//! process. Whatever the script writes is looked at: a state must be kept as
//! long as it matters, and no longer than it was told to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::kernel::{Charged, Kernel, LimitKernel, Verb, Verdict};
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Limit, ManualClock, Micros};
use tidegate_redis::RedisFailure;
use tidegate_redis::internals::{
    self, Call, FormerStep, Named, Once, Outcome, Reply, Step, Task, Tell, genesis_key, read_bucket, read_window,
    state_key,
};

use super::host;
use super::keyspace::Keyspace;

pub(super) struct EmbeddedStore {
    keyspace: Mutex<Keyspace>,
    clock: ManualClock,
    settings: Settings,
    genesis: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) kept_longer_ms: u64,
    pub(super) strict: bool,
    /// Whether the script asks for the time itself.
    pub(super) by_server_time: bool,
    /// Whether keys are gone when their time is over.
    pub(super) expires: bool,
}

const PREFIX: &str = "tg";

impl EmbeddedStore {
    /// An empty store whose clock stands until it is set.
    pub(super) fn manual() -> (EmbeddedStore, ManualClock) {
        let settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: false };
        EmbeddedStore::with(settings)
    }

    pub(super) fn with(settings: Settings) -> (EmbeddedStore, ManualClock) {
        let clock = ManualClock::default();
        let mut keyspace = Keyspace::default();
        keyspace.expires = settings.expires;
        let genesis = settings.strict.then(|| genesis_key(PREFIX, 0));
        (EmbeddedStore { keyspace: Mutex::new(keyspace), clock: clock.clone(), settings, genesis }, clock)
    }

    pub(super) fn keyspace(&self) -> MutexGuard<'_, Keyspace> {
        self.keyspace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key_of(check: &Check<'_>) -> Vec<u8> {
        state_key(PREFIX, check)
    }

    /// Takes back what `check` charged at an instant.
    pub(super) fn undo(&self, check: Check<'_>, charged_at: Micros) -> Result<Verdict, RedisFailure> {
        let limit = check.meter().limit().expect("a limit of ours");
        let charged = Charged { at: charged_at, cost: check.cost() };
        let check = check.with_verb(Verb::Settle(charged)).with_cost(0);
        let task = Task::Decide { check, limit };
        let key = Self::key_of(&check);
        let told = Tell::step(&check, 0, PREFIX, &key);
        let call = self.call([Step { key, task }].into_iter().chain(told).collect());
        self.run(&call)?.verdict(0, &call.steps[0].task)
    }

    pub(super) fn call<'a>(&self, steps: Vec<Step<'a>>) -> Call<'a> {
        let Settings { kept_longer_ms, by_server_time, .. } = self.settings;
        let now = (!by_server_time).then(|| self.now());
        let genesis = self.genesis.clone();
        Call::new(steps, now, kept_longer_ms, genesis)
    }

    pub(super) fn run(&self, call: &Call<'_>) -> Result<Reply, RedisFailure> {
        let mut keyspace = self.keyspace();
        keyspace.now = self.now();
        let ask = |believed, keyspace: &mut Keyspace| {
            let value = host::run(&call.command(Named::ByDigest, believed), keyspace).map_err(failure)?;
            Reply::read(&value)
        };
        let mut reply = ask(call.believed, &mut keyspace)?;
        if reply.outcome == Outcome::OtherPeriod {
            reply = ask(reply.now, &mut keyspace)?;
        }
        for step in &call.steps {
            if keyspace.was_written(&step.key) {
                examine(&keyspace, step, call.kept_longer_ms);
            }
        }
        Ok(reply)
    }

    fn decide_now(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(checks.len());
        for check in checks {
            let key = Self::key_of(check);
            if steps.iter().any(|step| step.key == key) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            let limit = check.meter().limit().expect("a limit of ours");
            steps.push(Step { key, task: Task::Decide { check: *check, limit } });
        }
        let told = checks.iter().enumerate();
        let told = told.filter_map(|(place, check)| Tell::step(check, place, PREFIX, &steps[place].key));
        let told: Vec<Step<'_>> = told.collect();
        steps.extend(told);
        let mut call = self.call(steps);
        let now = self.now();
        let former = checks.iter().enumerate().flat_map(|(of, check)| {
            let step = move |former| FormerStep::new(of, check, former, Self::key_of(&check.of_former(former)));
            check.former_at(now).filter_map(step)
        });
        call.former = former.collect();
        call.once = Once::of(checks, PREFIX, Duration::from_secs(300), now);
        let reply = match (self.run(&call), checks.first().and_then(Check::id)) {
            (Err(RedisFailure::NotReserved), Some(id)) => {
                return Err(StoreError::NotReserved { id: id.text.to_owned() });
            }
            (Err(RedisFailure::IdReused), Some(id)) => {
                return Err(StoreError::IdReused { id: id.text.to_owned() });
            }
            (reply, _) => reply?,
        };
        if reply.is_of_other_limits(call.once.as_ref()) {
            verdicts.fill(Verdict { allowed: true, repeated: true, ..Verdict::default() });
            return Ok(reply.now);
        }
        let decided = (0..checks.len()).map(|index| reply.verdict(index, &call.steps[index].task));
        verdicts.copy_from_slice(&call.told(&reply, decided.collect::<Result<_, _>>()?));
        Ok(reply.now)
    }

    fn now(&self) -> Micros {
        self.clock.now().min(Micros::LATEST)
    }
}

impl Store for EmbeddedStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        self.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}

/// What the store makes of a server's error.
fn failure(error: String) -> RedisFailure {
    // A server's clients know an error by its first word.
    if let Some(at) = error.find("TG") {
        assert!(error[..at].ends_with("runtime error: "), "not the first word: {error}");
    }
    let error = redis::RedisError::from((redis::ErrorKind::Extension, "the script failed", error));
    internals::failure(&error).unwrap_or_else(|remedy| panic!("the store answers a failed script by {remedy}"))
}

/// Whether a state that was just written is kept for as long as it should be.
fn examine(keyspace: &Keyspace, step: &Step<'_>, kept_longer_ms: u64) {
    let limit = match &step.task {
        Task::Decide { limit, .. } => *limit,
        Task::Swap { .. } | Task::Tell(_) => return,
    };
    let name = String::from_utf8_lossy(&step.key);
    let Some(kept_until) = keyspace.kept_until(&step.key) else { panic!("{name}: kept for ever") };
    let forget_at = forget_at(keyspace, &step.key, limit).unwrap_or_else(|| panic!("{name}: no state of {limit}"));
    let least = forget_at.get() + kept_longer_ms * 1_000;
    assert!(kept_until.get() >= least, "{name}: matters until {forget_at}, kept until {kept_until}");
}

pub(super) fn forget_at(keyspace: &Keyspace, key: &[u8], limit: Limit) -> Option<Micros> {
    Some(match limit.kernel() {
        LimitKernel::Bucket(bucket) => bucket.forget_at(&read_bucket(&bucket, Some(keyspace.string(key)?))?),
        LimitKernel::Window(window) => window.forget_at(&read_window(&window, Some(keyspace.string(key)?))?),
        LimitKernel::Log(log) => Micros::new(keyspace.newest(key)? + log.period()),
    })
}
