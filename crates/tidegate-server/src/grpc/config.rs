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
    envoy::load(files(settings)).map_err(|report| StartError::Policy(Box::new(report)))
}
