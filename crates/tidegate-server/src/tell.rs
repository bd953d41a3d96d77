//! What is told of decisions to other programs, and the records that it is told from: metrics, spans, events.

pub(crate) mod crossings;
pub(crate) mod held;
pub(crate) mod metrics;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
pub(crate) mod records;
pub(crate) mod refused;
pub(crate) mod trace;
pub(crate) mod webhook;
