//! Stories by seed, for as long as you like: processes and servers in virtual
//! time, waiters poll by poll, threads at once.
//!
//! Ordinary tests tell some of each in ci; these are the same tests with other
//! numbers.

use crate::run::{Failure, Step};

/// Which stories a task tells, and how many unless told otherwise.
pub(crate) struct Stories {
    package: &'static str,
    tests: &'static str,
    /// The variables that say how many, and what part of the number each gets.
    counts: &'static [(&'static str, u64)],
    otherwise: u64,
}

pub(crate) const SIMULATION: Stories = Stories {
    package: "tidegate-simulation",
    tests: "--lib simulation::tests::every_seed",
    counts: &[("TIDEGATE_SEEDS", 1)],
    otherwise: 100_000,
};

pub(crate) const HISTORIES: Stories = Stories {
    package: "tidegate-proof",
    tests: "--test histories --test waiting",
    counts: &[("TIDEGATE_HISTORIES", 10), ("TIDEGATE_WAITS", 1)],
    otherwise: 1_000_000,
};

/// `[COUNT] [--seed FIRST]`
pub(crate) fn tell(stories: &Stories, options: &[String]) -> Result<(), Failure> {
    let (mut count, mut seed) = (stories.otherwise, 1);
    let mut options = options.iter();
    let number = |text: Option<&String>| {
        text.and_then(|text| text.parse().ok()).ok_or("wants numbers: [COUNT] [--seed FIRST]".to_owned())
    };
    while let Some(option) = options.next() {
        match option.as_str() {
            "--seed" => seed = number(options.next())?,
            _ => count = number(Some(option))?,
        }
    }
    let Stories { package, tests, counts, .. } = stories;
    let step = Step::cargo(&format!("test --profile checked --package {package} {tests} -- --nocapture"));
    let step = step.with("TIDEGATE_SEED", &seed.to_string());
    counts.iter().fold(step, |step, (name, part)| step.with(name, &count.div_ceil(*part).to_string())).run()
}
