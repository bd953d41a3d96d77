//! tidegate.
mod decision;
mod fnv;
pub mod kernel;
mod limit;
mod limiter;
mod name;
mod observe;
mod policy;
mod request;
pub mod store;
mod sync;
mod time;

pub use decision::Decision;
pub use limit::{AlgorithmKind, ConfigError, Limit};
pub use limiter::{AcquireError, Builder, Limiter};
pub use name::Name;
pub use observe::{CountingObserver, Event, Observer};
pub use policy::Policy;
pub use request::{Key, KeyPart, Request};
pub use store::memory::{MemoryStore, Overflow};
pub use store::{Check, CheckError, ImmediateStore, Meter, Store, StoreError};
pub use time::{Clock, CoarseClock, ManualClock, Micros, SystemClock};
