//! Decides whether a request is admitted: five algorithms, exact integer
//! arithmetic, many keys in bounded memory. It needs no async runtime, and no
//! background thread for checks.
//!
//! ```
//! use tidegate::{Limit, Limiter};
//!
//! fn main() -> Result<(), tidegate::CheckError> {
//!     let limiter = Limiter::new(Limit::per_second(2)); // for each key: 2 at once, then 2 per second
//!     for caller in ["alice", "alice", "alice", "bob"] {
//!         println!("{caller}: {}", limiter.check(caller)?);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `alice` is admitted twice and then refused for half a second; `bob` has a
//! limit of his own. [`Limiter::allow`] gives only the bool. A [`Limiter`]
//! is cheap to clone and can be used from any number of threads and tasks.
//! [`check`](Limiter::check) never waits; [`check_async`](Limiter::check_async)
//! is the same for stores that have to: a bare name is synchronous, and `_async` is the
//! same for any store.
//!
//! # What the answer tells
//!
//! A refusal is a value, a [`Decision`]. An error means that there is no answer.
//!
//! | [`Decision`] | |
//! |---|---|
//! | [`is_allowed`](Decision::is_allowed) | whether the request is admitted; if so, it has been charged |
//! | [`remaining`](Decision::remaining) | how many more requests of cost 1 would be admitted at this instant |
//! | [`retry_after`](Decision::retry_after) | how long a refused caller must wait: exact to the microsecond, if no other request uses the key |
//! | [`reset_after`](Decision::reset_after) | how long until the key is as if never used |
//! | [`delay`](Decision::delay) | how long to hold an allowed request back; only a leaky bucket asks for it |
//! | [`limit`](Decision::limit) | the most that could ever be admitted at once |
//! | [`rule`](Decision::rule) | which limit this is about, where there are several |
//! | [`is_degraded`](Decision::is_degraded) | whether a fallback answered, not the limit |
//!
//! A limit is a plain value. An invalid literal does not compile as a `const`; numbers from elsewhere go through the `try_` constructors, or are
//! [parsed](Limit#impl-FromStr-for-Limit) from words:
//!
//! ```
//! use std::time::Duration;
//! use tidegate::Limit;
//!
//! const API: Limit = Limit::per_minute(100).burst(20);
//! let login = Limit::sliding_log(5, Duration::from_secs(600));
//! let configured: Limit = "leaky 2/s queue 8".parse()?;
//! assert_eq!([API, login].map(|limit| limit.to_string()), ["100/min burst 20", "sliding-log 5/10min"]);
//! # let _ = configured;
//! # Ok::<(), tidegate::ConfigError>(())
//! ```
//!
//! # Which algorithm when
//!
//! Take a token bucket unless one of the other rows is what you want.
//!
//! | algorithm | take it when | the most that it admits | memory per key | what it costs the caller | known weakness |
//! |---|---|---|---|---|---|
//! | [token bucket](Limit::token_bucket) | a rate matters, and short bursts are welcome | `burst` at once, then the rate | 22 bytes | nothing within the rate | up to `burst + count` in one period |
//! | [leaky bucket](Limit::leaky_bucket) | what comes after must see an even flow | as above; leaving evenly | 22 bytes | latency: up to `(queue - 1) * period / count` | callers must wait for the delay in the decision |
//! | [fixed window](Limit::fixed_window) | the limit is a quota of the clock: 1000 a day | `count` per window | 22 bytes | a wait of up to a period | `2 * count` across an edge; all callers return at the edge |
//! | [sliding log](Limit::sliding_log) | "never more than N in any minute" is meant literally | `count` in any period | about 220 bytes, and from the fifth on 16 to 32 for each remembered instant | a wait of up to a period | memory grows with `count` |
//! | [sliding counter](Limit::sliding_counter) | the same, roughly, for large counts and many keys | `count` per window, up to `2 * count` in some period | 64 bytes | waits up to two periods after a burst | assumes that the last window was even |
//!
//! 22 bytes become 64 for a bucket whose `count`, reduced by its gcd with the
//! period in microseconds, is above 2048, and for a fixed window of more than
//! 2047. See [`MemoryStore`] for what is counted.
//!
//! The same requests under each of the five, as `tidegate simulate` shows them:
//!
//! ```text
//! One block is one request: █ admitted, ░ refused, ▪ leaving. A column is 100ms.
//!
//! token bucket 10/s: 31 of 56 admitted, up to 19 in 1s
//!         ██░░
//!         ██░░
//!         ██░░
//!         ███░░░░░░░░░░░░░░░░░░░
//!         ██████████████████████
//! 0─────────1s────────2s────────3s
//!
//! leaky bucket 10/s: 31 of 56 admitted, up to 19 in 1s
//!         ██░░
//!         ██░░
//!         ██░░
//!         ███░░░░░░░░░░░░░░░░░░░
//!         ██████████████████████
//! 0─────────1s────────2s────────3s
//!         ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪
//!
//! fixed window 10/s: 30 of 56 admitted, up to 20 in 1s
//!         ████
//!         ████
//!         ████
//!         ████░░░░░░░░█████░░░░░
//!         ████░░░░░░░░█████░░░░░
//! 0─────────1s────────2s────────3s
//!
//! sliding log 10/s: 24 of 56 admitted, up to 10 in 1s
//!         ██░░
//!         ██░░
//!         ██░░
//!         ██░░░░░░░░█████░░░░░██
//!         ██░░░░░░░░█████░░░░░██
//! 0─────────1s────────2s────────3s
//!
//! sliding counter 10/s: 30 of 56 admitted, up to 18 in 1s
//!         ██░░
//!         ██░░
//!         ██░░
//!         ██░░░░░░░░░░░░░░░░░░░░
//!         ██████████████████████
//! 0─────────1s────────2s────────3s
//! ```
//!
//! # The exact bounds
//!
//! `admitted[s, t]` is the cost that was admitted from `s` to `t`, both included.
//!
//! - **Token bucket.** For all `s <= t`:
//!   `admitted[s, t] <= burst + count * (t - s) / period`.
//! - **Leaky bucket.** For all `s <= t`:
//!   `admitted[s, t] <= queue + count * (t - s) / period`. A request of cost `c`
//!   holds the way out for `c * period / count`: if each goes after its delay,
//!   the next goes no sooner than that, to the microsecond.
//! - **Fixed window.** Every window from `k * period` up to `(k + 1) * period`
//!   since the epoch admits at most `count`, and so does every window of
//!   [`from_first_request`](Limit::from_first_request). An interval of length `d`
//!   can touch `ceil(d / period) + 1` windows: up to `2 * count` in one period.
//! - **Sliding log.** Every window `(t - period, t]` admits at most `count`.
//! - **Sliding counter.** A request is admitted if and only if
//!   `floor(previous * (period - elapsed) / period) + current + cost <= count`,
//!   where `previous` and `current` are what the last and this window of the clock
//!   admitted, and `elapsed` is how old this one is. It follows that every window
//!   of the clock admits at most `count`, and for all `s < t`, in microseconds:
//!   `admitted[s, t] <= count + ceil(count * (t - s - 1) / period)`. A burst at the
//!   end of a window and steady pressure after it get `2 * count` into one period.
//!
//! There is no rounding in any comparison, and no float. Refunds, resets and the
//! overflow policies `EvictOldest` and `Allow` are exceptions, on purpose.
//!
//! # Cost
//!
//! A request costs 1 unless it says otherwise. A cost above what the limit could
//! ever admit at once is an error, not a wait. A cost of zero only asks.
//!
//! ```
//! use tidegate::{CheckError, Limit, Limiter, Request};
//!
//! let limiter = Limiter::new(Limit::per_hour(10));
//! assert_eq!(limiter.check(Request::new("alice").cost(8))?.remaining(), Some(2));
//! assert!(!limiter.check(Request::new("alice").cost(3))?.is_allowed());
//! let impossible = limiter.check(Request::new("alice").cost(11));
//! assert!(matches!(impossible, Err(CheckError::Unsatisfiable { cost: 11, capacity: 10, .. })));
//! # Ok::<(), CheckError>(())
//! ```
//!
//! [`peek`](Limiter::peek) asks without charging, [`refund`](Limiter::refund)
//! gives back, [`reset`](Limiter::reset) forgets, and
//! [`report`](Limiter::report) charges what is spent already, even into debt. A refund
//! of the latest charge leaves the state as if it had never been made; a refund of
//! an older one admits that much more than the bounds above say.
//!
//! # When the cost is known only afterwards
//!
//! [`reserve`](Limiter::reserve) charges an estimate, and [`settle`](Reservation::settle)
//! corrects it once to what the request took: what was too much is given back, what was too
//! little may make debt. A request can take several things, by [name](Request::amount), and
//! a limit on [requests in flight](Limit::in_flight) holds a permit until it is settled. A
//! process that dies leaves the estimate charged, which time pays back, and its permits
//! expire.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Amounts, Limit, Limiter, Policy, Request, Rule};
//!
//! let policy = Policy::new()
//!     .rule(Rule::new("tokens", Limit::sliding_log(10_000, Duration::from_secs(60))).unit("tokens"))
//!     .limit("at once", Limit::in_flight(20, Duration::from_secs(60)));
//! let limiter = Limiter::new(policy);
//! if let Some(call) = limiter.reserve(Request::new("alice").amount("tokens", 4_000))?.made() {
//!     let settled = call.settle(Amounts::new().amount("tokens", 1_250))?;
//!     assert!(settled.is_allowed());
//! }
//! assert_eq!(limiter.peek(Request::new("alice").rule("tokens"))?.remaining(), Some(8_750));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several limits at once
//!
//! A request is admitted only if all limits of a [`Policy`] admit it. If one
//! refuses, none is charged. The decision is about the limit that binds: the longest wait if
//! refused, the least remaining if allowed.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Limit, Limiter, Policy};
//!
//! let policy = Policy::new()
//!     .limit("hour", Limit::per_hour(3))
//!     .limit("day", Limit::sliding_log(20, Duration::from_secs(86_400)));
//! let limiter = Limiter::new(policy);
//! let decisions = limiter.check_many(["alice"; 4])?;
//! assert!(!decisions[3].is_allowed() && decisions[3].rule() == "hour");
//! assert_eq!(limiter.store().count_keys(), 2); // the key counts once for each rule
//! # Ok::<(), tidegate::CheckError>(())
//! ```
//!
//! Each rule says which attributes make its key ([`Rule::key`]) and what it counts
//! ([`Rule::unit`]): one limit per user and one per address, or requests and tokens,
//! are rules of one policy, all or nothing as well. See `examples/several_limits.rs`.
//!
//! # Changing limits
//!
//! [`set_policy`](Limiter::set_policy) replaces the limits at once, while checks go on. Used units stay used, rounded
//! against the caller, whichever algorithms the two limits have. A limit that is lowered and raised again forgives nothing.
//!
//! A limit can do more. A [warm-up](Rule::warm_up) lets it climb for new keys. A [priority](Rule::priority) keeps a share
//! of it back from some classes of requests, for more important ones. An [id](Request::id) names a
//! request, so that it is charged once however often it is sent.
//!
//! # Keys
//!
//! Text, bytes, numbers, addresses, or up to four of them in a tuple. Parts are
//! length-prefixed, never joined: `("a:b", "c")` and `("a", "b:c")` are different
//! keys. The same key under two rules, or under one rule with another limit, is
//! two keys. `()` is the one key of a limiter that needs none.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use tidegate::{Limit, Limiter};
//!
//! let limiter = Limiter::new(Limit::per_second(1));
//! assert!(limiter.allow(("alice", "POST /orders")));
//! assert!(limiter.allow(("alice", "GET /orders")));
//! assert!(limiter.allow(Ipv4Addr::new(192, 0, 2, 7)));
//! assert!(limiter.allow(42_u64));
//! assert!(limiter.allow(()));
//! ```
//!
//! # Waiting
//!
//! [`acquire`](Limiter::acquire) blocks until the request is admitted, first come,
//! first served for each key, for at most as long as you say.
//! [`acquire_async`](Limiter::acquire_async) is the same for tasks. A
//! waiter that is dropped or times out has charged nothing and lets the next in
//! line go ahead. It needs no particular runtime: one timer thread for
//! the process starts with the first wait. At most
//! [`DEFAULT_MAX_WAITERS`](Limiter::DEFAULT_MAX_WAITERS) callers wait on one limiter; the next gets an error. Callers of [`check`](Limiter::check) do not
//! queue, and may overtake waiters.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{AcquireError, Limit, Limiter};
//!
//! let timeout = Duration::from_secs(5);
//! let limiter = Limiter::new(Limit::per_second(100).burst(1));
//! for _ in 0..3 {
//!     let admitted = limiter.acquire("alice", timeout)?; // at once, then 10 ms apart
//!     assert!(admitted.is_allowed());
//! }
//!
//! let limiter = Limiter::new(Limit::per_hour(1));
//! assert!(limiter.allow("alice"));
//! let hopeless = limiter.acquire("alice", timeout); // fails at once: an hour is too long
//! assert!(matches!(hopeless, Err(AcquireError::Timeout { .. })));
//! # Ok::<(), AcquireError>(())
//! ```
//!
//! # Clocks
//!
//! A store owns its [`Clock`] and reads it once for each decision.
//!
//! - [`SystemClock`], the default: monotonic, anchored to the wall clock once. An
//!   administrator who sets the time grants no requests.
//! - [`CoarseClock`]: refreshed about every millisecond by a thread of its own,
//!   for the price of a memory read. It is late, never early.
//! - [`ManualClock`]: moves only when told to; for tests and simulations.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Limit, Limiter, ManualClock, MemoryStore};
//!
//! let clock = ManualClock::default();
//! let store = MemoryStore::builder().clock(clock.clone()).build()?;
//! let limiter = Limiter::with_store(Limit::per_minute(1), store)?;
//! assert!(limiter.allow("alice") && !limiter.allow("alice"));
//! clock.advance(Duration::from_secs(60) - Duration::from_micros(1));
//! assert!(!limiter.allow("alice"));
//! clock.advance(Duration::from_micros(1));
//! assert!(limiter.allow("alice"));
//! # Ok::<(), tidegate::ConfigError>(())
//! ```
//!
//! Time is whole microseconds. When a clock goes back, time stands still for every
//! state until it has caught up; for keys that have been forgotten meanwhile, if it
//! went back by no more than an hour. A state so far ahead that only a clock
//! fault explains it becomes a full one, as of now. A fault thus grants nothing,
//! and delays a key by at most the time that it takes to reset, or a second.
//!
//! # The memory store
//!
//! [`MemoryStore`] is made for a number of live keys, 1,000,000 unless set, and
//! never takes more than that many need. It runs no thread and has no pauses to
//! clean up.
//!
//! - **Idle keys.** A key is live until its `reset_after` has passed. From then
//!   on its slot is free, and the next key that needs it writes over it. No
//!   decision changes: a key never seen starts in that same state.
//! - **Bounds.** Buckets and small fixed windows share one table, other buckets,
//!   windows and sliding counters a second, sliding logs and custom algorithms a
//!   third. Each is made when first needed, for
//!   [`max_keys`](MemoryStoreBuilder::max_keys). A key under several rules
//!   counts once for each.
//! - **Overflow.** What happens to a new key when there is no room is
//!   [your choice](Overflow):
//!
//! | [`Overflow`] | a new key without room | what it can cost |
//! |---|---|---|
//! | `Share`, the default | shares one of 1024 states per limit with other such keys | new keys get less than their limit, never more |
//! | `EvictOldest` | takes the slot of the key that would be forgotten soonest | a caller that can invent keys can reset others |
//! | `Refuse` | is refused, [degraded](Decision::is_degraded) | a caller that can invent keys can lock others out |
//! | `Allow` | is admitted without a limit, degraded | a caller that can invent keys is not limited |
//!
//! - **Fingerprints.** A key is known by 64 bits of a hash that is keyed at random
//!   for each store; its text is not kept unless you ask to
//!   [list keys](MemoryStoreBuilder::list_keys). Among `n` live keys any two
//!   are taken for one with a probability below `n * n / 2^65`: one in 37 million
//!   for a million keys. Such a pair shares a limit; nothing else happens.
//!
//! Several limiters can share a store: `Arc<MemoryStore>` is a store too.
//!
//! # Observers
//!
//! An [`Observer`] receives every decision, after it is made and outside every
//! lock. [`CountingObserver`] counts. One that panics misses that event; the
//! caller gets the decision all the same.
//!
//! # Batches
//!
//! [`check_many`](Limiter::check_many) decides many requests, each for itself: it
//! asks for all of their cache lines before it touches the first. With several
//! limits in the policy it saves nothing.
//!
//! # Algorithms of your own
//!
//! Implement [`Kernel`](kernel::Kernel), a pure function of state, time and cost, and put it
//! into a policy with [`Meter::custom`](store::Meter::custom). It runs on every store beside the
//! built-in ones, in the same all-or-nothing check. In `examples/custom_kernel.rs` each
//! attempt doubles the wait.
//!
//! # Snapshot and restore
//!
//! [`MemoryStore::snapshot`] writes every live state while checks go on;
//! [`restore`](MemoryStoreBuilder::restore) builds a store from it. Keys are
//! not in it, but the seed of their fingerprints is: keep it as you keep the rest
//! of the server's data. Damaged bytes are refused whole. States that keys share
//! for lack of room are left out.
//!
//! ```
//! use tidegate::{Limit, Limiter, MemoryStore};
//!
//! let limit = Limit::per_hour(1);
//! let before = Limiter::new(limit);
//! assert!(before.allow("alice"));
//! let mut bytes = Vec::new();
//! before.store().snapshot(&mut bytes)?;
//!
//! let after = Limiter::with_store(limit, MemoryStore::builder().restore(&*bytes)?)?;
//! assert!(!after.allow("alice") && after.allow("bob"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Resolution
//!
//! Every number in a decision stays below 2^53. Where `count`, `burst` and
//! `period` would not allow that, the limit sees time in coarser steps: 10, 100, ..
//! microseconds, always rounded against the caller. Only buckets and the sliding
//! counter ever need it, and [`Limit::resolution`] tells. A million per day that
//! is not round is seen in steps of 10 microseconds:
//!
//! ```
//! use std::time::Duration;
//! use tidegate::Limit;
//!
//! assert_eq!(Limit::per_second(1_000_000).resolution(), Duration::from_micros(1));
//! assert_eq!(Limit::per_day(999_983).resolution(), Duration::from_micros(10));
//! ```
//!
//! Counts go up to 10^12, periods up to ten years, and a bucket must refill
//! within 71 years. Anything else is refused when the limit is made.
//!
//! # Promises
//!
//! Each is a test, and part of the suite that every store has to pass. `PROMISES.md` in the
//! repository has all of them, with their exceptions; the numbers are its numbers.
//!
//! - P1, P2: the bounds above hold exactly, for every interval and every window.
//! - P3: a caller alone on its key that returns at `now + retry_after` is admitted; a
//!   microsecond earlier it is refused.
//! - P4: a cost above the capacity is an error, never a wait.
//! - P6, P7: a refused check changes nothing. A check of several limits charges all of
//!   them or none.
//! - P11: time going back grants nothing. A state from the future heals.
//! - P13: to forget a key whose `reset_after` has passed changes no decision.
//! - P17: different keys never collide, up to the 64 bits of their fingerprints in
//!   the memory store.
//!
//! Not promised: fairness between callers of `check`; exactness across several
//! processes, each of which counts for itself; memory of what was admitted before
//! a crash, unless you restore a snapshot.

mod algorithm;
mod blocking;
#[cfg_attr(not(feature = "calendar"), path = "no_calendar.rs")]
mod calendar;
mod decision;
mod error;
pub mod explain;
mod fnv;
pub mod kernel;
pub mod layer;
mod limit;
mod limiter;
mod name;
mod observe;
mod policy;
mod request;
pub mod store;
mod sync;
mod time;
mod warm_up;

pub use algorithm::Algorithm;
#[cfg(feature = "calendar")]
pub use calendar::{Calendar, CalendarUnit, Weekday};
pub use decision::{Balance, Decision};
pub use error::ConfigError;
pub use limit::Limit;
pub use limiter::{AcquireError, LimitOf, Limiter, LimiterBuilder, Reservation, ReserveOutcome};
pub use name::Name;
pub use observe::{CountingObserver, Event, Observer, ReservationEvent, ReservationStep, ThresholdEvent};
pub use policy::{
    Condition, Explanation, Floor, KeyAttribute, Missing, Network, Policy, PriorityClasses, Rule, Setting,
};
pub use request::{Amounts, Key, KeyPart, OwnedRequest, Request};
pub use store::memory::{MemoryStore, MemoryStoreBuilder, Overflow};
pub use store::{CheckError, FailureMode};
pub use time::{Clock, CoarseClock, ManualClock, Micros, SystemClock};
pub use warm_up::WarmUp;

/// The code in the project's documents compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/book/src/concepts/algorithms.md")]
#[doc = include_str!("../../../docs/book/src/migrate/governor.md")]
#[doc = include_str!("../../../docs/book/src/recipes/batch.md")]
#[doc = include_str!("../../../docs/book/src/recipes/testing.md")]
#[doc = include_str!("../../../docs/book/src/recipes/webhooks.md")]
#[doc = include_str!("../../../docs/book/src/reference/notify.md")]
#[doc = include_str!("../../../docs/book/src/start/library.md")]
#[doc = include_str!("../../../CONTRIBUTING.md")]
struct Documents;
