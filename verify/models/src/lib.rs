//! The protocols of tidegate as models: every state that a few processes,
//! servers, messages and faults can reach is visited.
//!
//! What is modelled is what happens *between* decisions: who asks whom, what is
//! lost, what comes twice or late. The decisions themselves are made by the
//! library's own kernel. Each model can be given a [`Defect`] that a real
//! limiter had, and the tests see that it is found.
//!
//! - [`leases`]: processes that borrow units and hand them out by themselves
//! - [`failover`]: a server that is lost while its replica lags, with and
//!   without strict mode, and a primary that does not know that it was replaced
//! - [`ids`]: requests that are sent again because a reply was lost
//! - [`reservations`]: permits that are renewed, settled and expire
//! - [`quotas`]: units of a limit that clients use by themselves until they run out
//!
//! The proofs about arithmetic are elsewhere: `verify/lemmas/`, by `cargo xtask verify proof`.
//!
//! [`Defect`]: leases::Defect

pub mod failover;
pub mod ids;
pub mod leases;
mod meter;
pub mod quotas;
pub mod reservations;

/// How large a model is: small enough for every run of the tests, or as large
/// as the environment says (`TIDEGATE_MODEL=large`).
#[must_use]
pub fn is_large() -> bool {
    std::env::var("TIDEGATE_MODEL").is_ok_and(|size| size == "large")
}
