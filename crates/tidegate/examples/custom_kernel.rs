//! A custom algorithm: attempts whose waits double, as for sign-ins.
//!
//! The first attempt is admitted at once, the second after a second, the third after
//! two, then four, eight, and so on up to an hour; a quiet hour starts again from the
//! beginning. A kernel says what the limit means, and the store does the rest: it
//! keeps the state of each key, forgets it in time, and charges this limit and built-in
//! ones together or not at all.

use std::error::Error;
use std::time::Duration;

use tidegate::kernel::{Admission, Kernel, Reading};
use tidegate::store::Meter;
use tidegate::{Clock, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Policy};

/// One attempt, and then a wait that doubles with each.
struct Backoff {
    first: Micros,
    longest: Micros,
}

/// What is kept for a key.
#[derive(Default)]
struct Attempts {
    count: u64,
    /// When the next may be made.
    next: Micros,
}

impl Backoff {
    /// The state as of `now`: after a quiet time there were no attempts.
    fn seen(&self, state: &Attempts, now: Micros) -> Attempts {
        if now < self.forget_at(state) { Attempts { ..*state } } else { Attempts::default() }
    }
}

impl Kernel for Backoff {
    type State = Attempts;

    fn admit(&self, state: &Attempts, now: Micros, cost: u64) -> Admission {
        let wait = self.seen(state, now).next.saturating_since(now);
        if cost == 0 || wait == Micros::ZERO { Admission::PASS } else { Admission::Wait { retry_after: wait } }
    }

    fn charge(&self, state: &mut Attempts, now: Micros, _one: u64) -> Reading {
        *state = self.seen(state, now);
        let doubled = self.first.get().checked_shl(state.count as u32).filter(|_| state.count < 32);
        let wait = doubled.unwrap_or(u64::MAX).min(self.longest.get());
        *state = Attempts { count: state.count + 1, next: now.saturating_add(Micros::new(wait)) };
        self.read(state, now)
    }

    fn read(&self, state: &Attempts, now: Micros) -> Reading {
        let remaining = u64::from(self.seen(state, now).next <= now);
        Reading { remaining, reset_after: self.forget_at(state).saturating_since(now) }
    }

    fn forget_at(&self, state: &Attempts) -> Micros {
        if state.count == 0 { Micros::ZERO } else { state.next.saturating_add(self.longest) }
    }

    fn encode(&self, state: &Attempts, bytes: &mut Vec<u8>) {
        bytes.extend(state.count.to_le_bytes());
        bytes.extend(state.next.get().to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Option<Attempts> {
        let (count, next) = bytes.split_first_chunk()?;
        Some(Attempts {
            count: u64::from_le_bytes(*count),
            next: Micros::new(u64::from_le_bytes(next.try_into().ok()?)),
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let hour = Micros::from_duration(Duration::from_secs(3_600));
    let backoff = Backoff { first: Micros::from_duration(Duration::from_secs(1)), longest: hour };
    let policy = Policy::new().meter(Meter::custom(Name::literal("backoff"), backoff)).limit("day", Limit::per_day(20));
    let clock = ManualClock::at(Micros::new(1_704_067_200_000_000));
    let limiter = Limiter::with_store(policy, MemoryStore::builder().clock(clock.clone()).build()?)?;

    // A client that tries as often as the limiter lets it.
    println!("attempt   after");
    let began = clock.now();
    for attempt in 1..=16 {
        let after = clock.now().saturating_since(began).to_duration();
        println!("{attempt:>7}   {after:?}");
        assert!(limiter.check("alice")?.is_allowed());
        let refused = limiter.check("alice")?;
        let wait = refused.retry_after().ok_or("a wait that ends")?;
        // Refused until the promised instant, and not a microsecond longer.
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.peek("alice")?.is_allowed());
        clock.advance(Duration::from_micros(1));
    }
    // An hour without an attempt, and the waits are short again.
    clock.advance(Duration::from_secs(3_600));
    assert!(limiter.check("alice")?.is_allowed());
    assert_eq!(limiter.check("alice")?.retry_after(), Some(Duration::from_secs(1)));
    Ok(())
}
