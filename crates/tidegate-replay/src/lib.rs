//! Access logs, decided by a policy: who would be refused, when, and by which
//! rule; and what another policy does differently.
//!
//! The real [`Limiter`](tidegate::Limiter) decides every line on the real
//! memory store, in the log's own time. Whatever is counted on the way takes
//! bounded memory, so a log may be as long as it likes.
//!
//! ```
//! use tidegate::{Limit, Policy, Rule};
//! use tidegate_replay::{Replay, Source};
//!
//! let log = "\
//! {\"time\": \"2024-02-29T12:00:00Z\", \"user\": \"alice\", \"path\": \"/orders\"}
//! {\"time\": \"2024-02-29T12:00:01Z\", \"user\": \"alice\", \"path\": \"/orders\"}
//! ";
//! let old = Policy::new().rule(Rule::new("user", Limit::per_minute(60)).key(["user"]));
//! let new = Policy::new().rule(Rule::new("user", Limit::per_minute(1)).key(["user"]));
//! let report = Replay::new(new)
//!     .against(old)
//!     .at_most("10%".parse()?)
//!     .run([Source::stream("orders", log.as_bytes())])?;
//! assert_eq!(report.against.as_ref().map(|old| old.newly_refused.count), Some(1));
//! assert_eq!(report.limits[0].smallest.as_ref().map(|found| &*found.limit), Some("2/min"));
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Logs
//!
//! The combined and common formats of Apache and nginx, Envoy's default text,
//! lines of JSON, and CSV with names of columns: which, the first lines tell.
//! gzip and zstd are known by their first bytes. Several logs are read side by
//! side, in the order of their times.
//!
//! A request has the attributes that the policies ask for. Each is looked for
//! under its own name and under those that logs usually give it;
//! [`Replay::map`] names another field. `docs/book/src/reference/replay.md` has the list.
//!
//! # Order
//!
//! A line is held back until [`HELD_BACK`] later ones have been read, and
//! then decided at its time. One that comes later than that is counted as
//! late, and decided at the time that has been reached.
//!
//! # Durations
//!
//! With [`Replay::map`] of `duration`, a line is a reservation: charged when the request came and
//! settled when it ended, to what `actual` says. `docs/book/src/reference/replay.md` tells which time a line's is.
//!
//! # Bounds
//!
//! No line stops a replay: one that cannot be read, or that the policy cannot
//! decide, is counted, and the first few are shown with the reason. If more are
//! lost than [`Replay::tolerate`], the report is
//! [inconclusive](Report::inconclusive). A line has at most [`MAX_LINE_BYTES`]
//! bytes; [`MAX_COUNTED_KEYS`] keys are counted for each list, by the space-saving
//! sketch of [`Top`]; how near keys come to a limit is known for 2,048 of them,
//! drawn fairly; times fall into 240 bins; [`MAX_IN_FLIGHT`] requests are in flight at once. The search for the smallest limits
//! keeps 24 bytes for each check in a file without a name, [`MAX_SPOOLED`] at
//! most.

mod batch;
mod bins;
mod busy;
mod decider;
mod draft;
mod error;
mod findings;
mod format;
mod headroom;
mod in_flight;
mod input;
mod lines;
mod mapping;
mod processor;
mod replay;
pub mod report;
mod search;
mod share;
mod source;
mod spool;
mod tally;
mod top;
mod watched;
mod when;

pub use batch::HELD_BACK;
pub use decider::Recorded;
pub use error::ReplayError;
pub use format::{Format, UnknownField, UnknownFormat};
pub use in_flight::MAX_IN_FLIGHT;
pub use input::Progress;
pub use lines::MAX_LINE_BYTES;
pub use replay::Replay;
pub use report::{Report, Titles};
pub use search::Smallest;
pub use share::{Share, UnreadableShare};
pub use source::{Compression, MAX_SOURCES, Source};
pub use spool::MAX_SPOOLED;
pub use tally::MAX_COUNTED_KEYS;
pub use top::{Counted, Top};
pub use when::Utc;

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
