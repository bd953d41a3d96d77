//! The five algorithms by name.

/// The five algorithms.
///
/// ```
/// use tidegate::{Algorithm, Limit};
///
/// let limit: Limit = "sliding-log 5/10s".parse()?;
/// assert_eq!(limit.algorithm(), Algorithm::SlidingLog);
/// # Ok::<(), tidegate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
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

impl Algorithm {
    /// All five, in the order of this list.
    ///
    /// ```
    /// use tidegate::Algorithm;
    ///
    /// assert_eq!(Algorithm::ALL.len(), 5);
    /// ```
    pub const ALL: [Algorithm; 5] = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingCounter,
    ];
}
