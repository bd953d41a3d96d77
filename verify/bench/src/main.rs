//! tidegate beside its rivals, interleaved in one process.
//!
//! A benchmark, never a test: it prints what it measured and what was hoped
//! for, and always ends well. Only ratios within a run mean anything.
//!
//! ```text
//! cargo run --profile dist -p tidegate-bench                      # six minutes
//! cargo run --profile dist -p tidegate-bench -- --quick           # one
//! cargo run --profile dist -p tidegate-bench -- --only "hot key"
//! cargo run --profile dist -p tidegate-bench -- --only "server, RESP"
//! ```
//!
//! Instructions per check, the number that stays the same on a busy machine:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*counted*' \
//!     target/dist/tidegate-bench --callgrind hot tidegate
//! ```

mod affinity;
mod callgrind;
mod contestants;
mod floors;
mod layer;
mod measure;
mod memory;
mod options;
mod paths;
mod policy;
mod redis;
mod report;
mod reservations;
mod server;
mod session;
mod slices;
mod stalls;
mod visits;
mod workloads;

use std::process::ExitCode;

use options::{Options, Task};
use report::Table;
use session::Session;

fn main() -> ExitCode {
    match options::read(std::env::args().skip(1)) {
        Some(Task::Measure(options)) => measure(options),
        Some(Task::MemoryChild(name)) => {
            if let Some(bytes) = memory::child(&name) {
                println!("{bytes}");
            }
        }
        Some(Task::Callgrind(workload, contestant)) => {
            if callgrind::run(workload, &contestant).is_none() {
                eprintln!("{contestant:?} does not take part in this workload");
            }
        }
        None => {
            eprintln!("{}", options::USAGE);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn measure(options: Options) {
    let mut session = Session::new(options.pace, options.only);
    workloads::known_keys(&mut session);
    workloads::hot_key(&mut session);
    workloads::no_keys(&mut session);
    workloads::new_keys(&mut session);
    workloads::growth(&mut session);
    stalls::slowest_insert(&mut session);
    stalls::longest_stall(&mut session);
    memory::memory(&mut session);
    floors::floors(&mut session);
    policy::policy(&mut session);
    paths::paths(&mut session);
    reservations::reservations(&mut session);
    layer::layer(&mut session);
    redis::redis(&mut session);
    server::server(&mut session);
    let goals = report::goals_to_markdown(session.tables());
    let goals = format!("{}, {} rounds\n\n{goals}", report::processor(), options.pace.rounds);
    print!("{goals}");
    if let Some(file) = &options.markdown {
        let all: String = session.tables().iter().map(Table::to_markdown).collect();
        if let Err(error) = std::fs::write(file, goals + "## All contestants\n\n" + &all) {
            eprintln!("cannot write {}: {error}", file.display());
        }
    }
}
