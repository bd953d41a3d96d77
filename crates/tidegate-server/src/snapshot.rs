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
    /// The file could not be read or written.
    #[error("the snapshot {} cannot be used", path.display())]
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
    /// The store cannot be made.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A store with the states of the file, or a fresh one if there is none yet.
pub(crate) fn restore(builder: Builder, path: Option<&Path>) -> Result<MemoryStore, StatesError> {
    let Some(path) = path else { return Ok(builder.build()?) };
    match File::open(path) {
        Ok(file) => {
            builder.restore(BufReader::new(file)).map_err(|source| StatesError::Snapshot { path: path.into(), source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(builder.build()?),
        Err(source) => Err(StatesError::File { path: path.into(), source }),
    }
}

/// Writes the states beside the file, then puts them in its place: what is
/// there is always whole.
pub(crate) fn write(store: &MemoryStore, path: &Path) -> Result<(), StatesError> {
    let failed = |source| StatesError::File { path: path.into(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = BufWriter::new(private(&beside).map_err(failed)?);
    store.snapshot(&mut file).map_err(|source| StatesError::Snapshot { path: path.into(), source })?;
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

/// A file for this user only: the seed of the keys' fingerprints is in it.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}
