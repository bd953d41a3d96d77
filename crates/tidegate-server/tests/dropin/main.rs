//! The binary in the place of other services: started as they are, and asked by their clients.
//!
//! `cargo xtask programs` gets the clients.

#![allow(clippy::unwrap_used)]

mod envoy_ratelimit;
mod limitador;
mod running;
