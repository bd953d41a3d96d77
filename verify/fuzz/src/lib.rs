//! What fuzzers ask of tidegate: one function for each target.
//!
//! Each takes any bytes and panics if a promise is broken, and each promises
//! more than not to panic. They are ordinary functions, so that libFuzzer
//! (`fuzzer/`, `cargo xtask verify fuzz`) and an ordinary test (`tests/replay.rs`, in
//! `cargo xtask ci`) ask the same.
//!
//! To add a target: a function here, a name in [`TARGETS`], a line in
//! `fuzzer/fuzz_targets/`, an entry in `fuzzer/Cargo.toml`, a few seeds in
//! `seeds/`.

mod config;
mod forwarded;
mod http_json;
mod log;
mod resp;
mod rls;
mod serving;
mod snapshot;
mod trace;
mod words;

pub use config::{envoy_yaml, policy_toml, policy_yaml};
pub use forwarded::forwarded;
pub use http_json::http_json;
pub use log::access_log;
pub use resp::resp;
pub use rls::rls;
pub use snapshot::snapshot;
pub use trace::trace;
pub use words::limit_words;

/// A target's name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("access_log", access_log),
    ("envoy_yaml", envoy_yaml),
    ("forwarded", forwarded),
    ("http_json", http_json),
    ("limit_words", limit_words),
    ("policy_toml", policy_toml),
    ("policy_yaml", policy_yaml),
    ("resp", resp),
    ("rls", rls),
    ("snapshot", snapshot),
    ("trace", trace),
];
