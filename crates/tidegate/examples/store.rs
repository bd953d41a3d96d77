//! A store: a `HashMap` behind a mutex. The library decides; a store loads states, and saves those that changed.
//!
//! `cargo test -p tidegate --example store` runs the conformance suite on it.

// ANCHOR: store
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, ImmediateStore, Kept, Marks, Record, Slice, Store, StoreError};
use tidegate::{Clock, Limit, Limiter, ManualClock, Micros};

/// What is kept, each under the number or the name that the library gives it.
#[derive(Default)]
struct Tables {
    states: HashMap<u64, Kept>,
    /// Which thresholds were told.
    marks: HashMap<u64, Marks>,
    /// Requests with ids.
    records: HashMap<Vec<u8>, Record>,
}

/// Beyond that, those that are as if they were never used are dropped.
const MAX_STATES: usize = 100_000;

struct MapStore {
    clock: ManualClock,
    tables: Mutex<Tables>,
}

impl Tables {
    fn decide(&mut self, checks: &[Check<'_>], verdicts: &mut [Verdict], now: Micros) -> Result<Micros, StoreError> {
        let mut slice = Slice::new(checks, now)?;
        for part in slice.parts_mut() {
            let bytes = self.states.get(&part.subject()).map_or(&[][..], |kept| &kept.bytes);
            part.load(bytes).ok_or_else(|| StoreError::Failed { source: "a damaged state".into() })?;
        }
        slice.decide(now);
        for (index, check) in checks.iter().enumerate().filter(|(_, check)| check.meter().needs_marks()) {
            slice.tell(index, self.marks.entry(check.subject()).or_default(), now);
        }
        for part in slice.parts_mut() {
            if let Some(kept) = part.save() {
                self.states.insert(part.subject(), kept);
            }
        }
        verdicts.copy_from_slice(&slice.verdicts());
        Ok(now)
    }
}

impl Store for MapStore {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        tables.records.retain(|_, record| record.until() > now);
        if tables.states.len() > MAX_STATES {
            tables.states.retain(|_, kept| kept.forget_at > now);
        }
        let Some(name) = Record::name(checks) else { return tables.decide(checks, verdicts, now) };
        let known = tables.records.get(&name).cloned();
        let decide = |checks: &[Check<'_>], verdicts: &mut [Verdict]| tables.decide(checks, verdicts, now);
        let (at, next) = Record::decide(known.as_ref(), checks, verdicts, Duration::from_secs(300), decide)?;
        if let Some(next) = next {
            tables.records.insert(name, next);
        }
        Ok(at)
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}

// It answers at once: then `Limiter::check` works, too.
impl ImmediateStore for MapStore {}
// ANCHOR_END: store

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // ANCHOR: use
    let clock = ManualClock::default();
    let store = MapStore { clock: clock.clone(), tables: Mutex::default() };
    let limiter = Limiter::builder(Limit::per_second(2)).store(store).build()?;
    for _ in 0..3 {
        println!("{}", limiter.check("alice")?);
    }
    clock.advance(Duration::from_millis(500));
    println!("{}", limiter.check("alice")?);
    // ANCHOR_END: use
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    // ANCHOR: test
    tidegate_testkit::conformance!(map, || {
        let clock = ManualClock::default();
        (MapStore { clock: clock.clone(), tables: Mutex::default() }, clock)
    });
    // ANCHOR_END: test
}
