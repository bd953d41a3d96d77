//! Three callers under one limit: five per second, three of them at once.
//!
//! `cargo run -p tidegate --example hello`

use std::error::Error;
use std::thread;

use tidegate::{Limit, Limiter, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let limit = Limit::per_second(5).burst(3);
    let limiter = Limiter::new(limit);

    println!("limit {limit}, for each caller\n");
    println!("{:<8}{:>4}  {:<34}reset after", "caller", "cost", "decision");
    let requests = [("alice", 1), ("alice", 1), ("bob", 1), ("alice", 1), ("alice", 1), ("carol", 3), ("carol", 1)];
    let mut longest_wait = Default::default();
    for (caller, cost) in requests {
        let decision = limiter.check(Request::new(caller).cost(cost))?;
        let reset = decision.reset_after().unwrap_or_default();
        println!("{caller:<8}{cost:>4}  {:<34}{reset:?}", decision.to_string());
        longest_wait = decision.retry_after().unwrap_or_default().max(longest_wait);
    }

    thread::sleep(longest_wait);
    println!("\n{longest_wait:?} later: alice is {}", limiter.check("alice")?);

    match limiter.check(Request::new("bob").cost(4)) {
        Ok(decision) => println!("a cost of 4: {decision}"),
        Err(error) => println!("bob asks for 4 at once: {error}"),
    }
    Ok(())
}
