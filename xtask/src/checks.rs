//! Checks of ci that compile something of their own.

use std::fs;
use std::path::Path;

use crate::report::Outcome;
use crate::run::{Failure, Step, logged, root};
use crate::{built, suites};

/// Decisions beside the oracle.
const DECISIONS: &str = "10000000";

/// Decisions of the scripts beside the oracle: Lua decides a hundredth as fast as the memory store.
const LUA_DECISIONS: &str = "300000";

/// Every library without its default features, and with each feature alone.
pub(crate) fn features() -> Result<(), Failure> {
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
    let names = lines.filter(|line| !line.trim_start().starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(names.map(|(name, _)| name.trim().to_owned()).collect())
}

/// Every example runs to its end.
pub(crate) fn examples() -> Result<(), Failure> {
    for package in
        ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-replay"]
    {
        for example in built::examples(package)? {
            example.step().run()?;
        }
    }
    Ok(())
}

/// The library's tests, optimised and with every overflow checked: all of them, those that try everything included.
pub(crate) fn library(log: &Path) -> Outcome {
    let command = "test --profile checked --package tidegate --features calendar --tests";
    suites::run_step(Step::cargo(command).with("TIDEGATE_DECISIONS", DECISIONS), &format!("cargo {command}"), log)
}

/// The scripts beside the oracle, and deployments in virtual time.
pub(crate) fn simulation(log: &Path) -> Outcome {
    // Defects planted in the scripts are a campaign: `cargo xtask verify mutants`.
    let command = "test --profile checked --package tidegate-simulation --lib -- --skip every_defect_in_a_script";
    suites::run_step(Step::cargo(command).with("TIDEGATE_DECISIONS", LUA_DECISIONS), &format!("cargo {command}"), log)
}

/// The server as a newcomer builds it, without features: what needs one says which, and what to build.
pub(crate) fn without_features() -> Result<(), Failure> {
    let binary = built::server(built::CRATES)?;
    for (arguments, feature) in [
        (&["top", "--server", "127.0.0.1:1"][..], "top"),
        (&["man"], "manual"),
        (&["completions", "bash"], "manual"),
        (&["simulate", "--png", "target/ci/picture.png"], "png"),
        (&["serve", "--http", "127.0.0.1:0", "--tls-client-ca", "ca.pem"], "certificates"),
        (&["serve", "--http", "127.0.0.1:0", "--otlp", "http://127.0.0.1:1"], "otlp"),
    ] {
        let (success, printed) = Step::new(&binary, arguments).ask()?;
        let expected = format!("needs the feature {feature}, which this binary was built without");
        if success || !printed.contains(&expected) {
            return Err(format!("tidegate {} should say that it {expected}: {printed}", arguments.join(" ")));
        }
    }
    Ok(())
}

/// Tests and lints of a package with dependencies of its own, compiled apart.
pub(crate) fn apart(package: &str, log: &Path) -> Outcome {
    let mut outcome = suites::run_cargo(&format!("test --profile checked --package {package}"), log);
    let lint = || Step::cargo(&format!("clippy --package {package} --all-targets -- -D warnings")).run();
    outcome.failed.extend(logged(&log.with_extension("lints.log"), lint).err());
    outcome
}

/// The proxy of pingora, which is a workspace of its own and is built below `target/pingora`.
pub(crate) fn pingora() -> Result<(), Failure> {
    let target = root().join("target/pingora").display().to_string();
    let place = root().join("examples/pingora");
    Step::cargo("fmt --check").within(&place).run()?;
    // Clippy compiles it for the tests: by itself it would compile all dependencies once more.
    let step = Step::cargo("test --locked").within(&place).with("CARGO_TARGET_DIR", &target);
    step.with("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").with("RUSTFLAGS", "-D warnings").run()
}
