//! What answers for a limit whose store has no answer.

use std::num::NonZeroU32;

use crate::time::Micros;

/// What to answer for a limit whose store has no answer.
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
    #[must_use]
    pub const fn local(processes: u32) -> FailureMode {
        match NonZeroU32::new(processes) {
            Some(processes) => FailureMode::Local { processes },
            None => FailureMode::Local { processes: NonZeroU32::MIN },
        }
    }
}
