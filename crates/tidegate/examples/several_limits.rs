//! Several limits at once: all are charged, or none is.
//!
//! Without a key of its own, a rule counts by the key of the request. With one, such
//! as one per user and one per address, each counts by its own attributes.

use std::error::Error;
use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request, Rule};

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

/// One user and one address: each rule makes its key of its own attributes.
fn several_keys() -> Result<(), Box<dyn Error>> {
    let policy = Policy::new()
        .rule(Rule::new("user", Limit::per_minute(1)).key(["user"]))
        .rule(Rule::new("address", Limit::per_minute(3)).key(["ip"]));
    let limiter = Limiter::new(policy);

    println!("\n1 per user and 3 per address, per minute\n");
    // The address pays for alice once, not for the request that her own limit refused: carol still gets through.
    for user in ["alice", "alice", "bob", "carol", "dave"] {
        let decision = limiter.check(Request::user(user).with("ip", "192.0.2.7"))?;
        println!("{user:<6}by {:<8}{}", decision.rule(), if decision.is_allowed() { "allowed" } else { "refused" });
    }
    Ok(())
}
