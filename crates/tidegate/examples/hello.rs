//! Three callers under one limit: five per second, three of them at once.
//!
//! `cargo run --release -p tidegate --example hello`

use std::error::Error;
use std::thread;

use tidegate::{Limit, Limiter, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let limit = Limit::per_second(5).burst(3);
    let limiter = Limiter::new(limit);

    println!("limit {limit}, for each caller\n");
    println!("{:<8}{:>4}  {:<10}{:>4}  {:>12}  {:>12}", "caller", "cost", "", "left", "retry after", "reset after");
    let requests = [("alice", 1), ("alice", 1), ("bob", 1), ("alice", 1), ("alice", 1), ("carol", 3), ("carol", 1)];
    let mut longest_wait = Default::default();
    for (caller, cost) in requests {
        let decision = limiter.check(Request::new(caller).cost(cost))?;
        let (left, reset) = (decision.remaining(), decision.reset_after());
        let (outcome, retry) = match decision.is_allowed() {
            true => ("allowed", String::new()),
            false => ("refused", format!("{:?}", decision.retry_after())),
        };
        println!("{caller:<8}{cost:>4}  {outcome:<10}{left:>4}  {retry:>12}  {reset:>12?}");
        longest_wait = decision.retry_after().max(longest_wait);
    }

    thread::sleep(longest_wait);
    let again = limiter.check("alice")?;
    println!("\n{longest_wait:?} later: alice is {}", if again.is_allowed() { "allowed" } else { "refused" });

    match limiter.check(Request::new("bob").cost(4)) {
        Ok(decision) => println!("a cost of 4: {decision:?}"),
        Err(error) => println!("bob asks for 4 at once: {error}"),
    }
    Ok(())
}
