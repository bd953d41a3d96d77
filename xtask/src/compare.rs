//! The same promises, asked of tidegate and of its rivals: the table of
//! `docs/book/src/appendix/compare.md`, made anew.

use std::fs;

use crate::run::{Failure, Step, root};

const PAGE: &str = "docs/book/src/appendix/compare.md";
/// The table stands between these.
const BEGINS: &str = "<!-- the table begins -->\n";
const ENDS: &str = "<!-- the table ends -->";

pub(crate) fn write() -> Result<(), Failure> {
    println!("comparing with all rivals, which takes a few minutes to compile");
    let command = "run --quiet --release --package tidegate-bench --features compare --bin compare";
    let (success, printed) = Step::cargo(command).ask()?;
    if !success {
        return Err(format!("failed: cargo {command}\n{printed}"));
    }
    let table: String = printed.lines().filter(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let (before, rest) = page.split_once(BEGINS).ok_or(format!("{PAGE} has no {BEGINS}"))?;
    let (_, after) = rest.split_once(ENDS).ok_or(format!("{PAGE} has no {ENDS}"))?;
    fs::write(&path, format!("{before}{BEGINS}\n{table}\n{ENDS}{after}"))
        .map_err(|error| format!("cannot write {PAGE}: {error}"))?;
    println!("{table}");
    Ok(())
}
