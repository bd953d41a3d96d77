//! What answers for a limit whose store has no answer.

use std::num::NonZeroU32;

use crate::time::Micros;

/// What to answer for a limit whose store has no answer.
///
/// ```
/// use tidegate::{FailureMode, Limit, Limiter, Rule};
///
/// let sign_in = Rule::new("sign-in", Limit::per_minute(5)).on_failure(FailureMode::Closed);
/// let limiter = Limiter::builder(sign_in).on_failure(FailureMode::Open).build()?;
/// # let _ = limiter;
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// Admit everything.
    Open,
    /// Admit nothing.
    Closed,
    /// This process decides by itself, with the share of one of so many: if
    /// that is how many there are, all of them together stay within the limit,
    /// counted from when the store failed.
    Local {
        /// Processes that use the limit.
        processes: NonZeroU32,
    },
}

impl FailureMode {
    /// What a refused caller is told to wait for a store that is away.
    pub const RETRY_AFTER: Micros = Micros::new(1_000_000);

    /// [`FailureMode::Local`] from a plain number; zero is one.
    ///
    /// ```
    /// use tidegate::FailureMode;
    ///
    /// assert_eq!(FailureMode::local(0), FailureMode::local(1));
    /// ```
    #[must_use]
    pub const fn local(processes: u32) -> FailureMode {
        match NonZeroU32::new(processes) {
            Some(processes) => FailureMode::Local { processes },
            None => FailureMode::Local { processes: NonZeroU32::MIN },
        }
    }
}
