//! Why there is no report.

use std::io;

use tidegate::ConfigError;

use crate::format::UnknownField;
use crate::search::SearchError;
use crate::source::MAX_SOURCES;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A source cannot be read at all.
    #[error("cannot read {name}")]
    Unreadable {
        /// The source.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Nothing tells what a source's lines are.
    #[error("cannot tell the format of {name}, which begins {line:?}: say it by --format combined, envoy, json or csv")]
    UnknownFormat {
        /// The source.
        name: String,
        /// How it begins.
        line: String,
    },
    /// A field was named that the format does not have.
    #[error(transparent)]
    UnknownField(#[from] UnknownField),
    /// More sources than are read side by side.
    #[error(
        "{count} logs are too many to read at once: give at most {MAX_SOURCES}, or pipe them in one after the other"
    )]
    TooManySources {
        /// How many.
        count: usize,
    },
    /// The policy, or the number of keys, cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The smallest limits could not be searched for.
    #[error("the smallest limits could not be searched for")]
    Search(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<SearchError> for ReplayError {
    fn from(error: SearchError) -> ReplayError {
        ReplayError::Search(Box::new(error))
    }
}
