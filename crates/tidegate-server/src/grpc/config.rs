//! Which descriptor files a server goes by.

use std::path::{Path, PathBuf};

use tidegate_config::envoy::{self, EnvoyConfig};

use crate::serve::StartError;
use crate::settings::Settings;

/// Where the reference service looks for files, below its runtime directory.
const RUNTIME_FOLDER: &str = "config";

/// The files and folders that the settings name.
pub(crate) fn files(settings: &Settings) -> Vec<PathBuf> {
    let mut paths = settings.envoy_config.clone();
    // As the reference service is told, if it is told nothing else.
    if let (true, Some(root)) = (paths.is_empty(), &settings.runtime_root) {
        let below = settings.runtime_subdirectory.as_deref().unwrap_or(Path::new(""));
        paths.push(root.join(below).join(RUNTIME_FOLDER));
    }
    paths
}

/// The configuration of all files that the settings name.
pub(crate) fn load(settings: &Settings) -> Result<EnvoyConfig, StartError> {
    let files = files(settings);
    // Later a folder may be empty for a moment; whoever names an empty one means another.
    if let Some(path) = files.iter().find(|path| path.is_dir() && is_empty(path)) {
        return Err(StartError::EnvoyFolder { path: path.clone() });
    }
    envoy::load(files).map_err(|report| StartError::Policy(Box::new(report)))
}

/// Whether a folder has no YAML files, hidden ones aside.
fn is_empty(folder: &Path) -> bool {
    let is_yaml = |file: PathBuf| {
        let is_hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && file.extension().is_some_and(|end| end == "yaml" || end == "yml")
    };
    let Ok(mut entries) = folder.read_dir() else { return false };
    !entries.any(|entry| entry.is_ok_and(|entry| is_yaml(entry.path())))
}
