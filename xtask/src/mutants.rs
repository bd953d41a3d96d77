//! Every small defect in the code that decides, one at a time: does a test
//! notice?
//!
//! Those of the library are made by `verify/mutants/`, all in one build; those of the
//! scripts by a test of `tidegate-simulation`. Both have a
//! list of those that no test can notice, with the reasons: a defect that is
//! neither noticed nor listed is a failure.

use crate::run::{Failure, Step};

/// `[rust|lua] [options]`: one half, or both. The options are those of `verify/mutants/`.
pub(crate) fn all(options: &[String]) -> Result<(), Failure> {
    match options.split_first() {
        None => lua().and_then(|()| rust(&[])),
        Some((half, options)) if half == "rust" => rust(options),
        Some((half, [])) if half == "lua" => lua(),
        Some((other, _)) => {
            Err(format!("{other:?} is not understood: cargo xtask verify mutants [rust [OPTION..]|lua]"))
        }
    }
}

fn rust(options: &[String]) -> Result<(), Failure> {
    let step = Step::cargo("run --quiet --manifest-path verify/mutants/Cargo.toml --");
    options.iter().fold(step, |step, option| step.argument(option)).run()
}

/// Also those that are listed are asked for long, to see that they still belong there.
fn lua() -> Result<(), Failure> {
    let step = Step::cargo(
        "test --profile checked --package tidegate-simulation --lib every_defect_in_a_script_is_noticed -- --nocapture",
    );
    step.with("TIDEGATE_MUTANTS", "thorough").run()
}
