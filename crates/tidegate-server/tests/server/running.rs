//! A server of the binary, for as long as a test needs it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_testkit::servers::GUARD;

/// A running server; killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// What it has printed to say where it is.
    pub(crate) banner: String,
}

impl Running {
    /// Starts a server on a port that is free.
    pub(crate) fn start(arguments: &[&str]) -> Running {
        Running::with(|command| command.args(["--http", "127.0.0.1:0"]).args(arguments))
    }

    /// Starts a server, with no more than is told.
    pub(crate) fn with(set: impl FnOnce(&mut Command) -> &mut Command) -> Running {
        let mut command = tidegate();
        command.arg("serve");
        set(&mut command);
        Running::of(command)
    }

    /// Starts a server on a port that is free, under a limit of the shell such as `-n 200`.
    pub(crate) fn under(limit: &str, arguments: &[&str]) -> Running {
        let mut command = tidegate_under(limit);
        command.args(["serve", "--http", "127.0.0.1:0"]).args(arguments);
        Running::of(command)
    }

    fn of(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("Try: ") {
            assert_ne!(lines.read_line(&mut banner).unwrap(), 0, "the server ended at its start: {banner}");
        }
        Running { child, banner }
    }

    /// `127.0.0.1:port` of HTTP.
    pub(crate) fn address(&self) -> &str {
        self.address_of("http")
    }

    /// Where a protocol is served.
    pub(crate) fn address_of(&self, protocol: &str) -> &str {
        let mut words = self.banner.split_whitespace().skip_while(|word| *word != protocol);
        words.nth(1).unwrap()
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Terminates it and waits for the end.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.child.wait().unwrap()
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// Its number as a process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, without the environment's say. Clients and stores may be as slow as the machine is, unless a test
/// says otherwise: a drain fails after the guard, and an idle connection outlives it.
pub(crate) fn tidegate() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_tidegate")))
}

/// The same, under a limit of the shell.
pub(crate) fn tidegate_under(limit: &str) -> Command {
    let mut command = alone(Command::new("/bin/sh"));
    command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_tidegate")]);
    command
}

fn alone(mut command: Command) -> Command {
    command.env_clear().env("TIDEGATE_DRAIN_GRACE_MS", "100").env("TIDEGATE_LOG", "warn");
    command.env("TIDEGATE_DRAIN_SECONDS", GUARD.as_secs().to_string());
    command.env("TIDEGATE_IDLE_SECONDS", "3600").env("TIDEGATE_BODY_SECONDS", "3600");
    command.env("TIDEGATE_STORE_DEADLINE_MS", "60000");
    command
}

/// What the binary answers to a command.
pub(crate) fn ask(arguments: &[&str]) -> Output {
    tidegate().args(arguments).output().unwrap()
}

/// A folder of the test's own, removed in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-server-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}
