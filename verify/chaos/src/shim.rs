//! A program whose own wall clock can be set while it runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_testkit::servers::{Directory, Program};

const SOURCE: &str = include_str!("shim.c");

/// The clock of programs that are started through it.
#[derive(Debug)]
pub(crate) struct ShiftedClock {
    directory: Directory,
}

pub(crate) fn is_ready() -> Result<(), String> {
    match Command::new(compiler()).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) | Err(_) => Err(format!("needs a C compiler: no `{}` here (set CC)", compiler())),
    }
}

fn compiler() -> String {
    env::var("CC").unwrap_or_else(|_| "cc".into())
}

impl ShiftedClock {
    /// A clock that is right, so far.
    pub(crate) fn new() -> ShiftedClock {
        let clock = ShiftedClock { directory: Directory::create() };
        let source = clock.directory.write("shim.c", SOURCE);
        let mut command = Command::new(compiler());
        command.args(["-shared", "-fPIC", "-O2", "-o"]).arg(clock.library()).arg(source);
        let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", compiler()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        clock.set(0);
        clock
    }

    /// Sets it to so many microseconds before or after what it would be.
    pub(crate) fn set(&self, micros: i64) {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().create(true).truncate(false).write(true).open(self.offset());
        // In one write, so that no reader sees half of it.
        file.and_then(|file| file.write_all_at(&micros.to_ne_bytes(), 0)).expect("a file of our own");
    }

    /// The words before a command that goes by this clock.
    pub(crate) fn words(&self) -> [String; 3] {
        let set = |name: &str, path: &Path| format!("{name}={}", path.display());
        ["env".into(), set("LD_PRELOAD", &self.library()), set("TIDEGATE_CLOCK_OFFSET", &self.offset())]
    }

    /// A server that goes by this clock.
    pub(crate) fn program(&self, of: &Program) -> Program {
        use std::os::unix::fs::PermissionsExt;
        let text = format!("#!/bin/sh\nexec {} '{}' \"$@\"\n", self.words().join(" "), of.path().display());
        let path = self.directory.write("server", &text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
        Program::at(path)
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("shim.so")
    }

    fn offset(&self) -> PathBuf {
        self.directory.path().join("offset")
    }
}
