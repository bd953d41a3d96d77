//! Files of another shape than a policy: any type that serde reads, with every
//! error at its place.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::load::{Format, tree_of};
use crate::reader::{Disk, Reader, read_text};
use crate::report::{Collector, Problem, Report};
use crate::tree::{self, Texts};

/// The value that a file holds, TOML or YAML.
///
/// # Errors
/// A report of all that is wrong.
pub fn load<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, Report> {
    load_by(&mut Disk, path.as_ref())
}

pub(crate) fn load_by<T: DeserializeOwned>(reader: &mut dyn Reader, path: &Path) -> Result<T, Report> {
    let Some(format) = Format::of(path) else {
        return Err(Problem::UnknownFormat { path: path.display().to_string() }.into());
    };
    let text = read_text(reader, path, None).map_err(|diagnostic| *diagnostic)?;
    let mut diagnostics = Collector::default();
    let tree = tree_of(path, text, format, &mut diagnostics);
    let value = tree.and_then(|(source, mut tree)| tree::read(&mut tree, Texts::Quoted, &source, &mut diagnostics));
    diagnostics.finish(value)
}
