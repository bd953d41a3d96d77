//! A million requests of each kind through all five algorithms, and how
//! long that takes: `cargo run --release -p tidegate-simulate --example million`.

use std::error::Error;
use std::time::Instant;

use tidegate_simulate::{Scenario, every_algorithm};

fn main() -> Result<(), Box<dyn Error>> {
    for traffic in ["poisson 1000/s", "100 clients: poisson 10/s", "diurnal 100/s to 2000/s every 1h"] {
        let scenario = Scenario::new(traffic.parse()?).limits(every_algorithm("100/10s burst 200".parse()?)?);
        let scenario = scenario.lasting_requests(1_000_000)?;
        let started = Instant::now();
        let report = scenario.run()?;
        println!("{traffic}: {} requests in {:?}", report.offered.passed.requests, started.elapsed());
    }
    Ok(())
}
