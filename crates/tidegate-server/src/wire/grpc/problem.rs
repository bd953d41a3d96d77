//! Why a request of Envoy's has no answer.

use tidegate::CheckError;

use crate::ask::inline::InlineError;

use crate::access::Denied;

/// Why a request of Envoy's has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("the domain is empty: set it in Envoy's rate limit filter")]
    NoDomain,
    #[error("there are no descriptors: a request needs one at least")]
    NoDescriptors,
    #[error("{count} descriptors are too many: a request may have {bound}")]
    TooManyDescriptors { count: usize, bound: usize },
    #[error("the limit of descriptor {place} has no unit that is known ({unit}): give it one from SECOND to YEAR")]
    NoUnit { place: usize, unit: i32 },
    #[error("the limit of a descriptor cannot be used")]
    Limit(#[source] InlineError),
    #[error(transparent)]
    Denied(Denied),
    #[error(transparent)]
    Check(CheckError),
}

impl Problem {
    /// Whether the request is to be mended, and not the server.
    pub(crate) fn is_of_the_caller(&self) -> bool {
        match self {
            Problem::NoDomain | Problem::NoDescriptors | Problem::TooManyDescriptors { .. } => true,
            Problem::NoUnit { .. } | Problem::Limit(_) | Problem::Denied(_) => true,
            Problem::Check(error) => !error.is_unavailable(),
        }
    }
}
