//! Stores over stores: each wraps a store, is one, and does one thing more.

mod fallback;

pub use fallback::{DEFAULT_LOCAL_KEYS, Fallback};
