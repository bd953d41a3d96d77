//! Which descriptor files a server goes by.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_config::envoy::{self, EnvoyConfig};

use crate::serve::StartError;
use crate::settings::Settings;

/// Where the reference service looks for files, below its runtime directory.
const RUNTIME_FOLDER: &str = "config";

/// Whether the settings name any.
pub(crate) fn has_files(settings: &Settings) -> bool {
    !settings.envoy_config.is_empty() || settings.runtime_root.is_some()
}

/// The configuration of all files that the settings name.
pub(crate) fn load(settings: &Settings) -> Result<EnvoyConfig, StartError> {
    let mut paths = settings.envoy_config.clone();
    // As the reference service is told, if it is told nothing else.
    if let (true, Some(root)) = (paths.is_empty(), &settings.runtime_root) {
        let below = settings.runtime_subdirectory.as_deref().unwrap_or(Path::new(""));
        paths.push(root.join(below).join(RUNTIME_FOLDER));
    }
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found = folder(&path).map_err(|source| StartError::EnvoyFolder { path: path.clone(), source })?;
            files.extend(found);
        } else {
            files.push(path);
        }
    }
    envoy::load(files).map_err(|report| StartError::Policy(Box::new(report)))
}

/// The YAML files of a folder. Hidden ones are left out: Kubernetes keeps the
/// former versions of a mounted folder in such.
fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let yaml = file.extension().is_some_and(|end| end == "yaml" || end == "yml");
        if yaml && !hidden && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no file that ends in .yaml or .yml"));
    }
    Ok(files)
}
