//! The tests of the library from outside, one module for each file.
//!
//! They are one program, since each program compiles the limiter and links once
//! more: `cargo test -p tidegate --test all waiting::` runs those of one file. Tests
//! that look at the memory of their process are programs of their own, and so are those
//! that Miri runs.

mod attributes;
mod batches;
mod calendar_edges;
mod change;
mod check_all;
mod conformance;
mod differential;
mod documents;
mod explain;
mod floors;
mod former;
mod history;
mod ids;
mod keys;
mod log_entries;
mod matching;
mod memory_store;
mod observers;
mod overfull;
mod overtaken;
mod places;
mod policy;
mod promises;
mod reserve;
mod retry_exactness;
mod settled_after_change;
mod shadows;
mod thresholds;
mod traces;
mod waiting;
mod words;
