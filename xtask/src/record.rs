//! Files that commands write and people commit, written anew.

use crate::instructions::instructions;
use crate::run::{Failure, Step};
use crate::{api, calendar, times};

/// A file: its name here, what it is, and how it is written.
type Recorded = (&'static str, &'static str, fn() -> Result<(), Failure>);

const RECORDED: [Recorded; 7] = [
    ("api", "verify/api: what the libraries make public", || api::compare(true)),
    ("calendar", "calendar-edges.txt: periods that Python and PostgreSQL find", || {
        calendar::compare(&["--write".into()])
    }),
    ("instructions", "verify/paths: instructions of each path", || instructions(&["--write".into()])),
    ("proto", "the code of the messages of Envoy and Kuadrant", || {
        written("tidegate-proto", "--test proto", "TIDEGATE_WRITE_PROTO")
    }),
    ("schema", "the JSON Schema of policy files", || {
        written("tidegate-config", "--lib the_schema_is", "TIDEGATE_WRITE_SCHEMA")
    }),
    ("settings", "the table of settings in the book", || {
        written("tidegate-server", "--lib settings", "TIDEGATE_WRITE_SETTINGS")
    }),
    ("times", "where CI's time goes, in CONTRIBUTING.md, from the last ci", times::write),
];

/// `NAME`; without a name, the list.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    match words {
        [] => {
            println!("cargo xtask record NAME\n");
            RECORDED.iter().for_each(|(name, about, _)| println!("  {name:<13} {about}"));
            Ok(())
        }
        [name] => match RECORDED.iter().find(|(known, ..)| known == name) {
            Some((.., write)) => write(),
            None => Err(format!("{name:?} is not recorded: `cargo xtask record` lists what is")),
        },
        other => Err(format!("{other:?} is not understood: cargo xtask record NAME")),
    }
}

/// By the test that compares it.
fn written(package: &str, tests: &str, variable: &str) -> Result<(), Failure> {
    Step::cargo(&format!("test --package {package} {tests}")).with(variable, "1").run()
}
