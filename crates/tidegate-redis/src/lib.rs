//! tidegate on Redis.
mod breaker;
mod builder;
mod cluster;
mod counters;
mod failure;
mod key;
mod lease;
mod ledger;
mod link;
mod refusals;
mod runtime;
mod script;
mod servers;
mod slots;
mod store;

pub use breaker::BreakerSettings;
pub use builder::Builder;
pub use counters::Statistics;
pub use failure::RedisFailure;
pub use ledger::Lease;
pub use refusals::RefusalCache;
pub use script::scripts;
pub use servers::{ConnectError, Servers};
pub use store::RedisStore;
