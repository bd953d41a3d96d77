//! What a trace says the answer to a request is.

use std::fmt;

use tidegate::kernel::Verdict;
use tidegate::{CheckError, Decision, Micros};

use super::time::Time;

/// The answer to a request. What is `None` is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It passes.
    Allow {
        /// Units left afterwards.
        remaining: u64,
        /// How long to hold it back.
        delay: Micros,
        /// How long until the key is as if never used.
        reset_after: Option<Micros>,
    },
    /// It is refused.
    Wait {
        /// When it will pass, if no other request is charged before.
        retry_after: Micros,
        /// Units left.
        remaining: Option<u64>,
        /// How long until the key is as if never used.
        reset_after: Option<Micros>,
    },
    /// It can never pass: its cost is above the capacity.
    Impossible,
}

impl Answer {
    /// The whole of a limiter's answer.
    ///
    /// # Errors
    /// The error itself, if it means that there was no answer.
    pub fn of(decision: Result<Decision, CheckError>) -> Result<Answer, CheckError> {
        let decision = match decision {
            Ok(decision) => decision,
            Err(CheckError::Unsatisfiable { .. }) => return Ok(Answer::Impossible),
            Err(error) => return Err(error),
        };
        let reset_after = decision.reset_after().map(Micros::from_duration);
        let remaining = decision.remaining();
        Ok(if decision.is_allowed() {
            let delay = Micros::from_duration(decision.delay());
            Answer::Allow { remaining: remaining.unwrap_or(u64::MAX), delay, reset_after }
        } else {
            let retry_after = decision.retry_after().map_or(Micros::MAX, Micros::from_duration);
            Answer::Wait { retry_after, remaining, reset_after }
        })
    }

    /// Whether `other` is as this answer says.
    #[must_use]
    pub fn agrees_with(&self, other: &Answer) -> bool {
        fn same<T: PartialEq>(mine: &Option<T>, theirs: &Option<T>) -> bool {
            mine.is_none() || theirs.is_none() || mine == theirs
        }
        match (self, other) {
            (
                Answer::Allow { remaining, delay, reset_after },
                Answer::Allow { remaining: other_remaining, delay: other_delay, reset_after: other_reset },
            ) => (remaining, delay) == (other_remaining, other_delay) && same(reset_after, other_reset),
            (
                Answer::Wait { retry_after, remaining, reset_after },
                Answer::Wait { retry_after: other_retry, remaining: other_remaining, reset_after: other_reset },
            ) => retry_after == other_retry && same(remaining, other_remaining) && same(reset_after, other_reset),
            (Answer::Impossible, Answer::Impossible) => true,
            (Answer::Allow { .. } | Answer::Wait { .. } | Answer::Impossible, _) => false,
        }
    }

    /// Whether both pass, both are refused, or both are impossible.
    pub(super) fn is_like(&self, other: &Answer) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The whole of a verdict.
impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Answer {
        let Verdict { allowed, remaining, retry_after, reset_after, delay, .. } = verdict;
        match allowed {
            true => Answer::Allow { remaining, delay, reset_after: Some(reset_after) },
            false => Answer::Wait { retry_after, remaining: Some(remaining), reset_after: Some(reset_after) },
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reset_after = match self {
            Answer::Allow { remaining, delay, reset_after } => {
                write!(f, "allow {remaining}")?;
                if *delay > Micros::ZERO {
                    write!(f, " delay {}", Time(*delay))?;
                }
                reset_after
            }
            Answer::Wait { retry_after, remaining, reset_after } => {
                write!(f, "wait {}", Time(*retry_after))?;
                if let Some(remaining) = remaining {
                    write!(f, " left {remaining}")?;
                }
                reset_after
            }
            Answer::Impossible => return f.write_str("impossible"),
        };
        match reset_after {
            Some(reset_after) => write!(f, " reset {}", Time(*reset_after)),
            None => Ok(()),
        }
    }
}
