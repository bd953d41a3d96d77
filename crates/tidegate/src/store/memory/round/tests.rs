//! Kernels of users, which may panic, beside others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::kernel::{Charged, Kernel, Log, LogState, Reading};
use crate::limit::Limit;
use crate::name::Name;
use crate::request::Key;
use crate::store::{Former, ImmediateStore, Meter};
use crate::time::{Clock, ManualClock};

const HOUR: Duration = Duration::from_secs(3_600);

/// Five in an hour, and a panic in one of the steps, if told so; a call
/// after that aborts the tests.
#[derive(Clone)]
struct Fragile {
    log: Log,
    breaks_in: Arc<Mutex<Option<&'static str>>>,
}

const BROKEN: &str = "broken";

impl Fragile {
    fn new() -> Fragile {
        Fragile { log: Log::new(5, 3_600_000_000), breaks_in: Arc::default() }
    }

    fn break_in(&self, step: Option<&'static str>) {
        *self.breaks_in.lock().expect("no panic while it is locked") = step;
    }

    fn comes_to(&self, step: &str) {
        let breaks = {
            let mut breaks_in = self.breaks_in.lock().expect("no panic while it is locked");
            let breaks = breaks_in.is_some_and(|told| told == step || told == BROKEN);
            *breaks_in = if breaks { Some(BROKEN) } else { *breaks_in };
            breaks
        };
        assert!(!breaks, "told to panic");
    }
}

impl Kernel for Fragile {
    type State = LogState;

    fn capacity(&self) -> u64 {
        self.log.capacity()
    }

    fn admit(&self, state: &LogState, now: Micros, cost: u64) -> crate::kernel::Admission {
        self.comes_to("admit");
        self.log.admit(state, now, cost)
    }

    fn charge(&self, state: &mut LogState, now: Micros, cost: u64) -> Reading {
        self.comes_to("charge");
        self.log.charge(state, now, cost)
    }

    fn refund(&self, state: &mut LogState, now: Micros, cost: u64) {
        self.log.refund(state, now, cost);
    }

    fn read(&self, state: &LogState, now: Micros) -> Reading {
        self.comes_to("read");
        self.log.read(state, now)
    }

    fn forget_at(&self, state: &LogState) -> Micros {
        self.comes_to("forget_at");
        self.log.forget_at(state)
    }

    fn heal(&self, state: &LogState, now: Micros) -> Option<LogState> {
        self.comes_to("heal");
        self.log.heal(state, now)
    }

    fn encode(&self, state: &LogState, bytes: &mut Vec<u8>) {
        self.log.encode(state, bytes);
    }

    fn decode(&self, bytes: &[u8]) -> Option<LogState> {
        self.log.decode(bytes)
    }
}

fn ask(store: &MemoryStore, meters: &[&Meter], verb: Verb) -> Vec<Verdict> {
    let key = Key::from("alice");
    let checks = meters.iter().map(|meter| Check::new(meter, &key, verb, 1).expect("a small cost"));
    decide(store, &checks.collect::<Vec<_>>())
}

fn decide(store: &MemoryStore, checks: &[Check<'_>]) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    store.decide_now(checks, &mut verdicts).expect("the memory store answers");
    verdicts
}

const START: Micros = Micros::new(1_700_000_000_000_000);

fn store(clock: impl Clock) -> MemoryStore {
    MemoryStore::builder().max_keys(100).clock(clock).build().expect("valid settings")
}

/// A store without room for another state on the heap.
fn full_store() -> MemoryStore {
    let builder = MemoryStore::builder().max_keys(1).clock(ManualClock::at(START));
    let store = builder.build().expect("valid settings");
    let strangers = Meter::new(Name::literal("strangers"), Limit::sliding_log(1, HOUR));
    for key in (0..100_u64).map(Key::from) {
        let charge = Check::new(&strangers, &key, Verb::Charge, 1).expect("a small cost");
        store.decide_now(&[charge], &mut [Verdict::default()]).expect("the memory store answers");
    }
    store
}

fn meter(name: &'static str, limit: Limit) -> Meter {
    Meter::new(Name::literal(name), limit)
}

fn panics(store: &MemoryStore, meters: &[&Meter]) -> bool {
    catch_unwind(AssertUnwindSafe(|| ask(store, meters, Verb::Charge))).is_err()
}

#[test]
#[cfg_attr(miri, ignore = "a full store and many panics take too long there")]
fn a_panic_at_any_step_changes_no_limit() {
    let stores: [fn() -> MemoryStore; 2] = [|| store(ManualClock::at(START)), full_store];
    let steps = ["heal", "admit", "charge", "read", "forget_at"];
    for (store, step) in stores.into_iter().flat_map(|store| steps.map(|step| (store, step))) {
        for charged in [0, 1] {
            let (store, fragile) = (store(), Fragile::new());
            let (bucket, log) = (meter("bucket", Limit::per_hour(5)), meter("log", Limit::sliding_log(5, HOUR)));
            let own = Meter::custom(Name::literal("fragile"), fragile.clone());
            let other = Meter::custom(Name::literal("sound"), Fragile::new());
            let all = [&bucket, &own, &log, &other];
            for _ in 0..charged {
                assert!(ask(&store, &all, Verb::Charge).iter().all(|verdict| verdict.allowed));
            }
            let keys = store.count_keys();
            fragile.break_in(Some(step));
            assert!(panics(&store, &all), "the caller hears of it");
            fragile.break_in(None);
            assert_eq!(store.count_keys(), keys, "no slot is left marked");
            // What it has changed itself by then is its own.
            let has_charged = matches!(step, "read" | "forget_at");
            for meter in all.into_iter().filter(|meter| !has_charged || meter.name() != own.name()) {
                for (verb, left) in [(Verb::Peek, 5), (Verb::Charge, 4)] {
                    let verdict = ask(&store, &[meter], verb)[0];
                    assert_eq!((verdict.allowed, verdict.remaining), (true, left - charged), "{meter:?}: {step}");
                }
            }
            assert!(ask(&store, &all, Verb::Charge).iter().all(|verdict| verdict.allowed), "after a panic in {step}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a full store and many panics take too long there")]
fn former_use_beside_a_kernel_that_panics_is_not_lost() {
    let [bucket, log] = [|count| Limit::per_hour(count), |count| Limit::sliding_log(count, HOUR)];
    for (store, [old, new], charged) in [
        (store(ManualClock::at(START)), [log(10), bucket(20)], 0),
        (store(ManualClock::at(START)), [log(10), bucket(20)], 1),
        (full_store(), [bucket(10), log(20)], 0),
    ] {
        let (fragile, old) = (Fragile::new(), meter("limit", old));
        let own = Meter::custom(Name::literal("fragile"), fragile.clone());
        let new = meter("limit", new);
        let former = [Former { meter: &old, until: START.saturating_add(old.horizon()) }];
        let key = Key::from("alice");
        let check = |verb| Check::new(&new, &key, verb, 1).expect("a small cost").with_former(&former);
        (0..charged).for_each(|_| drop(decide(&store, &[check(Verb::Charge)])));
        (0..3).for_each(|_| drop(ask(&store, &[&old], Verb::Charge)));
        fragile.break_in(Some("charge"));
        let own = Check::new(&own, &key, Verb::Charge, 1).expect("a small cost");
        let both = || decide(&store, &[check(Verb::Charge), own]);
        assert!(catch_unwind(AssertUnwindSafe(both)).is_err());
        fragile.break_in(None);
        assert_eq!(decide(&store, &[check(Verb::Peek)])[0].remaining, 17 - charged, "{new:?}");
    }
}

#[test]
fn a_key_of_a_custom_kernel_expires() {
    let clock = ManualClock::at(START);
    let store = store(clock.clone());
    let own = Meter::custom(Name::literal("own"), Fragile::new());
    ask(&store, &[&own, &meter("log", Limit::sliding_log(5, HOUR))], Verb::Charge);
    assert_eq!(store.count_keys(), 2);
    clock.advance(HOUR);
    assert_eq!(store.count_keys(), 0);
}

/// How often it was read.
#[derive(Clone, Default)]
struct Readings(Arc<Mutex<u64>>);

impl Clock for Readings {
    fn now(&self) -> Micros {
        *self.0.lock().expect("not poisoned") += 1;
        START
    }
}

#[test]
fn the_clock_is_read_once_where_there_is_nothing_to_heal() {
    let readings = Readings::default();
    let store = store(readings.clone());
    let before = *readings.0.lock().expect("not poisoned");
    ask(
        &store,
        &[&meter("log", Limit::sliding_log(5, HOUR)), &meter("other", Limit::sliding_log(5, HOUR))],
        Verb::Charge,
    );
    assert_eq!(*readings.0.lock().expect("not poisoned") - before, 1);
}

#[test]
fn the_clock_is_read_again_for_a_settlement_that_has_no_time_yet_and_for_nothing_else() {
    let (readings, log) = (Readings::default(), meter("log", Limit::sliding_log(5, HOUR)));
    let (store, key) = (store(readings.clone()), Key::from("alice"));
    let (settle, renew) = (Verb::Settle(Charged { at: START, cost: 1 }), Verb::Renew(Charged { at: START, cost: 1 }));
    let cases = [
        (Verb::Charge, None, 1),
        (renew, None, 1),
        (settle, None, 2),
        (Verb::Charge, Some(START), 0),
        (settle, Some(START), 0),
    ];
    for (verb, at, read) in cases {
        let before = *readings.0.lock().expect("no panic while it is locked");
        let check = Check::new(&log, &key, verb, 1).expect("a small cost");
        store.decide_together(&[check], &mut [Verdict::default()], at).expect("the memory store answers");
        assert_eq!(*readings.0.lock().expect("no panic while it is locked") - before, read, "{verb:?} {at:?}");
    }
}
