//! Stores over stores: each wraps a store, is one, and does one thing more.
//!
//! A [`RedisStore`](crate::RedisStore) is all of them over the servers. They
//! work over any store; no stability promise.

mod frequent;
mod lease;
mod leased;
mod ledger;
mod refusals;

pub use lease::{Lease, Leases};
pub use leased::Leased;
pub use refusals::{RefusalCache, RefusalSettings, Refusals};
