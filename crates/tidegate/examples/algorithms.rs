//! The five algorithms on the same traffic: twelve requests just before the
//! edge of a window, twelve just after it, then one every second.

use std::error::Error;
use std::time::Duration;

use tidegate::{Algorithm, Limit, Limiter, ManualClock, MemoryStore, Micros};

const COUNT: u64 = 10;
const PERIOD: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    println!("{COUNT} per {PERIOD:?}; the edge of a window is at 10 s\n");
    println!("{:<17}{:>10}{:>10}{:>14}{:>18}", "", "at 9.9 s", "at 10 s", "11 to 20 s", "most in any 10 s");
    for algorithm in Algorithm::ALL {
        let admitted = admitted(Limit::try_new(algorithm, COUNT, PERIOD)?)?;
        let between = |from, to| admitted.iter().filter(|at| (from..to).contains(*at)).count();
        let most = admitted.iter().map(|from| between(*from, from + 10_000)).max().unwrap_or(0);
        let (before, after, steady) = (between(0, 10_000), between(10_000, 11_000), between(11_000, 21_000));
        println!("{:<17}{before:>10}{after:>10}{steady:>14}{most:>18}", algorithm.to_string());
    }
    Ok(())
}

/// When requests pass, in milliseconds.
fn admitted(limit: Limit) -> Result<Vec<u64>, Box<dyn Error>> {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build()?;
    let limiter = Limiter::with_store(limit, store)?;
    let traffic = [9_900; 12].into_iter().chain([10_000; 12]).chain((11..=20).map(|second| second * 1_000));
    let passes = |at: &u64| {
        clock.set(Micros::new(at * 1_000));
        limiter.allow("alice")
    };
    Ok(traffic.filter(passes).collect())
}
