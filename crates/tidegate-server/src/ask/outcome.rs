//! What can become of a request, and how each wire says it: one table.

use std::borrow::Cow;
use std::error::Error;

use http::StatusCode;
use tidegate::CheckError;
use tonic::Code::{
    self, DeadlineExceeded, InvalidArgument, OutOfRange, PermissionDenied, ResourceExhausted, Unauthenticated,
    Unavailable,
};

use super::budget::InlineFull;
use crate::access::Denied;
use crate::run::causes::{for_clients, in_full};

/// What became of a request, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    Blocked,
    Expired,
    Unsatisfiable,
    MissingAttribute,
    NotAnAddress,
    UnknownRule,
    IdReused,
    NotReserved,
    InlineFull,
    Unavailable,
    Invalid,
    InvalidPolicy,
    NotFound,
    WrongMethod,
    ContentType,
    Conflict,
    TooLong,
    TooSlow,
    Overloaded,
    ShuttingDown,
    Unauthenticated,
    WrongCredential,
    Forbidden,
    CrossSite,
    ForeignHost,
    TooManyFailures,
}

/// How an outcome is told, and to whom.
struct Row {
    outcome: Outcome,
    /// The label of a metric, and the end of a problem type.
    name: &'static str,
    status: u16,
    /// The status of gRPC; none where the answer itself tells it.
    code: Option<Code>,
    /// The first word of an error of RESP; none where the answer itself tells it, or the outcome is none of RESP.
    word: Option<&'static str>,
    notes: Notes,
}

/// Who hears of an outcome beside the caller, and what the caller may see of its causes.
#[derive(Clone, Copy)]
struct Notes {
    counted: CountedBy,
    is_audited: bool,
    details: Audience,
}

/// The metric that counts an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedBy {
    Decisions,
    Errors,
    AuthenticationFailures,
    /// A bound counts what it sheds; nothing counts the rest.
    Elsewhere,
}

/// Who may see what caused an outcome. Callers are told in general what only operators may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    Caller,
    Operator,
}

const DECISION: Notes = Notes { counted: CountedBy::Decisions, is_audited: false, details: Audience::Caller };
const ERROR: Notes = Notes { counted: CountedBy::Errors, ..DECISION };
const STORE_ERROR: Notes = Notes { details: Audience::Operator, ..ERROR };
const OTHER: Notes = Notes { counted: CountedBy::Elsewhere, ..DECISION };
const GUESS: Notes = Notes { counted: CountedBy::AuthenticationFailures, ..DECISION };
const AUDITED_GUESS: Notes = Notes { is_audited: true, ..GUESS };

/// In the order of [`Outcome`]: outcome, name, HTTP, gRPC, RESP, notes.
static TABLE: [Row; 28] = [
    row(Outcome::Admitted, "admitted", 200, None, None, DECISION),
    row(Outcome::Refused, "quota-exceeded", 429, None, None, DECISION),
    row(Outcome::Blocked, "denied", 403, None, None, DECISION),
    row(Outcome::Expired, "expired", 409, None, None, DECISION),
    row(Outcome::Unsatisfiable, "unsatisfiable", 422, Some(InvalidArgument), Some("UNSATISFIABLE"), ERROR),
    row(Outcome::MissingAttribute, "missing-attribute", 422, Some(InvalidArgument), Some("MISSINGATTRIBUTE"), ERROR),
    row(Outcome::NotAnAddress, "not-an-address", 422, Some(InvalidArgument), Some("NOTANADDRESS"), ERROR),
    row(Outcome::UnknownRule, "unknown-rule", 422, Some(InvalidArgument), Some("UNKNOWNRULE"), ERROR),
    row(Outcome::IdReused, "id-reused", 422, Some(InvalidArgument), Some("IDREUSED"), ERROR),
    row(Outcome::NotReserved, "not-reserved", 404, Some(InvalidArgument), Some("NOTRESERVED"), ERROR),
    row(Outcome::InlineFull, "inline-full", 503, Some(Unavailable), Some("INLINEFULL"), ERROR),
    row(Outcome::Unavailable, "unavailable", 503, Some(Unavailable), Some("UNAVAILABLE"), STORE_ERROR),
    row(Outcome::Invalid, "invalid-request", 400, Some(InvalidArgument), Some("ERR"), OTHER),
    row(Outcome::InvalidPolicy, "invalid-policy", 422, None, None, OTHER),
    row(Outcome::NotFound, "not-found", 404, None, None, OTHER),
    row(Outcome::WrongMethod, "wrong-method", 405, None, None, OTHER),
    row(Outcome::ContentType, "content-type", 415, Some(PermissionDenied), None, OTHER),
    row(Outcome::Conflict, "conflict", 409, None, None, OTHER),
    row(Outcome::TooLong, "too-long", 413, Some(OutOfRange), None, OTHER),
    row(Outcome::TooSlow, "too-slow", 408, Some(DeadlineExceeded), None, OTHER),
    row(Outcome::Overloaded, "overloaded", 503, Some(ResourceExhausted), Some("ERR"), OTHER),
    row(Outcome::ShuttingDown, "shutting-down", 503, Some(Unavailable), None, OTHER),
    row(Outcome::Unauthenticated, "unauthenticated", 401, Some(Unauthenticated), Some("NOAUTH"), OTHER),
    row(Outcome::WrongCredential, "unauthenticated", 401, Some(Unauthenticated), Some("WRONGPASS"), AUDITED_GUESS),
    row(Outcome::Forbidden, "forbidden", 403, Some(PermissionDenied), Some("NOPERM"), OTHER),
    row(Outcome::CrossSite, "cross-site", 403, Some(PermissionDenied), None, OTHER),
    row(Outcome::ForeignHost, "foreign-host", 421, Some(PermissionDenied), None, OTHER),
    row(Outcome::TooManyFailures, "too-many-failures", 429, Some(ResourceExhausted), Some("ERR"), GUESS),
];

const fn row(
    outcome: Outcome,
    name: &'static str,
    status: u16,
    code: Option<Code>,
    word: Option<&'static str>,
    notes: Notes,
) -> Row {
    Row { outcome, name, status, code, word, notes }
}

impl Outcome {
    fn row(self) -> &'static Row {
        let row = &TABLE[self as usize];
        debug_assert_eq!(row.outcome, self);
        row
    }

    /// The same on every wire: the label of a metric, and the end of a problem type.
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).expect("the table has statuses of HTTP")
    }

    /// The status of gRPC.
    pub(crate) fn code(self) -> Code {
        self.row().code.unwrap_or(Code::Unknown)
    }

    /// The first word of an error of RESP.
    pub(crate) fn word(self) -> &'static str {
        self.row().word.unwrap_or("ERR")
    }

    pub(crate) fn counted(self) -> CountedBy {
        self.row().notes.counted
    }

    pub(crate) fn is_audited(self) -> bool {
        self.row().notes.is_audited
    }

    /// What went wrong, as the caller may know it.
    pub(crate) fn words(self, error: &dyn Error) -> String {
        match self.row().notes.details {
            Audience::Caller => in_full(error),
            Audience::Operator => for_clients(error),
        }
    }

    /// What is the same for all problems with this outcome; none if HTTP says it by the status alone.
    pub(crate) fn title(self) -> Option<&'static str> {
        Some(match self {
            Outcome::Refused => "Request cannot be satisfied as assigned quota has been exceeded",
            Outcome::Blocked => "The policy denies the request",
            Outcome::Expired => "A permit of the reservation has expired",
            Outcome::Unsatisfiable => "The cost is above what the limit can ever admit",
            Outcome::MissingAttribute => "A key attribute is missing from the request",
            Outcome::NotAnAddress => "An address attribute is not an IP address",
            Outcome::UnknownRule => "The policy has no such rule",
            Outcome::IdReused => "The id belongs to another request",
            Outcome::NotReserved => "There is no such reservation, or its time is over",
            Outcome::InlineFull => "There is no room for another key of an inline limit",
            Outcome::Unavailable => "The store gave no answer",
            Outcome::Invalid => "The request is not valid",
            Outcome::InvalidPolicy => "The policy is not valid",
            Outcome::Unauthenticated | Outcome::WrongCredential => "The request has no valid credential",
            Outcome::Forbidden => "The caller lacks the right",
            Outcome::CrossSite => "A web page of another origin sent the request",
            Outcome::ForeignHost => "The request is for a host that is not this server's",
            Outcome::TooManyFailures => "Too many wrong credentials came from this address",
            Outcome::Admitted
            | Outcome::NotFound
            | Outcome::WrongMethod
            | Outcome::ContentType
            | Outcome::Conflict
            | Outcome::TooLong
            | Outcome::TooSlow
            | Outcome::Overloaded
            | Outcome::ShuttingDown => return None,
        })
    }

    /// The type of a problem document.
    pub(crate) fn problem_type(self) -> Cow<'static, str> {
        match self {
            // The one of ours that IANA lists.
            Outcome::Refused => "https://iana.org/assignments/http-problem-types#quota-exceeded".into(),
            _ if self.title().is_none() => "about:blank".into(),
            _ => format!("urn:problem-type:tidegate:{}", self.name()).into(),
        }
    }
}

impl From<&CheckError> for Outcome {
    fn from(error: &CheckError) -> Outcome {
        match error {
            CheckError::Unsatisfiable { .. } => Outcome::Unsatisfiable,
            CheckError::MissingAttribute { .. } => Outcome::MissingAttribute,
            CheckError::NotAnAddress { .. } => Outcome::NotAnAddress,
            CheckError::UnknownRule { .. } => Outcome::UnknownRule,
            CheckError::IdReused { .. } => Outcome::IdReused,
            CheckError::NotReserved { .. } => Outcome::NotReserved,
            error if InlineFull::is_cause_of(error) => Outcome::InlineFull,
            // The store failed: the one variant left, and any that is new.
            _ => Outcome::Unavailable,
        }
    }
}

impl From<&Denied> for Outcome {
    fn from(denied: &Denied) -> Outcome {
        match denied {
            Denied::Unauthenticated { .. } => Outcome::Unauthenticated,
            Denied::WrongCredential => Outcome::WrongCredential,
            Denied::Forbidden { .. } => Outcome::Forbidden,
            Denied::ForeignHost { .. } => Outcome::ForeignHost,
            Denied::CrossSite => Outcome::CrossSite,
            Denied::ContentType => Outcome::ContentType,
            Denied::TooManyFailures { .. } => Outcome::TooManyFailures,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use tidegate::store::StoreError;
    use tidegate_redis::RedisFailure;

    use super::*;

    #[test]
    fn every_outcome_has_its_row() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!((row.outcome as usize, row.outcome.status().as_u16()), (place, row.status));
        }
    }

    #[test]
    fn what_redis_said_is_for_the_operator() {
        let failure =
            RedisFailure::Deadline { deadline: Duration::from_millis(7), last_word: "READONLY secret".into() };
        let error = CheckError::from(StoreError::from(failure));
        assert_eq!(Outcome::from(&error).words(&error), "the store gave no answer: no answer within 7ms");
    }

    /// The page has a line for what a program has to tell apart; the other outcomes HTTP has by itself.
    #[test]
    fn the_book_has_the_outcomes_of_the_table() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference/http.md");
        let page = fs::read_to_string(page).unwrap();
        for row in TABLE.iter().filter(|row| matches!(row.notes.counted, CountedBy::Decisions | CountedBy::Errors)) {
            let told = format!("| {} `{}`", row.status, row.name);
            let Some(line) = page.lines().find(|line| line.contains(&told)) else {
                assert_eq!(row.outcome, Outcome::Admitted, "no line has {told}");
                continue;
            };
            if let Some(word) = row.word {
                assert!(line.contains(&format!("`{word}`")), "{line}");
            }
        }
    }
}
