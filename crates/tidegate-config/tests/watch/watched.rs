//! A folder to change files in, and a watch that remembers what it was told.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{ConfigError, Limiter, MemoryStore, Policy};
use tidegate_config::watch;
use tidegate_config::watch::{Builder, Outcome, Watch};
use tidegate_testkit::servers::GUARD;

/// Short, so that tests are.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(20);

/// A folder of a test, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-watch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder can be made");
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// As editors do it.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write("new~", text);
        self.rename("new~", name);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("a file can be renamed");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a file can be removed");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn policy(limit: u64) -> String {
    format!("[rules.all]\nlimit = '{limit}/h'\n")
}

/// The limit of a policy.
pub(crate) fn limit_of(policy: Policy) -> Result<u64, ConfigError> {
    let store = MemoryStore::builder().max_keys(16).build()?;
    let limiter = Limiter::with_store(policy, store)?;
    Ok(limiter.peek("anyone").expect("an answer").capacity().expect("a limit"))
}

/// A watch that remembers what was applied, and what was told.
pub(crate) struct Watched {
    pub(crate) watch: Watch,
    told: Receiver<Told>,
    /// How often it was told that something was applied.
    told_applied: Cell<usize>,
    pub(crate) applied: Arc<Mutex<Vec<u64>>>,
}

impl Watched {
    pub(crate) fn start(path: impl AsRef<Path>) -> Watched {
        Watched::start_with(path, |builder| builder)
    }

    pub(crate) fn start_with(
        path: impl AsRef<Path>,
        settings: impl FnOnce(Builder<Policy>) -> Builder<Policy>,
    ) -> Watched {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&applied);
        let builder = watch(path, move |policy| {
            seen.lock().expect("no panic").push(limit_of(policy)?);
            Ok(())
        });
        Watched::start_watch(settings(builder.debounce(DEBOUNCE)), applied)
    }

    pub(crate) fn start_watch<T: 'static>(builder: Builder<T>, applied: Arc<Mutex<Vec<u64>>>) -> Watched {
        let (teller, told) = channel();
        let tell = move |outcome: &Outcome| drop(teller.send(Told::from(outcome)));
        let watch = builder.report_to(tell).start().unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(told.recv(), Ok(Told::Applied), "the first outcome");
        Watched { watch, told, told_applied: Cell::new(1), applied }
    }

    /// What has been told so far, without waiting for more.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.try_iter().map(|told| self.heard(told)).collect()
    }

    /// What is told next.
    pub(crate) fn next(&self) -> Told {
        self.heard(self.told.recv_timeout(GUARD).expect("to be told something"))
    }

    fn heard(&self, told: Told) -> Told {
        self.told_applied.set(self.told_applied.get() + usize::from(told == Told::Applied));
        told
    }

    pub(crate) fn last(&self) -> u64 {
        *self.applied.lock().expect("no panic").last().expect("something was applied")
    }

    /// Waits until this limit is in force, and it was told; returns all that was told on the way.
    pub(crate) fn until(&self, limit: u64) -> Vec<Told> {
        let mut told = Vec::new();
        let is_all_told = || self.told_applied.get() == self.applied.lock().expect("no panic").len();
        while !(self.last() == limit && is_all_told()) {
            told.push(self.next());
        }
        told
    }

    /// Waits until the files are refused; returns why.
    pub(crate) fn until_refused(&self) -> String {
        loop {
            if let Told::Refused(report) = self.next() {
                return report;
            }
        }
    }
}

/// What was told, as it can be sent elsewhere.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Applied,
    Unchanged,
    Refused(String),
    Warning(String),
    Polling,
}

impl From<&Outcome> for Told {
    fn from(outcome: &Outcome) -> Told {
        match outcome {
            Outcome::Applied => Told::Applied,
            Outcome::Unchanged => Told::Unchanged,
            Outcome::Refused(report) => Told::Refused(report.to_string()),
            Outcome::Warning(_) => Told::Warning(outcome.to_string()),
            Outcome::Polling(_) => Told::Polling,
            _ => panic!("an outcome without a test: {outcome}"),
        }
    }
}
