//! Reads files through a [`Reader`] that can record which ones are read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::regular::read_file;
use crate::report::{Diagnostic, Problem};
use crate::source::{Place, Source};

/// The most bytes of all files that are read together.
pub(crate) const MAX_TOTAL_BYTES: usize = 64 << 20;
/// The most files that are read together.
pub(crate) const MAX_FILES: usize = 1_000;

/// What is found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The bytes of a file.
    File(Vec<u8>),
    /// The YAML files of a folder by their names, one too many if there are too many.
    Folder(Vec<PathBuf>),
}

/// Reads what is at a path.
pub(crate) trait Reader {
    fn read(&mut self, path: &Path) -> io::Result<Found>;
}

/// The file system as it is.
pub(crate) struct Disk;

impl Reader for Disk {
    fn read(&mut self, path: &Path) -> io::Result<Found> {
        if !fs::metadata(path)?.is_dir() {
            return Ok(Found::File(read_file(path)?));
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            if is_listed(&file) && files.len() <= MAX_FILES {
                files.push(file);
            }
        }
        files.sort();
        Ok(Found::Folder(files))
    }
}

/// Whether a file counts when its folder is read: YAML, and not hidden.
pub(crate) fn is_listed(file: &Path) -> bool {
    let is_hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The bytes of a file.
pub(crate) fn read_bytes(reader: &mut dyn Reader, path: &Path) -> io::Result<Vec<u8>> {
    reader.read(path).and_then(|found| match found {
        Found::File(bytes) => Ok(bytes),
        Found::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
    })
}

/// The text of a file, which another asks for at a place, if it is text and not too long.
pub(crate) fn read_text(
    reader: &mut dyn Reader,
    path: &Path,
    place: Option<&Place>,
) -> Result<String, Box<Diagnostic>> {
    match read_bytes(reader, path) {
        Ok(bytes) => text_of(bytes, path),
        Err(source) => Err(Box::new(Diagnostic::placed(place, unreadable(path, source)))),
    }
}

/// The text that the bytes of a file are.
pub(crate) fn text_of(bytes: Vec<u8>, path: &Path) -> Result<String, Box<Diagnostic>> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Box::new(Diagnostic::at(&Source::new(path, text), &(valid..valid + 1), Problem::NotUtf8))
    })
}

pub(crate) fn unreadable(path: &Path, source: io::Error) -> Problem {
    Problem::Unreadable { path: path.display().to_string(), source }
}
