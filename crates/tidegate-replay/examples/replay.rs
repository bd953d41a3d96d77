//! A log, decided by a policy: prints the report, and how fast that was.
//!
//! ```text
//! cargo run --release -p tidegate-replay --example replay -- [access.log new.toml [old.toml] [0.1%]]
//! ```

use std::error::Error;
use std::path::Path;

use tidegate_replay::{Replay, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let sample = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name).display().to_string();
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    if given.is_empty() {
        given = ["access.log", "new.toml", "old.toml"].map(sample).into();
    }
    let [log, policy, more @ ..] = &*given else { return Err("give a log and a policy".into()) };
    let mut replay = Replay::new(tidegate_config::load(policy)?);
    for more in more {
        replay = match more.ends_with('%') {
            true => replay.at_most(more.parse()?),
            false => replay.against(tidegate_config::load(more)?),
        };
    }
    let report = replay.run([Source::path(log)])?;
    println!("{report}\n{}", report.timings_in_words());
    report.inconclusive.map_or(Ok(()), |why| Err(why.into()))
}
