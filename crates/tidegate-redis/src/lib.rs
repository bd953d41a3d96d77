//! The limits of [`tidegate`] on Redis or Valkey, for everyone with more than
//! one process.
//!
//! ```no_run
//! use tidegate::{FailureMode, Limit, Limiter};
//! use tidegate_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1").await?;
//! let limiter = Limiter::builder(Limit::per_minute(100)).store(store).on_failure(FailureMode::Open).build()?;
//! if limiter.check_async("alice").await?.is_allowed() {
//!     // ..
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Only the constructor differs from a limiter in memory. The decisions are the
//! same in every field: one script in the server decides and moves the states,
//! and what a decision says of itself is computed from the state that it
//! returns, by the very code that decides in memory. One check is one round
//! trip, however many limits it meets; rules that only watch are asked one by one.
//!
//! It needs Redis 6.2 or later, or Valkey, and a tokio runtime; where there is
//! none, the store brings a thread of its own. Tests run on Redis 7.0 and
//! Valkey 9.1.
//!
//! # When the servers are away
//!
//! Every call has a [deadline](Builder::deadline), 100 ms unless set. A
//! [breaker](BreakerSettings) opens when five calls fail one after the other, with
//! no answer between them, or when at least half of the calls of the last second
//! fail, of 20 at least. It stays closed when a busy server misses a few deadlines:
//! calls that wait side by side and fail together count once in a row. Open, it
//! refuses calls at once, for 100 ms and then longer, and lets one call at a time
//! try whether the servers are back. So an outage costs a caller five deadlines at
//! most, and not one for each request. Meanwhile the
//! limiter answers by its [failure mode](tidegate::FailureMode), open, closed or
//! local, for each limit if you like; such decisions are marked as
//! [degraded](tidegate::Decision::is_degraded). Without a failure mode the caller
//! gets a [`RedisFailure`]. A store can be made before its servers are up, and
//! finds them again without a restart.
//!
//! A charge is never sent twice, unless the server has said that it did not carry
//! it out. If the reply is lost, the charge may or may not count: a key may get
//! less than its limit, never more.
//!
//! # What each topology promises
//!
//! - **One server**: every bound of [`tidegate`], by the server's clock. A server
//!   that restarts without its data has lost every state: each such loss
//!   lets up to one burst more pass, so after F losses at most (1 + F) bursts and the
//!   rate. With a clock that goes back, nothing is granted.
//! - **Sentinel** and **cluster**: the same, and replication is asynchronous: a
//!   failover can lose charges that were acknowledged, and counts as a loss. So
//!   does a primary that is cut off and goes on answering for a moment.
//! - **Strict** ([`Builder::strict`]): no loss lets anything more pass. A server
//!   whose history is not the one that the store knows is taken to have forgotten
//!   charges: every key there starts used up, and recovers as its limit allows.
//!   That also holds for the first start, and costs the server about 4 µs more
//!   for each check. Two things it cannot see: a primary that was replaced and
//!   still answers some clients, which admits at the rate beside the new one for as
//!   long; and a single key that the server evicts, so set `noeviction`.
//! - In a **cluster** the first part of a key is its hash tag: all limits of one
//!   caller are in one slot, and one script call decides them. Checks that span
//!   slots go from slot to slot, and what was charged is undone when one refuses:
//!   for a moment other requests may be refused; none is admitted that should not be.
//!
//! # Faster than the servers
//!
//! [`Builder::remember_refusals`] repeats a refusal without asking until the caller
//! could pass. [`Builder::lease`] lets a process borrow units and answer by itself
//! at the speed of memory; [`Lease`] says exactly what that costs.
//!
//! # On the server
//!
//! A state is one key, `prefix:{caller}:rule:limit`, that always expires. With names of
//! 16 characters it takes, all of Redis's own needs included: 173 bytes for a token
//! or leaky bucket whose rate divides a second evenly, 205 for another, 189 for a
//! fixed window, 205 for a sliding counter, 315 for a sliding log and
//! about 13 more for each further instant (`cargo xtask bench --only "redis, memory"`).
//! Strict mode keeps one key more, in a cluster one for each slot, which does not expire.
//!
//! A user of Redis's access control needs `+eval +evalsha +time +get +set +del
//! +incrby +llen +lindex +lrange +ltrim +lset +lpush +rpush +pexpire`, and `+info` for the
//! strict mode and [`RedisStore::evictions`], on `~prefix:*`; in a cluster also `+cluster|slots
//! +asking`, behind sentinels `+role`, and for a database other than 0 `+select`. A
//! connection that was idle for ten seconds is tried with a `PING` before it is used;
//! `+ping` is not needed, since a refusal is an answer.
//!
//! A kernel of your own ([`Meter::custom`](tidegate::store::Meter::custom)) works as it is: its
//! state is read, decided on here, and written if it has not changed meanwhile, in two round
//! trips and at most sixteen tries.

// What `internals` offers is `pub`; without the feature it is only used here.
#![cfg_attr(not(feature = "internals"), allow(unreachable_pub))]

mod breaker;
mod builder;
#[cfg(feature = "tls")]
mod certificates;
mod client;
mod counters;
mod eviction;
mod failure;
mod given_back;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod key;
#[doc(hidden)]
pub mod layer;
mod link;
mod nodes;
#[cfg(feature = "internals")]
mod planted;
mod recent;
mod remote;
mod runtime;
mod script;
mod servers;
mod state;
mod store;

pub use breaker::BreakerSettings;
pub use builder::Builder;
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use counters::Statistics;
pub use eviction::Eviction;
pub use failure::RedisFailure;
pub use layer::{Lease, RefusalSettings as RefusalCache};
pub use script::scripts;
pub use servers::{ConnectError, Servers};
pub use store::RedisStore;

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
