//! The same promises, asked of tidegate and of its rivals: a table.
//!
//! `cargo xtask bench compare` runs it and writes `docs/book/src/appendix/compare.md`. A figure is what
//! was seen in this run; what is right stands beside it. Rivals are asked through
//! their public interfaces, with a clock that is set by hand where they take one.

mod promises;
mod rivals;

use promises::{Seen, TRIALS};
use rivals::RIVALS;

fn main() {
    let names: Vec<&str> = RIVALS.iter().map(|(name, _)| *name).collect();
    println!("| promise | asked | right | {} |", names.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(names.len()));
    for trial in TRIALS {
        let cells: Vec<String> = RIVALS.iter().map(|(_, make)| cell((trial.run)(*make))).collect();
        println!("| {} | {} | {} | {} |", trial.promise, trial.asked, trial.right, cells.join(" | "));
    }
}

fn cell(seen: Seen) -> String {
    match seen {
        Seen::Right(what) => what,
        Seen::Wrong(what) => format!("**{what}**"),
        Seen::NotAsked(why) => format!("({why})"),
    }
}
