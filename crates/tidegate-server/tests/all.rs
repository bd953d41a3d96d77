//! The server from outside, by every wire; and its parts beside real peers.
//!
//! One program, since each one links the server once more: `cargo test -p tidegate-server --test all resp::` runs the
//! tests of one folder. `dropin`, `envoy` and `proxies` start real peers, `server::dashboard` a browser.

#![allow(clippy::unwrap_used)]

mod dropin;
mod envoy;
#[cfg(feature = "otlp")]
mod otlp;
mod proxies;
mod resp;
mod rls;
mod server;
mod support;
