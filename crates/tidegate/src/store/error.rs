//! Errors: why a request has no decision, and why a store has none.

use crate::name::Name;

/// Why there is no answer.
///
/// ```
/// use tidegate::{CheckError, Limit, Limiter, Request};
///
/// let error = Limiter::new(Limit::per_hour(10)).check(Request::new("alice").cost(11)).expect_err("too much");
/// assert!(matches!(error, CheckError::Unsatisfiable { cost: 11, .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The cost is above what the limit could ever let pass at once.
    #[error(
        "a cost of {cost} can never fit the limit of {capacity}{} of rule {rule:?}: split the request or raise the limit",
        kept_back(*floor)
    )]
    Unsatisfiable {
        /// What was asked for.
        cost: u64,
        /// The most that can pass.
        capacity: u64,
        /// Whose limit it is.
        rule: Name,
        /// What the class of the request leaves to others beside that.
        floor: u64,
    },
    /// The request lacks an attribute that makes the key of a rule.
    #[error(
        "rule {rule:?}: key attribute {attribute:?} is missing from the request: send it, or have the rule say what to \
         do without it (missing = \"skip\" or \"shared\", or another attribute to use instead)"
    )]
    MissingAttribute {
        /// The rule.
        rule: Name,
        /// The attribute, or all of which one would do.
        attribute: Box<str>,
    },
    /// An attribute that the policy uses as an address is something else.
    #[error("attribute {attribute:?} is not an IP address: {value:?}")]
    NotAnAddress {
        /// The attribute.
        attribute: Box<str>,
        /// What it is.
        value: Box<str>,
    },
    /// The policy has no rule of the name that the request asks for.
    #[error("the policy has no rule {rule:?}: ask for one that it has, or for none")]
    UnknownRule {
        /// The name.
        rule: Box<str>,
    },
    /// The id of the request was used before, for another request.
    #[error("the request id {id:?} was used for another request: give each request an id of its own")]
    IdReused {
        /// The id.
        id: String,
    },
    /// There is no reservation of this id that could be corrected.
    #[error(
        "no reservation {id:?} is open for this key: none was made, or its time is over; report what was spent instead"
    )]
    NotReserved {
        /// The id.
        id: String,
    },
    /// The store could not decide.
    #[error("the store gave no answer")]
    Store(#[source] StoreError),
}

/// What a class of requests leaves to others, in words.
fn kept_back(floor: u64) -> String {
    if floor == 0 { String::new() } else { format!(", beside {floor} kept back from its class,") }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> CheckError {
        match error {
            StoreError::IdReused { id } => CheckError::IdReused { id },
            StoreError::NotReserved { id } => CheckError::NotReserved { id },
            StoreError::SameStateTwice { .. } | StoreError::Failed { .. } => CheckError::Store(error),
        }
    }
}

impl CheckError {
    /// What went wrong in a word or two, the same on every wire: the label of a
    /// metric, the end of a problem type, the code of a reply.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let error = Limiter::new(Limit::per_hour(10)).check(Request::new("alice").cost(11)).expect_err("too much");
    /// assert_eq!(error.reason(), "unsatisfiable");
    /// ```
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            CheckError::Unsatisfiable { .. } => "unsatisfiable",
            CheckError::MissingAttribute { .. } => "missing-attribute",
            CheckError::NotAnAddress { .. } => "not-an-address",
            CheckError::UnknownRule { .. } => "unknown-rule",
            CheckError::IdReused { .. } => "id-reused",
            CheckError::NotReserved { .. } => "not-reserved",
            CheckError::Store(_) => "unavailable",
        }
    }

    /// Whether the store failed, so that the same request may be answered later.
    /// All other errors are of the request: it is never answered as it is.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, Request};
    ///
    /// let error = Limiter::new(Limit::per_hour(10)).check(Request::new("alice").cost(11)).expect_err("too much");
    /// assert!(!error.is_unavailable(), "a retry does not help");
    /// ```
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            CheckError::Unsatisfiable { .. }
            | CheckError::MissingAttribute { .. }
            | CheckError::NotAnAddress { .. }
            | CheckError::UnknownRule { .. }
            | CheckError::IdReused { .. }
            | CheckError::NotReserved { .. } => false,
            CheckError::Store(_) => true,
        }
    }
}

/// Why a store could not decide.
///
/// ```
/// use tidegate::CheckError;
/// use tidegate::store::StoreError;
///
/// let error = CheckError::from(StoreError::Failed { source: "no connection".into() });
/// assert!(error.is_unavailable());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Two checks of one slice were about the same state.
    #[error("one check asks rule {rule:?} twice about the same key: give each rule a name and limit of its own")]
    SameStateTwice {
        /// The rule.
        rule: Name,
    },
    /// The id of the request was seen before, with another one.
    #[error("the request id {id:?} was used for another request: give each request an id of its own")]
    IdReused {
        /// The id.
        id: String,
    },
    /// There is no reservation of this id that could be corrected.
    #[error(
        "no reservation {id:?} is open for this key: none was made, or its time is over; report what was spent instead"
    )]
    NotReserved {
        /// The id.
        id: String,
    },
    /// Whatever else went wrong, in the store's own words.
    #[error("the store gave no answer")]
    Failed {
        /// The store's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
