//! Runs one path many times, for an instruction counter.
//!
//! ```text
//! tidegate-paths                 # the names of all paths
//! tidegate-paths allow-hot       # runs this one
//! ```

use std::process::ExitCode;

use tidegate_paths::{PATHS, TIMES};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        PATHS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, path)) = PATHS.iter().find(|(known, _)| *known == name) else {
        eprintln!("there is no path {name:?}: without arguments, the names of all are printed");
        return ExitCode::from(2);
    };
    counted(&mut *path());
    println!("turns: {TIMES}");
    ExitCode::SUCCESS
}

/// What is counted, under a name that `--toggle-collect` finds.
#[inline(never)]
fn counted(path: &mut dyn FnMut(usize)) {
    for turn in 0..TIMES {
        path(turn);
    }
}
