//! The five algorithms by name.

/// The five algorithms.
///
/// ```
/// use tidegate::{AlgorithmKind, Limit};
///
/// let limit: Limit = "sliding-log 5/10s".parse()?;
/// assert_eq!(limit.algorithm(), AlgorithmKind::SlidingLog);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlgorithmKind {
    /// Refills evenly; what is saved up may be spent at once.
    TokenBucket,
    /// The same meter, which also tells each request when to go.
    LeakyBucket,
    /// Counts per window of the clock; forgets everything at its edge.
    FixedWindow,
    /// Remembers every request for a period: exact, at the price of memory.
    SlidingLog,
    /// Two counters that approximate the log.
    SlidingCounter,
}

impl AlgorithmKind {
    /// All five, in the order of this list.
    ///
    /// ```
    /// use tidegate::AlgorithmKind;
    ///
    /// assert_eq!(AlgorithmKind::ALL.len(), 5);
    /// ```
    pub const ALL: [AlgorithmKind; 5] = [
        AlgorithmKind::TokenBucket,
        AlgorithmKind::LeakyBucket,
        AlgorithmKind::FixedWindow,
        AlgorithmKind::SlidingLog,
        AlgorithmKind::SlidingCounter,
    ];
}
