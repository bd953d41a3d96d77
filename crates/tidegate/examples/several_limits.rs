//! Several limits at once: all are charged, or none is.
//!
//! A policy asks all of its limits about one key. Limits on different keys,
//! such as one per user and one per address, go to the store as one slice.

use std::error::Error;
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, ImmediateStore, Meter};
use tidegate::{Key, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Policy};

const HOUR: Duration = Duration::from_secs(3_600);

fn main() -> Result<(), Box<dyn Error>> {
    one_key()?;
    several_keys()
}

/// Two per second, and five per hour whatever happens.
fn one_key() -> Result<(), Box<dyn Error>> {
    let policy = Policy::new().limit("second", Limit::per_second(2)).limit("hour", Limit::sliding_log(5, HOUR));
    let clock = ManualClock::default();
    let limiter = Limiter::with_store(policy, MemoryStore::builder().clock(clock.clone()).build()?)?;

    println!("2 per second and 5 per hour\n");
    for millis in [0, 0, 0, 0, 1_000, 1_000, 2_000, 2_000] {
        clock.set(Micros::new(millis * 1_000));
        let decision = limiter.check("alice")?;
        println!("{:>4} s  by {:<8}{decision}", millis / 1_000, decision.rule());
    }
    Ok(())
}

/// One user and one address: each has a limit of its own.
fn several_keys() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::default();
    let per_user = Meter::new(Name::literal("user"), Limit::per_minute(1));
    let per_address = Meter::new(Name::literal("address"), Limit::per_minute(100));
    let (user, address) = (Key::from("alice"), Key::from("192.0.2.7"));

    println!("\n1 per user and 100 per address, per minute\n");
    for _ in 0..3 {
        let checks =
            [Check::new(&per_user, &user, Verb::Charge, 1)?, Check::new(&per_address, &address, Verb::Charge, 1)?];
        let mut verdicts = [Verdict::default(); 2];
        store.decide_now(&checks, &mut verdicts)?;
        let [user, address] = verdicts;
        // The address pays for one request, not for the two that the user's
        // own limit refused.
        println!("user: allowed {:<7}address: {} left", user.allowed, address.remaining);
    }
    Ok(())
}
