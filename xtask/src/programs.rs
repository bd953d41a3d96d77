//! The programs that the server is tested with: clients and checkers, from the
//! system's packages and, in an environment of its own, from PyPI.

use std::path::{Path, PathBuf};

use crate::run::{Failure, Step, root};

/// A program, and the package that brings it.
const PACKAGED: [(&str, &str); 2] = [("curl", "curl"), ("promtool", "prometheus")];

/// Packages of PyPI by their modules, each in an environment of its own: a tester that reads
/// the OpenAPI document, and a client of RESP.
const ENVIRONMENTS: [(&str, &str); 2] = [("schemathesis", "schemathesis==4.32.5"), ("redis", "redis==8.1.0")];

/// Makes sure that all are there, installing them where that is possible.
pub(crate) fn ensure() -> Result<(), Failure> {
    let missing: Vec<&str> =
        PACKAGED.iter().filter(|(program, _)| !runs(Path::new(program))).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    for (module, package) in ENVIRONMENTS {
        let environment = root().join("target/programs").join(module);
        let python = program(&environment, "python3").display().to_string();
        let import = format!("import {module}");
        if Step::new(&python, &["-c", &import]).ask().is_ok_and(|(success, _)| success) {
            continue;
        }
        let path = environment.display().to_string();
        if Step::new("python3", &["-m", "venv", &path]).run().is_err() {
            install(&["python3-venv"])?;
            Step::new("python3", &["-m", "venv", &path]).run()?;
        }
        Step::new(&python, &["-m", "pip", "install", "--quiet", package]).run()?;
    }
    Ok(())
}

fn program(environment: &Path, name: &str) -> PathBuf {
    environment.join("bin").join(name)
}

fn runs(program: &Path) -> bool {
    let program = program.display().to_string();
    Step::new(&program, &["--version"]).ask().is_ok_and(|(success, _)| success)
}

fn install(packages: &[&str]) -> Result<(), Failure> {
    let install = || {
        let arguments = [&["install", "-y", "--no-install-recommends"], packages].concat();
        // In the runlevel of a single user no service is started.
        let step = Step::new("apt-get", &arguments).with("DEBIAN_FRONTEND", "noninteractive");
        step.with("RUNLEVEL", "1").run()
    };
    if install().is_err() {
        // The lists of packages may be missing or old.
        Step::new("apt-get", &["update"]).run()?;
        install().map_err(|failure| format!("{failure}\nThe tests need {}", packages.join(", ")))?;
    }
    Ok(())
}
