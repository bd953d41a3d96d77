//! Commands, shown before they run.
//!
//! What they print goes to the terminal, or to the log of the job that runs
//! them: [`logged`] says which, for the thread that calls it.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

/// What went wrong, for a person to read.
pub(crate) type Failure = String;

/// The guard against commands that hang. The longest, the build, takes a tenth of it on two idle cores.
const GUARD: Duration = Duration::from_secs(80 * 60);

/// The same for a job of CI, of which the longest takes 12 minutes: it must fail by name before CI runs out of time.
const GUARD_OF_A_JOB: Duration = Duration::from_secs(40 * 60);

/// Between two looks at a command that runs.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

thread_local! {
    static LOG: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// The workspace, wherever the task was called from.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Runs a job of this thread with its output in a file.
pub(crate) fn logged<T>(log: &Path, job: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let create = || {
        log.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(log)
    };
    let file = create().map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    LOG.set(Some(file));
    let outcome = job();
    LOG.set(None);
    outcome
}

/// Prints a line where the output of commands goes.
pub(crate) fn say(line: &str) {
    LOG.with_borrow_mut(|log| match log {
        // A log that cannot be written shows in the commands that write to it.
        Some(file) => _ = writeln!(file, "{line}"),
        None => println!("{line}"),
    });
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
        // What cargo told this task of itself: ring would be compiled again for it, and all that is above.
        for (variable, _) in std::env::vars_os() {
            let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            if variable.to_str().is_some_and(is_of_package) {
                command.env_remove(variable);
            }
        }
        Step { command, shown: [&[program], arguments].concat().join(" ") }
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

    /// Runs it; what it prints is shown, or goes to the log of this job.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        say(&format!("\n$ {}", self.shown));
        let began = Instant::now();
        let log = LOG.with_borrow(|log| log.as_ref().map(File::try_clone).transpose());
        let start = |command: &mut Command| {
            let Some(log) = log? else { return wait(command.spawn()?, GUARD) };
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            wait(command.spawn()?, GUARD_OF_A_JOB)
        };
        let status = start(&mut self.command).map_err(|error| format!("could not run `{}`: {error}", self.shown))?;
        say(&format!("  {} s", began.elapsed().as_secs()));
        if status.success() { Ok(()) } else { Err(format!("failed: {} ({status})", self.shown)) }
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

fn wait(mut child: Child, guard: Duration) -> io::Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > guard {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it still ran after {} s", guard.as_secs())));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}
