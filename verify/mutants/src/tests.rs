//! The test programs of a build, run with a defect in them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A test program or a module of one, and what it is known to do without a defect.
pub struct Program {
    pub name: String,
    path: String,
    /// What the names of its tests begin with.
    module: Option<String>,
    skipped: &'static [&'static str],
    /// How long it takes.
    pub takes: Duration,
    /// The places of defects that it comes by.
    pub seen: BTreeSet<u32>,
}

/// What a program says to a defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// By this test, or in this way.
    Failed(String),
    TimedOut,
}

/// Decisions of the differential tests: few, as there are thousands of runs.
const DECISIONS: &str = "30000";
/// The signal to a program that has used its time.
const OUT_OF_TIME: i32 = 9;
/// No test needs more, and a defect may want all there is.
const MAX_KILOBYTES: u32 = 4 << 20;
/// How much of a processor's time a program may take more than without a defect, and how much time of day: it
/// may have to wait for a processor, and one that waits for nothing else takes none of it.
const TIMEOUT: Duration = Duration::from_secs(6);
const LONG_TIMEOUT: Duration = Duration::from_secs(45);

impl Program {
    pub fn new(name: &str, path: &str, module: Option<String>, skipped: &'static [&'static str]) -> Program {
        let (takes, seen) = (Duration::ZERO, BTreeSet::new());
        Program { name: name.into(), path: path.into(), module, skipped, takes, seen }
    }

    /// Runs it without a defect, to know what it comes by and how long it takes.
    pub fn record(&mut self, folder: &Path) -> Result<(), String> {
        let file = folder.join(format!("seen-{}", self.name));
        let _ = fs::remove_file(&file);
        let mut recorded = self.command(0);
        recorded.env("TIDEGATE_MUTANT_SEEN", &file);
        let outcome = watch(recorded, Duration::from_secs(600));
        if outcome != Outcome::Passed {
            return Err(format!("{} without a defect: {outcome:?}", self.name));
        }
        let seen = fs::read_to_string(&file).unwrap_or_default();
        self.seen = seen.lines().filter_map(|line| line.parse().ok()).collect();
        let began = Instant::now();
        watch(self.command(0), Duration::from_secs(600));
        self.takes = began.elapsed();
        Ok(())
    }

    pub fn run(&self, mutant: u32) -> Outcome {
        watch(self.command(mutant), self.takes * 10 + LONG_TIMEOUT)
    }

    fn command(&self, mutant: u32) -> Command {
        let mut command = Command::new("sh");
        let seconds = if self.takes.is_zero() { 600 } else { (self.takes * 4 + TIMEOUT).as_secs() };
        let limited = format!("ulimit -v {MAX_KILOBYTES}; ulimit -t {seconds}; exec \"$0\" \"$@\"");
        command.args(["-c", &limited, &self.path, "--test-threads", "1"]);
        command.args(&self.module);
        command.args(self.skipped.iter().flat_map(|test| ["--skip", test]));
        command.env("TIDEGATE_MUTANT", mutant.to_string()).env("TIDEGATE_DECISIONS", DECISIONS);
        command.env("RUST_BACKTRACE", "0").env("PROPTEST_CASES", "64").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        // What is noticed today is noticed tomorrow.
        command.env("PROPTEST_RNG_SEED", "1");
        command
    }
}

/// Waits for the first test that fails, or the end.
fn watch(mut command: Command, timeout: Duration) -> Outcome {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("a test program starts");
    let (sender, lines) = channel();
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let reader = std::thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let deadline = Instant::now() + timeout;
    let outcome = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.ends_with("FAILED") && line.starts_with("test ") => {
                let test = line.trim_start_matches("test ").trim_end_matches("FAILED").trim_end_matches(" ... ");
                break Outcome::Failed(test.to_owned());
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break Outcome::TimedOut,
            Err(RecvTimeoutError::Disconnected) => break ended(&mut child),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    outcome
}

fn ended(child: &mut Child) -> Outcome {
    match child.wait() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) if status.signal() == Some(OUT_OF_TIME) => Outcome::TimedOut,
        Ok(status) => Outcome::Failed(format!("{status}")),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
