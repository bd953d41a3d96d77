//! A store in memory: clocks that jump, floods of keys, observers that panic,
//! states from a file of the past.

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::{Clock, Event, Limit, Limiter, ManualClock, MemoryStore, Micros, Observer};
use tidegate_testkit::Random;
use tidegate_testkit::servers::{Admission, Load, Outcome};

use crate::bound::{Damage, allowance};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pressure::{judge_admissions, judge_load, outcome};
use crate::trial::{KEY, Trial};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new(
        "memory-clock-forward",
        "the store's clock steps forwards by 1 ms to a year, under threads",
        "what the step earns",
        clock_forward,
    )
    .quick(),
    Fault::new(
        "memory-clock-torture",
        "the clock steps forwards and back by 1 ms to an hour, at random, under threads",
        "what the steps forwards earn",
        clock_torture,
    )
    .quick(),
    Fault::new(
        "memory-key-flood",
        "a hundred times more keys than there is room for, beside a key in use",
        "nothing",
        key_flood,
    )
    .quick(),
    Fault::new("memory-observer-panics", "an observer panics now and then", "nothing", observer_panics).quick(),
    Fault::new(
        "memory-restored",
        "states are written under load, and later restored in place of newer ones",
        "one burst",
        restored,
    )
    .quick(),
];

const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_micros(1_500);

const START: Micros = Micros::new(1_700_000_003_123_457);

/// A clock that a fault moves, and how far forwards it has gone in all: counted once
/// before it moves and once after, so that callers know on which side they are safe.
#[derive(Default)]
struct Course {
    before: AtomicU64,
    after: AtomicU64,
}

/// Moves the clock by `next` again and again under load. Whatever steps back a clock
/// makes, no more passes than its steps forwards have earned.
fn stepped(trial: &mut Trial, mut next: impl FnMut(&mut Random) -> (bool, Duration)) -> Findings {
    let clock = ManualClock::at(START);
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
    let limit = trial.limit();
    let limiter = Limiter::with_store(limit, store).expect("a valid policy");
    let (course, admitted) = (Arc::<Course>::default(), Arc::<Mutex<Vec<Admission>>>::default());
    let (told, noted, base) = (Arc::clone(&course), Arc::clone(&admitted), Instant::now());
    let at = move |micros: u64| base + Duration::from_micros(micros);
    let load = Load::start(CALLERS, PAUSE, move |_| {
        let asked = at(told.after.load(Ordering::SeqCst));
        let outcome = outcome(limiter.check(KEY));
        let answered = at(told.before.load(Ordering::SeqCst));
        if matches!(outcome, Outcome::Admitted { .. }) {
            let admission = Admission { asked, answered, degraded: false };
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(admission);
        }
        outcome
    });
    load.wait_until("the limit to be used up", |tally| tally.refused > 50);
    let mut earned = limit.capacity();
    let mut forward = |step: Duration| {
        let micros = Micros::from_duration(step).get();
        earned += allowance(&limit, step).min(limit.capacity());
        course.before.fetch_add(micros, Ordering::SeqCst);
        clock.advance(step);
        course.after.fetch_add(micros, Ordering::SeqCst);
    };
    for _ in 0..trial.random.within(400..=600) {
        let (is_forward, step) = next(&mut trial.random);
        if is_forward {
            forward(step);
        } else {
            let back = clock.now().get().saturating_sub(Micros::from_duration(step).get());
            clock.set(Micros::new(back));
        }
        thread::sleep(Duration::from_millis(1));
    }
    // However far it went back, it goes on from there.
    let before = load.tally().admitted;
    load.wait_until("a request to pass", |tally| {
        forward(Duration::from_secs(1));
        tally.admitted > before
    });
    let tally = load.finish();
    let mut findings = Findings { notes: vec![limit.to_string()], ..Findings::default() };
    let admissions = admitted.lock().unwrap_or_else(PoisonError::into_inner);
    findings.count(&tally, earned);
    findings.claim(tally.admitted <= earned, || format!("{} were admitted, of {earned} at most", tally.admitted));
    judge_admissions(&mut findings, &admissions, &limit, Damage::NONE);
    findings
}

const STEPS: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_secs(1),
    Duration::from_secs(60),
    Duration::from_secs(3_600),
    Duration::from_secs(365 * 86_400),
];

fn clock_forward(trial: &mut Trial) -> Findings {
    stepped(trial, |random| {
        // Mostly small ones, which earn a part of the limit; a year now and then, as the clock itself ends in 2112.
        let longest = match random.within(1..=100) {
            1 => 5,
            2..=10 => 4,
            _ => 1,
        };
        (true, STEPS[random.within(0..=longest) as usize])
    })
}

fn clock_torture(trial: &mut Trial) -> Findings {
    stepped(trial, |random| (random.percent(55), STEPS[random.within(0..=4) as usize]))
}

fn key_flood(trial: &mut Trial) -> Findings {
    const ROOM: usize = 1_000;
    let store = MemoryStore::builder().max_keys(ROOM).build().expect("valid settings");
    let limit = trial.limit();
    let limiter = Limiter::with_store(limit, store).expect("a valid policy");
    let asks = limiter.clone();
    let load = Load::start(CALLERS, PAUSE, move |_| outcome(asks.check(KEY)));
    load.wait_until("the limit to be used up", |tally| tally.refused > 50);
    let errors = (0..100 * ROOM).filter(|number| limiter.check(format!("flood{number}").as_str()).is_err()).count();
    load.wait_for_answers(1_000);
    let mut findings = judge_load(load, &limit, Damage::NONE).without_errors();
    findings.claim(errors == 0, || format!("{errors} of the flood had no answer"));
    findings
}

/// Panics at every fiftieth event.
#[derive(Default)]
struct Clumsy(AtomicU64);

impl Observer for Clumsy {
    fn observe(&self, _: &Event<'_>) {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(!number.is_multiple_of(50), "an observer drops its pen");
    }
}

fn observer_panics(trial: &mut Trial) -> Findings {
    let (limit, clumsy) = (trial.limit(), Arc::<Clumsy>::default());
    let limiter = Limiter::builder(limit).observer(Arc::clone(&clumsy)).build().expect("a valid policy");
    let load = quietly(|| {
        let load = Load::start(CALLERS, PAUSE, move |_| outcome(limiter.check(KEY)));
        load.wait_for_answers(2_000);
        load
    });
    let heard = clumsy.0.load(Ordering::Relaxed);
    let mut findings = judge_load(load, &limit, Damage::NONE).without_errors();
    findings.claim(heard >= 2_000, || format!("the observer heard of no more than {heard}"));
    findings
}

/// Without a word of panics that are expected.
fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let made = act();
    panic::set_hook(usual);
    made
}

fn restored(trial: &mut Trial) -> Findings {
    let limit: Limit = trial.limit();
    let limiter = |store| Limiter::with_store(limit, store).expect("a valid policy");
    // Each check holds it, so that none is answered by a store that was replaced meanwhile.
    let current = Arc::new(RwLock::new(limiter(MemoryStore::default())));
    let shared = Arc::clone(&current);
    let load =
        Load::start(CALLERS, PAUSE, move |_| outcome(shared.read().unwrap_or_else(PoisonError::into_inner).check(KEY)));
    thread::sleep(trial.about(Duration::from_millis(5)));
    let mut bytes = Vec::new();
    let writes = current.read().unwrap_or_else(PoisonError::into_inner).clone();
    writes.store().snapshot(&mut bytes).expect("memory takes it");
    load.wait_until("the limit to be used up", |tally| tally.refused > 50);
    let store = MemoryStore::builder().restore(bytes.as_slice()).expect("it was just written");
    *current.write().unwrap_or_else(PoisonError::into_inner) = limiter(store);
    let before = load.tally().admitted;
    load.wait_until("a request to pass again", |tally| tally.admitted > before);
    load.wait_for_answers(1_000);
    judge_load(load, &limit, Damage::losses(1)).without_errors()
}
