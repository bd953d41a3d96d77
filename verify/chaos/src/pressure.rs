//! The load that a fault meets, and the judgement of what it did.
//!
//! Two loads on one store and one key, so that both are always in the same place.
//! The *greedy* callers want more than their limit allows: it is always used up, so
//! whatever a fault frees is taken at once. The *counted* callers have a limit that
//! does not refill: what it has left says exactly how often they were charged.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::store::StoreError;
use tidegate::{CheckError, Decision, FailureMode, Limit, Limiter, Request};
use tidegate_redis::{RedisFailure, RedisStore};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Admission, CallId, Load, Outcome, Reply, Server, Tally, eventually};

use crate::bound::{Damage, allowance, tightest};
use crate::findings::Findings;
use crate::tidegate_process::HTTP_TIMEOUT;
use crate::trial::{KEY, SLACK, Trial, build, limiter};

const GREEDY_CALLERS: usize = 6;
const GREEDY_PAUSE: Duration = Duration::from_millis(4);
const COUNTED_CALLERS: usize = 3;
const COUNTED_PAUSE: Duration = Duration::from_millis(8);

/// More than will ever be asked for, and nothing comes back for a day.
const COUNTED: Limit = Limit::fixed_window(1_000_000, Duration::from_secs(86_400)).from_first_request();

/// Callers at work.
pub(crate) struct Pressure {
    greedy: Load,
    limit: Limit,
    mode: Option<FailureMode>,
    counted: Option<Counted>,
    deadline: Duration,
    notes: Vec<String>,
}

/// Callers whose every charge is accounted for.
struct Counted {
    load: Load,
    limiter: Limiter<RedisStore>,
    /// The ids that callers will send again, if they send any: each stands for one charge.
    ids: Option<Arc<Ids>>,
}

type Ids = Mutex<[Option<String>; COUNTED_CALLERS]>;

impl Pressure {
    /// Both loads, by a limit and a failure mode of chance.
    pub(crate) fn start(trial: &mut Trial, store: &RedisStore) -> Pressure {
        Pressure::greedy(trial, store).and_counted(trial, store)
    }

    /// The greedy load alone, for where a limit of a day would stay used up.
    pub(crate) fn greedy(trial: &mut Trial, store: &RedisStore) -> Pressure {
        let (limit, mode) = (trial.limit(), trial.failure_mode());
        Pressure::on(trial, store, limit, mode)
    }

    /// The same on a store in strict mode.
    pub(crate) fn strict(trial: &mut Trial, url: &str) -> Pressure {
        let store = build(trial.builder(url).strict());
        Pressure::greedy(trial, &store)
    }

    fn on(trial: &Trial, store: &RedisStore, limit: Limit, mode: Option<FailureMode>) -> Pressure {
        let limiter = limiter(store, "greedy", limit, mode);
        let greedy = Load::start(GREEDY_CALLERS, GREEDY_PAUSE, move |_| outcome(block_on(limiter.check_async(KEY))));
        let mut notes =
            vec![format!("{limit}, when away: {}", mode.map_or("an error".into(), |mode| format!("{mode:?}")))];
        if trial.remembers_refusals {
            notes.push("refusals are remembered".into());
        }
        Pressure { greedy, limit, mode, counted: None, deadline: trial.deadline, notes }
    }

    fn and_counted(mut self, trial: &mut Trial, store: &RedisStore) -> Pressure {
        let ids = trial.random.percent(50).then(Arc::<Ids>::default);
        self.notes.push(if ids.is_some() { "with request ids".into() } else { "without request ids".into() });
        let limiter = limiter(store, "counted", COUNTED, None);
        let (asks, known) = (limiter.clone(), ids.clone());
        let load = Load::start(COUNTED_CALLERS, COUNTED_PAUSE, move |call| match &known {
            None => outcome(block_on(asks.check_async(KEY))),
            Some(ids) => ask_by_id(&asks, ids, call),
        });
        self.counted = Some(Counted { load, limiter, ids });
        self
    }

    /// Waits until the limit is used up, and all callers are at work.
    pub(crate) fn settle(&self) {
        self.greedy.wait_until("the limit to be used up", |tally| tally.admitted > 0 && tally.refused > 20);
        if let Some(counted) = &self.counted {
            counted.load.wait_for_admitted(20);
        }
    }

    /// Lets it go on like this for a while.
    pub(crate) fn endure(&self, length: Duration) {
        thread::sleep(length);
    }

    /// Lets it go on until the store has given some more answers.
    pub(crate) fn go_on(&self) {
        self.greedy.wait_for_answers(20);
        if let Some(counted) = &self.counted {
            counted.load.wait_for_answers(20);
        }
    }

    /// Waits until callers are told that the store is away.
    pub(crate) fn suffer(&self) {
        self.suffer_from(|| {});
    }

    /// Does something that passes by itself, again and again until callers are told that the
    /// store is away.
    pub(crate) fn suffer_from(&self, mut harm: impl FnMut()) {
        let failed = |tally: &Tally| tally.asked() - tally.answered();
        let before = failed(&self.tally());
        self.greedy.wait_until("the fault to be felt", |_| {
            harm();
            failed(&self.tally()) > before + 5
        });
    }

    /// Waits until the store answers as before: it admits, and has no more to give.
    pub(crate) fn recover(&self) {
        recover(&self.greedy);
        self.go_on();
    }

    /// The limit that the greedy ones want more than.
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What has become of the greedy ones so far.
    pub(crate) fn tally(&self) -> Tally {
        self.greedy.tally()
    }

    /// Ends it, and holds what happened against what was promised.
    pub(crate) fn judge(self, damage: Damage) -> Findings {
        let Pressure { greedy, limit, mode, counted, deadline, notes } = self;
        let mut findings = Findings { notes, ..Findings::default() };
        let (tally, admissions) = greedy.finish_with_admissions();
        findings.count(&tally, damage.most(&limit, span(&admissions)));
        judge_admissions(&mut findings, &admissions, &limit, damage);
        judge_fallback(&mut findings, &tally, &admissions, &limit, mode);
        if let Some(counted) = counted {
            counted.judge(&mut findings, damage);
        }
        let slowest = findings.slowest;
        findings.claim(slowest <= deadline + SLACK, || {
            format!("a call took {slowest:?}, beyond the deadline of {deadline:?} and any slack")
        });
        findings
    }
}

impl Counted {
    fn judge(self, findings: &mut Findings, damage: Damage) {
        let Counted { load, limiter, ids } = self;
        let tally = load.finish();
        let mut admitted = tally.admitted;
        let mut in_doubt = tally.in_doubt;
        if let Some(ids) = ids {
            // A call without an answer is sent once more: then nothing is in doubt.
            for id in ids.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten() {
                let last = eventually("an answer to the last of a caller", || by_id(&limiter, id));
                admitted += u64::from(last.is_allowed());
            }
            in_doubt = 0;
        }
        let left = eventually("what is left of a limit", || block_on(limiter.peek_async(KEY)));
        let charged = COUNTED.capacity() - left.remaining().unwrap_or_default();
        findings.count_calls(&tally);
        findings.lost = admitted.saturating_sub(charged);
        findings.claim(tally.refused == 0, || format!("{} were refused though there was room", tally.refused));
        findings.claim(charged <= admitted + in_doubt, || {
            format!("{charged} were charged, though only {admitted} were admitted and {in_doubt} in doubt")
        });
        if damage.forgets_nothing() {
            findings.claim(admitted <= charged, || format!("{admitted} were admitted, and {charged} charged"));
        }
    }
}

/// Waits until the store answers as before: admits some calls, then refuses others.
pub(crate) fn recover(load: &Load) {
    let before = load.tally().admitted;
    let mut refused = None;
    load.wait_until("answers as before", |tally| {
        if tally.admitted > before {
            return tally.refused > *refused.get_or_insert(tally.refused) + 50;
        }
        false
    });
}

/// Ends a load of one limit, by whatever way it asked, and judges what was admitted.
pub(crate) fn judge_load(load: Load, limit: &Limit, damage: Damage) -> Findings {
    let mut findings = Findings { notes: vec![limit.to_string()], ..Findings::default() };
    let (tally, admissions) = load.finish_with_admissions();
    findings.count(&tally, damage.most(limit, span(&admissions)));
    judge_admissions(&mut findings, &admissions, limit, damage);
    let slowest = tally.longest;
    findings.claim(slowest <= HTTP_TIMEOUT + SLACK, || format!("a call took {slowest:?}"));
    findings
}

/// The time in which all of them were admitted.
pub(crate) fn span(admissions: &[Admission]) -> Duration {
    let first = admissions.iter().map(|admission| admission.asked).min();
    let last = admissions.iter().map(|admission| admission.answered).max();
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
}

/// Whether no interval saw more pass than may.
pub(crate) fn judge_admissions(findings: &mut Findings, all: &[Admission], limit: &Limit, damage: Damage) {
    let by_store: Vec<Admission> = all.iter().copied().filter(|admission| !admission.degraded).collect();
    if let Some(worst) = tightest(&by_store, |length| damage.most(limit, length)) {
        findings.claim(worst.admitted <= worst.most, || {
            format!("{} were admitted within {:?}, of {} at most by {limit}", worst.admitted, worst.length, worst.most)
        });
    }
}

/// Whether the fallback decided as configured.
fn judge_fallback(findings: &mut Findings, tally: &Tally, all: &[Admission], limit: &Limit, mode: Option<FailureMode>) {
    match mode {
        None => findings.claim(tally.degraded_admitted + tally.degraded_refused == 0, || {
            format!("there is no fallback, and calls were decided without the store: {tally}")
        }),
        Some(FailureMode::Closed) => findings.claim(tally.degraded_admitted == 0, || {
            format!("{} passed while the store was away, by a limit that fails closed", tally.degraded_admitted)
        }),
        Some(FailureMode::Open) => findings.claim(tally.degraded_refused == 0, || {
            format!("{} were refused while the store was away, by a limit that fails open", tally.degraded_refused)
        }),
        Some(FailureMode::Local { processes }) => {
            let share = limit.share(processes);
            let local: Vec<Admission> = all.iter().copied().filter(|admission| admission.degraded).collect();
            if let Some(worst) = tightest(&local, |length| allowance(&share, length)) {
                findings.claim(worst.admitted <= worst.most, || {
                    format!("the fallback admitted {} within {:?} by {share}", worst.admitted, worst.length)
                });
            }
        }
    }
}

/// Asks in the name of an id until there is an answer, one request in each call.
fn ask_by_id(limiter: &Limiter<RedisStore>, ids: &Ids, call: CallId) -> Outcome {
    let lock = || ids.lock().unwrap_or_else(PoisonError::into_inner);
    let id = lock()[call.caller].get_or_insert_with(|| format!("{}-{}", call.caller, call.number)).clone();
    let outcome = outcome(by_id(limiter, &id));
    if matches!(outcome, Outcome::Admitted { .. } | Outcome::Refused { .. }) {
        lock()[call.caller] = None;
    }
    outcome
}

fn by_id(limiter: &Limiter<RedisStore>, id: &str) -> Result<Decision, CheckError> {
    block_on(limiter.check_async(Request::new(KEY).id(id)))
}

/// The outcome of a check for its caller.
pub(crate) fn outcome(answer: Result<Decision, CheckError>) -> Outcome {
    let error = match answer {
        Ok(decision) if decision.is_allowed() => return Outcome::Admitted { degraded: decision.is_degraded() },
        Ok(decision) => return Outcome::Refused { degraded: decision.is_degraded() },
        Err(error) => error,
    };
    let CheckError::Store(StoreError::Failed { source }) = &error else { panic!("an error of no use: {error:?}") };
    let failure = source.downcast_ref::<RedisFailure>().unwrap_or_else(|| panic!("not the store's own: {error:?}"));
    let why = failure.to_string();
    match failure {
        RedisFailure::Deadline { .. } | RedisFailure::Connection { .. } => Outcome::InDoubt { why },
        RedisFailure::Away { .. }
        | RedisFailure::Refused { .. }
        | RedisFailure::ForeignKey { .. }
        | RedisFailure::OnTheWay => Outcome::TurnedAway { why },
        other => panic!("no fault of the servers explains this: {other:?}"),
    }
}

/// The name of a state. One that callers do not come back to in time expires, until they do.
pub(crate) fn state_of(server: &Server, pattern: &str) -> String {
    eventually("a state", || {
        let keys = server.command(&["KEYS", pattern]);
        keys.items().first().map(Reply::text).ok_or("there is none")
    })
}

/// Does something, and says how long it took: some faults cost by how long they last.
pub(crate) fn measure<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let made = act();
    (made, began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit whose bound leaves no room for a defect.
    const LIMIT: Limit = Limit::per_second(10).burst(100);

    fn judged(harm: impl FnOnce(&Server), damage: Damage) -> Vec<String> {
        let (mut trial, server) = (Trial::new(1), Server::start());
        trial.remembers_refusals = false;
        let store = trial.store(&server.url());
        let pressure = Pressure::on(&trial, &store, LIMIT, None).and_counted(&mut trial, &store);
        pressure.settle();
        harm(&server);
        pressure.recover();
        pressure.judge(damage).broken
    }

    fn delete(server: &Server, pattern: &str) {
        server.command(&["DEL", &state_of(server, pattern)]);
    }

    #[test]
    fn a_burst_too_many_is_noticed() {
        let broken = judged(|server| delete(server, "*greedy*"), Damage::NONE);
        assert!(broken.len() == 1 && broken[0].contains("were admitted within"), "{broken:?}");
        assert_eq!(judged(|server| delete(server, "*greedy*"), Damage::losses(1)), Vec::<String>::new());
    }

    #[test]
    fn a_charge_that_was_forgotten_is_noticed() {
        let broken = judged(|server| delete(server, "*counted*"), Damage::NONE);
        assert!(broken.len() == 1 && broken[0].contains("were admitted, and"), "{broken:?}");
    }
}
