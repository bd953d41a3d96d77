//! What a store of [`tidegate`] is tested with.
//!
//! The idea is that nothing is right because its own code says so. There are
//! four tools, each built on the one before, and a fifth beside them:
//!
//! - The [`Oracle`] knows what every limit answers. It computes with fractions
//!   and shares no arithmetic with the library; [`OracleStore`] puts it behind
//!   the seam that every store is behind.
//! - A [`Trace`] is a text of requests and answers. It is a test, a recording,
//!   and what goes into a bug report; [`RECORDED`] are those that every store
//!   has to answer. [`trace()`] makes a test of one in a line.
//! - A [`Differential`] asks a store and the oracle the same random checks,
//!   millions of them, and cuts what makes them differ down to a short trace.
//! - [`conformance!`] makes one test for each promise of the design, for any
//!   store whose clock can be set.
//!
//! - With the feature `servers`, the module `servers` runs real Redis and
//!   Valkey servers for what only they can show.
//!
//! None but the last waits for anything: time is a [`ManualClock`](tidegate::ManualClock).
//! None is meant for production: they panic when they find something wrong.
//!
//! ```
//! use tidegate::{Limit, Limiter, ManualClock};
//! use tidegate_testkit::{OracleStore, Trace, trace};
//!
//! // A limit and what it answers, on the memory store and by the oracle.
//! trace(Limit::per_second(2), "
//!     0ms   alice 1  allow 1
//!     0ms   alice 1  allow 0
//!     100ms alice 1  wait 400ms
//!     500ms alice 1  allow 0
//! ");
//!
//! // The same on a limiter of your own.
//! let trace = Trace::parse("
//!     limit leaky 2/s queue 3
//!     0s    alice 1 x2 -> allow 1 delay 500ms
//!     250ms alice 1    -> allow 0 delay 750ms
//!     250ms alice 1    -> wait 250ms
//! ")?;
//! let clock = ManualClock::default();
//! let limiter = Limiter::with_store(trace.policy(), OracleStore::new(clock.clone()))?;
//! trace.replay(&limiter, &clock)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_on;
pub mod conformance;
mod differential;
mod meddling_clock;
mod oracle;
mod random;
#[cfg(all(unix, feature = "servers"))]
pub mod servers;
mod trace;

pub use block_on::block_on;
pub use differential::{Difference, Differential, Reproduction, Tally};
pub use meddling_clock::MeddlingClock;
pub use oracle::{Ask, CustomKernel, Oracle, OracleStore};
pub use random::Random;
pub use trace::{Action, Answer, Mismatch, RECORDED, Recorded, Step, Trace, TraceError, trace};

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
