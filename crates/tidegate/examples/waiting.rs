//! Waiting for admission: first come, first served, for each key.
//!
//! Six threads want one key at 20 per second. Five have a long timeout;
//! the last has a short one, times out and takes nothing.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use tidegate::{AcquireError, Limit, Limiter};

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(Limit::per_second(20).burst(1));
    let start = Instant::now();
    println!("20 per second, one at a time\n");
    thread::scope(|scope| {
        for caller in 1..=6 {
            let limiter = &limiter;
            scope.spawn(move || {
                let timeout = Duration::from_millis(if caller == 6 { 100 } else { 10_000 });
                let came = start.elapsed();
                let outcome = match limiter.acquire("printer", timeout) {
                    Ok(_) => "admitted".to_owned(),
                    Err(AcquireError::Timeout { timeout }) => format!("gave up after {timeout:?}"),
                    Err(error) => format!("no answer: {error}"),
                };
                let (came, went) = (came.as_millis(), start.elapsed().as_millis());
                println!("caller {caller}: came at {came:>3} ms, {outcome} at {went:>3} ms");
            });
            // So that they arrive in the order of their numbers.
            thread::sleep(Duration::from_millis(5));
        }
    });

    thread::sleep(limiter.peek("printer")?.reset_after().unwrap_or_default());
    println!("\nall gone, and nothing left behind: the next is {}", limiter.peek("printer")?);
    Ok(())
}
