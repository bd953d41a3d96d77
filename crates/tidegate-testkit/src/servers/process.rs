//! A process that ends with the tests, however they end.
//!
//! A shell starts it and leaves a guard behind, which holds the end of a pipe
//! from the tests. When the tests are killed, or exit with the process in a
//! `static`, the pipe closes, and the guard kills the process and removes its
//! directory. The shell then becomes the process (`exec`), so its id is known
//! and nothing stands between.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use super::eventually;

/// A line in the pipe says that the process has ended, a second one that its
/// directory is no longer the guard's to remove. The guard ignores SIGHUP since
/// the system sends it to a group in which something is paused when the tests
/// die.
const GUARDED: &str = r#"
exec 3<&0
directory=$1
shift
( (
    trap '' HUP INT TERM
    read -r _ <&3 || { kill -KILL $$; sleep 1; rm -rf -- "$directory"; exit; }
    read -r _ <&3 || rm -rf -- "$directory"
) >/dev/null 2>&1 & )
exec "$@" 3<&- </dev/null
"#;

/// A directory of its own, removed when dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A new and empty one.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn create() -> Directory {
        Directory::below(&env::temp_dir())
    }

    /// A new and empty one in memory where the system has such a place, for what
    /// writes little and syncs often.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn in_memory() -> Directory {
        const SHARED_MEMORY: &str = "/dev/shm";
        match env::var_os("TMPDIR") {
            None if is_writable(Path::new(SHARED_MEMORY)) => Directory::below(Path::new(SHARED_MEMORY)),
            None | Some(_) => Directory::create(),
        }
    }

    fn below(parent: &Path) -> Directory {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            // Short, since the path of a Unix socket may have about a hundred bytes.
            let path = parent.join(format!("tidegate-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Directory(path),
                // Left by an earlier process of the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    pub(super) fn remove(&self) {
        // What cannot be removed is only litter in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.remove();
    }
}

fn is_writable(directory: &Path) -> bool {
    let probe = directory.join(format!("tidegate-{}-probe", process::id()));
    let is_writable = fs::write(&probe, "probe").is_ok();
    let _ = fs::remove_file(&probe);
    is_writable
}

/// A running process, or what is left of one; killed when dropped.
///
/// ```no_run
/// use std::path::Path;
/// use tidegate_testkit::servers::{Directory, Process};
///
/// let directory = Directory::create();
/// let log = directory.path().join("log");
/// let mut sleeper = Process::start(Path::new("sleep"), &["60"], &directory, &log);
/// sleeper.pause();
/// sleeper.resume();
/// sleeper.kill();
/// ```
#[derive(Debug)]
pub struct Process {
    child: Child,
    guard: ChildStdin,
    status: Option<ExitStatus>,
    has_ended: bool,
    is_paused: bool,
}

impl Process {
    /// Starts a program whose output goes to `log`. The directory goes with it,
    /// should these tests be killed.
    ///
    /// # Panics
    ///
    /// When there is no shell to start it, or the log cannot be written.
    pub fn start(program: &Path, arguments: &[&str], directory: &Directory, log: &Path) -> Process {
        let opened = File::options().create(true).append(true).open(log).and_then(|log| Ok((log.try_clone()?, log)));
        let (output, errors) = opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", log.display()));
        let mut command = Command::new("sh");
        command.args(["-c", GUARDED, "sh"]).arg(directory.path()).arg(program).args(arguments);
        // A group of its own: what a terminal sends to the tests (Ctrl-C) must not end the guard.
        command.process_group(0).stdin(Stdio::piped()).stdout(output).stderr(errors);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        // Taken out, since waiting for the child would close it.
        let guard = child.stdin.take().expect("the input is a pipe");
        Process { child, guard, status: None, has_ended: false, is_paused: false }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        if !self.has_ended {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(status) => self.ended(status),
                Err(_) => self.ended(None),
            }
        }
        self.has_ended
    }

    /// How it has ended, once it has.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Ends it at once, and waits until it has ended.
    pub fn kill(&mut self) {
        if !self.has_ended {
            // Fails only when the process has ended by itself.
            let _ = self.child.kill();
            let status = self.child.wait().ok();
            self.ended(status);
        }
    }

    /// Asks it to end, and waits until it has ended.
    ///
    /// # Panics
    ///
    /// When it does not, or had ended before. The latter is true of all that
    /// signal it.
    pub fn terminate(&mut self) {
        self.signal("TERM");
        eventually("a server to terminate", || if self.has_ended() { Ok(()) } else { Err("it still runs") });
    }

    /// Stops it in its tracks; its connections stay open.
    pub fn pause(&mut self) {
        self.signal("STOP");
        // The signal is delivered a little later than sent; where there is a /proc, be sure.
        let status = PathBuf::from(format!("/proc/{}/stat", self.id()));
        eventually("a server to pause", || match fs::read_to_string(&status) {
            Ok(status) if !status.contains(") T ") => Err(status),
            Ok(_) | Err(_) => Ok(()),
        });
        self.is_paused = true;
    }

    /// Lets it go on after a [`pause`](Process::pause).
    pub fn resume(&mut self) {
        self.signal("CONT");
        self.is_paused = false;
    }

    /// Ends it, and keeps its directory for a successor.
    pub fn make_way(mut self) {
        self.kill();
        let _ = self.guard.write_all(b"\n");
    }

    fn ended(&mut self, status: Option<ExitStatus>) {
        self.status = status;
        self.has_ended = true;
        self.is_paused = false;
        // Without the guard, no process has to be told.
        let _ = self.guard.write_all(b"\n");
    }

    /// Sends it a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        assert!(!self.has_ended, "the server has ended: restart it first");
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send {name} to the process {}", self.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
