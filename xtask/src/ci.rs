//! What must pass, and the longer campaigns beside it.

use std::fs;

use crate::built::{self, EVERYTHING};
use crate::lua;
use crate::programs;
use crate::proof;
use crate::run::{Failure, Step, root};
use crate::servers;

/// Decisions that the differential tests make in all.
const CI_DECISIONS: &str = "10000000";
const SOAK_DECISIONS: &str = "1000000000";
const REDIS_SOAK_DECISIONS: &str = "10000000";

pub(crate) fn all() -> Result<(), Failure> {
    Step::cargo("fmt --all --check").run()?;
    programs::npm()?;
    Step::cargo(&format!("clippy {EVERYTHING} --all-targets -- -D warnings")).run()?;
    servers::ensure()?;
    programs::ensure()?;
    Step::cargo(&format!("test {EVERYTHING}")).with("TIDEGATE_DECISIONS", CI_DECISIONS).run()?;
    on_valkey()?;
    lua::lint()?;
    proof::lemmas(&[])?;
    web()?;
    Step::cargo(&format!("doc {EVERYTHING} --no-deps")).with("RUSTDOCFLAGS", "-D warnings").run()?;
    features()?;
    examples()?;
    loom(Some(2))?;
    miri()?;
    println!("\nAll passed.");
    Ok(())
}

/// The tests of the Redis store that are about its answers, on Valkey where it can be had.
fn on_valkey() -> Result<(), Failure> {
    let Some(valkey) = servers::valkey() else { return Ok(()) };
    let names = ["conformance", "twin", "failure", "leases", "custom", "strict", "servers"];
    for test in built::tests("tidegate-redis", &names)? {
        test.step()
            .with("TIDEGATE_REDIS_SERVER", &valkey.display().to_string())
            .with("TIDEGATE_REDIS_DECISIONS", "60000")
            .run()?;
    }
    Ok(())
}

/// Every library without its default features, and with each feature alone.
fn features() -> Result<(), Failure> {
    for package in
        ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-testkit"]
    {
        Step::cargo(&format!("check --package {package} --no-default-features")).run()?;
        for feature in features_of(package)? {
            Step::cargo(&format!("check --package {package} --no-default-features --features {feature}")).run()?;
        }
    }
    Ok(())
}

fn features_of(package: &str) -> Result<Vec<String>, Failure> {
    let manifest = root().join("crates").join(package).join("Cargo.toml");
    let manifest =
        fs::read_to_string(&manifest).map_err(|error| format!("cannot read {}: {error}", manifest.display()))?;
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    Ok(lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().to_owned()).collect())
}

/// Every example runs to its end.
fn examples() -> Result<(), Failure> {
    for package in
        ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-replay"]
    {
        for example in built::examples(package)? {
            example.step().run()?;
        }
    }
    Ok(())
}

/// The schedule tests, with at most so many preemptions in a schedule.
pub(crate) fn loom(preemptions: Option<usize>) -> Result<(), Failure> {
    let target = root().join("target/loom");
    let step = Step::cargo("test --release --package tidegate --lib schedules")
        .with("RUSTFLAGS", "--cfg loom")
        .with("CARGO_TARGET_DIR", &target.display().to_string());
    match preemptions {
        Some(most) => step.with("LOOM_MAX_PREEMPTIONS", &most.to_string()).run(),
        None => step.with("LOOM_MAX_PREEMPTIONS", "4").run(),
    }
}

/// The unit tests, and threads that race for a limit, under Miri on the nightly
/// toolchain.
pub(crate) fn miri() -> Result<(), Failure> {
    let (present, _) = Step::cargo("+nightly miri --version").ask()?;
    if !present {
        let arguments = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
        Step::new("rustup", &arguments).run().map_err(|failure| {
            format!("{failure}\nMiri is needed: install a nightly toolchain with the miri component")
        })?;
    }
    let target = root().join("target/miri");
    for tests in ["--lib", "--test concurrency"] {
        Step::cargo(&format!("+nightly miri test --package tidegate {tests}"))
            // Real time and the file system are used by some.
            .with("MIRIFLAGS", "-Zmiri-disable-isolation")
            .with("CARGO_TARGET_DIR", &target.display().to_string())
            .run()?;
    }
    Ok(())
}

/// The parts of the dashboard that compute, tested by themselves; the whole of it
/// is tested in a browser, with the server.
pub(crate) fn web() -> Result<(), Failure> {
    programs::npm()?;
    let folder = root().join("web");
    Step::new("npm", &["ci", "--no-audit", "--no-fund"]).within(&folder).run()?;
    Step::new("npm", &["test"]).within(&folder).run()
}

/// The code of Envoy's messages, written by the test that compares it.
pub(crate) fn proto() -> Result<(), Failure> {
    Step::cargo("test --package tidegate-server --test proto").with("TIDEGATE_WRITE_PROTO", "1").run()
}

pub(crate) fn soak() -> Result<(), Failure> {
    let decisions = std::env::var("TIDEGATE_DECISIONS").unwrap_or_else(|_| SOAK_DECISIONS.into());
    Step::cargo("test --package tidegate --test differential --test retry_exactness -- --nocapture")
        .with("TIDEGATE_DECISIONS", &decisions)
        .run()?;
    servers::ensure()?;
    Step::cargo("test --package tidegate-redis --lib --test twin -- --nocapture")
        .with("TIDEGATE_DECISIONS", &decisions)
        .with("TIDEGATE_REDIS_DECISIONS", REDIS_SOAK_DECISIONS)
        .run()
}

pub(crate) fn bench(options: &[String]) -> Result<(), Failure> {
    let step = Step::cargo("run --release --package tidegate-bench --");
    options.iter().fold(step, |step, option| step.argument(option)).run()
}
