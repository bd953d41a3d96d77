//! The binary in the place of other services: started as they are, and asked by their clients.
//!
//! `cargo xtask install` gets the clients.

mod envoy_ratelimit;
mod limitador;
mod running;
