//! How long each job took: `target/ci/times`, and the table in CONTRIBUTING.md.

use std::fmt::Write as _;
use std::fs;

use crate::run::{Failure, root};

const TIMES: &str = "target/ci/times";
const PAGE: &str = "CONTRIBUTING.md";

/// The table stands between these.
const BEGINS: &str = "<!-- times begin: cargo xtask record times -->\n";
const ENDS: &str = "<!-- times end -->";

/// Rows of the table; the rest is one sum.
const SHOWN: usize = 24;

/// Empties the record, when the test circle begins.
pub(crate) fn begin() {
    let path = root().join(TIMES);
    let _ = path.parent().map(fs::create_dir_all);
    let _ = fs::remove_file(path);
}

/// Adds what a circle has taken: seconds, circle and step, a line each.
pub(crate) fn add(circle: &str, steps: &[(String, u64)]) {
    let path = root().join(TIMES);
    let mut text = fs::read_to_string(&path).unwrap_or_default();
    for (step, seconds) in steps {
        let _ = writeln!(text, "{seconds} {circle} {step}");
    }
    if let Err(error) = fs::write(&path, text) {
        println!("cannot write {}: {error}", path.display());
    }
}

/// Writes the table of CONTRIBUTING.md from the last run of `cargo xtask ci`.
pub(crate) fn write() -> Result<(), Failure> {
    let read =
        |name: &str| fs::read_to_string(root().join(name)).map_err(|error| format!("cannot read {name}: {error}"));
    let times = read(TIMES).map_err(|failure| format!("{failure}: run cargo xtask ci first"))?;
    let page = read(PAGE)?;
    let parts = page.split_once(BEGINS).and_then(|(before, rest)| Some((before, rest.split_once(ENDS)?.1)));
    let (before, after) = parts.ok_or(format!("{PAGE} has no marks of the table"))?;
    let page = format!("{before}{BEGINS}{}{ENDS}{after}", table(&times));
    fs::write(root().join(PAGE), page).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

fn table(times: &str) -> String {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        Some((words.next()?.parse::<u64>().ok()?, words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let mut rows: Vec<(u64, String, String)> = times.lines().filter_map(line).collect();
    rows.sort_by(|one, other| other.cmp(one));
    let mut table = String::from("\n| step | circle | seconds |\n|---|---|---|\n");
    for (seconds, circle, step) in rows.iter().take(SHOWN) {
        let _ = writeln!(table, "| {step} | {circle} | {seconds} |");
    }
    if rows.len() > SHOWN {
        let rest: u64 = rows[SHOWN..].iter().map(|(seconds, ..)| seconds).sum();
        let _ = writeln!(table, "| {} more | | {rest} |", rows.len() - SHOWN);
    }
    table + "\n"
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn the_longest_comes_first() {
        assert_eq!(
            table("3 test build\n12 ci documents of all\nwrong\n"),
            "\n| step | circle | seconds |\n|---|---|---|\n| documents of all | ci | 12 |\n| build | test | 3 |\n\n"
        );
    }
}
