//! `cargo xtask verify deny`: licences, sources and versions of all dependencies, and
//! known vulnerabilities, held against `deny.toml` by cargo-deny.

use crate::packages::runs;
use crate::programs::{place, program};
use crate::run::{Failure, Step, root};

const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// Everything; the advisories where their database can be fetched.
pub(crate) fn check() -> Result<(), Failure> {
    let deny = ensure()?;
    let config = root().join("deny.toml").display().to_string();
    for manifest in ["Cargo.toml", "examples/pingora/Cargo.toml"] {
        let arguments = ["--manifest-path", manifest, "--config", &config, "check", "licenses", "sources"];
        Step::new(&deny, &arguments).run()?;
    }
    // Of the published crates only: in what is only tested, two versions of a crate cost a user nothing.
    Step::new(&deny, &["--exclude-unpublished", "--exclude-dev", "--config", &config, "check", "bans"]).run()?;
    match Step::new(&deny, &["fetch", "db"]).ask()? {
        (true, _) => Step::new(&deny, &["check", "advisories"]).run(),
        (false, printed) => {
            println!("{printed}\nADVISORIES WERE NOT CHECKED: their database could not be fetched, as shown above.");
            Ok(())
        }
    }
}

/// The program, installed if it is not there.
fn ensure() -> Result<String, Failure> {
    if runs("cargo-deny", "--version") {
        return Ok("cargo-deny".into());
    }
    let place = place("deny");
    let installed = program(&place, "cargo-deny").display().to_string();
    if !runs(&installed, "--version") {
        let root = place.display().to_string();
        // Unoptimised, it still runs for seconds, and compiles in half the time.
        Step::new("cargo", &["install", "--locked", "--debug", "--root", &root, CARGO_DENY]).run()?;
    }
    Ok(installed)
}
