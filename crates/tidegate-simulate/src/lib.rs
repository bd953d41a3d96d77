//! What a limit would do: traffic through the kernels of
//! [`tidegate`] in virtual time, measured and drawn.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_simulate::{Scenario, every_algorithm};
//!
//! let report = Scenario::new("bursts 20 every 3s within 400ms from 800ms + 20/s from 1200ms".parse()?)
//!     .limits(every_algorithm("10/s".parse()?)?)
//!     .lasting(Duration::from_secs(3))
//!     .run()?;
//! for outcome in &report.outcomes {
//!     let (admitted, worst) = (outcome.flow.passed.requests, outcome.flow.worst_window.units);
//!     println!("{}: {admitted} of {}, up to {worst} in one second", outcome.name(), outcome.offered.requests);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Scenario`] is [`Traffic`] in words, limits, a seed and a length. It
//! [runs](Scenario::run) to a [`Report`], or [starts](Scenario::start) a
//! [`Simulation`] that is asked for one [`Decided`] after the other.
//!
//! What decides is what decides in the library and in the server, to the
//! microsecond: [`tidegate::kernel::decide`]. Each limit has the whole traffic
//! to itself, and counts each client for itself. Requests that last are charged when they come and
//! settled when they end; their permits are not renewed, and the measures go by the estimates.
//!
//! # The same everywhere
//!
//! Arrivals and decisions are made of whole numbers, chance included: a seed is
//! the same traffic on every machine.
//!
//! # Memory
//!
//! Traffic takes constant memory. A simulation remembers what was admitted
//! within the last period, under each limit: 16 bytes for each instant, never
//! more than there were requests; and the requests in flight, 64 bytes for each. The bounds are
//! [`Traffic::MAX_CLIENTS`], [`Traffic::MAX_COST`], [`Scenario::MAX_LIMITS`],
//! [`Scenario::MAX_IN_FLIGHT`], [`Scenario::MAX_LENGTH`] and [`Series::MAX_BINS`].

mod chart;
mod measure;
mod picture;
mod random;
mod report;
mod scenario;
mod series;
mod simulation;
mod table;
mod traffic;
mod words;

pub use chart::Chart;
pub use measure::{Count, Flow, WorstWindow};
pub use picture::Picture;
#[cfg(feature = "png")]
pub use picture::PngError;
pub use report::{Class, Outcome, Report, name};
pub use scenario::{Scenario, ScenarioError, every_algorithm, with_algorithm};
pub use series::{Bin, Series};
pub use simulation::{Decided, Simulation};
pub use table::Table;
pub use traffic::{Arrival, Arrivals, Traffic, TrafficError};
pub use words::{print_rounded, print_time, read_time};

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
