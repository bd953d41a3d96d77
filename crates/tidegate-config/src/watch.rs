//! Policies that follow their files while the program runs.
//!
//! ```
//! use tidegate::Limiter;
//!
//! # let path = std::env::temp_dir().join(format!("tidegate-watch-{}.toml", std::process::id()));
//! # std::fs::write(&path, "[rules.orders]\nlimit = '100/min'\n")?;
//! let limiter = Limiter::new(tidegate_config::load(&path)?);
//! let changed = limiter.clone();
//! let watch = tidegate_config::watch(&path, move |policy| changed.set_policy(policy))
//!     .report_to(|outcome| eprintln!("{outcome}"))
//!     .start()?;
//! assert_eq!(watch.counts().applied, 1);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The one idea: **all files are read again, whole, whenever any of them may
//! have changed, and what they say is applied whole or not at all.** On a
//! error, what was in force stays in force.
//!
//! # What is noticed
//!
//! The file and all that it includes, even where the list of includes changes.
//! A path is a row of names, each looked up in a folder; what is watched are
//! those names in those folders. So it is noticed when a file is
//! written, replaced by a rename, deleted and made again; when a symbolic link
//! anywhere on the way is pointed elsewhere, which is how Kubernetes swaps a
//! ConfigMap; and when a folder is exchanged for another (anywhere on the
//! way on Linux, elsewhere only the last one).
//!
//! # When it is applied
//!
//! Once the files have been left alone for a moment, 200 ms unless
//! [set](Builder::debounce), and did not change while they were read. A file
//! that is written in place with longer pauses can be read half-way; a file that
//! is written under another name and renamed cannot. Files that are never left alone
//! are read every ten seconds all the same. A policy that the limiter refuses
//! because a rule was [changed too often](tidegate::ConfigError::TooManyChanges)
//! is offered again every five seconds.
//!
//! # Where the system does not tell
//!
//! Network file systems do not say what others have written: there, let the
//! files be read [every few seconds](Builder::poll_every). Where the system
//! has no more watches to give, that is done by itself, and
//! [told](Outcome::Polling).

mod bell;
mod record;
mod sight;
mod worker;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use tidegate::{ConfigError, Policy};

use crate::document;
#[cfg(feature = "envoy")]
use crate::envoy::{self, EnvoyConfig};
#[cfg(feature = "limitador")]
use crate::limitador;
use crate::load::{self, Loaded};
use crate::reader::{Reader, read_bytes};
use crate::report::{Diagnostic, Problem, Report};
use bell::Bell;
use worker::Worker;

/// Begins to watch a policy file and what it includes; each policy that they
/// come to say is handed to `apply`.
pub fn watch(
    path: impl AsRef<Path>,
    apply: impl FnMut(Policy) -> Result<(), ConfigError> + Send + 'static,
) -> Builder<Policy> {
    let path = path.as_ref().to_owned();
    Builder::new(
        move |reader| load::load_by(reader, &path).map(|Loaded { policy, warnings }| (policy, warnings)),
        apply,
    )
}

/// Begins to watch a limits file of limitador, as [`limitador::load`] reads it.
#[cfg(feature = "limitador")]
pub fn watch_limitador(
    path: impl AsRef<Path>,
    apply: impl FnMut(Policy) -> Result<(), ConfigError> + Send + 'static,
) -> Builder<Policy> {
    let path = path.as_ref().to_owned();
    Builder::new(move |reader| Ok((limitador::load_by(reader, &path)?, Vec::new())), apply)
}

/// Begins to watch the descriptor files of Envoy's rate limit service, or
/// folders of them, as [`envoy::load`] reads them.
#[cfg(feature = "envoy")]
pub fn watch_envoy<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    apply: impl FnMut(EnvoyConfig) -> Result<(), ConfigError> + Send + 'static,
) -> Builder<EnvoyConfig> {
    let paths: Vec<std::path::PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
    Builder::new(move |reader| Ok((envoy::load_by(reader, &paths)?, Vec::new())), apply)
}

/// Begins to watch a file of any shape, as [`document::load`] reads it.
pub fn watch_document<T: DeserializeOwned + 'static>(
    path: impl AsRef<Path>,
    apply: impl FnMut(T) -> Result<(), ConfigError> + Send + 'static,
) -> Builder<T> {
    let path = path.as_ref().to_owned();
    Builder::new(move |reader| Ok((document::load_by(reader, &path)?, Vec::new())), apply)
}

/// Reads the bytes of a file.
pub type ReadFile<'r> = dyn FnMut(&Path) -> io::Result<Vec<u8>> + 'r;

/// Begins to watch files that are no policies, such as certificates: all that
/// `load` reads by the function that it is given. It says what is wrong with
/// them, if anything is.
pub fn watch_files<T: 'static>(
    mut load: impl FnMut(&mut ReadFile<'_>) -> Result<T, String> + Send + 'static,
    apply: impl FnMut(T) -> Result<(), ConfigError> + Send + 'static,
) -> Builder<T> {
    let load = move |reader: &mut dyn Reader| match load(&mut |path| read_bytes(reader, path)) {
        Ok(loaded) => Ok((loaded, Vec::new())),
        Err(message) => Err(Problem::Invalid { message }.into()),
    };
    Builder::new(load, apply)
}

/// What the files say, and warnings.
type Read<T> = Result<(T, Vec<Diagnostic>), Report>;
type Load<T> = Box<dyn FnMut(&mut dyn Reader) -> Read<T> + Send>;
type Apply<T> = Box<dyn FnMut(T) -> Result<(), ConfigError> + Send>;
type Tell = Box<dyn FnMut(&Outcome) + Send>;

/// Settings of a [`Watch`].
#[must_use = "a builder does nothing until it is started"]
pub struct Builder<T> {
    load: Load<T>,
    apply: Apply<T>,
    tell: Tell,
    debounce: Duration,
    poll: Option<Duration>,
}

impl<T: 'static> Builder<T> {
    /// How long files have to be left alone before they are read, unless set.
    pub const DEBOUNCE: Duration = Duration::from_millis(200);

    fn new(
        load: impl FnMut(&mut dyn Reader) -> Read<T> + Send + 'static,
        apply: impl FnMut(T) -> Result<(), ConfigError> + Send + 'static,
    ) -> Builder<T> {
        Builder {
            load: Box::new(load),
            apply: Box::new(apply),
            tell: Box::new(|_| ()),
            debounce: Self::DEBOUNCE,
            poll: None,
        }
    }

    /// Whom to tell of every outcome, for a log. It is called on the thread
    /// that watches, and for the first outcome on the one that starts it.
    pub fn report_to(mut self, tell: impl FnMut(&Outcome) + Send + 'static) -> Builder<T> {
        self.tell = Box::new(tell);
        self
    }

    /// How long files have to be left alone before they are read.
    pub fn debounce(mut self, debounce: Duration) -> Builder<T> {
        self.debounce = debounce;
        self
    }

    /// Reads the files this often instead of waiting to be told: for network
    /// file systems.
    pub fn poll_every(mut self, interval: Duration) -> Builder<T> {
        self.poll = Some(interval);
        self
    }

    /// Reads the files, applies what they say, and watches them from then on.
    ///
    /// # Errors
    /// If what they say now is refused: then nothing is watched.
    pub fn start(self) -> Result<Watch, Report> {
        let shared = Arc::new(Shared::default());
        let mut worker = Worker::new(self, Arc::clone(&shared));
        worker.begin()?;
        let bell = Arc::clone(&shared.bell);
        let thread = thread::Builder::new().name("tidegate-watch".into()).spawn(move || {
            worker.run();
            bell.end();
        });
        let thread = thread.map_err(|source| Problem::Unwatched { source })?.thread().id();
        Ok(Watch { shared, thread })
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("debounce", &self.debounce).field("poll", &self.poll).finish_non_exhaustive()
    }
}

/// Files that are being watched, until this is dropped.
#[derive(Debug)]
#[must_use = "the files are watched for as long as this lives"]
pub struct Watch {
    shared: Arc<Shared>,
    thread: ThreadId,
}

/// How often the files were read, by what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// What they said was applied, at the start included.
    pub applied: u64,
    /// They said what was in force already.
    pub unchanged: u64,
    /// They could not be read or understood, or were not accepted.
    pub refused: u64,
}

/// What came of reading the files.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// What they say is in force now.
    Applied,
    /// They say what was in force already: nothing was applied.
    Unchanged,
    /// They cannot be read or understood, or are not accepted: what was in
    /// force still is.
    Refused(Report),
    /// What is in force now is valid and probably not meant. Told after
    /// [`Applied`](Outcome::Applied), once for each warning. Not counted.
    Warning(Box<Diagnostic>),
    /// The system will not tell of changes: from now on the files are read
    /// every few seconds. Not counted.
    Polling(io::Error),
}

/// A time when the files were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// When.
    pub at: SystemTime,
    /// What was wrong: the text of the [`Report`].
    pub report: String,
}

impl Watch {
    /// What has come of it so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.ledger().counts
    }

    /// The last time that the files were refused, though they may be right by now.
    #[must_use]
    pub fn last_refusal(&self) -> Option<Refusal> {
        self.shared.ledger().last_refusal.clone()
    }

    /// Reads the files soon, whether they have changed or not.
    pub fn reload(&self) {
        self.shared.bell.ring();
    }
}

/// How long the end of a watch waits for a reading that has begun.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// Stops watching. Waits a second at most for a reading that has begun: where the
/// file system hangs, it is left behind, and what it finds is not applied.
impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.bell.stop();
        // A callback may drop it, on the very thread that is to end.
        if self.thread != thread::current().id() {
            self.shared.bell.wait_for_end(DROP_TIMEOUT);
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Applied => f.write_str("applied"),
            Outcome::Unchanged => f.write_str("unchanged"),
            Outcome::Refused(report) => write!(f, "refused, and what was in force still is:\n{report}"),
            Outcome::Warning(warning) => write!(f, "{warning}"),
            Outcome::Polling(error) => {
                let seconds = worker::LOOK_AGAIN.as_secs();
                write!(f, "the system will not tell of changes ({error}): reading every {seconds} seconds")
            }
        }
    }
}

/// What the watch and its thread have in common.
#[derive(Debug, Default)]
struct Shared {
    bell: Arc<Bell>,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    counts: Counts,
    last_refusal: Option<Refusal>,
}

impl Shared {
    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, outcome: &Outcome) {
        let mut ledger = self.ledger();
        match outcome {
            Outcome::Applied => ledger.counts.applied += 1,
            Outcome::Unchanged => ledger.counts.unchanged += 1,
            Outcome::Refused(report) => {
                ledger.counts.refused += 1;
                ledger.last_refusal = Some(Refusal { at: SystemTime::now(), report: report.to_string() });
            }
            Outcome::Warning(_) | Outcome::Polling(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_reading_that_hangs_holds_up_no_end_and_is_not_applied() {
        let ((reading, is_reading), (release, released), (applying, applied)) = (channel(), channel(), channel());
        let mut count = 0;
        let load = move |reader: &mut dyn Reader| {
            count += 1;
            // Another one each time: what was read before is not applied again.
            drop(reader.read(Path::new(&format!("absent-{count}"))));
            if count > 1 {
                reading.send(()).expect("the test waits");
                released.recv().expect("the test sends");
            }
            Ok(((), Vec::new()))
        };
        let apply = move |()| {
            applying.send(()).expect("the test waits");
            Ok(())
        };
        let watch = Builder::new(load, apply).debounce(Duration::ZERO).start().expect("nothing is refused");
        assert!(applied.recv().is_ok(), "at the start");
        watch.reload();
        is_reading.recv().expect("the thread reads");
        drop(watch);
        release.send(()).expect("the thread still reads");
        assert!(applied.recv().is_err(), "the thread ends and applies nothing");
    }
}
