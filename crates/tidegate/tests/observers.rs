//! Observers are told everything, and can break nothing.

use std::sync::{Arc, Mutex};

use tidegate::kernel::Verb;
use tidegate::{CountingObserver, Event, Limit, Limiter, ManualClock, MemoryStore, Micros, Observer, Policy, Request};

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn observe(&self, event: &Event<'_>) {
        let Event { rule, key, verb, cost, decision, at, .. } = event;
        let answer = if decision.is_allowed() { "allowed" } else { "refused" };
        let note = format!("{at} {verb:?} {key} cost {cost}: {answer} by {rule}");
        self.0.lock().expect("nobody panics with it").push(note);
    }
}

struct Panicking;

impl Observer for Panicking {
    fn observe(&self, _: &Event<'_>) {
        panic!("an observer that panics");
    }
}

fn limiter(policy: impl Into<Policy>) -> (Limiter, Arc<Notes>, Arc<CountingObserver>) {
    let (notes, counts) = (Arc::new(Notes::default()), Arc::new(CountingObserver::default()));
    let store = MemoryStore::builder().max_keys(100).clock(ManualClock::at(Micros::new(7)));
    let limiter = Limiter::builder(policy)
        .store(store.build().expect("valid settings"))
        .observer(notes.clone())
        .observer(Panicking)
        .observer(counts.clone())
        .build()
        .expect("a valid policy");
    (limiter, notes, counts)
}

#[test]
fn every_observer_is_told_of_every_decision_even_after_one_that_panics() {
    let policy = Policy::new().limit("tight", Limit::per_second(1)).limit("loose", Limit::per_minute(100));
    let (limiter, notes, counts) = limiter(policy);
    assert!(limiter.is_allowed(("alice", "GET /")));
    assert!(!limiter.is_allowed(("alice", "GET /")));
    assert!(limiter.peek("bob").is_ok_and(|decision| decision.is_allowed()));
    assert!(limiter.refund(Request::new("bob").cost(1)).is_ok());
    assert!(limiter.reset("bob").is_ok());
    let expected = [
        "7us Charge alice / GET / cost 1: allowed by tight",
        "7us Charge alice / GET / cost 1: refused by tight",
        "7us Peek bob cost 1: allowed by tight",
        "7us Refund bob cost 1: allowed by tight",
        "7us Reset bob cost 1: allowed by tight",
    ];
    assert_eq!(*notes.0.lock().expect("nobody panicked with it"), expected);
    assert_eq!((counts.allowed(), counts.refused(), counts.degraded()), (1, 1, 0));
}

#[test]
fn batches_and_waits_are_observed_too() {
    let (limiter, notes, counts) = limiter(Limit::per_second(2));
    let decisions = limiter.check_many(["alice", "alice", "alice"]).expect("an answer");
    assert_eq!(decisions.len(), 3);
    assert!(limiter.acquire_blocking("bob", std::time::Duration::ZERO).is_ok());
    assert_eq!((counts.allowed(), counts.refused()), (3, 1));
    let notes = notes.0.lock().expect("nobody panicked with it");
    assert_eq!(notes.len(), 4);
    assert!(notes[3].contains(&format!("{:?} bob", Verb::Charge)));
}
