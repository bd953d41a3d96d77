//! Observing decisions: the library's counter, and a custom observer that
//! counts refusals by key and rule.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::kernel::Verb;
use tidegate::{CountingObserver, Event, Limit, Limiter, Observer, Policy, Request};

/// Refusals by rule and key. Keys come from strangers: the map has a bound.
#[derive(Default)]
struct Refusals(Mutex<BTreeMap<(String, String), u64>>);

const MAX_KEYS: usize = 1_000;

impl Observer for Refusals {
    fn observe(&self, event: &Event<'_>) {
        if event.verb != Verb::Charge || event.decision.is_allowed() {
            return;
        }
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = (event.decision.rule().to_string(), event.key.to_string());
        if refusals.len() < MAX_KEYS || refusals.contains_key(&entry) {
            *refusals.entry(entry).or_default() += 1;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let counts = Arc::new(CountingObserver::default());
    let refusals = Arc::new(Refusals::default());
    let policy = Policy::new().limit("second", Limit::per_second(5)).limit("minute", Limit::per_minute(8));
    let limiter = Limiter::builder(policy).observer(counts.clone()).observer(refusals.clone()).build()?;

    for _ in 0..7 {
        limiter.allow("alice");
        limiter.allow(Request::new(("bob", "upload")).cost(5));
    }
    // A peek is observed as well, and counted by neither.
    let bob = limiter.peek(("bob", "upload"))?;
    println!("bob: {bob} by the limit per {}\n", bob.rule());

    println!("allowed {}, refused {}, degraded {}\n", counts.allowed(), counts.refused(), counts.degraded());
    println!("{:<10}{:<16}refusals", "rule", "key");
    for ((rule, key), refused) in refusals.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{rule:<10}{key:<16}{refused}");
    }
    Ok(())
}
