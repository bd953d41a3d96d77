//! The lemmas of `verify/lemmas/`, by Z3, which comes from PyPI.

use std::path::Path;

use crate::programs;
use crate::run::{Failure, Step};

const Z3: &str = "z3-solver==5.4.0.0";

/// Proves every lemma, or those of the subjects that are named.
pub(crate) fn lemmas(options: &[String]) -> Result<(), Failure> {
    let python = |place: &Path| programs::program(place, "python").display().to_string();
    programs::environment("z3", &[Z3], |place| {
        Step::new(&python(place), &["-c", "import z3"]).ask().is_ok_and(|(success, _)| success)
    })?;
    let python = python(&programs::place("z3"));
    let step = Step::new(&python, &["verify/lemmas/lemmas.py"]).with("PYTHONDONTWRITEBYTECODE", "1");
    options.iter().fold(step, |step, option| step.argument(option)).run()
}
