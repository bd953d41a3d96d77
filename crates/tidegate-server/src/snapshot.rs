//! The states of the memory store, from file to file across a restart.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use tidegate::store::memory::{Builder, SnapshotError};
use tidegate::{ConfigError, MemoryStore};

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
    /// What the file holds is no snapshot.
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
pub(crate) fn restore(builder: Builder, path: Option<&Path>) -> Result<MemoryStore, StatesError> {
    let Some(path) = path else { return Ok(builder.build()?) };
    let tried = beside(path);
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

/// Writes the states beside the file, then puts them in its place: what is
/// there is always whole, and nothing is left beside it.
pub(crate) fn write(store: &MemoryStore, path: &Path) -> Result<(), StatesError> {
    let beside = beside(path);
    let written = write_to(store, &beside).and_then(|()| Ok(fs::rename(&beside, path)?));
    written.map_err(|source| {
        // If there is any of it.
        let _ = fs::remove_file(&beside);
        StatesError::Unwritten { path: path.into(), source }
    })
}

/// Where states are until all of them are there.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    PathBuf::from(beside)
}

fn write_to(store: &MemoryStore, path: &Path) -> Result<(), SnapshotError> {
    let mut file = BufWriter::new(private(path)?);
    store.snapshot(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

/// A file for this user only: the seed of the keys' fingerprints is in it.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
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
}
