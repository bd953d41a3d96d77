//! Commands, shown before they run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What went wrong, for a person to read.
pub(crate) type Failure = String;

/// The workspace, wherever the task was called from.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// One command line, by words.
pub(crate) struct Step {
    command: Command,
    shown: String,
}

impl Step {
    pub(crate) fn new(program: &str, arguments: &[&str]) -> Step {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root());
        Step { command, shown: format!("{program} {}", arguments.join(" ")) }
    }

    pub(crate) fn cargo(arguments: &str) -> Step {
        Step::new("cargo", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn with(mut self, variable: &str, value: &str) -> Step {
        self.command.env(variable, value);
        self.shown = format!("{variable}={value:?} {}", self.shown);
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Step {
        self.command.arg(argument);
        self.shown = format!("{} {argument}", self.shown);
        self
    }

    pub(crate) fn within(mut self, directory: &Path) -> Step {
        self.command.current_dir(directory);
        self
    }

    /// Runs it; what it prints is shown.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        println!("\n$ {}", self.shown);
        let began = Instant::now();
        let status = self.command.status().map_err(|error| format!("could not start `{}`: {error}", self.shown))?;
        println!("  {} s", began.elapsed().as_secs());
        if status.success() { Ok(()) } else { Err(format!("failed: {}", self.shown)) }
    }

    /// Runs it and reads what it prints; what it says of errors is shown.
    pub(crate) fn read(mut self) -> Result<String, Failure> {
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("could not start `{}`: {error}", self.shown))?;
        if !output.status.success() {
            return Err(format!("failed: {}", self.shown));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it silently: whether it succeeded, and what it printed.
    pub(crate) fn ask(mut self) -> Result<(bool, String), Failure> {
        let output = self.command.output().map_err(|error| format!("could not start `{}`: {error}", self.shown))?;
        let printed = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&printed).into_owned()))
    }
}
