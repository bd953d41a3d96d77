//! The policy that the server goes by, and its text.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tidegate::{ConfigError, Policy};
use tidegate_config::{Format, Report};

/// The policy of a server that was given none.
pub(crate) const DEFAULT_POLICY: &str = include_str!("default_policy.toml");

/// Why a policy does not take the place of the one that applies.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("{0}")]
    Mistakes(Box<Report>),
    /// Its text is good, but it cannot follow the one before.
    #[error(transparent)]
    Refused(#[from] ConfigError),
}

/// A policy as it was written.
#[derive(Clone, Debug)]
pub(crate) struct PolicyText {
    /// Where it came from, unless it is built in or was put.
    pub(crate) file: Option<PathBuf>,
    pub(crate) format: Format,
    pub(crate) text: String,
}

/// The text of the policy that applies.
pub(crate) struct CurrentPolicy(Mutex<PolicyText>);

impl CurrentPolicy {
    /// Reads the policy of a file, or the built-in one.
    pub(crate) fn load(file: Option<&Path>) -> Result<(CurrentPolicy, Policy), Report> {
        let (policy, text) = match file {
            None => {
                let text = PolicyText { file: None, format: Format::Toml, text: DEFAULT_POLICY.into() };
                (tidegate_config::parse(DEFAULT_POLICY, Format::Toml, "built-in policy".as_ref())?, text)
            }
            Some(path) => (tidegate_config::load(path)?, PolicyText::of_file(path)),
        };
        Ok((CurrentPolicy(Mutex::new(text)), policy))
    }

    pub(crate) fn text(&self) -> PolicyText {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, text: PolicyText) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl PolicyText {
    /// The text of a file that has just been read by others: only to be shown.
    pub(crate) fn of_file(path: &Path) -> PolicyText {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        PolicyText { file: Some(path.into()), format: Format::of(path).unwrap_or(Format::Toml), text }
    }
}
