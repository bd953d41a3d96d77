//! The parts of an [`Explanation`](crate::Explanation).

pub use crate::policy::{RuleExplanation, RuleFinding};
