//! Programs from the system's packages, installed where that is permitted.

use crate::run::{Failure, Step};

/// Whether a program is there and runs.
pub(crate) fn runs(program: &str, argument: &str) -> bool {
    Step::new(program, &[argument]).ask().is_ok_and(|(success, _)| success)
}

/// Installs Debian's packages; where that is not permitted, the error says what to install.
pub(crate) fn install(packages: &[&str]) -> Result<(), Failure> {
    let wanted = format!("install {} (as root, on Debian: apt-get install {0})", packages.join(" "));
    let is_root = Step::new("id", &["-u"]).ask().is_ok_and(|(_, user)| user.trim() == "0");
    if !is_root || !runs("apt-get", "--version") {
        return Err(wanted);
    }
    let install = || {
        let arguments = [&["install", "-y", "--no-install-recommends"], packages].concat();
        // In the runlevel of a single user no service is started.
        let step = Step::new("apt-get", &arguments).with("DEBIAN_FRONTEND", "noninteractive");
        step.with("RUNLEVEL", "1").run()
    };
    // The lists of packages may be missing or old.
    install()
        .or_else(|_| Step::new("apt-get", &["update"]).run().and_then(|()| install()))
        .map_err(|failure| format!("{failure}\n{wanted}"))
}
