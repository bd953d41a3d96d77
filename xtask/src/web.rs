//! The dashboard by npm: its tests, and the page for the server's package.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use crate::programs;
use crate::run::{Failure, Step, root};

/// The parts of the dashboard that compute, tested by themselves; the whole of it
/// is tested in a browser, with the server.
pub(crate) fn test() -> Result<(), Failure> {
    installed()?;
    Step::new("npm", &["test"]).within(&root().join("web")).run()
}

/// Builds the page, and puts it into a folder in place of what is there.
pub(crate) fn build_into(folder: &Path) -> Result<(), Failure> {
    installed()?;
    let web = root().join("web");
    Step::new("npm", &["run", "build"]).within(&web).run()?;
    let replace = || {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        copy(&web.join("dist"), folder)
    };
    replace().map_err(|error| format!("cannot write {}: {error}", folder.display()))
}

/// What the dashboard depends on, installed once: jobs side by side would remove it under each other.
fn installed() -> Result<(), Failure> {
    static INSTALLED: OnceLock<Result<(), Failure>> = OnceLock::new();
    let install = || {
        programs::npm()?;
        Step::new("npm", &["ci", "--no-audit", "--no-fund"]).within(&root().join("web")).run()
    };
    INSTALLED.get_or_init(install).clone()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let copied = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() { copy(&path, &copied)? } else { fs::copy(&path, &copied).map(drop)? }
    }
    Ok(())
}
