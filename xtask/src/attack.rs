//! Attacks on a server of their own, with an honest client beside each.

use crate::run::{Failure, Step, root};

/// Makes all attacks, or those that the options choose; prints a line for each, and fails
/// where a stated bound was passed. Latencies are those of the binary that is handed out.
pub(crate) fn run(options: &[String]) -> Result<(), Failure> {
    Step::cargo(
        "build --profile dist --package tidegate-chaos --package tidegate-server --features tidegate-server/full",
    )
    .run()?;
    let built = |name: &str| root().join("target/dist").join(name).display().to_string();
    let step = Step::new(&built("tidegate-attack"), &[]).with("TIDEGATE_BINARY", &built("tidegate"));
    options.iter().fold(step, |step, option| step.argument(option)).run()
}
