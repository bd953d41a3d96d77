//! What was read, to know whether it would be the same again.

use std::io;
use std::path::{Path, PathBuf};

use super::sight::Sight;
use crate::reader::{Disk, Found, Reader};

/// Every path that was read, and what was found there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record(Vec<(PathBuf, Result<Found, io::ErrorKind>)>);

impl Record {
    /// Whether everything could be read again and would be the same.
    pub(super) fn is_current(&self, reader: &mut dyn Reader) -> bool {
        self.0.iter().all(|(path, found)| reader.read(path).map_err(|error| error.kind()) == *found)
    }
}

/// Reads files that it has in sight first: a change is seen, or it is read.
pub(super) struct Recorder {
    pub(super) sight: Sight,
    pub(super) record: Record,
}

impl Recorder {
    pub(super) fn new(sight: Sight) -> Recorder {
        Recorder { sight, record: Record::default() }
    }
}

impl Reader for Recorder {
    fn read(&mut self, path: &Path) -> io::Result<Found> {
        self.sight.cover(path);
        let found = Disk.read(path);
        let noted = found.as_ref().map(Found::clone).map_err(io::Error::kind);
        self.record.0.push((path.to_owned(), noted));
        found
    }
}
