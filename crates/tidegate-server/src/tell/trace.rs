//! Decisions as spans: what is kept of each, and the request that it belongs to.
//!
//! A wire only says where a request begins ([`Origin::scope`]). All that decides within that scope tells
//! [`Metrics`](crate::Metrics), as it does anyway, and that tells the [`Tracer`]: no wire knows of spans. Without the
//! feature `otlp` a tracer is empty, a scope is the future itself, and nothing of this is left.

#[cfg(not(feature = "otlp"))]
mod off;
#[cfg(feature = "otlp")]
mod on;
#[cfg(feature = "otlp")]
mod parent;

use std::time::Duration;

use tidegate::Name;
use tidegate::kernel::Verb;

#[cfg(not(feature = "otlp"))]
pub(crate) use self::off::{Origin, Tracer};
#[cfg(feature = "otlp")]
pub(crate) use self::on::{Origin, Span, Spans, Tracer};

/// What a span tells of a decision.
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub(crate) struct Decided {
    pub(crate) verb: Verb,
    pub(crate) cost: u64,
    pub(crate) allowed: bool,
    pub(crate) rule: Name,
    pub(crate) capacity: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset_after: Option<Duration>,
    /// Only of a refusal.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) degraded: bool,
    pub(crate) repeated: bool,
}
