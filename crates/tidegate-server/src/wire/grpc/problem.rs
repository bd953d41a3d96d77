//! Why a request of Envoy's has no answer.

use tidegate::CheckError;

use crate::ask::inline::InlineError;
use crate::ask::outcome::Outcome;

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
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Problem::NoDomain | Problem::NoDescriptors | Problem::TooManyDescriptors { .. } => Outcome::Invalid,
            Problem::NoUnit { .. } | Problem::Limit(_) => Outcome::Invalid,
            Problem::Denied(denied) => denied.into(),
            Problem::Check(error) => error.into(),
        }
    }
}
