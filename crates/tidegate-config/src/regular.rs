//! Regular files: opened without blocking, checked after opening, read within a bound.
//!
//! The one idea: a path in a setting can lead to anything. A FIFO without a
//! writer, a terminal or a device would block the reader for ever or never
//! end, so only what is a regular file once it is open is read. Links to
//! regular files are files, as Kubernetes mounts its ConfigMaps.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes that [`read_file`] reads: 16 MiB.
pub const MAX_FILE: usize = 16 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is a FIFO, a socket, a device or a folder.
    #[error("it is not a regular file: name a regular file, or a link to one")]
    NotRegular,
    /// It is too large.
    #[error("it has more than {bound} bytes: make it smaller")]
    TooLarge {
        /// How many bytes are allowed.
        bound: usize,
    },
    /// The file system has no such file, or will not give it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The same as one of the system's errors, by its kind.
impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        match error {
            FileError::Io(error) => error,
            FileError::NotRegular => io::Error::new(io::ErrorKind::InvalidInput, error),
            FileError::TooLarge { .. } => io::Error::new(io::ErrorKind::FileTooLarge, error),
        }
    }
}

/// Opens a regular file to be read, without waiting for anything.
///
/// # Errors
/// [`FileError::NotRegular`] for anything else, and what the file system says.
pub fn open_file(path: impl AsRef<Path>) -> Result<File, FileError> {
    let file = open(path.as_ref())?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(FileError::NotRegular) }
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open_file`], and [`FileError::TooLarge`] beyond [`MAX_FILE`] bytes.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    open_file(path)?.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_FILE { Err(FileError::TooLarge { bound: MAX_FILE }) } else { Ok(bytes) }
}

/// The end of a FIFO is not waited for, and a terminal does not come to be this process's.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_and_links_to_them_are_read_within_the_bound() {
        let folder = std::env::temp_dir().join(format!("tidegate-regular-{}", std::process::id()));
        let path = |name: &str| folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(path("file"), "text").expect("a file");
        symlink("file", path("link")).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().expect("mkfifo runs");
        assert!(made.success());
        File::create(path("large")).and_then(|file| file.set_len(MAX_FILE as u64 + 1)).expect("a file");
        for name in ["file", "link"] {
            assert_eq!(read_file(path(name)).expect("bytes"), b"text");
        }
        for path in [path("fifo"), folder.clone(), "/dev/zero".into()] {
            assert!(matches!(read_file(&path), Err(FileError::NotRegular)), "{}", path.display());
        }
        assert!(matches!(read_file(path("large")), Err(FileError::TooLarge { .. })));
        let absent = io::Error::from(read_file(path("absent")).expect_err("nothing is there"));
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
