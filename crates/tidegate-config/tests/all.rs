//! The tests of policy files, one module for each file of tests.
//!
//! They are one program, since each program links once more:
//! `cargo test -p tidegate-config --test all schema::` runs those of one file. `watch` changes the
//! directory of its process, and is a program of its own.

mod chaos;
mod envoy;
mod envoy_limiter;
mod envoy_quotas;
mod errors;
mod formats;
mod includes;
mod limitador;
mod schema;
mod settings;
mod validation;
