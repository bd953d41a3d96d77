//! Faults under load: everything that they need, and a report.

use crate::built;
use crate::programs;
use crate::run::{Failure, Step, root};
use crate::servers;

/// Runs all faults, or those that the options choose; writes `target/chaos/report.md`.
pub(crate) fn run(options: &[String]) -> Result<(), Failure> {
    servers::ensure()?;
    if let Err(failure) = programs::packet_filter() {
        println!("without a packet filter, some faults cannot be made: {failure}");
    }
    let binaries = built::binaries(&["tidegate-chaos", "tidegate-server"])?;
    let named = |name: &str| binaries.iter().find(|program| program.name == name).ok_or(format!("no binary {name}"));
    let report = root().join("target/chaos/report.md");
    let step = named("tidegate-chaos")?.step().with("TIDEGATE_BINARY", named("tidegate")?.path());
    let step = step.argument("--about").argument(&about()).argument("--report").argument(&report.display().to_string());
    options.iter().fold(step, |step, option| step.argument(option)).run()
}

/// When it was run, and what.
fn about() -> String {
    let ask = |program: &str, arguments: &[&str]| {
        let answer = Step::new(program, arguments).ask();
        answer.map_or_else(|_| "unknown".into(), |(_, printed)| printed.trim().to_owned())
    };
    let day = ask("date", &["-u", "+%Y-%m-%d"]);
    let changed = ask("git", &["status", "--porcelain"]);
    let commit = ask("git", &["rev-parse", "--short", "HEAD"]);
    let server = std::env::var("TIDEGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let server = ask(&server, &["--version"]).split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    format!("{day}, commit {commit}{}, on {server}", if changed.is_empty() { "" } else { " with changes" })
}
