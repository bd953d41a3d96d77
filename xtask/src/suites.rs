//! Test programs, run one by one, and what they print of their tests.

use std::fs;
use std::path::Path;

use crate::built::Program;
use crate::report::Outcome;
use crate::run::{Step, logged};

/// The words by which a test says that it lacks a program, with its name before them.
const MISSING: &str = " is missing: run `cargo xtask ";

/// Runs all tests of a program; its output goes to the log.
pub(crate) fn run(program: &Program, step: Step, log: &Path) -> Outcome {
    let mut outcome = outcome_of(step, log);
    if !outcome.failed.is_empty() {
        let names: Vec<&str> = outcome.failed.iter().map(String::as_str).filter(|name| !name.contains(' ')).collect();
        let exact = if names.is_empty() { "" } else { " -- --exact " };
        outcome.rerun = Some(format!("{}{exact}{}", program.command(), names.join(" ")));
    }
    outcome
}

/// Runs the tests that a command of cargo runs.
pub(crate) fn run_cargo(command: &str, log: &Path) -> Outcome {
    run_step(Step::cargo(command), &format!("cargo {command}"), log)
}

/// Runs the tests that a step runs, which a command repeats.
pub(crate) fn run_step(step: Step, again: &str, log: &Path) -> Outcome {
    let mut outcome = outcome_of(step, log);
    outcome.rerun = (!outcome.failed.is_empty()).then(|| again.to_owned());
    outcome
}

fn outcome_of(step: Step, log: &Path) -> Outcome {
    let ended = logged(log, || step.run());
    let mut outcome = read(&String::from_utf8_lossy(&fs::read(log).unwrap_or_default()));
    // It may have ended otherwise than by a test: aborted, killed, hung.
    if let Err(failure) = ended
        && outcome.failed.is_empty()
        && outcome.skipped.is_empty()
    {
        outcome.failed.push(failure);
    }
    outcome
}

/// Reads what the test harness prints, of one program or of several in a row.
pub(crate) fn read(printed: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for result in printed.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let passed = result.split("; ").find_map(|part| part.strip_suffix(" passed")?.rsplit(' ').next()?.parse().ok());
        outcome.passed += passed.unwrap_or(0);
    }
    let failed = printed.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    for name in failed.map(|name| name.trim_end_matches(" - should panic")) {
        match lacking(printed, name) {
            Some(program) => outcome.skipped.push(format!("{name}: {program} is missing")),
            None => outcome.failed.push(name.to_owned()),
        }
    }
    outcome
}

/// The program that a test failed for want of.
fn lacking<'p>(printed: &'p str, name: &str) -> Option<&'p str> {
    let told = printed.split_once(&format!("\n---- {name} stdout ----\n"))?.1;
    let told = told.split("\n---- ").next()?;
    told.lines().find_map(|line| line.split_once(MISSING))?.0.rsplit([' ', '"']).next()
}

#[cfg(test)]
mod tests {
    use super::read;

    const PRINTED: &str = "
running 4 tests
test a ... ok
test b::c ... FAILED
test d ... FAILED
test e - should panic ... ok

failures:

---- b::c stdout ----

thread 'b::c' panicked at tests/b.rs:3:5:
left: 1 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- d stdout ----

thread 'd' panicked at tests/d.rs:3:5:
promtool is missing: run `cargo xtask install`


failures:
    b::c
    d

test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test f ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    #[test]
    fn tests_are_counted_and_a_missing_program_is_a_skip() {
        let outcome = read(PRINTED);
        assert_eq!(outcome.passed, 3);
        assert_eq!(outcome.failed, ["b::c"]);
        assert_eq!(outcome.skipped, ["d: promtool is missing"]);
    }
}
