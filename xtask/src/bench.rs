//! Speed, beside rivals and by counted instructions.

use crate::compare;
use crate::instructions::instructions;
use crate::run::{Failure, Step};

/// `[OPTIONS]` of the benchmark, or `compare`, or `instructions [PATH..]`.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    match words.split_first() {
        Some((word, [])) if word == "compare" => compare::write(),
        Some((word, paths)) if word == "instructions" => instructions(paths),
        _ => {
            let step = Step::cargo("run --profile dist --package tidegate-bench --");
            words.iter().fold(step, |step, option| step.argument(option)).run()
        }
    }
}
