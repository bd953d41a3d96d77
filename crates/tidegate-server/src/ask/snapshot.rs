//! The states of the memory stores, from file to file across a restart.
//!
//! A file is written beside the one that it replaces, under a name that must not
//! be there, and then renamed: what is in place is always whole, and no link at
//! either name is followed.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::store::memory::SnapshotError;
use tidegate::{ConfigError, MemoryStore, MemoryStoreBuilder};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, error};

use crate::run::causes::in_full;
use crate::run::connections::Drain;

/// What the name of a file ends in until all states are in it.
const UNFINISHED: &str = ".new";

/// Why states could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatesError {
    /// The file could not be read.
    #[error("the snapshot {} cannot be read", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the file holds is not a snapshot.
    #[error("the snapshot {} cannot be used: remove it to start with fresh states", path.display())]
    Snapshot {
        /// Which.
        path: PathBuf,
        /// Why.
        source: SnapshotError,
    },
    /// The states could not be written.
    #[error("no snapshot could be written to {}: what was there is as it was", path.display())]
    Unwritten {
        /// Which.
        path: PathBuf,
        /// Why.
        source: SnapshotError,
    },
    /// The store cannot be made.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A store with the states of the file, or a fresh one if there is none yet.
/// Where none could be written in the end, that is said now.
pub(crate) fn restore(builder: MemoryStoreBuilder, path: Option<&Path>) -> Result<MemoryStore, StatesError> {
    let Some(path) = path else { return Ok(builder.build()?) };
    let tried = beside(path, UNFINISHED);
    let written = private(&tried).and_then(|_| fs::remove_file(&tried));
    written.map_err(|source| StatesError::Unwritten { path: path.into(), source: source.into() })?;
    match tidegate_config::open_file(path).map_err(io::Error::from) {
        Ok(file) => {
            builder.restore(BufReader::new(file)).map_err(|source| StatesError::Snapshot { path: path.into(), source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(builder.build()?),
        Err(source) => Err(StatesError::File { path: path.into(), source }),
    }
}

/// Stores and the files that their states are kept in. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    files: Arc<Vec<(Arc<MemoryStore>, PathBuf)>>,
    /// Held by the one that writes.
    writing: Arc<Mutex<()>>,
}

impl Kept {
    pub(crate) fn new(files: Vec<(Arc<MemoryStore>, PathBuf)>) -> Kept {
        Kept { files: Arc::new(files), writing: Arc::default() }
    }

    /// Writes all states, and says whether they are there.
    pub(crate) async fn save(&self) -> bool {
        let kept = self.clone();
        // A disk may be slow: not where requests wait.
        tokio::task::spawn_blocking(move || kept.write()).await.unwrap_or(false)
    }

    /// Writes all states every so often, until the server closes.
    pub(crate) async fn save_every(self, pause: Duration, drain: Drain) {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is at once.
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = drain.closing() => return,
            }
            // What could not be written is in the log, and the next attempt follows.
            self.save().await;
        }
    }

    fn write(&self) -> bool {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = true;
        for (store, path) in self.files.iter() {
            match write(store, path) {
                Ok(()) => debug!(path = %path.display(), "the states are written"),
                Err(error) => {
                    error!(error = in_full(&error), "the states are not written");
                    all = false;
                }
            }
        }
        all
    }
}

/// Writes the states beside the file, then puts them in its place: what is
/// there is always whole, and nothing is left beside it.
pub(crate) fn write(store: &MemoryStore, path: &Path) -> Result<(), StatesError> {
    let beside = beside(path, UNFINISHED);
    let written = write_to(store, &beside).and_then(|()| Ok(fs::rename(&beside, path)?));
    written.map_err(|source| {
        // If there is any of it.
        let _ = fs::remove_file(&beside);
        StatesError::Unwritten { path: path.into(), source }
    })
}

/// A file beside another, with more at the end of its name.
pub(crate) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(more);
    PathBuf::from(beside)
}

fn write_to(store: &MemoryStore, path: &Path) -> Result<(), SnapshotError> {
    let mut file = BufWriter::new(private(path)?);
    store.snapshot(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

/// A new file for this user only: the seed of the keys' fingerprints is in it.
/// What a crash left under the name is removed, and so is a link, not what it leads to.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_fails_leaves_what_was_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let path = folder.path().join("states");
        fs::create_dir_all(path.join("inside")).unwrap();
        let failure = write(&MemoryStore::default(), &path).unwrap_err();
        assert!(failure.to_string().contains("what was there is as it was"), "{failure}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(path.join("inside").exists());
    }

    #[test]
    fn a_link_beside_the_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("states"), folder.path().join("other"));
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("states.new")).unwrap();
        write(&MemoryStore::default(), &path).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert!(!folder.path().join("states.new").exists());
    }

    #[test]
    fn what_a_crash_left_beside_the_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states");
        fs::write(folder.path().join("states.new"), "half of").unwrap();
        write(&MemoryStore::default(), &path).unwrap();
        let restored = restore(MemoryStore::builder(), Some(&path)).unwrap();
        assert_eq!(restored.count_keys(), 0);
    }
}
