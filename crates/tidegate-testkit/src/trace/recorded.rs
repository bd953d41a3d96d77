//! The traces that every store has to answer, kept as files.

use super::{Trace, TraceError};

/// A trace that is kept as a file.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The file's name, without its ending.
    pub name: &'static str,
    /// The file's text.
    pub text: &'static str,
}

impl Recorded {
    /// The trace.
    ///
    /// # Errors
    /// If the file is no trace.
    pub fn trace(&self) -> Result<Trace, TraceError> {
        Trace::parse(self.text)
    }
}

macro_rules! recorded {
    ($($name:literal),+ $(,)?) => {
        /// All recorded traces.
        pub const RECORDED: &[Recorded] = &[$(Recorded {
            name: $name,
            text: include_str!(concat!("../../traces/", $name, ".trace")),
        }),+];
    };
}

recorded!(
    "token-bucket-burst",
    "token-bucket-slow",
    "token-bucket-prime",
    "cost",
    "fixed-window-edge",
    "fixed-window-from-first",
    "sliding-log-edge",
    "sliding-counter-edge",
    "leaky-bucket-delays",
    "clock-rewinds",
    "clock-rewinds-windows",
    "clock-rewinds-log",
    "coarse-resolution",
    "refund",
    "refund-windows",
    "refund-at-the-epoch",
    "debt-bucket",
    "debt-windows",
    "debt-counter",
    "debt-log",
    "zero-cost",
    "peek-and-reset",
    "several-limits",
    "keys",
);
